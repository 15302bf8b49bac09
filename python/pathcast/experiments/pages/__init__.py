"""Page loads in a real browser from real servers through the emulator, beside forecasts.

```text
replica    a page as static files that a server can serve, with its graph kept
browser    headless Chromium by the DevTools protocol
server     nginx, and Caddy, behind an emulated path
caddy      Caddy's part: HTTP/3, and HTTP/2 beside it
apart      work in a network namespace of its own
inside     what starts and ends servers inside the path
benchmark  cells, loads, what is kept; forecasts beside them
```
"""
