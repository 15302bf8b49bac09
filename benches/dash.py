"""Table 5 of ECON (Cao et al., IMC 2019, section 7) with a real player: the highest bitrate whose segments arrive in time.

    .venv/bin/python benches/dash.py FOLDER [--seeds N] [--first N] [--parallel N] [--table]

ffmpeg makes a DASH stream of nine bitrates in segments of 3.1 s, nginx serves it by CUBIC, and dash.js plays it in headless
Chromium over the emulator: four round-trip times, a loss of 1 % in the data's direction, 20 Mbit/s. Needs root, and
`scripts/system-packages pages` and `dash`.

One run is a round-trip time and a seed. First dash.js plays for a minute by its own rules (a buffer of 12 s). In the end, all
are asked for the bitrate of the next segment, from what that session showed:

- Pathcast: `/v1/bitrate` of the service, from the kernel's samples of the server's flows (`pathcast watch`), with the sizes
  of the next segment, at a confidence of one half. The paper asks for the expected rate.
- session: the same with `over=session`, which asks for minutes: what the truth is about.
- ECON, as in the paper: the rate that CUBIC's window law has in the long run (`pathcast.latency`) by the loss curve p(cwnd)
  of the same samples (`pathcast.fit`).
- LS, EWMA (weight 0.8 on the newest), HW (Holt and Winters, 0.8 and 0.8), HM (harmonic mean of five), mean (bytes of all
  segments over their time): rates of the segments, from the request to the last byte. dash.js: nine tenths of its own
  estimate.

Then the truth: the player plays one version after the other with no limit of its buffer, 80 s each. Twenty segments count;
those of the first 15 s do not, as a new connection is faster until its slow start is forgotten. A version fits if at least
half of its segments arrive within 3.1 s. It begins at Pathcast's choice and goes up or down until the highest version that
fits is known. The truth of a case is the highest version of which half of the segments of all its runs arrive in time.

Runs are kept in FOLDER/runs, and those that are there are not made again. A run whose emulator was late is kept as invalid,
and made again. --table prints what is there; --again first asks the present service from the kept traces of the sessions.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as File

import numpy as np

from pathcast import Path, Watch, fit, latency, manifests, read_trace
from pathcast.experiments.pages import player
from pathcast.experiments.pages.replica import HOST
from pathcast.experiments.pages.rig import Rig, missing, pathcast, program, use_scheme
from pathcast.experiments.pages.stream import dashjs, make_stream
from pathcast.files import write_beside
from pathcast.service.client import Client

RTTS_MS = (50, 100, 150, 200)
LOSS = 0.01
BITRATES_BPS = (
    235_000,
    375_000,
    560_000,
    750_000,
    1_050_000,
    1_750_000,
    2_350_000,
    3_000_000,
    4_300_000,
)
SEGMENT_S, VIDEO_S, AUDIO_BPS = 3.1, 186.0, 32_000
PORT = 8000
HISTORY_S = 60.0
#: Segments by which a version is judged, and seconds in which none counts: losses forget what slow start reached.
JUDGED, SKIPPED_S = 20, 15.0
#: Seconds that a version is played: as long as a version that fits takes at most.
PLAYED_S = SKIPPED_S + JUDGED * SEGMENT_S + SEGMENT_S
NGINX = """\
daemon off;
master_process off;
pid nginx.pid;
error_log error.log;
events { worker_connections 512; }
http {
  types { text/html html; application/javascript js; application/dash+xml mpd; video/mp4 mp4 m4s; }
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  access_log off;
  keepalive_requests 100000;
  tcp_nodelay on;
  root www;
  server { listen 8000; }
}
"""
FIXED = {
    "abr": {"autoSwitchBitrate": {"video": False}},
    "buffer": {
        "bufferTimeDefault": 600,
        "bufferTimeAtTopQuality": 600,
        "bufferTimeAtTopQualityLongForm": 600,
    },
}
MODELS = ("session", "Pathcast", "ECON", "LS", "EWMA", "HW", "HM", "mean", "dash.js")
#: ECON's rate is that between transfers of so many losses: they are long, and slow start is forgotten.
LOSSES = (20, 60)


# rules


def holt_winters(rates, alpha=0.8, beta=0.8):
    level, trend = rates[0], 0.0
    for rate in rates[1:]:
        before = level
        level = alpha * rate + (1 - alpha) * (level + trend)
        trend = beta * (level - before) + (1 - beta) * trend
    return level + trend


def ewma(rates, alpha=0.8):
    level = rates[0]
    for rate in rates[1:]:
        level = alpha * rate + (1 - alpha) * level
    return level


def forecasts_bps(segments):
    """What each baseline expects of the next segment."""
    rates = [8e3 * one["bytes"] / max(one["end_ms"] - one["begin_ms"], 1) for one in segments]
    last = rates[-5:]
    return {
        "LS": rates[-1],
        "EWMA": ewma(rates),
        "HW": holt_winters(rates),
        "HM": len(last) / sum(1 / one for one in last),
        "mean": 8e3
        * sum(one["bytes"] for one in segments)
        / sum(one["end_ms"] - one["begin_ms"] for one in segments),
    }


def econ_bps(trace, rtt_s):
    """What CUBIC's window law makes in the long run of the session's loss curve p(cwnd), on a link without a limit.

    Where the curve has windows from which no flow comes back, its mean stands in for it.
    """
    curve = max(fit(read_trace(trace)).curves, key=lambda one: one.packets)
    loss = max(curve.losses, 0.5) / curve.packets
    sizes = [int(1448 * count / loss) for count in LOSSES]
    path = Path.parse(
        f"delay = '{500 * rtt_s:.6f} ms'\nrate = '10 Gbit/s'\nqueue = '1000 MB'\nloss = {loss:.8f}\n"
    )
    for known in ({"curve": curve}, {}):
        short, long = latency(path, sizes, cc="cubic", handshake_round_trips=0, **known)
        if short.median_s is not None and long.median_s is not None:
            return 8 * (sizes[1] - sizes[0]) / (long.median_s - short.median_s)
    raise SystemExit(f"{trace}: no rate by its losses")


def highest(sizes, rate_bps):
    """The highest version whose segment arrives in time at a rate; the lowest if none does."""
    fits = [n for n, size in enumerate(sizes) if 8 * size <= rate_bps * SEGMENT_S]
    return max(fits, default=0)


# one run


def play(client, streaming, wait):
    client.ask(json.dumps({"open": f"http://{HOST}:{PORT}/player.html", "streaming": streaming}))
    log = client.ask(json.dumps(wait))
    client.ask(json.dumps({"close": True}))
    return log


def fixed(client, version):
    """The seconds of each segment of one version that counts."""
    kbps = BITRATES_BPS[version] / 1e3 + 1
    settings = {**FIXED, "abr": {**FIXED["abr"], "initialBitrate": {"video": kbps}}}
    log = play(client, settings, {"wait": PLAYED_S})
    wrong = [
        one["bitrate_bps"] for one in log["segments"] if one["bitrate_bps"] != BITRATES_BPS[version]
    ]
    if wrong:
        raise SystemExit(f"dash.js took {wrong[0]} instead of {BITRATES_BPS[version]}")
    begin_ms = log["segments"][0]["begin_ms"] if log["segments"] else 0.0
    counted = [one for one in log["segments"] if one["begin_ms"] - begin_ms >= 1e3 * SKIPPED_S]
    return [(one["end_ms"] - one["begin_ms"]) / 1e3 for one in counted[:JUDGED]]


def fits(took):
    return len(took) > 0 and statistics.median(took) <= SEGMENT_S


def truth(client, begin):
    """The highest version that fits, and the times of all that were played."""
    times = {begin: fixed(client, begin)}
    version = begin
    while fits(times[version]) and version + 1 < len(BITRATES_BPS):
        version += 1
        times[version] = fixed(client, version)
    while not fits(times[version]) and version > 0:
        version -= 1
        if version not in times:
            times[version] = fixed(client, version)
    return version, times


def one(rtt_ms, seed, folder):
    begin_s = time.monotonic()
    ladder = manifests.read_manifest(folder / "stream/stream.mpd").ladder
    with Rig.made() as rig:
        (rig.folder / "server.conf").write_text(NGINX)
        www = rig.folder / "www"
        www.mkdir()
        for file in (folder / "stream").iterdir():
            (www / file.name).symlink_to(file.resolve())
        (www / "dash.js").symlink_to(dashjs())
        (www / "player.html").symlink_to(File(player.__file__).with_name("player.html"))
        ends = f"rate = '20 Mbit/s'\ndelay = '{rtt_ms / 2:g} ms'\nqueue = '500 kB'\n"
        path = rig.folder / "path.toml"
        path.write_text(f"{ends}loss = 0.0\n[reverse]\n{ends}loss = {LOSS}\n")
        rig.nginx(rig.folder / "server.conf")
        rig.serve('scheme = "cubic"\n')
        client = rig.client(path, seed, [sys.executable, "-P", player.__file__, HOST])
        use_scheme("cubic")
        trace = rig.folder / "trace.parquet"
        with Watch(local_port=PORT, record=False, trace_file=trace) as watch:
            client.ask(json.dumps({"open": f"http://{HOST}:{PORT}/player.html"}))
            log = client.ask(json.dumps({"wait": HISTORY_S}))
            report, _ = watch.finish()
        kept = folder / "traces" / f"{rtt_ms}ms-{seed}.parquet"
        kept.write_bytes(trace.read_bytes())
        rig.service.send_trace(trace.read_bytes())
        segments = log["segments"]
        sizes = [ladder.bytes(n, segments[-1]["number"] + 1) for n in range(len(BITRATES_BPS))]
        answers = ask_all(rig.service, client.first["address"], sizes)
        client.ask(json.dumps({"close": True}))
        chosen = answers.pop("chosen")
        estimate_bps = 900 * segments[-1]["throughput_kbps"]
        chosen["dash.js"] = max(
            (n for n, rate in enumerate(BITRATES_BPS) if rate <= estimate_bps), default=0
        )
        right, times = truth(client, chosen["Pathcast"])
        ended = client.end()
        return {
            "rtt_ms": rtt_ms,
            "seed": seed,
            "truth": right,
            "chosen": chosen,
            **answers,
            "sizes": sizes,
            "history_s": report.duration_s,
            "took_s": {str(n): one for n, one in sorted(times.items())},
            "history": segments,
            "records": report.records,
            "browser": client.first["browser"],
            "kernel": os.uname().release,
            "load_average": os.getloadavg()[0],
            "slip_us": ended.get("slip_us"),
            "invalid_because": ended.get("invalid_because", ["no report"]),
            "seconds": round(time.monotonic() - begin_s, 1),
        }


def ask(service, client, sizes, confidence, over):
    ladder = ",".join(f"{size}B" for size in sizes)
    words = f"segment_s={SEGMENT_S}&confidence={confidence}&over={over}&ladder={ladder}"
    status, answer = service.request("GET", f"/v1/bitrate?client={client}&{words}")
    if status != 200:
        raise SystemExit(f"the service answers {status}: {answer}")
    return answer


def ask_all(service, client, sizes):
    """What the service says, and what it chooses."""
    segment, session = (ask(service, client, sizes, 0.5, over) for over in ("segment", "session"))
    return {
        "chosen": {"Pathcast": segment["rung"], "session": session["rung"]},
        "chosen_at_0.9": ask(service, client, sizes, 0.9, "segment")["rung"],
        "quantiles_bps": segment["quantiles_bps"],
        "session_bps": session["quantiles_bps"],
        "features": segment["features"],
    }


# all runs


def make(job, folder):
    """Make a run in a network namespace of its own, unless it is there."""
    rtt_ms, seed = job
    file = folder / "runs" / f"{rtt_ms}ms-{seed}.json"
    if file.exists() and not json.loads(file.read_text())["invalid_because"]:
        return
    command = [program("unshare"), "--net", sys.executable, __file__, str(folder)]
    done = subprocess.run(
        [*command, "--one", f"{rtt_ms},{seed}"],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if done.returncode:
        print(f"{rtt_ms} ms, seed {seed}: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return
    write_beside(file, done.stdout)
    found = json.loads(done.stdout)
    said = "; ".join(found["invalid_because"]) or "valid"
    print(
        f"{rtt_ms} ms, seed {seed}: truth {found['truth']}, {found['chosen']}, {said}",
        file=sys.stderr,
    )


def again(folder):
    """Ask the service anew about each run that is there, from the kept trace of its session."""
    process = subprocess.Popen(
        pathcast("serve", "--listen", "127.0.0.1:0"), stderr=subprocess.PIPE, text=True
    )
    try:
        said = next(json.loads(line) for line in process.stderr if '"started"' in line)
        service = Client(f"http://{said['listen']}")
        for number, file in enumerate(sorted((folder / "runs").glob("*.json"))):
            run = json.loads(file.read_text())
            # a prefix of its own, and a session that ends now
            client = f"10.{number // 256}.{number % 256}.1"
            begun_s = time.time() - run["history_s"]
            status, answer = service.request(
                "POST",
                f"/v1/samples?client={client}&begun_s={begun_s}",
                (folder / "traces" / f"{file.stem}.parquet").read_bytes(),
                {"Content-Type": "application/vnd.apache.parquet"},
            )
            if status != 200:
                raise SystemExit(f"{file}: the service answers {status}: {answer}")
            found = ask_all(service, client, run["sizes"])
            run["chosen"] |= found.pop("chosen")
            run |= found
            write_beside(file, json.dumps(run) + "\n")
    finally:
        process.terminate()
        process.wait(30)


def in_time(runs):
    """Of each version that was played: how many segments of all runs arrived in time, and how many there were."""
    counts = {}
    for run in runs:
        for version, took in run["took_s"].items():
            held, judged = counts.get(int(version), (0, 0))
            held += sum(one <= SEGMENT_S for one in took)
            # what had not come after all was late
            counts[int(version)] = held, judged + JUDGED
    return counts


def truth_of_case(counts):
    """The highest version of which half of the segments arrive in time."""
    return max((n for n, (held, judged) in counts.items() if 2 * held >= judged), default=0)


def kbps(version):
    return f"{BITRATES_BPS[version] / 1e3:.0f}"


def more_often(ones, others):
    """In how many more runs the first model is right than another: 95 % interval by resampling runs."""
    difference = np.subtract(ones, others, dtype=int)
    drawn = np.random.default_rng(1).choice(difference, (10_000, len(difference))).sum(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return f"{low:+.0f} to {high:+.0f}"


def table(folder):
    """By case: the truths, the most frequent choices, and how many were right."""
    runs = [json.loads(file.read_text()) for file in sorted((folder / "runs").glob("*.json"))]
    valid = [run for run in runs if not run["invalid_because"]]
    for run in valid:
        trace = folder / "traces" / f"{run['rtt_ms']}ms-{run['seed']}.parquet"
        rates = forecasts_bps(run["history"])
        rates["ECON"] = econ_bps(trace, run["features"]["rtt_s"])
        run["chosen"] |= {name: highest(run["sizes"], rate) for name, rate in rates.items()}
    loads = [run["load_average"] for run in valid]
    print(f"{len(valid)} runs, {len(runs) - len(valid)} invalid", end="")
    if not valid:
        print()
        return
    print(
        f"; load average {min(loads):.1f} to {max(loads):.1f}; {valid[0]['browser']}, Linux {valid[0]['kernel']}\n"
    )
    print(f"| RTT | runs | truth | in time | truths of runs | {' | '.join(MODELS)} |")
    print(f"|---|---|---|---|---|{'---|' * len(MODELS)}")
    right_of_case: dict[str, list[bool]] = {model: [] for model in MODELS}
    for rtt_ms in RTTS_MS:
        those = [run for run in valid if run["rtt_ms"] == rtt_ms]
        if not those:
            continue
        counts = in_time(those)
        of_case = truth_of_case(counts)
        near = ", ".join(
            f"{kbps(n)}: {counts[n][0]}/{counts[n][1]}"
            for n in (of_case, of_case + 1)
            if n in counts
        )
        truths = [run["truth"] for run in those]
        names = ", ".join(f"{kbps(n)} ({truths.count(n)})" for n in sorted(set(truths)))
        cells = []
        for model in MODELS:
            choices = [run["chosen"][model] for run in those]
            right_of_case[model] += [choice == of_case for choice in choices]
            own = sum(run["chosen"][model] == run["truth"] for run in those)
            modal = statistics.mode(choices)
            star = "*" if modal == of_case else ""
            cells.append(f"{kbps(modal)}{star}, {own}, {choices.count(of_case)}")
        print(
            f"| {rtt_ms} ms | {len(those)} | {kbps(of_case)} | {near} | {names} | {' | '.join(cells)} |"
        )
    total = [
        f"{sum(run['chosen'][model] == run['truth'] for run in valid)}, {sum(right_of_case[model])}"
        for model in MODELS
    ]
    print(f"| all | {len(valid)} | | | | {' | '.join(total)} |")
    more = [more_often(right_of_case["session"], right_of_case[model]) for model in MODELS]
    print(f"| session's more, 95 % | | | | | {' | '.join(more)} |")
    high = [sum(run["chosen"][model] > run["truth"] for run in valid) for model in MODELS]
    print(f"| too high | | | | | {' | '.join(map(str, high))} |")
    print(
        "\nBitrates in kbit/s. A cell has the most frequent choice, * if it is the case's truth, and how many choices were "
        "the truth of their run, and that of their case."
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=File)
    parser.add_argument("--seeds", type=int, default=10, help="of each case; default 10")
    parser.add_argument("--first", type=int, default=1, help="the first seed; default 1")
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time; default 2")
    parser.add_argument("--table", action="store_true", help="print what is there, and run nothing")
    parser.add_argument(
        "--again", action="store_true", help="ask the service again from kept traces; run nothing"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        rtt_ms, seed = map(int, given.one.split(","))
        print(json.dumps(one(rtt_ms, seed, given.folder)))
        return
    if given.again:
        again(given.folder)
    elif not given.table:
        if lacks := missing(("nginx", "chromium", "ffmpeg", "npm")):
            sys.exit(f"this machine lacks {', '.join(lacks)}; see scripts/system-packages")
        for name in ("runs", "traces"):
            (given.folder / name).mkdir(parents=True, exist_ok=True)
        stream = given.folder / "stream"
        if not (stream / "complete").exists():
            stream.mkdir(exist_ok=True)
            make_stream(stream, BITRATES_BPS, SEGMENT_S, VIDEO_S, AUDIO_BPS)
            (stream / "complete").touch()
        dashjs()
        jobs = [
            (rtt_ms, seed)
            for seed in range(given.first, given.first + given.seeds)
            for rtt_ms in RTTS_MS
        ]
        with ThreadPoolExecutor(given.parallel) as pool:
            list(pool.map(lambda job: make(job, given.folder), jobs))
    table(given.folder)


if __name__ == "__main__":
    main()
