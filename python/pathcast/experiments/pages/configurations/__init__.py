"""Which configuration of a server loads pages soonest: brute force over a grid, and what learners keep of it.

```text
simulated   loads in the simulator and by formulas, and their cases
emulated    loads in Chromium from nginx whose knobs change between loads, and their cases
cheap       what ranks before true loads: formulas, simulated loads
truth       loads of cells and configurations, from the store or made now: what learners and judges ask
evaluation  what the grid says: gains, templates, held-out conditions, halving, bandits
report      results.json, tables and the page with the seed's figures 3, 4 and 5
```
"""
