"""Which configuration of a server loads pages soonest, by network condition.

```text
grid      configurations, conditions, cells (a page under a condition)
outcomes  load times of configurations in cells; regret and gain with their intervals
halving   successive halving: cheap loads rank, true loads decide
trees     decision trees trained on regret, down to N templates; the ceiling and the trivial choices
crossed   conditions held out
bandits   learning online with logged propensities, and off-policy evaluation
model     the Model JSON that the manager places prefixes by
```
"""
