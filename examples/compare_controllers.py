"""Compare congestion controls on paths that differ in loss, on all cores.

Run it from the repository: python examples/compare_controllers.py
"""

from pathcast import Path, Simulation, simulate_many

SCHEMES = ("cubic", "reno", "bbr", "copa")
LOSSES = (0.0, 0.001, 0.01)
SEEDS = range(1, 6)

path = Path.parse("rate = '50 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n")
runs = [
    Simulation(path.replace(loss=loss), (scheme,), 20.0, seed)
    for loss in LOSSES
    for scheme in SCHEMES
    for seed in SEEDS
]
results = simulate_many(runs)
shape = (len(LOSSES), len(SCHEMES), len(SEEDS))
goodput_mbps = results.column("goodput_bps").reshape(shape).mean(axis=2) / 1e6
delay_ms = results.column("one_way_delay_p95_ms").reshape(shape).mean(axis=2)

print("goodput in Mbit/s, one-way delay (95 %) in ms; means over 5 seeds")
print("loss     " + "".join(f"{scheme:>16}" for scheme in SCHEMES))
for i, loss in enumerate(LOSSES):
    cells = (f"{goodput_mbps[i, j]:8.1f} {delay_ms[i, j]:6.1f} " for j in range(len(SCHEMES)))
    print(f"{loss:<9g}" + "".join(cells))
