"""Page loads in a real browser from a real server through the emulator, beside forecasts.

```text
replica    a page as static files that a server can serve, with its graph kept
browser    headless Chromium by the DevTools protocol
server     nginx behind an emulated path
benchmark  cells, loads, what is kept; forecasts beside them
```
"""
