"""Take a scenario, change it key by key, and see what cross traffic does to web requests.

Run it from the repository: python examples/change_a_scenario.py
"""

import pathcast

scenario = pathcast.Scenario.parse("""
[links.access]
rate = "20 Mbit/s"
delay = "15 ms"
queue = "2 BDP"

[[flows]]
scheme = "cubic"
workload = { kind = "request-response", response = { kind = "pareto", mean = "60 kB", index = 1.2 }, think = "0.2 s" }
""")

for bulk in (0, 1, 4):
    busy = scenario
    for _ in range(bulk):
        busy = busy.with_flow(scheme="cubic", start="2 s")
    for queue in ({"kind": "droptail"}, {"kind": "fq-codel"}):
        report, _ = pathcast.simulate(busy.replace_link("access", queue=queue), duration_s=60)
        latency_ms = report.flows[0].messages.latency_ms
        print(
            f"{bulk} bulk flows, {queue['kind']:>8}: a request takes {latency_ms['p50']:6.0f} ms in the median, "
            f"{latency_ms['p95']:6.0f} ms at most in 95 %"
        )
