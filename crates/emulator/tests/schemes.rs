//! Congestion controls that the kernel lacks, brought by BPF: they do what their papers say, and leave
//! nothing behind. Where these tests can run is said in `kernel.rs`; they need the feature `bpf` too.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use common::{alone, options, valid_run};
use pathcast_emulator::{EmulatorError, ShellOptions, capabilities, emulate, shell};
use pathcast_path::Path;
use pathcast_trace::{Record, RunReport, Trace};

const CHILD: &str = "PATHCAST_TEST_CHILD";

/// The right to run alone with a scheme by BPF; `None` if that cannot be done here.
fn alone_with(scheme: &str) -> Option<MutexGuard<'static, ()>> {
    let alone = alone()?;
    let here = capabilities();
    if here.bpf_schemes.iter().any(|name| name == scheme) {
        return Some(alone);
    }
    if here.schemes.iter().any(|name| name == scheme) {
        println!("skipped, this kernel has {scheme} by itself");
        return None;
    }
    let clang = || Command::new("clang").arg("--version").output().is_ok();
    let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true") && clang();
    assert!(
        !must_run && !cfg!(feature = "bpf"),
        "{scheme} should be here: {:?}",
        here.reasons
    );
    println!("skipped, no {scheme}: {}", here.reasons.join("; "));
    None
}

/// Names in the kernel's list, which is one for all namespaces, that begin as ours do.
fn registered() -> BTreeSet<String> {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let names = names.split_whitespace().map(String::from);
    names
        .filter(|name| name.starts_with("vegas_") || name.starts_with("scalable_"))
        .collect()
}

/// What the trace says of the names that its schemes had in the kernel.
fn kernel_names(trace: &Trace) -> Vec<(String, String)> {
    let by_bpf = &trace.metadata.environment["schemes_by_bpf"];
    let pairs = by_bpf
        .split("; ")
        .map(|pair| pair.split_once(" as ").unwrap());
    pairs
        .map(|(name, kernels)| (name.to_string(), kernels.to_string()))
        .collect()
}

/// The window that a loss is counted from: while it is repaired, cwnd says less than that.
fn window(record: &Record) -> f64 {
    record
        .cwnd_packets
        .max(record.ssthresh_packets.unwrap_or(0.0))
}

/// What a record shows that comes after another.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    /// ssthresh changes, or the window falls although nothing was being repaired.
    Lost,
    /// The window grows beyond ssthresh again.
    Repaired,
}

/// Losses and the ends of their recovery, with the numbers of the records that show them.
fn events(records: &[Record]) -> Vec<(Event, usize)> {
    let (mut found, mut repairing) = (Vec::new(), false);
    for (at, pair) in records.windows(2).enumerate() {
        let (before, after) = (&pair[0], &pair[1]);
        let fell = after.cwnd_packets < before.cwnd_packets;
        if before.ssthresh_packets != after.ssthresh_packets || (fell && !repairing) {
            found.push((Event::Lost, at + 1));
            repairing = true;
        } else if repairing && after.cwnd_packets > window(before) {
            found.push((Event::Repaired, at + 1));
            repairing = false;
        }
    }
    found
}

#[test]
fn scalable_loses_an_eighth_and_gains_a_hundredth_of_what_arrives() {
    let Some(_alone) = alone_with("scalable") else {
        return;
    };
    let path = "rate = '100 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n";
    let Some((report, trace)) = valid_run(&options(path, &["scalable"], 8.0)) else {
        return;
    };
    assert_eq!(report.flows[0].scheme, "scalable");
    assert_eq!(trace.metadata.schemes, ["scalable"]);
    let records = &trace.records;
    let events = events(records);
    let losses: Vec<usize> = events
        .iter()
        .filter(|(event, _)| *event == Event::Lost)
        .map(|(_, at)| *at)
        .collect();
    assert!(losses.len() >= 8, "{} losses", losses.len());
    for at in losses {
        let (before, after) = (window(&records[at - 1]), records[at].ssthresh_packets);
        // whole packets; an acknowledgment that repairs and grows may come between the two
        let expected = before - (before / 8.0).floor();
        assert!(
            (after.unwrap() - expected).abs() <= 1.0,
            "at {:.3} s from {before} to {after:?}, expected {expected}",
            records[at].time_s
        );
    }
    // from the end of one repair to the next loss
    let mss = f64::from(trace.metadata.mss_bytes.unwrap());
    let mut epochs = 0;
    for pair in events.windows(2) {
        let [(Event::Repaired, first), (Event::Lost, lost)] = *pair else {
            continue;
        };
        let (first, last) = (&records[first], &records[lost - 1]);
        let gained = last.cwnd_packets - first.cwnd_packets;
        let bytes = last.snd_una_bytes.unwrap() - first.snd_una_bytes.unwrap();
        let expected = bytes as f64 / mss / 100.0;
        if expected >= 10.0 {
            epochs += 1;
            assert!(
                (gained - expected).abs() <= 1.5,
                "from {:.3} s gained {gained}, expected {expected}",
                first.time_s
            );
        }
    }
    assert!(epochs >= 5, "{epochs} epochs");
}

#[test]
fn vegas_keeps_two_to_five_packets_in_a_queue_that_reno_fills() {
    let Some(_alone) = alone_with("vegas") else {
        return;
    };
    let path = "rate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '4 BDP'\n";
    // what keeps the machine busy only ever adds to the queue: the least of three runs is Vegas' own.
    // Counted where it stands, by the emulator: round-trip times have what the hosts add
    let mut runs = Vec::new();
    while runs.len() < 3 && runs.last().is_none_or(|(_, _, queued)| *queued >= 5.2) {
        let Some((report, trace)) = valid_run(&options(path, &["vegas"], 8.0)) else {
            return;
        };
        let queued = median_queue(&report);
        runs.push((report, trace, queued));
    }
    runs.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (vegas, trace, queued) = runs.swap_remove(0);
    let Some((reno, _)) = valid_run(&options(path, &["reno"], 8.0)) else {
        return;
    };
    assert_eq!(vegas.flows[0].retransmits, 0, "{vegas:?}");
    assert!(reno.flows[0].retransmits > 20, "{reno:?}");
    let (low, high) = (vegas.one_way_delay_ms, reno.one_way_delay_ms);
    assert!(low.mean < high.mean / 2.0, "{low:?}, {high:?}");
    let ratio = vegas.flows[0].goodput_bps / reno.flows[0].goodput_bps;
    assert!((0.98..1.02).contains(&ratio), "{ratio}");

    let falls = trace
        .records
        .windows(2)
        .filter(|pair| pair[0].time_s > 0.5 && pair[1].cwnd_packets < pair[0].cwnd_packets - 1.0);
    assert_eq!(falls.count(), 0, "no cut after slow start");
    // a packet's fifth is a tenth of a millisecond, which the machine may add
    assert!((1.8..5.2).contains(&queued), "{queued} packets queued");
}

/// The median number of packets that one finds before it, at 20 Mbit/s and 10 ms.
fn median_queue(report: &RunReport) -> f64 {
    let on_link_ms = 1500.0 * 8.0 / 20e3;
    (report.one_way_delay_ms.p50 - 10.0 - on_link_ms) / on_link_ms
}

#[test]
fn runs_at_once_with_the_same_schemes_do_not_collide_and_leave_nothing() {
    let Some(_alone) = alone_with("vegas") else {
        return;
    };
    let path = "rate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n";
    let traces: Vec<Option<Trace>> = thread::scope(|scope| {
        let start = |_| {
            let options = options(path, &["vegas", "cubic", "scalable", "vegas"], 2.0);
            scope.spawn(move || valid_run(&options).map(|(_, trace)| trace))
        };
        let runs: Vec<_> = (0..3).map(start).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let traces: Vec<Trace> = traces.into_iter().flatten().collect();
    let mut kernels = BTreeSet::new();
    for trace in &traces {
        assert_eq!(
            trace.metadata.schemes,
            ["vegas", "cubic", "scalable", "vegas"]
        );
        assert_eq!(trace.flows(), [0, 1, 2, 3]);
        let names = kernel_names(trace);
        let asked: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(asked, ["scalable", "vegas"]);
        for (name, kernels) in &names {
            assert!(kernels.starts_with(&format!("{name}_")), "{names:?}");
        }
        kernels.extend(names.into_iter().map(|(_, kernels)| kernels));
    }
    assert_eq!(kernels.len(), 2 * traces.len());
    assert!(registered().is_disjoint(&kernels));
}

#[test]
fn no_scheme_outlives_a_run_that_was_killed() {
    let Some(_alone) = alone_with("vegas") else {
        return;
    };
    let before = registered();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_child_run_until_killed", "--ignored"])
        .arg("--nocapture")
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines
        .map(|line| line.unwrap())
        .find(|line| line.contains("sending"));
    assert!(said.is_some(), "the child ended by itself");
    let during: BTreeSet<String> = registered().difference(&before).cloned().collect();
    assert!(during.len() >= 2, "{during:?}");
    child.kill().unwrap(); // SIGKILL, with data in transit
    child.wait().unwrap();
    // the kernel may let go in the background
    let deadline = Instant::now() + Duration::from_secs(20);
    while !registered().is_disjoint(&during) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(registered().is_disjoint(&during), "{during:?}");
}

#[test]
#[ignore = "run by no_scheme_outlives_a_run_that_was_killed"]
fn as_a_child_run_until_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let path = "rate = '20 Mbit/s'\ndelay = '20 ms'\n";
    let say = |elapsed_s: f64| {
        if elapsed_s > 0.3 {
            println!("sending");
        }
    };
    let options = options(path, &["vegas", "scalable"], 3600.0);
    emulate(&options, &say, &AtomicBool::new(false)).unwrap();
}

/// What `sh -c SCRIPT` says in a shell with a scheme.
fn in_shell(scheme: Option<&str>, script: &str) -> Result<i32, EmulatorError> {
    let options = ShellOptions {
        links: vec![Path::parse("delay = '1 ms'\n", "test.toml").unwrap()],
        seed: 1,
        command: ("sh".into(), vec!["-c".into(), script.into()]),
        scheme: scheme.map(String::from),
        outside: None,
        device: None,
        super_packets: None,
        environment: Vec::new(),
        user: None,
        packets_file: None,
        mm_logs: [None, None],
    };
    shell(&options, &|| None).map(|report| report.exit_code)
}

#[test]
fn tcp_in_a_shell_has_the_scheme_that_was_asked_for() {
    let script = "test \"$(cat /proc/sys/net/ipv4/tcp_congestion_control)\" = \"$PATHCAST_SCHEME\"";
    {
        let Some(_alone) = alone() else { return };
        assert_eq!(in_shell(Some("reno"), script).unwrap(), 0);
        assert_eq!(in_shell(None, "test -z \"$PATHCAST_SCHEME\"").unwrap(), 0);
        let error = in_shell(Some("../x"), "true").unwrap_err();
        assert!(matches!(error, EmulatorError::Scheme(_)), "{error:?}");
    }
    let Some(_alone) = alone_with("vegas") else {
        return;
    };
    let before = registered();
    let script = format!("{script} && case $PATHCAST_SCHEME in vegas_*) ;; *) false ;; esac");
    assert_eq!(in_shell(Some("vegas"), &script).unwrap(), 0);
    assert_eq!(registered(), before);
}
