//! What `shell` believes of the kernel. These tests need root and /dev/net/tun; elsewhere they say so
//! and pass, except where `CI=true` and both are there.
//!
//! Inside the shells run tests of this very binary, those whose names begin with `inside_`.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_emulator::{DeviceKind, EmulatorError, ShellOptions, ShellReport, shell};
use pathcast_path::Path;

use common::{Ticks, alone};

const PORT: &str = "PATHCAST_TEST_PORT";
const RESULT: &str = "PATHCAST_TEST_RESULT";

/// A command inside a path.
fn options(path: &str, command: &[&str]) -> ShellOptions {
    let (program, arguments) = command.split_first().unwrap();
    ShellOptions {
        links: vec![Path::parse(path, "test.toml").unwrap()],
        seed: 1,
        command: (program.into(), arguments.iter().map(Into::into).collect()),
        scheme: None,
        outside: None,
        environment: Vec::new(),
        user: None,
        device: None,
        super_packets: None,
        packets_file: None,
        mm_logs: [None, None],
    }
}

/// The test `name` of this binary inside a path, which receives the port of a server outside and the file
/// for its result.
fn inside(path: &str, name: &str, port: u16, result: &FilePath) -> ShellOptions {
    let program = std::env::current_exe().unwrap();
    let command = [program.to_str().unwrap(), "--exact", name, "--ignored"];
    let mut options = options(path, &command);
    options.environment = vec![
        (PORT.into(), port.to_string().into()),
        (RESULT.into(), result.into()),
    ];
    options
}

fn run(options: &ShellOptions) -> ShellReport {
    shell(options, &|| None).unwrap()
}

/// A place of its own for the result of the test `name`.
fn result_file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pathcast-{name}-{}", std::process::id()))
}

fn take_result(file: &FilePath) -> Vec<f64> {
    let text = fs::read_to_string(file).unwrap();
    fs::remove_file(file).unwrap();
    text.split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect()
}

/// Whether `attempt` succeeds once in eight times. On a machine that was kept busy none may: then this
/// says so and is true.
fn eventually(mut attempt: impl FnMut() -> Result<(), String>) -> bool {
    let mut busy = None;
    for number in 1..=8 {
        let before = Ticks::now();
        let Err(why) = attempt() else { return true };
        println!("attempt {number}: {why}");
        busy = before.busy_since().or(busy);
    }
    if let Some(busy) = &busy {
        println!("skipped: eight attempts in a row missed their time; {busy}");
    }
    busy.is_some()
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Sends back whatever comes, until dropped.
struct Echo {
    port: u16,
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    fn start() -> Self {
        // the shell's device is not there yet
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let timeout = Some(Duration::from_millis(50));
        socket.set_read_timeout(timeout).unwrap();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((size, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..size], from);
                }
            }
        });
        Self {
            port,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// What a test inside receives; none if it is not inside.
fn told() -> Option<(Ipv4Addr, u16, PathBuf)> {
    let port = std::env::var(PORT).ok()?.parse().unwrap();
    assert_eq!(variable("PATHCAST_BASE"), variable("MAHIMAHI_BASE"));
    let base = variable("PATHCAST_BASE").parse().unwrap();
    Some((base, port, variable(RESULT).into()))
}

const DEVICES: [DeviceKind; 2] = [DeviceKind::Tun, DeviceKind::Veth];

const DELAY_ONLY: &str = "rate = '100 Mbit/s'\ndelay = '20 ms'\n[reverse]\ndelay = '10 ms'\n";

#[test]
fn the_round_trip_from_inside_is_that_of_the_path() {
    let Some(_alone) = alone() else { return };
    for device in DEVICES {
        round_trip_is_that_of_the_path(device);
    }
}

fn round_trip_is_that_of_the_path(device: DeviceKind) {
    let (echo, file) = (Echo::start(), result_file("rtt"));
    let held = eventually(|| {
        let report = run(&ShellOptions {
            device: Some(device),
            ..inside(DELAY_ONLY, "inside_ping", echo.port, &file)
        });
        assert_eq!(report.exit_code, 0);
        let rtts_ms = take_result(&file);
        let (least, median) = (rtts_ms[0], rtts_ms[rtts_ms.len() / 2]);
        assert!(least >= 30.0, "{rtts_ms:?}");
        assert!(report.forward.offered >= 50 && report.reverse.delivered >= 50);
        assert_eq!(report.forward.dropped + report.forward.lost, 0);
        println!("least {least} ms, median {median} ms, {:?}", report.slip_us);
        check(median < 31.0, || format!("{rtts_ms:?}"))
    });
    assert!(held);
}

/// Sends datagrams one by one and notes how long each takes to come back, in ms, sorted.
fn ping(count: usize) -> Vec<f64> {
    let (base, port, _) = told().unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect((base, port)).unwrap();
    let timeout = Some(Duration::from_secs(2));
    socket.set_read_timeout(timeout).unwrap();
    let mut rtts_ms = Vec::new();
    for number in 0..count {
        let sent = Instant::now();
        socket.send(&[number as u8; 64]).unwrap();
        socket.recv(&mut [0; 64]).unwrap();
        rtts_ms.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    rtts_ms.sort_by(f64::total_cmp);
    rtts_ms
}

fn leave(numbers: &[f64]) {
    let text: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    fs::write(told().unwrap().2, text.join(" ")).unwrap();
}

#[test]
#[ignore = "run inside by other tests"]
fn inside_ping() {
    if told().is_some() {
        leave(&ping(50));
    }
}

#[test]
fn a_bulk_transfer_has_the_links_rate_each_way() {
    let Some(_alone) = alone() else { return };
    let path = "rate = '40 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n\
                [reverse]\nrate = '20 Mbit/s'\nqueue = '1 BDP'\n";
    for device in DEVICES {
        transfers_at_the_links_rates(path, device);
    }
}

fn transfers_at_the_links_rates(path: &str, device: DeviceKind) {
    let file = result_file("bulk");
    let held = eventually(|| {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let up_bps = receive(&stream);
            let (stream, _) = listener.accept().unwrap();
            send(stream);
            up_bps
        });
        let report = run(&ShellOptions {
            device: Some(device),
            ..inside(path, "inside_transfer", port, &file)
        });
        assert_eq!(report.exit_code, 0);
        let (up_bps, down_bps) = (server.join().unwrap(), take_result(&file)[0]);
        let payload = 1448.0 / 1500.0;
        let (up, down) = (up_bps / (40e6 * payload), down_bps / (20e6 * payload));
        println!("{up} and {down} of the rates, {:?}", report.slip_us);
        check(report.invalid_because.is_empty(), || {
            report.invalid_because.join("; ")
        })?;
        assert!(up < 1.01 && down < 1.01, "{up} and {down} of the rates");
        check(up > 0.95 && down > 0.95, || {
            format!("{up} and {down} of the rates")
        })
    });
    assert!(held);
}

/// Sends for three seconds.
fn send(mut stream: TcpStream) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        stream.write_all(&[0; 16_384]).unwrap();
    }
}

/// Receives until the end; bits a second between one and three seconds after the first byte.
fn receive(mut stream: &TcpStream) -> f64 {
    let (mut buffer, mut began, mut bytes, mut last_s) = ([0; 65_536], None, 0, 1.0);
    loop {
        let size = stream.read(&mut buffer).unwrap();
        let began = *began.get_or_insert_with(Instant::now);
        let now_s = began.elapsed().as_secs_f64();
        if size == 0 || now_s > 3.0 {
            while stream.read(&mut buffer).is_ok_and(|size| size > 0) {}
            return f64::from(bytes) * 8.0 / (last_s - 1.0);
        }
        if now_s > 1.0 {
            bytes += size as u32;
            last_s = now_s;
        }
    }
}

#[test]
#[ignore = "run inside by other tests"]
fn inside_transfer() {
    let Some((base, port, _)) = told() else {
        return;
    };
    send(TcpStream::connect((base, port)).unwrap());
    leave(&[receive(&TcpStream::connect((base, port)).unwrap())]);
}

#[test]
fn the_commands_exit_code_user_folder_and_environment_are_kept() {
    let Some(_alone) = alone() else { return };
    let code = |options: &ShellOptions| run(options).exit_code;
    let of = |script: &str| options("delay = '1 ms'\n", &["sh", "-c", script]);
    assert_eq!(code(&of("exit 7")), 7);
    assert_eq!(code(&of("kill -TERM $$")), 128 + 15);
    assert_eq!(code(&of("test $(id -u) = 0 -a $PWD = \"$(pwd)\"")), 0);
    let folder = std::env::current_dir().unwrap();
    let there = format!("test \"$(pwd -P)\" = '{}'", folder.display());
    assert_eq!(code(&of(&there)), 0);
    let mut other = of("test $(id -u) = 65534 -a $(id -G) = 65534 -a $GIVEN = x");
    other.user = Some((65534, 65534));
    other.environment = vec![("GIVEN".into(), OsString::from("x"))];
    assert_eq!(code(&other), 0);
    let nothing = shell(&options("delay = '1 ms'\n", &["no-such-program"]), &|| None);
    let text = nothing.unwrap_err().to_string();
    assert!(text.contains("\"no-such-program\""), "{text}");
}

#[test]
fn a_signal_is_passed_on_to_the_command() {
    let Some(_alone) = alone() else { return };
    let began = Instant::now();
    let signals = || (began.elapsed() > Duration::from_millis(300)).then_some(15);
    let report = shell(&options("delay = '1 ms'\n", &["sleep", "100"]), &signals).unwrap();
    assert_eq!(report.exit_code, 128 + 15);
    assert!(report.wall_s < 50.0);
}

#[test]
fn two_shells_at_once_do_not_collide() {
    let Some(_alone) = alone() else { return };
    let echo = Echo::start();
    let held = eventually(|| {
        let ping = |delay_ms: f64| {
            let path = format!("delay = '{delay_ms} ms'\n");
            let file = result_file(&format!("both-{delay_ms}"));
            let report = run(&inside(&path, "inside_ping", echo.port, &file));
            assert_eq!(report.exit_code, 0);
            take_result(&file)[25]
        };
        let medians = thread::scope(|scope| {
            let other = scope.spawn(|| ping(15.0));
            (ping(5.0), other.join().unwrap())
        });
        assert!(medians.0 >= 10.0 && medians.1 >= 30.0, "{medians:?}");
        check(medians.0 < 11.0 && medians.1 < 31.0, || {
            format!("{medians:?}")
        })
    });
    assert!(held);
}

#[test]
fn a_shell_in_a_shell_has_both_paths() {
    let Some(_alone) = alone() else { return };
    let (echo, file) = (Echo::start(), result_file("nested"));
    let held = eventually(|| {
        let outer = inside("delay = '5 ms'\n", "inside_nest", echo.port, &file);
        assert_eq!(run(&outer).exit_code, 0);
        let found = take_result(&file);
        let (outer_ms, inner_ms) = (found[0], found[1]);
        println!("{outer_ms} ms in the first, {inner_ms} ms in the third");
        assert!(outer_ms >= 10.0 && inner_ms >= 28.0, "{found:?}");
        check(outer_ms < 11.0 && inner_ms < 30.0, || format!("{found:?}"))
    });
    assert!(held);
}

#[test]
#[ignore = "run inside by other tests"]
fn inside_nest() {
    let Some((_, port, file)) = told() else {
        return;
    };
    let mut medians = vec![ping(20)[10]];
    // two more, the last with nothing but a delay
    let second = inside(
        "rate = '50 Mbit/s'\ndelay = '6 ms'\n",
        "inside_third",
        port,
        &file,
    );
    assert_eq!(run(&second).exit_code, 0);
    medians.extend(take_result(&file));
    leave(&medians);
}

#[test]
#[ignore = "run inside by other tests"]
fn inside_third() {
    let Some((_, port, file)) = told() else {
        return;
    };
    let third = inside("delay = '3 ms'\n", "inside_ping_a_little", port, &file);
    assert_eq!(run(&third).exit_code, 0);
}

#[test]
#[ignore = "run inside by other tests"]
fn inside_ping_a_little() {
    if told().is_some() {
        leave(&[ping(20)[10]]);
    }
}

#[test]
fn links_in_a_row_are_crossed_one_after_the_other_and_both_logs_are_kept() {
    let Some(_alone) = alone() else { return };
    let (echo, file) = (Echo::start(), result_file("row"));
    let mut options = inside("delay = '3 ms'\n", "inside_ping", echo.port, &file);
    let lossy = "rate = '12 Mbit/s'\ndelay = '4 ms'\n";
    options.links.push(Path::parse(lossy, "test.toml").unwrap());
    let name = |kind: &str| result_file(&format!("log.{kind}"));
    options.packets_file = Some(name("parquet"));
    options.mm_logs = [Some(name("up")), Some(name("down"))];
    let report = run(&options);
    assert_eq!(report.exit_code, 0);
    assert!(take_result(&file)[0] >= 14.0);
    for (kind, crossed) in [("up", report.forward), ("down", report.reverse)] {
        let text = fs::read_to_string(name(kind)).unwrap();
        let lines = |sign: &str| {
            let of = |line: &&str| line.split(' ').nth(1) == Some(sign) && !line.starts_with('#');
            text.lines().filter(of).count() as u64
        };
        assert_eq!(lines("+"), crossed.offered, "{text}");
        assert_eq!(lines("-"), crossed.delivered, "{text}");
        assert!(lines("#") > 100, "{text}");
        assert!(
            text.contains(" + 96\n"),
            "64 bytes, two headers and 4 bytes: {text}"
        );
        let moments = text.lines().filter(|line| !line.starts_with('#'));
        let moments = moments.map(|line| line.split(' ').next().unwrap().parse().unwrap());
        assert!(moments.collect::<Vec<u64>>().is_sorted());
    }
    assert!(fs::metadata(name("parquet")).unwrap().len() > 1000);
    for kind in ["parquet", "up", "down"] {
        fs::remove_file(name(kind)).unwrap();
    }
}

fn interfaces() -> BTreeSet<OsString> {
    let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("pathcast"))
        .collect()
}

/// Processes in the network namespace that `link` names.
fn processes_in(link: &FilePath) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let inside = |process: &fs::DirEntry| {
        fs::read_link(process.path().join("ns/net")).is_ok_and(|own| own == link)
    };
    processes.filter(inside).count()
}

#[test]
fn nothing_is_left_after_kill_9() {
    let Some(_alone) = alone() else { return };
    let before = interfaces();
    let file = result_file("killed");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_child_run_until_killed", "--ignored"])
        .env(RESULT, &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&file).map_or(true, |text| !text.ends_with('\n')) {
        assert!(Instant::now() < deadline, "the shell did not start");
        thread::sleep(Duration::from_millis(10));
    }
    let namespace = fs::read_to_string(&file).unwrap();
    let namespace = PathBuf::from(namespace.trim());
    assert_eq!(interfaces().len(), before.len() + 1);
    assert!(processes_in(&namespace) > 0);
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while (interfaces() != before || processes_in(&namespace) > 0) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(interfaces(), before);
    assert_eq!(processes_in(&namespace), 0);
    fs::remove_file(&file).unwrap();
}

#[test]
#[ignore = "run by nothing_is_left_after_kill_9"]
fn as_a_child_run_until_killed() {
    let Ok(file) = std::env::var(RESULT) else {
        return;
    };
    let script = "readlink /proc/self/ns/net > \"$0\"; exec sleep 1000";
    run(&options("delay = '5 ms'\n", &["sh", "-c", script, &file]));
}

#[test]
fn what_cannot_be_run_is_refused() {
    let Some(_alone) = alone() else { return };
    let error = shell(&options("delay = '1 ms'\n", &["/"]), &|| None).unwrap_err();
    assert!(matches!(error, EmulatorError::Command { .. }), "{error:?}");
}
