"""Rate forecasts and rules for the bitrate over series of rates: errors, bands, and sessions in the TCP simulator.

    .venv/bin/python benches/video_sessions.py FILE... [--group PREFIX]... [--sessions] [--rule RULE]... [--unsent BYTES]
    .venv/bin/python benches/video_sessions.py FILE... [--group PREFIX]... --series

Each FILE is a series of rates (`pathcast.rates.read_rates`); a group is the files whose names begin alike, by default all
together. The first table has forecasts of the mean rate over the next 4 s, made each second from 12 s on, from the same
samples of a second: the median relative error of truths above 5 % of the series' mean, the mean absolute error as a part of
that mean, each a mean over series, and the 95 % interval of its difference to Pathcast's, by resampling series. Baselines:
the last sample of 1 s and of 4 s, means with half-lives of 1 to 8 s, the lower of two as dash.js and hls.js take it, the
harmonic mean of five. The second table has coverage and sharpness of Pathcast's bands.

With --sessions each series becomes the rate of a link of 80 ms and a queue of 100 ms, and players with a ladder of eight
bitrates fetch 4-s segments by CUBIC until the series ends. The bitrates span a fortieth to twice the series' mean in equal
ratios, so that all groups have the same task. A rule may have how its player gives up downloads after a slash. Rules of the
forecast's distribution are run with several prices of a stall, and the comparisons with RobustMPC are at its mean bitrate,
between two prices on a line: where neither gives up downloads, and where both do. --unsent is the server's TCP_NOTSENT_LOWAT;
without it, its socket takes as much as the kernel lets it. A FILE may also be packed times of deliveries as mahimahi has them.

With --series it only prints the series, one rate a second, as the example `errors` of `crates/rates` reads them.
"""

import argparse
import gzip
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import pathcast
from pathcast import video
from pathcast.rates import RateForecaster, read_rates

HORIZON = 4
FIRST = 11
HALF_LIVES = (1, 2, 3, 5, 8)
COPIES = 2000
SEGMENT_S = 4.0
PRICES = (0.1, 0.2, 0.3, 0.6, 1.0, 3.0, 10.0)
RULES = (
    "last-sample",
    "throughput",
    "bola",
    "dash.js/never",
    "dash.js",
    "hls.js/never",
    "hls.js",
    "robust-mpc",
    "robust-mpc/dash.js",
    "robust-mpc/hls.js",
    "confident:0.9",
)
#: The rule that the others' quality of experience is compared with.
OURS = "mpc:1/plan"
#: RobustMPC beside Pathcast's MPC, by how players give up downloads.
RIVALS = (("robust-mpc", "never"), ("robust-mpc/dash.js", "plan"), ("robust-mpc/hls.js", "plan"))


def seconds_of(series):
    """Mean rates of whole seconds, in bit/s."""
    times = np.concatenate([[0.0], np.cumsum(series.seconds)])
    bits = np.concatenate([[0.0], np.cumsum(series.bits)])
    return np.diff(np.interp(np.arange(int(times[-1]) + 1), times, bits))


def ewma(rates, half_life):
    keep, total, weight, found = 0.5 ** (1 / half_life), 0.0, 0.0, []
    for rate in rates:
        total, weight = keep * total + (1 - keep) * rate, keep * weight + 1 - keep
        found.append(total / weight)
    return np.array(found)


def baselines(rates, places):
    means = {half_life: ewma(rates, half_life) for half_life in (*HALF_LIVES, 9)}
    sums = np.concatenate([[0.0], np.cumsum(rates)])

    def mean(end, count):
        return (sums[end + 1] - sums[max(0, end + 1 - count)]) / min(count, end + 1)

    def harmonic(place):
        spans = [mean(place - 4 * n, 4) for n in range(5) if place - 4 * n >= 3]
        return len(spans) / sum(1 / max(one, 1.0) for one in spans)

    found = {
        "last 1 s": rates[places],
        "last 4 s": np.array([mean(place, 4) for place in places]),
        "dash.js": np.minimum(means[3], means[8])[places],
        "hls.js": np.minimum(means[3], means[9])[places],
        "harmonic mean": np.array([harmonic(place) for place in places]),
    }
    return found | {f"mean, {one} s": means[one][places] for one in HALF_LIVES}


def judged(rates):
    """Errors by forecast, and what the bands held."""
    places = np.arange(FIRST, len(rates) - HORIZON)
    truth = np.array([rates[one + 1 : one + 1 + HORIZON].mean() for one in places])
    rows = RateForecaster(HORIZON).follow(np.ones(len(rates)), rates, (0.05, 0.1, 0.95))[places]
    mean = rates.mean()
    told = truth > 0.05 * mean
    errors = {}
    for name, said in ({"Pathcast": rows[:, 0]} | baselines(rates, places)).items():
        relative = np.median(np.abs(said[told] / truth[told] - 1))
        errors[name] = (relative, np.mean(np.abs(said - truth)) / mean)
    low, tenth, high = rows[:, 1:].T
    held = np.mean((truth >= low) & (truth <= high))
    return errors, (held, np.mean(truth >= tenth), np.mean(high - low) / mean)


def table_of_errors(name, series):
    found = [judged(rates) for rates in series]
    ours = np.array([errors["Pathcast"] for errors, _ in found])
    draws = np.random.default_rng(1).integers(0, len(series), (COPIES, len(series)))
    print(f"\n### {name}: {len(series)} series, {sum(map(len, series)) / 3600:.1f} hours\n")
    print("| forecast | median error | less Pathcast's | mean error | less Pathcast's |")
    print("|---|---|---|---|---|")
    by_mean = sorted(found[0][0], key=lambda one: np.mean([errors[one][1] for errors, _ in found]))
    for one in by_mean:
        theirs = np.array([errors[one] for errors, _ in found])
        cells = []
        for column in (0, 1):
            difference = (theirs - ours)[:, column]
            low, high = np.quantile(difference[draws].mean(axis=1), [0.025, 0.975])
            interval = "" if one == "Pathcast" else f"{low:+.1%} to {high:+.1%}"
            cells += [f"{theirs[:, column].mean():.1%}", interval]
        print(f"| {one} | {' | '.join(cells)} |")
    held, tenth, width = np.array([bands for _, bands in found]).T
    print(
        f"\n5 to 95 %: holds {held.mean():.1%} ({held.min():.1%} to {held.max():.1%} by series), width {width.mean():.0%} of "
        f"the mean rate. Above the 10 % quantile: {tenth.mean():.1%} ({tenth.min():.1%} to {tenth.max():.1%})."
    )


def path_of(rates):
    steps = ", ".join(f"['{n} s', '{rate:.0f} bit/s']" for n, rate in enumerate(rates))
    mean = rates.mean()
    queue = max(30_000, round(0.1 * mean / 8))
    return pathcast.Path.parse(
        f"rate = {{ kind = 'steps', steps = [{steps}], period = '{len(rates)} s' }}\n"
        f"delay = '40 ms'\nqueue = '{queue} B'\n[reverse]\nrate = '100 Mbit/s'\ndelay = '40 ms'\n"
    )


def ladder_of(rates):
    mean, count = rates.mean(), int(len(rates) / SEGMENT_S)
    bitrates = np.geomspace(mean / 40, 2 * mean, 8)
    return video.Ladder(SEGMENT_S, tuple(map(float, bitrates)), count)


def session(rates, rule, unsent_bytes):
    rule, _, abandon = rule.partition("/")
    found = video.watch(
        ladder_of(rates), path_of(rates), rule, abandon=abandon or "own", unsent_bytes=unsent_bytes
    )
    share = found.mean_bitrate_bps / rates.mean()
    played_s = SEGMENT_S * len(found.segments)
    qoe = found.qoe * 1e6 / rates.mean()
    count = len(found.segments)
    return share, found.stalled_s / played_s, qoe, found.switches / count, found.abandoned / count


def at_bitrate(share, rows):
    """Stalls of a rule with several prices, at a mean bitrate: between two prices on a line; NaN outside of them."""
    shares, stalls = rows[:, :, 0].mean(axis=0), rows[:, :, 1].mean(axis=0)
    order = np.argsort(shares)
    return float(np.interp(share, shares[order], stalls[order], left=math.nan, right=math.nan))


def table_of_sessions(name, series, rules, pool, unsent_bytes):
    ours = {way: [f"mpc:{price:g}/{way}" for price in PRICES] for way in ("never", "plan")}
    rules = [*rules, *ours["never"], *ours["plan"]]
    jobs = [(rates, rule, unsent_bytes) for rule in rules for rates in series]
    done = np.array(list(pool.map(lambda job: session(*job), jobs)))
    rows = dict(zip(rules, done.reshape(len(rules), len(series), 5), strict=True))
    print(f"\n### {name}: sessions\n")
    print(
        f"| rule | bitrate, of the mean rate | stalled, of the video | QoE, of the mean rate | that of {OURS}, less its | switches | given up |"
    )
    print("|---|---|---|---|---|---|---|")
    draws = np.random.default_rng(1).integers(0, len(series), (COPIES, len(series)))
    for rule, those in rows.items():
        less = (rows[OURS] - those)[:, 2]
        low, high = np.quantile(less[draws].mean(axis=1), [0.025, 0.975])
        interval = "" if rule == OURS else f"{low:+.3f} to {high:+.3f}"
        share, stalled, qoe, switches, given_up = those.mean(axis=0)
        print(
            f"| {rule} | {share:.1%} | {stalled:.2%} | {qoe:.3f} | {interval} | {switches:.0%} | {given_up:.1%} |"
        )
    for rival, way in RIVALS:
        if rival in rows:
            compare(rival, rows[rival], way, np.array([rows[rule] for rule in ours[way]]))


def compare(rival, robust, way, ours):
    """How much less Pathcast's MPC stalls at the bitrate of a rival; `ours` by price."""
    ours = np.swapaxes(ours, 0, 1)
    reductions = []
    for draw in np.random.default_rng(1).integers(0, len(robust), (COPIES, len(robust))):
        share, stalled = robust[draw][:, :2].mean(axis=0)
        if stalled > 0:
            reductions.append(1 - at_bitrate(share, ours[draw]) / stalled)
    share, stalled = robust[:, :2].mean(axis=0)
    reached = [one for one in reductions if not math.isnan(one)] or [math.nan]
    low, high = np.quantile(reached, [0.025, 0.975])
    at = at_bitrate(share, ours)
    print(
        f"\nAt the bitrate of {rival}, {share:.1%}, mpc/{way} is stalled {at:.2%} where that has {stalled:.2%}, "
        f"{1 - at / stalled if stalled else math.nan:.0%} less ({low:.0%} to {high:.0%}, of the {len(reached) / COPIES:.0%} of draws in which a price reaches it)."
    )


def series_of(file):
    """Mean rates of whole seconds of a file, in bit/s."""
    if file.suffix != ".gz":
        return seconds_of(read_rates(file))
    times = np.array(gzip.decompress(file.read_bytes()).split(), dtype=int)
    return np.bincount(times // 1000)[:-1] * 1500 * 8.0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--group", action="append", help="files whose names begin so; several")
    parser.add_argument("--sessions", action="store_true")
    parser.add_argument("--rule", action="append", help="beside mpc; several")
    parser.add_argument("--unsent", type=int, help="the server's TCP_NOTSENT_LOWAT, in bytes")
    parser.add_argument("--series", action="store_true", help="print the series alone")
    given = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:
        for group in given.group or [""]:
            files = sorted(file for file in given.files if file.name.startswith(group))
            if not files:
                parser.error(f"no FILE has a name that begins with {group!r}")
            series = [series_of(file) for file in files]
            if given.series:
                print("".join("".join(f"1 {rate}\n" for rate in one) + "\n" for one in series))
                continue
            table_of_errors(group or "all", series)
            if given.sessions:
                table_of_sessions(group or "all", series, given.rule or RULES, pool, given.unsent)


if __name__ == "__main__":
    main()
