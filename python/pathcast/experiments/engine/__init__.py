"""What every experiment stands on.

```text
case     what is run: its name, length, fingerprint; one attempt by a backend
store    a folder that keeps what was run, locked, with fingerprints and checksums
runner   runs what a store lacks, by threads or a cluster; repeats invalid runs, continues later
claim    what an experiment must show, and whether it does
page     results.json, tables/, figures/ and report.html
world    the backends
```
"""
