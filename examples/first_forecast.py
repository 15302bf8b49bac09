"""Simulate a flow, learn its loss curve, and compare forecasts with what happened.

Run it from the repository: python examples/first_forecast.py
"""

import pathcast

path = pathcast.Path.parse("rate = '20 Mbit/s'\ndelay = '25 ms'\nqueue = '1 BDP'\nloss = 0.001\n")
report, trace = pathcast.simulate(path, ["cubic"], duration_s=120, seed=1)
print(f"goodput {report.flows[0].goodput_bps / 1e6:.2f} Mbit/s")

fitted = pathcast.fit(trace)
print(f"{fitted.flows[0].losses} losses, round-trip time {fitted.flows[0].rtt_s * 1e3:.1f} ms")

# each second, every model forecasts the next 1, 5 and 10 s from what it has seen until then
for score in pathcast.evaluate(trace, [1, 5, 10]).horizons:
    errors = {name: error for name, error in score.median_error_pct.items() if error is not None}
    best = min(errors, key=errors.__getitem__)
    print(
        f"next {score.horizon_s:>2g} s: median error of Pathcast {errors['pathcast']:5.1f} %, "
        f"of the best model ({best}) {errors[best]:5.1f} %; the 90 % band held {score.coverage90:.0%}"
    )
