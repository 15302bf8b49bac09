"""Read a packet capture, and forecast the flow in it.

Run it from the repository: python examples/read_a_capture.py [CAPTURE]
"""

import sys

import pathcast

file = sys.argv[1] if len(sys.argv) > 1 else "tests/data/flow.pcap"
trace = pathcast.read_trace(file)
flow = trace.flow(0)
print(f"{file}: {len(trace)} records, {flow.time_s[-1]:.1f} s, source {trace.metadata['source']}")

# a capture does not name the congestion control: it is guessed from the window
fitted = pathcast.fit(trace)
scheme = fitted.flows[0].cc
forecaster = pathcast.Forecaster(scheme, horizons_s=[1.0, 5.0])
forecaster.observe(flow)
for horizon_s in (1.0, 5.0):
    forecast = forecaster.forecast(float(flow.time_s[-1]), horizon_s)
    low, high = forecast.quantiles[0], forecast.quantiles[-1]
    print(
        f"next {horizon_s:g} s ({scheme}): {forecast.point:.1f} {forecast.quantity}, "
        f"{low:.1f} to {high:.1f} in nine cases of ten"
    )
