// What scrolls in its own place can be scrolled by keys.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("pre, .table-wrapper")) place.tabIndex = 0;
});
