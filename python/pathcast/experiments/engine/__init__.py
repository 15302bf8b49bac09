"""What every experiment stands on.

```text
case     what is run: its name, length, fingerprint; one attempt in a world
store    a folder that keeps what was run, locked, with fingerprints and checksums
runner   runs what a store lacks: threads or a cluster, again while not valid; what is left, resumed later
claim    what an experiment must show, and whether it does
page     results.json, tables/, figures/ and report.html
world    where things run
```
"""
