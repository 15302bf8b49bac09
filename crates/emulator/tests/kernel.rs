//! What the emulator believes of the kernel. These tests need root and /dev/net/tun; elsewhere they
//! say so and pass, except where `CI=true` and both are there.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path as FilePath;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_emulator::{DeviceKind, EmulatorError, Options, capabilities, emulate};
use pathcast_kernel_schemes::SchemeError;
use pathcast_probe::Method;
use pathcast_trace::{Record, RunReport, Trace};

mod common;

use common::{alone, options, valid_run};

const CHILD: &str = "PATHCAST_TEST_CHILD";

fn environment(trace: &Trace, key: &str) -> u64 {
    trace.metadata.environment[key].parse().unwrap()
}

/// Payload acknowledged between two times, in bits a second.
fn acknowledged_bps(trace: &Trace, from_s: f64, to_s: f64) -> f64 {
    let within = |record: &&Record| (from_s..to_s).contains(&record.time_s);
    let rows: Vec<&Record> = trace.records.iter().filter(within).collect();
    let (first, last) = (rows[0], rows[rows.len() - 1]);
    let bytes = last.snd_una_bytes.unwrap() - first.snd_una_bytes.unwrap();
    bytes as f64 * 8.0 / (last.time_s - first.time_s)
}

#[test]
fn a_cubic_flow_fills_the_link_and_repairs_each_drop() {
    let Some(_alone) = alone() else { return };
    for device in [DeviceKind::Tun, DeviceKind::Veth] {
        fills_the_link_and_repairs_each_drop(device);
    }
}

fn fills_the_link_and_repairs_each_drop(device: DeviceKind) {
    let options = Options {
        device: Some(device),
        ..options(
            "rate = '100 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n",
            &["cubic"],
            5.0,
        )
    };
    let Some((report, trace)) = valid_run(&options) else {
        return;
    };
    assert_eq!(trace.metadata.environment["device"], device.to_string());
    let (drops, to_repair) = (
        environment(&trace, "data_packets_dropped"),
        environment(&trace, "drops_to_repair"),
    );
    let retransmits = report.flows[0].retransmits;
    assert!(drops > 0, "slow start overshoots a queue of one BDP");
    assert!(
        (to_repair..=drops).contains(&retransmits),
        "{retransmits} of {to_repair}..={drops}"
    );

    let mss_bytes = trace.metadata.mss_bytes.unwrap();
    assert_eq!(mss_bytes, 1448);
    let link_bps = 100e6 * f64::from(mss_bytes) / 1500.0;
    let ratio = acknowledged_bps(&trace, 1.0, 5.0) / link_bps;
    assert!(
        (0.98..1.001).contains(&ratio),
        "{ratio} of the link's payload rate"
    );

    // the least is the link's delay and one packet's time, the most adds the full queue of 40 ms
    let delay_ms = report.one_way_delay_ms;
    assert!(delay_ms.p50 > 20.0 && delay_ms.p95 < 61.0, "{delay_ms:?}");
    assert_eq!(trace.records[0].snd_una_bytes, Some(0));
    assert!(
        trace
            .records
            .windows(2)
            .all(|pair| pair[0].time_s <= pair[1].time_s)
    );
    assert!(
        trace
            .records
            .windows(2)
            .all(|pair| pair[0].snd_una_bytes <= pair[1].snd_una_bytes)
    );
    let last = trace.records[trace.records.len() - 1];
    assert_eq!(last.retransmits, Some(retransmits));
    assert!(report.cpu_s > 0.0 && report.wall_s >= 5.0, "{report:?}");
}

/// ssthresh over the cwnd before it, at each loss that is seen as recovery begins.
fn decreases(trace: &Trace) -> Vec<f64> {
    let mut found = Vec::new();
    let mut last: Option<&Record> = None;
    for record in &trace.records {
        if let (Some(last), Some(now)) = (last, record.ssthresh_packets)
            // outside recovery the tracepoint says at least 0.75 cwnd
            && now < 0.74 * last.cwnd_packets.max(1.0)
            && last.ssthresh_packets.is_none_or(|before| before > now)
        {
            found.push(now / last.cwnd_packets);
        }
        last = Some(record);
    }
    found
}

#[test]
fn schemes_are_set_by_name_reno_halves_and_cubic_falls_to_seven_tenths() {
    let Some(_alone) = alone() else { return };
    let path = "rate = '50 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\nloss = 5e-4\n";
    for (scheme, factor) in [("reno", 0.5), ("cubic", 0.7)] {
        let Some((report, trace)) = valid_run(&options(path, &[scheme], 4.0)) else {
            return;
        };
        assert_eq!(report.flows[0].scheme, scheme);
        let mut decreases = decreases(&trace);
        decreases.sort_by(f64::total_cmp);
        assert!(!decreases.is_empty(), "{scheme} lost nothing");
        let median = decreases[decreases.len() / 2];
        assert!((median - factor).abs() < 0.05, "{scheme}: {decreases:?}");
    }
    let Some((report, trace)) = valid_run(&options(path, &["bbr"], 2.0)) else {
        return;
    };
    assert_eq!(report.flows[0].scheme, "bbr");
    let (drops, retransmits) = (
        environment(&trace, "data_packets_dropped"),
        report.flows[0].retransmits,
    );
    assert!(
        retransmits <= drops + drops / 5,
        "{retransmits} sent again for {drops}"
    );
}

#[test]
fn two_flows_of_a_run_share_the_path() {
    let Some(_alone) = alone() else { return };
    let path = "rate = '50 Mbit/s'\ndelay = '5 ms'\nqueue = '1 BDP'\n";
    let Some((report, trace)) = valid_run(&options(path, &["cubic", "reno"], 3.0)) else {
        return;
    };
    assert_eq!(trace.flows(), [0, 1]);
    let goodput_bps: f64 = report.flows.iter().map(|flow| flow.goodput_bps).sum();
    let link_bps = 50e6 * 1448.0 / 1500.0;
    assert!(
        (0.9..1.001).contains(&(goodput_bps / link_bps)),
        "{report:?}"
    );
}

#[test]
fn what_cannot_be_run_is_refused_with_what_is_needed() {
    let Some(_alone) = alone() else { return };
    let path = "rate = '10 Mbit/s'\ndelay = '5 ms'\n";
    let refusal =
        |options: &Options| emulate(options, &|_| (), &AtomicBool::new(false)).unwrap_err();
    let error = refusal(&options(path, &["cubic", "tahoe"], 1.0));
    assert!(
        matches!(error, EmulatorError::Scheme(SchemeError::Unknown { .. })),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("\"tahoe\"") && text.contains("cubic, "),
        "{text}"
    );
    for name in ["", "../../x", "a-name-of-16-chr", "Reno", "reno\n"] {
        let error = refusal(&options(path, &["cubic", name], 1.0));
        assert!(
            matches!(&error, EmulatorError::Scheme(SchemeError::BadName { got }) if got == name),
            "{error:?}"
        );
    }
    assert!(matches!(
        refusal(&options(path, &["cubic"], 0.0)),
        EmulatorError::ZeroDuration
    ));
    assert!(matches!(
        refusal(&options(path, &[], 1.0)),
        EmulatorError::NoFlows
    ));
}

#[test]
fn two_emulations_at_once_do_not_collide() {
    let Some(_alone) = alone() else { return };
    let paths = [20.0, 40.0].map(|mbit| {
        (
            mbit,
            format!("rate = '{mbit} Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n"),
        )
    });
    let outcomes: Vec<Option<(f64, RunReport, Trace)>> = thread::scope(|scope| {
        let start = |(mbit, path): &(f64, String)| {
            let (mbit, options) = (*mbit, options(path, &["cubic"], 3.0));
            scope.spawn(move || valid_run(&options).map(|(report, trace)| (mbit, report, trace)))
        };
        let runs: Vec<_> = paths.iter().map(start).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for (mbit, report, trace) in outcomes.into_iter().flatten() {
        let ratio = acknowledged_bps(&trace, 1.0, 3.0) / (mbit * 1e6 * 1448.0 / 1500.0);
        assert!(
            (0.97..1.002).contains(&ratio),
            "{ratio} of {mbit} Mbit/s: {report:?}"
        );
    }
}

#[test]
fn polling_takes_the_place_of_tcp_probe() {
    let Some(_alone) = alone() else { return };
    let mut options = options("rate = '50 Mbit/s'\ndelay = '10 ms'\n", &["cubic"], 2.0);
    options.method = Method::TcpInfo;
    let Some((report, trace)) = valid_run(&options) else {
        return;
    };
    assert_eq!(trace.metadata.environment["measured_by"], "tcp_info");
    let acknowledged_bps = acknowledged_bps(&trace, 0.5, 2.0);
    assert!(
        (acknowledged_bps / (50e6 * 1448.0 / 1500.0) - 1.0).abs() < 0.03,
        "{acknowledged_bps}"
    );
    let last = trace.records[trace.records.len() - 1];
    assert_eq!(last.retransmits, Some(report.flows[0].retransmits));
}

#[test]
fn a_stopped_run_returns_what_it_has_and_leaves_the_caller_as_it_was() {
    let Some(_alone) = alone() else { return };
    let own = || {
        let status = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let policy = status
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .nth(38)
            .map(String::from);
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        (
            fs::read_link("/proc/thread-self/ns/net").unwrap(),
            policy,
            descriptors,
            threads_of_runs(),
        )
    };
    let before = own();
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |elapsed_s: f64| {
        calls.fetch_add(1, Ordering::Relaxed);
        stop.store(elapsed_s > 0.5, Ordering::Relaxed);
    };
    let options = options("rate = '20 Mbit/s'\ndelay = '10 ms'\n", &["cubic"], 3600.0);
    let (report, trace) = emulate(&options, &progress, &stop).unwrap();
    assert!(calls.into_inner() >= 2);
    assert!(trace.records.last().unwrap().time_s > 0.5);
    assert!(
        report.wall_s < 3600.0 && report.flows[0].goodput_bps > 0.0,
        "{report:?}"
    );
    assert_eq!(own(), before);

    // no SYN gets through here in time
    let stop = AtomicBool::new(false);
    let deaf = crate::options("delay = '5 s'\n", &["cubic"], 1.0);
    let (report, trace) = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        emulate(&deaf, &|_| (), &stop).unwrap()
    });
    assert!(!report.valid && report.invalid_because[0].contains("before the flows were connected"));
    assert!(trace.records.is_empty());
    assert_eq!(own(), before);
}

#[test]
#[should_panic(expected = "progress breaks")]
fn a_progress_function_that_panics_ends_the_run() {
    let Some(_alone) = alone() else {
        panic!("progress breaks elsewhere")
    };
    let options = options("rate = '20 Mbit/s'\ndelay = '10 ms'\n", &["cubic"], 3600.0);
    let _ = emulate(
        &options,
        &|_| panic!("progress breaks"),
        &AtomicBool::new(false),
    );
}

/// Threads of this process that belong to a run.
fn threads_of_runs() -> usize {
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .map(name)
        .filter(|name| name.starts_with("pathcast-"))
        .count()
}

/// What a run could leave behind on the machine.
#[derive(Debug, PartialEq)]
struct Machine {
    interfaces: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    named_namespaces: BTreeSet<String>,
    mounts: usize,
}

impl Machine {
    fn now() -> Self {
        let names = |place: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        };
        let numbers = names("/proc")
            .into_iter()
            .filter(|name| name.parse::<u32>().is_ok());
        let namespace = |pid: String| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        Self {
            interfaces: names("/sys/class/net"),
            namespaces: numbers
                .filter_map(namespace)
                .map(|link| link.to_string_lossy().into_owned())
                .collect(),
            named_namespaces: names("/run/netns"),
            mounts: fs::read_to_string("/proc/self/mounts")
                .unwrap()
                .lines()
                .count(),
        }
    }
}

/// Network namespaces that live, whoever holds them: rtnetlink lets a namespace have numbers for
/// others, and takes a number back when its namespace is gone.
mod namespace_ids {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
    };

    const RTM_NEWNSID: u16 = 88;
    const RTM_GETNSID: u16 = 90;
    const NLM_F_REQUEST: u16 = 1;
    const NLM_F_ACK: u16 = 4;
    const NLM_F_DUMP: u16 = 0x300;
    const NLMSG_ERROR: u16 = 2;
    const NLMSG_DONE: u16 = 3;
    const NETNSA_NSID: u16 = 1;
    const NETNSA_FD: u16 = 3;

    /// Sends a request and gives the kind and the body of each answer.
    fn ask(kind: u16, flags: u16, attributes: &[(u16, i32)]) -> Vec<(u16, Vec<u8>)> {
        let (netlink, raw) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(netlink, raw, SocketFlags::CLOEXEC, None).unwrap(); // rtnetlink
        let mut request = Vec::new();
        let length = 20 + 8 * attributes.len() as u32;
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend([0; 12]); // number, port, family
        for (attribute, value) in attributes {
            request.extend(8u16.to_ne_bytes());
            request.extend(attribute.to_ne_bytes());
            request.extend(value.to_ne_bytes());
        }
        send(&socket, &request, SendFlags::empty()).unwrap();
        let mut answers = Vec::new();
        loop {
            let mut buffer = [0u8; 1 << 15];
            let (_, size) = recv(&socket, &mut buffer[..], RecvFlags::empty()).unwrap();
            let mut rest = &buffer[..size];
            while rest.len() >= 16 {
                let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
                let kind = u16::from_ne_bytes(rest[4..6].try_into().unwrap());
                answers.push((kind, rest[16..length].to_vec()));
                if kind == NLMSG_DONE || kind == NLMSG_ERROR {
                    return answers;
                }
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
            }
        }
    }

    /// Gives every network namespace that process `pid` holds by a descriptor a number of ours.
    pub fn give(pid: u32) -> Vec<i32> {
        let mut given = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let is_namespace = fs::read_link(entry.path())
                .is_ok_and(|link| link.to_string_lossy().starts_with("net:["));
            if is_namespace {
                let namespace = File::open(entry.path()).unwrap();
                let number = 1_000_000_000 + (pid as i32) * 10 + given.len() as i32;
                let attributes = [(NETNSA_NSID, number), (NETNSA_FD, namespace.as_raw_fd())];
                let answers = ask(RTM_NEWNSID, NLM_F_ACK, &attributes);
                assert_eq!(
                    answers[0].1[..4],
                    0i32.to_ne_bytes(),
                    "RTM_NEWNSID: {answers:?}"
                );
                given.push(number);
            }
        }
        given
    }

    /// The numbers that still have a namespace.
    pub fn alive(numbers: &[i32]) -> Vec<i32> {
        let answers = ask(RTM_GETNSID, NLM_F_DUMP, &[]);
        // family, padding, then the attribute NETNSA_NSID
        let number = |body: &Vec<u8>| i32::from_ne_bytes(body[8..12].try_into().unwrap());
        let known: Vec<i32> = answers
            .iter()
            .filter(|(kind, _)| *kind == RTM_NEWNSID)
            .map(|(_, b)| number(b))
            .collect();
        numbers
            .iter()
            .copied()
            .filter(|number| known.contains(number))
            .collect()
    }
}

/// The test binary again, as a child that runs only the test `name`.
fn child(program: &FilePath, name: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(CHILD, "1");
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn nothing_is_left_behind_after_kill_9() {
    let Some(_alone) = alone() else { return };
    let (before, mut numbers) = (Machine::now(), Vec::new());
    for device in ["tun", "veth", "tun", "veth"] {
        let mut child = child(
            &std::env::current_exe().unwrap(),
            "as_a_child_run_until_killed",
        )
        .env(CHILD, device)
        .spawn()
        .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("sending") {
            line.clear();
            assert!(
                output.read_line(&mut line).unwrap() > 0,
                "the child ended by itself"
            );
        }
        let given = namespace_ids::give(child.id());
        assert_eq!(given.len(), 2, "a run holds two namespaces");
        assert_eq!(namespace_ids::alive(&given), given);
        numbers.extend(given);
        child.kill().unwrap(); // SIGKILL, with data in both queues
        child.wait().unwrap();
    }
    assert_eq!(Machine::now(), before);
    // the kernel takes namespaces down in the background
    let deadline = Instant::now() + Duration::from_secs(20);
    while !namespace_ids::alive(&numbers).is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        namespace_ids::alive(&numbers),
        [0; 0],
        "namespaces outlived their process"
    );
}

#[test]
#[ignore = "run by nothing_is_left_behind_after_kill_9"]
fn as_a_child_run_until_killed() {
    if !is_child() {
        return;
    }
    let veth = std::env::var(CHILD).is_ok_and(|device| device == "veth");
    let options = Options {
        device: Some(if veth {
            DeviceKind::Veth
        } else {
            DeviceKind::Tun
        }),
        ..options(
            "rate = '50 Mbit/s'\ndelay = '50 ms'\n",
            &["cubic", "bbr"],
            3600.0,
        )
    };
    let say = |elapsed_s: f64| {
        if elapsed_s > 0.3 {
            println!("sending");
        }
    };
    emulate(&options, &say, &AtomicBool::new(false)).unwrap();
}

#[test]
fn without_root_it_says_what_is_needed() {
    let Some(_alone) = alone() else { return };
    // a copy that the user nobody can reach
    let copy = std::env::temp_dir().join(format!("pathcast-kernel-test-{}", std::process::id()));
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let spawned = child(&copy, "as_a_child_try_without_root")
        .uid(65534)
        .gid(65534)
        .output();
    fs::remove_file(&copy).unwrap();
    let output = match spawned {
        Ok(output) => output,
        Err(error) => return println!("skipped, cannot run as another user: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("run it as root"), "{text}");
}

#[test]
#[ignore = "run by without_root_it_says_what_is_needed"]
fn as_a_child_try_without_root() {
    if !is_child() {
        return;
    }
    let here = capabilities();
    assert!(
        !here.can_emulate() && !here.root && !here.tcp_probe,
        "{here:?}"
    );
    assert!(here.schemes.contains(&"cubic".to_string()), "{here:?}");
    let options = options("rate = '20 Mbit/s'\ndelay = '10 ms'\n", &["cubic"], 1.0);
    let error = emulate(&options, &|_| (), &AtomicBool::new(false)).unwrap_err();
    assert!(
        matches!(error, EmulatorError::NotPermitted { .. }),
        "{error:?}"
    );
    println!("{error}\n{:?}", here.reasons);
}
