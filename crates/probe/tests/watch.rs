//! Watching real flows of this and of other processes. What needs root says so and passes elsewhere.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_base::clock::monotonic_ns;
use pathcast_probe::{
    Keep, Method, Options, Probe, Selection, TcpInfo, Watch, WatchOptions, tcp_probe_available,
};
use pathcast_trace::{Record, Trace, WatchReport, WatchedFlow};

/// What this program does instead of testing when it is started again, and where to.
const CHILD: &str = "PATHCAST_TEST_CHILD";
const ADDRESS: &str = "PATHCAST_TEST_ADDRESS";

const BYTES: usize = 2_000_000;

fn methods() -> Vec<Method> {
    let mut methods = vec![Method::SockDiag];
    match tcp_probe_available() {
        Ok(()) => methods.push(Method::TcpProbe),
        Err(why) => println!("not tested with tcp_probe: {why}"),
    }
    methods
}

fn start(selection: Selection, method: Method) -> Watch {
    let options = WatchOptions {
        method: Some(method),
        keep: Keep::Memory,
    };
    Watch::start(selection, options).unwrap()
}

fn port(port: u16) -> Selection {
    Selection {
        port: Some(port),
        ..Selection::default()
    }
}

fn finish(watch: Watch) -> (WatchReport, Trace) {
    let (report, trace) = watch.finish().unwrap();
    let trace = trace.expect("kept in memory");
    assert_eq!(report.records, trace.records.len() as u64);
    assert_eq!(report.records_lost, 0);
    let times = trace.records.windows(2);
    assert!(
        times
            .into_iter()
            .all(|pair| pair[0].time_s <= pair[1].time_s)
    );
    for (number, flow) in (0u32..).zip(&report.flows) {
        let rows: Vec<&Record> = trace.flow(number).collect();
        assert_eq!(rows.len() as u64, flow.records);
        for pair in rows.windows(2) {
            assert!(pair[0].snd_una_bytes <= pair[1].snd_una_bytes, "{pair:?}");
            assert!(pair[0].retransmits <= pair[1].retransmits, "{pair:?}");
        }
        assert!(
            rows.iter()
                .all(|row| row.snd_una_bytes <= row.snd_nxt_bytes)
        );
    }
    (report, trace)
}

/// The flow whose far end is at `address`.
fn flow_to(report: &WatchReport, address: SocketAddr) -> (usize, &WatchedFlow) {
    let mut flows = report.flows.iter().enumerate();
    let found = flows.find(|(_, flow)| flow.remote == address.to_string());
    found.unwrap_or_else(|| panic!("no flow to {address} in {report:#?}"))
}

/// Reads all that connections bring, on a thread for each, until the listener's process ends.
fn sink(address: &str) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while stream.read(&mut buffer).is_ok_and(|size| size > 0) {}
            });
        }
    });
    address
}

/// Writes so slowly that every method sees many acknowledgments, and waits for the last one.
fn send(stream: &mut TcpStream) {
    const PIECE: usize = 20_000;
    for _ in 0..BYTES / PIECE {
        stream.write_all(&[1; PIECE]).unwrap();
        thread::sleep(Duration::from_millis(3));
    }
    let acked = || TcpInfo::of(stream.as_fd()).unwrap().bytes_acked.unwrap();
    while acked() < BYTES as u64 {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a watch knows that many flows that have ended; the kernel reports ends in the background.
fn wait_for_ends(watch: &Watch, number: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while watch.progress().ended < number {
        let progress = watch.progress();
        assert!(Instant::now() < deadline, "{progress:?}, {number} ends");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn all_methods_agree_on_one_transfer() {
    let address = sink("127.0.0.1:0");
    let mut stream = TcpStream::connect(address).unwrap();
    let watches: Vec<Watch> = methods()
        .into_iter()
        .map(|method| start(port(address.port()), method))
        .collect();
    let own = [Method::TcpInfo, Method::OptStats, Method::SockDiag];
    let probes = own.map(|method| {
        let options = Options {
            method,
            fifo_priority: None,
            ..Options::default()
        };
        Probe::attach(&[stream.as_fd()], &options).unwrap()
    });
    send(&mut stream);
    let truth = TcpInfo::of(stream.as_fd()).unwrap();

    let mut medians = Vec::new();
    for watch in watches {
        let method = watch.method();
        let (report, trace) = finish(watch);
        assert_eq!(report.flows.len(), 2, "both ends of the connection");
        let (number, flow) = flow_to(&report, address);
        assert_eq!(flow.acked_bytes, BYTES as u64, "{method}");
        assert_eq!(
            flow.retransmits,
            Some(truth.total_retrans.into()),
            "{method}"
        );
        assert_eq!(flow.pid, Some(std::process::id()), "{method}");
        assert_eq!(flow.mss_bytes, Some(truth.snd_mss));
        assert!(!flow.ended && flow.records > 50, "{flow:?}");
        assert!(flow.goodput_bps.unwrap() > 1e6, "{flow:?}");
        let last = trace.flow(number as u32).last().unwrap();
        assert_eq!(last.cwnd_packets, f64::from(truth.snd_cwnd), "{method}");
        medians.push((
            flow.cwnd_median_packets.unwrap(),
            flow.srtt_median_ms.unwrap(),
        ));
        let back = &report.flows[1 - number];
        assert_eq!((back.records, back.acked_bytes), (0, 0), "{method}");
        assert_eq!(back.received_bytes, Some(BYTES as u64), "{method}");
    }
    for pair in medians.windows(2) {
        let ratio = pair[0].0 / pair[1].0;
        assert!((0.8..1.25).contains(&ratio), "median windows: {medians:?}");
    }
    for (method, probe) in own.into_iter().zip(probes) {
        let seen = probe.finish(monotonic_ns() - 1_000_000_000_000);
        assert_eq!(seen.method, method);
        let last = seen.records.last().unwrap();
        assert_eq!(last.snd_una_bytes, Some(BYTES as u64), "{method}");
        assert_eq!(last.cwnd_packets, f64::from(truth.snd_cwnd), "{method}");
        assert_eq!(last.retransmits, Some(truth.total_retrans.into()));
        assert!(seen.records.len() > 50, "{method}: {}", seen.records.len());
    }
}

#[test]
fn a_flow_that_begins_later_is_found_and_counted_from_its_first_byte_to_its_end() {
    for method in methods() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let address = sink(bind);
            let watch = start(port(address.port()), method);
            thread::sleep(Duration::from_millis(50));
            let mut stream = TcpStream::connect(address).unwrap();
            send(&mut stream);
            drop(stream);
            wait_for_ends(&watch, 2);
            let progress = watch.progress();
            let (report, _) = finish(watch);
            assert_eq!((progress.flows, progress.records), (2, report.records));
            let (_, flow) = flow_to(&report, address);
            assert_eq!(
                (flow.acked_bytes, flow.ended),
                (BYTES as u64, true),
                "{method}"
            );
            assert!(flow.first_s > 0.03, "{flow:?}");
        }
    }
}

#[test]
fn ipv4_over_an_ipv6_socket_is_ipv4() {
    for method in methods() {
        // one for each: the last acknowledgments of the flow before would be a flow to this address, too
        let address = sink("127.0.0.1:0");
        let selection = Selection {
            prefix: Some("127.0.0.0/8".parse().unwrap()),
            ..port(address.port())
        };
        let watch = start(selection, method);
        let mapped = format!("[::ffff:127.0.0.1]:{}", address.port());
        let mut stream = TcpStream::connect(mapped).unwrap();
        send(&mut stream);
        let (report, _) = finish(watch);
        let (_, flow) = flow_to(&report, address);
        assert_eq!(flow.acked_bytes, BYTES as u64, "{method}");
    }
}

#[test]
fn what_is_too_short_to_be_listed_is_told_by_its_end() {
    let address = sink("127.0.0.1:0");
    let watch = start(port(address.port()), Method::SockDiag);
    // ends that are reported in the first tenth of a second may be of flows from before the watch
    thread::sleep(Duration::from_millis(150));
    for _ in 0..5 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&[1; 1000]).unwrap();
    }
    wait_for_ends(&watch, 10);
    let (report, _) = finish(watch);
    let to = address.to_string();
    let sent = report.flows.iter().filter(|flow| flow.remote == to);
    let sent: Vec<u64> = sent.map(|flow| flow.acked_bytes).collect();
    assert_eq!(sent, [1000; 5], "{report:#?}");
}

/// This program again, to do `task` and then to wait until its input is closed.
fn child(task: &str, address: SocketAddr) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_child_of_a_test", "--nocapture"]);
    command.env(CHILD, task).env(ADDRESS, address.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
fn the_child_of_a_test() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let address: SocketAddr = std::env::var(ADDRESS).unwrap().parse().unwrap();
    let mut line = [0];
    match task.as_str() {
        // begins on a command, and ends when its input does
        "send" => {
            std::io::stdin().read_exact(&mut line).unwrap();
            let mut stream = TcpStream::connect(address).unwrap();
            send(&mut stream);
            println!("\nsent");
            let _ = std::io::stdin().read(&mut line);
        }
        "watch without rights" => watch_without_rights(address),
        other => panic!("{other}"),
    }
}

fn spawn(mut command: Command) -> (Child, ChildStdin) {
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

fn wait_for_line(child: &mut Child, line: &str) {
    let output = child.stdout.as_mut().unwrap();
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(line.as_bytes()) {
        let size = output.read(&mut byte).unwrap();
        let text = String::from_utf8_lossy(&seen);
        assert!(size > 0, "the child ended with {text:?}");
        seen.push(byte[0]);
    }
}

/// A cgroup of our own, removed at the end; none where we may not make one.
struct Group(PathBuf);

impl Group {
    fn create() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut lines = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = lines.find(|words| words[2] == "cgroup2")?[1].to_string();
        let folder = format!("{mount}/pathcast-test-{}", std::process::id());
        fs::create_dir(&folder).ok()?;
        fs::create_dir(format!("{folder}/inner")).ok()?;
        Some(Self(folder.into()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("inner"));
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_flow_of_another_process_is_found_by_port_process_and_cgroup() {
    let address = sink("127.0.0.1:0");
    let group = Group::create();
    if group.is_none() {
        println!("not tested by cgroup: no cgroup2 in which one may be made");
    }
    for method in methods() {
        let (mut child, mut stdin) = spawn(child("send", address));
        let pid = child.id();
        let of_pid = Selection {
            pid: Some(pid),
            ..Selection::default()
        };
        let mut selections = vec![port(address.port()), of_pid];
        if let Some(Group(folder)) = &group {
            fs::write(folder.join("inner/cgroup.procs"), pid.to_string()).unwrap();
            let name = folder.file_name().unwrap().to_str().unwrap();
            for cgroup in [
                folder.to_str().unwrap().to_string(),
                format!("/{name}/inner"),
            ] {
                selections.push(Selection {
                    cgroup: Some(cgroup),
                    ..Selection::default()
                });
            }
        }
        let watches: Vec<Watch> = selections
            .iter()
            .map(|selection| start(selection.clone(), method))
            .collect();
        let stranger = TcpStream::connect(address).unwrap();
        stdin.write_all(b"\n").unwrap();
        wait_for_line(&mut child, "\nsent\n");
        for (selection, watch) in selections.iter().zip(watches) {
            let (report, _) = finish(watch);
            let flows = report.flows.iter();
            let found: Vec<_> = flows.filter(|flow| flow.pid == Some(pid)).collect();
            assert_eq!(found.len(), 1, "{method} {selection:?} {report:#?}");
            assert_eq!(found[0].acked_bytes, BYTES as u64, "{method} {selection:?}");
            assert_eq!(found[0].remote, address.to_string());
            let others = report.flows.len() - 1;
            match selection.port {
                Some(_) => assert_eq!(others, 3, "the stranger, and the far ends"),
                None => assert_eq!(others, 0, "{method} {selection:?} {report:#?}"),
            }
        }
        drop((stranger, stdin));
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn what_a_process_accepts_is_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for method in methods() {
        let (mut child, mut stdin) = spawn(child("send", address));
        let watch = start(
            Selection {
                pid: Some(std::process::id()),
                local_port: Some(address.port()),
                ..Selection::default()
            },
            method,
        );
        stdin.write_all(b"\n").unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let mut got = 0;
        let mut buffer = vec![0; 1 << 16];
        while got < BYTES {
            got += accepted.read(&mut buffer).unwrap();
        }
        wait_for_line(&mut child, "\nsent\n");
        let (report, _) = finish(watch);
        assert_eq!(report.flows.len(), 1, "{method} {report:#?}");
        assert_eq!(
            report.flows[0].received_bytes,
            Some(BYTES as u64),
            "{method}"
        );
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn without_rights_the_list_and_the_error_queue_still_tell() {
    if !rustix::process::geteuid().is_root() {
        return println!("not tested: only root can give up its rights");
    }
    let address = sink("127.0.0.1:0");
    let mut command = child("watch without rights", address);
    // a copy where anybody may run it
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("test");
    fs::copy(command.get_program(), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    let mut again = Command::new(&program);
    again.args(command.get_args()).envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command = again;
    command.uid(65_534).gid(65_534).current_dir("/");
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}");
    assert!(said.contains("watched without rights"), "{said}");
}

fn watch_without_rights(address: SocketAddr) {
    let options = WatchOptions {
        keep: Keep::Memory,
        ..WatchOptions::default()
    };
    let watch = Watch::start(port(address.port()), options).unwrap();
    assert_eq!(watch.method(), Method::SockDiag);
    let mut stream = TcpStream::connect(address).unwrap();
    let options = Options {
        method: Method::OptStats,
        fifo_priority: None,
        ..Options::default()
    };
    let probe = Probe::attach(&[stream.as_fd()], &options).unwrap();
    send(&mut stream);
    let seen = probe.finish(monotonic_ns());
    assert_eq!(
        seen.records.last().unwrap().snd_una_bytes,
        Some(BYTES as u64)
    );
    let (report, _) = finish(watch);
    let why = report.fallback_because.as_ref().unwrap();
    assert!(why.contains("tcp_probe is not available"), "{why}");
    let (_, flow) = flow_to(&report, address);
    assert_eq!(
        (flow.acked_bytes, flow.pid),
        (BYTES as u64, Some(std::process::id()))
    );
    println!("watched without rights");
}

#[test]
fn a_trace_goes_to_a_file_as_it_comes_and_an_abandoned_one_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.parquet");
    let address = sink("127.0.0.1:0");
    for keep in [false, true] {
        let options = WatchOptions {
            method: Some(Method::SockDiag),
            keep: Keep::File(file.clone()),
        };
        let watch = Watch::start(port(address.port()), options).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        send(&mut stream);
        if !keep {
            drop(watch);
            continue;
        }
        assert!(!file.exists());
        let (report, trace) = watch.finish().unwrap();
        assert!(trace.is_none());
        let trace = pathcast_trace::read(&file).unwrap();
        assert_eq!(trace.records.len() as u64, report.records);
        let (number, flow) = flow_to(&report, address);
        assert_eq!(trace.metadata.schemes[number], flow.scheme.clone().unwrap());
        assert_eq!(trace.metadata.mss_bytes, flow.mss_bytes);
    }
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "only the trace");
}

#[test]
fn what_cannot_be_watched_is_told() {
    let error = |selection: Selection, method| {
        let options = WatchOptions {
            method,
            ..WatchOptions::default()
        };
        Watch::start(selection, options).err().unwrap().to_string()
    };
    let pid = Selection {
        pid: Some(4_194_305),
        ..Selection::default()
    };
    assert!(error(pid, None).contains("cannot watch process 4194305: No such file"));
    let cgroup = Selection {
        cgroup: Some("/no/such".into()),
        ..Selection::default()
    };
    assert!(error(cgroup, None).contains("cgroup /no/such: is not there"));
    assert!(error(port(0), None).contains("port is 0"));
    assert!(error(port(1), Some(Method::OptStats)).contains("sockets of this process"));
    let everywhere = Selection {
        all_namespaces: true,
        ..Selection::default()
    };
    assert!(error(everywhere, Some(Method::SockDiag)).contains("by tcp_probe only"));
}
