"""Forecasts of flows that have just begun: what the network of `crates/forecast/src/cold_start` is made with.

usage: .venv/bin/python benches/cold_start.py draw FILE.npz [--siblings] [--flows 8000] [--seed 1] [--workers 2]
       .venv/bin/python benches/cold_start.py train FILE.npz [-o crates/forecast/src/cold_start/weights.bin] [--epochs 80]
             [--restarts 1]
       .venv/bin/python benches/cold_start.py measure [--siblings] [--flows 400] [--seed 7000] [--workers 2]

`draw` simulates flows over paths drawn at random and keeps, at random moments and horizons, the numbers that the forecaster
sees and the rate that followed. `train` fits the network to them: quantiles by pinball loss, Adam, the flows of every
tenth path for choosing when to stop, and which of --restarts random beginnings to keep. Build again afterwards, for the
weights are compiled in. `measure` forecasts flows of other seeds at fixed moments, beside what the window and the last
second say. With --siblings each flow has one to four earlier flows over the same path, before it or beside it; of every
twentieth flow they crossed another path.
"""

import argparse
import dataclasses
import functools
import itertools
import math
import multiprocessing
from pathlib import Path

import numpy as np
from rich.progress import track

import pathcast

WEIGHTS = Path("crates/forecast/src/cold_start/weights.bin")
UNITS = 48
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95], dtype=np.float32)
#: Numbers that the network reads, by whether there are siblings.
FEATURES = {False: 21, True: 31}
#: Of every so many paths one is kept for choosing when to stop.
KEPT_OF = 10
SCHEMES = ("cubic", "cubic", "reno", "bbr")
RUN_S = 95
#: With siblings: when the flow begins that is forecast, and for how long it runs, seconds.
BEGINS_S = (4, 45)
AFTER_S = 52
#: The part of flows whose siblings came one after another before it; those of the others may be beside it.
IN_TURN = 0.6
#: Of so many flows, one has siblings of another path.
STRANGERS = 20
#: Moments of `measure`, seconds after the first record, and its horizons.
MOMENTS_S = (0.5, 1, 2, 3, 5, 8, 12, 20, 30)
HORIZONS_S = (1.0, 5.0, 10.0, 30.0)


def drawn_between(generator, low, high):
    """Drawn evenly in logarithms."""
    return math.exp(generator.uniform(math.log(low), math.log(high)))


def with_siblings(generator, text):
    """The same scenario with flows that begin before its first one; they are the last. How many there are, too."""
    begins_s = generator.uniform(*BEGINS_S)
    head, first, *others = text.split("[[flows]]\n")
    first = "\n".join(line for line in first.split("\n") if not line.startswith("start"))
    head = head.replace(f"duration = '{RUN_S} s'", f"duration = '{begins_s + AFTER_S:.3f} s'")
    count = int(generator.integers(1, 5))
    times_s = []
    if generator.random() < IN_TURN:
        stop_s = begins_s
        for _ in range(count):
            stop_s -= drawn_between(generator, 0.1, 10)
            start_s = max(stop_s - drawn_between(generator, 0.7, 40), 0.0)
            if stop_s - start_s > 0.5:
                times_s.append((start_s, stop_s))
            stop_s = start_s
    else:
        for start_s in generator.uniform(0, begins_s - 1, size=count):
            times_s.append((start_s, start_s + drawn_between(generator, 0.7, 40)))
    flows = [f"start = '{begins_s:.3f} s'\n{first}", *others]
    for start_s, stop_s in sorted(times_s):
        own = first
        if generator.random() < 0.2:
            own = f"scheme = '{SCHEMES[generator.integers(len(SCHEMES))]}'\n"
        flows.append(f"start = '{start_s:.3f} s'\nstop = '{stop_s:.3f} s'\n{own}")
    return head + "".join(f"[[flows]]\n{flow}" for flow in flows), len(times_s)


def drawn(generator):
    """A scenario: its first flow is forecast. Paths of 0.5 to 300 Mbit/s and 8 to 300 ms, steady or not, alone or not."""

    between = functools.partial(drawn_between, generator)
    rate, rtt = between(0.5e6, 300e6), between(0.008, 0.3)
    queue = max(between(0.2, 6) * rtt * rate / 8, 6000)
    loss = 0.0 if generator.random() < 0.4 else between(1e-5, 2e-2)
    kinds = {
        "constant": f"'{rate:.0f} bit/s'",
        "poisson": f"{{ kind = 'poisson', rate = '{rate:.0f} bit/s' }}",
        "wandering": f"{{ kind = 'wandering', rate = '{rate:.0f} bit/s', spread = {generator.uniform(0.05, 0.6):.3f}, "
        f"correlation = '{between(0.3, 20):.3f} s' }}",
    }
    kind = generator.choice(list(kinds), p=[0.6, 0.15, 0.25])
    delay = f"'{rtt / 2 * 1e9:.0f} ns'"
    if generator.random() < 0.5:
        delay = (
            f"{{ kind = 'jitter', base = {delay}, jitter = '{between(2e-5, 2e-3) * 1e9:.0f} ns', "
            "distribution = 'exponential' }"
        )
    text = (
        f"duration = '{RUN_S} s'\n[links.l]\nrate = {kinds[kind]}\ndelay = {delay}\n"
        f"queue = '{queue:.0f} B'\nloss = {loss:.8f}\n"
    )
    if generator.random() < 0.1:
        burst = between(15e3, 500e3)
        text += f"policer = {{ rate = '{rate * generator.uniform(0.2, 0.9):.0f} bit/s', burst = '{burst:.0f} B' }}\n"
    scheme = SCHEMES[generator.integers(len(SCHEMES))]
    begins_s = 0.0 if generator.random() < 0.5 else generator.uniform(0, 15)
    text += f"[[flows]]\nscheme = '{scheme}'\nstart = '{begins_s:.3f} s'\n"
    limit = generator.random()
    if limit < 0.1:
        window = max(between(0.05, 1) * rtt * rate / 8, 10_000)
        text += f"receive_window = '{window:.0f} B'\n"
    elif limit < 0.2:
        rate_bps = between(0.05, 0.9) * rate
        text += (
            f"workload = {{ kind = 'constant-rate', rate = '{rate_bps:.0f} bit/s', "
            f"portion = '{max(rate_bps / 8 * between(0.01, 1), 200):.0f} B' }}\n"
        )
    if generator.random() < 0.4:
        for _ in range(generator.integers(1, 6)):
            other = SCHEMES[generator.integers(len(SCHEMES))]
            start_s = generator.uniform(0, 20) if generator.random() < 0.8 else RUN_S / 2
            text += f"[[flows]]\nscheme = '{other}'\nstart = '{start_s:.3f} s'\n"
    return scheme, text


def simulated(number, seed, siblings=False):
    """Flow `number` of `seed`: its scheme, its records, its siblings' forecasters, and the generator that drew it."""
    generator = np.random.default_rng([seed, number])
    scheme, text = drawn(generator)
    count = 0
    if siblings:
        text, count = with_siblings(generator, text)
    scenario = pathcast.Scenario.parse(text)
    _, trace = pathcast.simulate(scenario, seed=number)
    flows = sorted(trace.flows)[-count:] if count else []
    scale = drawn_between(generator, 0.1, 10) if generator.random() < 1 / STRANGERS else 1.0
    series = trace.flow(0)
    others = [
        earlier(scenario.schemes[flow], trace.flow(flow), series, scale)
        for flow in flows
        if flow in trace.flows
    ]
    return scheme, series, [other for other in others if other], generator


def earlier(scheme, series, than, scale):
    """A forecaster that has seen a flow up to the first record of another, as over a path so many times as fast."""
    seen = int(np.searchsorted(series.time_s, than.time_s[0], side="left"))
    if not seen or series.snd_nxt_packets is None:
        return None
    forecaster = pathcast.Forecaster(scheme, [1.0], on_break="restart")
    known = part(series, 0, seen)
    forecaster.observe(dataclasses.replace(known, snd_nxt_packets=scale * known.snd_nxt_packets))
    return forecaster


def part(series, begin, end):
    """Records `begin` to `end` of a flow."""
    columns = (
        series.time_s,
        series.cwnd_packets,
        series.snd_nxt_packets,
        series.srtt_s,
        series.retransmits,
    )
    return pathcast.FlowSeries(
        *(None if column is None else column[begin:end] for column in columns)
    )


def sent(series, time_s):
    """Packets sent by a moment."""
    at = np.searchsorted(series.time_s, time_s, side="right")
    return float(series.snd_nxt_packets[max(at - 1, 0)])


def walked(forecaster, series, first, ages_s):
    """Shows the forecaster a flow from record `first` on; at each age, its moment and how many records there were."""
    done = first
    for age_s in ages_s:
        now_s = series.time_s[first] + age_s
        upto = int(np.searchsorted(series.time_s, now_s, side="right"))
        if upto > done:
            forecaster.observe(part(series, done, upto))
            done = upto
        yield age_s, now_s, upto


def rows_of(arguments):
    """Numbers, truths in ln over the present rate, of one flow at random moments and horizons."""
    number, seed, siblings = arguments
    scheme, series, others, generator = simulated(number, seed, siblings)
    if series.snd_nxt_packets is None or len(series) < 10 or (siblings and not others):
        return np.empty((0, 0), dtype=np.float32)
    # some flows are seen from their middle on
    begin_s, middle_s = (series.time_s[0], (5, 20)) if siblings else (0.0, (20, 40))
    first = (
        0
        if generator.random() < 0.8
        else int(np.searchsorted(series.time_s, begin_s + generator.uniform(*middle_s)))
    )
    if first >= len(series) - 10:
        return np.empty((0, 0), dtype=np.float32)
    end_s = series.time_s[-1]
    ages_s = np.sort(np.exp(generator.uniform(math.log(0.2), math.log(40), size=14)))
    forecaster = pathcast.Forecaster(scheme, [1.0], siblings=others)
    rows = []
    for _, now_s, _ in walked(forecaster, series, first, ages_s):
        for horizon_s in np.exp(generator.uniform(math.log(0.5), math.log(60), size=3)):
            if now_s + horizon_s > end_s:
                continue
            seen = forecaster._inner.cold_start(now_s, float(horizon_s))
            packets = sent(series, now_s + horizon_s) - sent(series, now_s)
            if seen is None:
                continue
            reference, numbers = seen
            if siblings and len(numbers) != FEATURES[True]:
                continue
            # what sends nothing counts as a packet in a tenth of a second
            truth = math.log(max(packets, 0.1) / horizon_s) - reference
            rows.append([number, max(truth, -6.0), *numbers])
    return np.array(rows, dtype=np.float32)


def draw(file, flows, seed, workers, siblings):
    with multiprocessing.Pool(workers) as pool:
        jobs = pool.imap_unordered(
            rows_of, [(number, seed, siblings) for number in range(flows)], chunksize=8
        )
        parts = [rows for rows in track(jobs, "flows", total=flows) if rows.size]
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    np.savez_compressed(file, rows=rows)
    print(f"{len(rows)} rows of {len(parts)} flows, {rows.shape[1] - 2} numbers each")


class Network:
    """Two layers of rectified units; out come the median and what lies between neighboring quantiles."""

    def __init__(self, inputs, generator):
        sizes = (inputs, UNITS, UNITS, len(LEVELS))
        self.weights = []
        for size, units in itertools.pairwise(sizes):
            self.weights.append(
                generator.normal(0, math.sqrt(2 / size), (size, units)).astype(np.float32)
            )
            self.weights.append(np.zeros(units, dtype=np.float32))
        self.weights[-2] *= 0.1
        self.moments = [(np.zeros_like(one), np.zeros_like(one)) for one in self.weights]
        self.steps = 0

    def forward(self, x):
        w1, b1, w2, b2, w3, b3 = self.weights
        first = np.maximum(x @ w1 + b1, 0)
        second = np.maximum(first @ w2 + b2, 0)
        raw = second @ w3 + b3
        gaps = np.log1p(np.exp(np.minimum(raw, 30)))
        median = raw[:, 2]
        lower, upper = median - gaps[:, 1], median + gaps[:, 3]
        quantiles = np.stack([lower - gaps[:, 0], lower, median, upper, upper + gaps[:, 4]], axis=1)
        return first, second, raw, quantiles

    def step(self, x, y, rate):
        """One step of Adam on the pinball loss."""
        first, second, raw, quantiles = self.forward(x)
        below = y[:, None] < quantiles
        by_quantile = (below - LEVELS) / len(x)
        slope = 1 / (1 + np.exp(-raw))
        by_raw = np.empty_like(raw)
        by_raw[:, 2] = by_quantile.sum(axis=1)
        by_raw[:, 1] = -(by_quantile[:, 0] + by_quantile[:, 1]) * slope[:, 1]
        by_raw[:, 0] = -by_quantile[:, 0] * slope[:, 0]
        by_raw[:, 3] = (by_quantile[:, 3] + by_quantile[:, 4]) * slope[:, 3]
        by_raw[:, 4] = by_quantile[:, 4] * slope[:, 4]
        _, _, w2, _, w3, _ = self.weights
        by_second = (by_raw @ w3.T) * (second > 0)
        by_first = (by_second @ w2.T) * (first > 0)
        gradients = [
            x.T @ by_first, by_first.sum(axis=0),
            first.T @ by_second, by_second.sum(axis=0),
            second.T @ by_raw, by_raw.sum(axis=0),
        ]  # fmt: skip
        self.steps += 1
        for weight, gradient, (mean, square) in zip(
            self.weights, gradients, self.moments, strict=True
        ):
            mean *= 0.9
            mean += 0.1 * gradient
            square *= 0.999
            square += 0.001 * gradient**2
            unbiased = mean / (1 - 0.9**self.steps), square / (1 - 0.999**self.steps)
            weight -= rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)

    def loss(self, x, y):
        """Mean pinball loss, in ln, over all levels."""
        off = y[:, None] - self.forward(x)[-1]
        return float(np.mean(np.maximum(LEVELS * off, (LEVELS - 1) * off)))


def train(file, output, epochs, restarts, batch=512):
    rows = np.load(file)["rows"]
    kept = rows[:, 0] % KEPT_OF == 0
    x, y = rows[:, 2:], rows[:, 1]
    mean, deviation = x[~kept].mean(axis=0), x[~kept].std(axis=0) + 1e-3
    x = np.clip((x - mean) / deviation, -4, 4).astype(np.float32)
    best = (math.inf, None)
    for seed in range(1, restarts + 1):
        generator = np.random.default_rng(seed)
        network = Network(x.shape[1], generator)
        (learned,) = np.nonzero(~kept)
        for epoch in range(epochs):
            generator.shuffle(learned)
            rate = 2e-3 * 0.5 * (1 + math.cos(math.pi * epoch / epochs)) + 1e-5
            for first in range(0, len(learned), batch):
                some = learned[first : first + batch]
                network.step(x[some], y[some], rate)
            loss = network.loss(x[kept], y[kept])
            if loss < best[0]:
                best = (loss, [weight.copy() for weight in network.weights])
        print(
            f"start {seed}: loss {network.loss(x[~kept], y[~kept]):.4f}, kept paths {loss:.4f}; "
            f"the best so far {best[0]:.4f}"
        )
    network.weights = best[1]
    quantiles = network.forward(x[kept])[-1]
    off = y[kept] - quantiles[:, 2]
    # as in split conformal prediction: bands hold on paths that weights were not fitted to
    beyond = np.where(
        off > 0,
        off / (quantiles[:, 4] - quantiles[:, 2]),
        -off / (quantiles[:, 2] - quantiles[:, 0]),
    )
    widening = max(float(np.quantile(beyond, LEVELS[4] - LEVELS[0])), 1.0)
    print(
        f"bands hold {np.mean(beyond <= 1):.1%} on kept paths, and 90 % once {widening:.2f} times as wide"
    )
    zero = np.mean(np.abs(y[kept]))
    print(
        f"kept paths: mean |ln| {np.mean(np.abs(off)):.3f}; the last second's rate goes on: {zero:.3f}"
    )
    numbers = [mean, deviation]
    for weight, bias in zip(network.weights[::2], network.weights[1::2], strict=True):
        numbers.append(np.concatenate([weight, bias[None]]).T.ravel())
    numbers.append([widening])
    flat = np.concatenate(numbers).astype("<f4")
    output.write_bytes(flat.tobytes())


def pooled(forecast):
    """ln of the forecast without other flows' beginnings: the middle of the experts' weight, 0.15 to either side."""
    experts = sorted(forecast.weights.values(), key=lambda expert: expert[1])
    below, total, inside = 0.0, 0.0, 0.0
    for weight, value in experts:
        part = max(min(below + weight, 0.65) - max(below, 0.35), 0.0)
        below, total, inside = below + weight, total + part * math.log(value), inside + part
    return total / inside


def measured(arguments):
    """Of one flow: age, horizon, ln of truth, forecast, without beginnings, the window, the last second, 5 and 95 %."""
    number, seed, siblings = arguments
    scheme, series, others, _ = simulated(number, seed, siblings)
    if series.snd_nxt_packets is None or len(series) < 10 or (siblings and not others):
        return []
    end_s = series.time_s[-1]
    forecaster = pathcast.Forecaster(scheme, HORIZONS_S, siblings=others)
    without = pathcast.Forecaster(scheme, HORIZONS_S)
    rows = []
    both = zip(
        walked(forecaster, series, 0, MOMENTS_S), walked(without, series, 0, MOMENTS_S), strict=True
    )
    for (age_s, now_s, upto), _ in both:
        last_s = min(age_s, 1.0)
        last = (sent(series, now_s) - sent(series, now_s - last_s)) / last_s
        window = series.cwnd_packets[upto - 1] / series.srtt_s[upto - 1]
        for horizon_s in HORIZONS_S:
            if now_s + horizon_s > end_s:
                continue
            truth = (sent(series, now_s + horizon_s) - sent(series, now_s)) / horizon_s
            said = forecaster.forecast(now_s, horizon_s)
            values = [truth, said.quantiles[0], said.quantiles[-1], said.point]
            values += [math.exp(pooled(said)), window, last]
            if siblings:
                reference, numbers = forecaster._inner.cold_start(now_s, horizon_s) or (0.0, [])
                theirs = math.exp(reference + numbers[22]) if len(numbers) > 22 else last
                values += [without.forecast(now_s, horizon_s).point, theirs]
            rows.append([age_s, horizon_s, *(math.log(max(value, 1e-2)) for value in values)])
    return rows


def measure(flows, seed, workers, siblings):
    jobs = [(number, seed, siblings) for number in range(flows)]
    with multiprocessing.Pool(workers) as pool:
        done = pool.imap_unordered(measured, jobs, chunksize=4)
        rows = np.array([row for rows in track(done, "flows", total=flows) for row in rows])
    columns = ["pathcast", "its own past alone", "window now", "last second"]
    columns += ["without siblings", "siblings' rate"] if siblings else []
    head = ["age, s", "horizon, s", "flows", *columns, "band holds", "width"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for age_s, horizon_s in itertools.product(MOMENTS_S, HORIZONS_S):
        some = rows[(rows[:, 0] == age_s) & (rows[:, 1] == horizon_s)]
        if not len(some):
            continue
        truth, low, high = some[:, 2], some[:, 3], some[:, 4]
        errors = [
            f"{100 * np.median(np.abs(np.expm1(values - truth))):.1f}, "
            f"{np.mean(np.abs(values - truth)):.3f}"
            for values in some[:, 5:].T
        ]
        holds = np.mean((truth >= low) & (truth <= high))
        print(
            f"| {age_s:g} | {horizon_s:g} | {len(some)} | {' | '.join(errors)} | {holds:.0%} | "
            f"{math.exp(np.median(high - low)):.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, flows, seed in (("draw", 8000, 1), ("measure", 400, 7000)):
        command = commands.add_parser(name)
        if name == "draw":
            command.add_argument("file", type=Path)
        command.add_argument("--flows", type=int, default=flows)
        command.add_argument("--seed", type=int, default=seed)
        command.add_argument("--workers", type=int, default=2)
        command.add_argument("--siblings", action="store_true")
    trainer = commands.add_parser("train")
    trainer.add_argument("file", type=Path)
    trainer.add_argument("-o", "--output", type=Path, default=WEIGHTS)
    trainer.add_argument("--epochs", type=int, default=80)
    trainer.add_argument("--restarts", type=int, default=1)
    options = parser.parse_args()
    if options.command == "draw":
        draw(options.file, options.flows, options.seed, options.workers, options.siblings)
    elif options.command == "train":
        train(options.file, options.output, options.epochs, options.restarts)
    else:
        measure(options.flows, options.seed, options.workers, options.siblings)


if __name__ == "__main__":
    main()
