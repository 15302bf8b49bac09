"""ECON's sections 6.3 and 6.4 again: where HTTP/1.1 is sooner than HTTP/2, what a wrong choice costs, and how long a choice takes.

    .venv/bin/python benches/econ_pages.py [--loads N] [PAGE.har ...]

First the 16 scenarios of figure 11: 10 or 500 objects of 10 kB or 1 MB that a document of 1 kB names, RTTs of 50 and 200 ms,
losses of 1e-5 and 1e-4, 100 Mbit/s, CUBIC. The paper has its predictions beside measurements of others in words: HTTP/2 is
sooner but for large objects, high RTTs and high loss; a wrong choice costs up to 4.6 times the time, 264 % on average.

Then, for each page, Table 4: losses of 1e-5 to 1e-2, RTT 50 ms, 20 Mbit/s. The paper's model chose right in 10, 8, 8 and 8 of
10 pages, against loads in Chromium. Here the model's choice is set beside that of the simulator; `pathcast benchmark pages`
measures. Last, section 6.4.4: the processor time of one choice as a part of the load time (paper: 0.8 %).
"""

import argparse
import itertools
import time

import pathcast

TCP = ("http/1.1", "h2")
#: Draws of the losses by which the model makes one choice.
DRAWS = 9
PATH = "rate = '{rate}'\ndelay = '{delay_ms:g} ms'\nqueue = '500 kB'\nloss = {loss}\n[reverse]\nloss = 0.0\n"


def objects(count, size):
    images = "".join(
        f"[[resources]]\nurl = 'https://a.org/{number}'\ntype = 'image'\nsize = '{size} B'\n"
        for number in range(count)
    )
    return pathcast.Page.parse(f"[[resources]]\nurl = 'https://a.org/'\nsize = '1 kB'\n{images}")


def path(rate, rtt_s, loss):
    return pathcast.Path.parse(PATH.format(rate=rate, delay_ms=500 * rtt_s, loss=loss))


def times(found):
    return {name: one.plt_ms for name, one in found.loads.items()}


def choice(found):
    return found.choice if found.confidence > 0.8 else f"({found.choice})"


def scenarios(loads):
    """Figure 11 (a)."""
    print("| objects | RTT, ms | loss | HTTP/1.1, s | HTTP/2, s | choice | model | wrong costs |")
    print("|---|---|---|---|---|---|---|---|")
    costs, agree = [], 0
    for count, size, rtt_s, loss in itertools.product(
        (10, 500), (10_000, 1_000_000), (0.05, 0.2), (1e-5, 1e-4)
    ):
        page, over = objects(count, size), path("100 Mbit/s", rtt_s, loss)
        found = pathcast.predict_page(page, over, protocols=TCP, loads=loads)
        model = pathcast.predict_page(page, over, protocols=TCP, loads=loads, engine="model")
        took = times(found)
        costs.append(max(took.values()) / min(took.values()) - 1)
        agree += found.choice == model.choice
        print(
            f"| {count} of {size / 1e3:g} kB | {1e3 * rtt_s:g} | {loss:g} | {took['http/1.1'] / 1e3:.2f} | "
            f"{took['h2'] / 1e3:.2f} | {choice(found)} | {choice(model)} | {costs[-1]:.0%} |"
        )
    mean = sum(costs) / len(costs)
    print(f"\nA wrong choice costs {mean:.0%} on average, {max(costs):.0%} at most.")
    print(f"The model chooses as the simulator in {agree} of {len(costs)}.\n")


def table_4(pages, loads):
    print("| loss | choices of the model that the simulator makes | gain over the wrong choice |")
    print("|---|---|---|")
    shares = []
    for loss in (1e-5, 1e-4, 1e-3, 1e-2):
        over, right, gains = path("20 Mbit/s", 0.05, loss), 0, []
        for page in pages:
            found = pathcast.predict_page(page, over, protocols=TCP, loads=loads)
            began = time.process_time()
            model = pathcast.predict_page(page, over, protocols=TCP, loads=DRAWS, engine="model")
            shares.append(1e3 * (time.process_time() - began) / found.loads[found.choice].plt_ms)
            right += found.choice == model.choice
            took = times(found)
            gains.append(1 - min(took.values()) / max(took.values()))
        print(f"| {loss:g} | {right} of {len(pages)} | {sum(gains) / len(gains):.1%} |")
    print(
        f"\nA choice by the model ({DRAWS} draws by each protocol) takes {sum(shares) / len(shares):.2%} of the load time in "
        f"processor time, {max(shares):.2%} at most."
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pages", nargs="*")
    options.add_argument("--loads", type=int, default=30)
    given = options.parse_args()
    scenarios(given.loads)
    if given.pages:
        table_4([pathcast.Page.load(file).as_replica() for file in given.pages], given.loads)


if __name__ == "__main__":
    main()
