"""How fast pages are loaded: by the simulator on one core, and by the model.

    .venv/bin/python benches/page_loads.py PAGE.har

The page is taken as its replica, over 20 Mbit/s and 50 ms, without losses and with 1 %. Prints processor seconds of 200
loads by each protocol, and microseconds of a load by the model; and how the two agree.
"""

import argparse
import time

import pathcast

LOADS = 200
PATH = """
rate = '20 Mbit/s'
delay = '25 ms'
queue = '500 kB'
loss = {loss}
[reverse]
loss = 0.0
"""


def timed(page, path, scheme, engine):
    began = time.process_time()
    found = pathcast.predict_page(page, path, scheme=scheme, engine=engine, loads=LOADS, threads=1)
    return found, time.process_time() - began


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pages", nargs="+")
    for file in options.parse_args().pages:
        page = pathcast.Page.load(file).as_replica()
        print(f"{page.name}: {len(page.resources)} resources, {page.body_bytes / 1e6:.2f} MB")
        for scheme in ("cubic", "bbr"):
            for loss in (0.0, 0.01):
                path = pathcast.Path.parse(PATH.format(loss=loss))
                packets, simulated_s = timed(page, path, scheme, "simulator")
                model, modelled_s = timed(page, path, scheme, "model")
                times = ", ".join(
                    f"{name} {one.plt_ms:.0f} ms, model {model.loads[name].plt_ms / one.plt_ms - 1:+.0%}"
                    for name, one in packets.loads.items()
                )
                each_us = 1e6 * modelled_s / LOADS / len(packets.loads)
                print(
                    f"  {scheme}, loss {loss:g}: {LOADS} loads by each {simulated_s:.2f} s, by the model {each_us:.0f} us "
                    f"a load; {times}; choice {packets.choice}, model {model.choice}"
                )


if __name__ == "__main__":
    main()
