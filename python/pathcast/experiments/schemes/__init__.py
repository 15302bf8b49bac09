"""The benchmark of schemes: many implementations over many paths, in many workloads.

```text
plan       plan.toml: schemes, paths, workloads; refuses unknown names before anything runs
workloads  which flows a workload has
cases      one run: a scheme, on a path, in a workload
simulated  a run in the simulator
emulated   a run of real implementations behind an emulated path
measures   what is measured of a flow, and of a run
summary    means with confidence intervals, significant differences
compare    the ranking of one folder against another's: Kendall's tau
tables     figures    report     results.json, pictures, page
pantheon   the findings of the Pantheon paper: what is run, and what must show
timer      a systemd timer and a cron line that repeat a benchmark
```
"""
