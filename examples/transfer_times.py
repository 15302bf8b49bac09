"""Forecast how long transfers of several sizes take, for several initial windows.

Run it from the repository: python examples/transfer_times.py
"""

import pathcast

path = pathcast.Path.parse("rate = '50 Mbit/s'\ndelay = '30 ms'\nqueue = '1 BDP'\nloss = 0.0005\n")
sizes = [15_000, 100_000, 1_000_000, 10_000_000]
print("median time in ms, and what 95 % of the transfers stay below")
print("initial window" + "".join(f"{size / 1000:>14g} kB" for size in sizes))
for window in (4, 10, 32):
    forecasts = pathcast.latency(path, sizes, initial_window=window, handshake_round_trips=2)
    cells = (f"{one.median_s * 1e3:7.0f} < {one.quantiles_s[-1] * 1e3:6.0f} " for one in forecasts)
    print(f"{window:>14}" + "".join(cells))
