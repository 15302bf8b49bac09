"""Page loads in both worlds: medians of the simulator beside those of the emulator, which needs root.

    .venv/bin/python benches/page_worlds.py PAGE.har...

Each page is taken as its replica, over 20 Mbit/s and 50 ms with a queue of 500 kB, by both protocols, with CUBIC and
BBR, without losses and with 1 % of the packets to the browser. Loads of both worlds have the same seeds, and so lose the
same packets until the worlds differ. Prints rows of a table in Markdown.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import pathcast

SCENARIO = """
duration = '60 s'
[links.l]
rate = '20 Mbit/s'
delay = '25 ms'
queue = '500 kB'
loss = {loss}
[links.l.reverse]
loss = 0.0
[[flows]]
scheme = '{scheme}'
workload = {{ kind = 'page', page = 'page.toml', protocol = '{protocol}' }}
"""
#: Runs of the emulator with one seed until one is valid.
ATTEMPTS = 8


def emulated_ms(scenario, seed):
    """The time of a load in the first valid run."""
    for _ in range(ATTEMPTS):
        report, _ = pathcast.emulate(scenario, seed=seed)
        if report.valid:
            return report.pages[0].load_ms
    raise SystemExit(f"{ATTEMPTS} runs in a row were invalid: {'; '.join(report.invalid_because)}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pages", nargs="+")
    options.add_argument("--loads", type=int, default=10)
    asked = options.parse_args()
    print(
        "| page | scheme | loss | HTTP/1.1 emulated | simulated | error | HTTP/2 emulated | simulated | error |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for file in asked.pages:
        page = pathcast.Page.load(file).as_replica()
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "page.toml").write_text(page.to_toml())
            for scheme in ("cubic", "bbr"):
                for loss in (0.0, 0.01):
                    row = [Path(file).name.split(".")[0], scheme.upper(), f"{loss:.0%}"]
                    for protocol in ("http/1.1", "h2"):
                        text = SCENARIO.format(loss=loss, scheme=scheme, protocol=protocol)
                        Path(folder, "scenario.toml").write_text(text)
                        scenario = pathcast.Scenario.load(Path(folder, "scenario.toml"))
                        # without losses all loads are alike
                        seeds = range(1, 1 + (asked.loads if loss else 3))
                        emulated = statistics.median(emulated_ms(scenario, seed) for seed in seeds)
                        simulated = statistics.median(
                            pathcast.simulate(scenario, seed=seed, record=False)[0].pages[0].load_ms
                            for seed in seeds
                        )
                        row += [
                            f"{emulated:.0f}",
                            f"{simulated:.0f}",
                            f"{simulated / emulated - 1:+.0%}",
                        ]
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
