//! What we believe of BPF schemes in the kernel. These tests need the feature `bpf`, root and a kernel
//! that takes `struct_ops`; elsewhere they say so and pass, except where `CI=true` and root and clang
//! are there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pathcast_kernel_schemes::{BPF_SCHEMES, SchemeError, Schemes, available};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};

const CHILD: &str = "PATHCAST_TEST_CHILD";

/// The kernel's list is one for all: one test at a time reads it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Schemes that the kernel does not have by itself, provided; `None` if that cannot be done here.
fn provided(names: &[&str]) -> Option<Schemes> {
    let provided = Schemes::provide(names.iter().copied());
    let clang = || Command::new("clang").arg("--version").output().is_ok();
    let root = rustix::process::geteuid().is_root();
    let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true") && root && clang();
    match provided {
        Ok(schemes) if schemes.by_bpf().count() == names.len() => Some(schemes),
        Ok(_) => {
            println!("skipped, this kernel has one of {names:?} by itself");
            None
        }
        Err(error) if root && cfg!(feature = "bpf") => panic!("{error}"),
        Err(error) => {
            assert!(!must_run, "root and clang are here, but: {error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// What of these is in the kernel's list, in this process's network namespace as in all others.
fn listed(names: &[String]) -> Vec<String> {
    let all = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let listed = all.split_whitespace().map(String::from);
    let mut listed: Vec<String> = listed.filter(|name| names.contains(name)).collect();
    listed.sort_unstable();
    listed
}

fn kernel_names(schemes: &Schemes) -> Vec<String> {
    schemes.by_bpf().map(|(_, name)| name.to_string()).collect()
}

#[test]
fn a_scheme_is_there_as_long_as_it_is_held_and_sockets_keep_it() {
    let _alone = ONE_AT_A_TIME.lock();
    let Some(schemes) = provided(&BPF_SCHEMES) else {
        return;
    };
    let names = kernel_names(&schemes);
    assert_eq!(listed(&names), names, "sorted by name, both");
    // they belong to this run and disappear with it, so they are not listed
    assert!(available().iter().all(|name| !names.contains(name)));
    let name = schemes.kernel_name("vegas").to_string();
    let tcp = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let before = tcp();
    sockopt::set_tcp_congestion(&before, &name).unwrap();
    drop(schemes);
    assert_eq!(listed(&names), [""; 0]);
    assert_eq!(sockopt::tcp_congestion(&before).unwrap(), name);
    assert!(sockopt::set_tcp_congestion(tcp(), &name).is_err());
}

#[test]
fn many_at_once_do_not_collide() {
    let _alone = ONE_AT_A_TIME.lock();
    let names = |schemes: &Vec<Schemes>| -> Vec<String> {
        let mut names: Vec<String> = schemes.iter().flat_map(kernel_names).collect();
        names.sort_unstable();
        names
    };
    let many = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..2)
                        .filter_map(|_| provided(&BPF_SCHEMES))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let made = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        made.collect::<Vec<Schemes>>()
    });
    if many.is_empty() {
        return;
    }
    let names = names(&many);
    assert_eq!(names.len(), 16);
    assert_eq!(listed(&names), names);
    drop(many);
    assert_eq!(listed(&names), [""; 0]);
}

#[test]
fn nothing_is_registered_after_kill_9() {
    let _alone = ONE_AT_A_TIME.lock();
    if provided(&BPF_SCHEMES).is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "as_a_child_hold_until_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let names = lines.find_map(|line| Some(line.split_once("holding ")?.1.to_string()));
    let names: Vec<String> = names.unwrap().split(' ').map(String::from).collect();
    assert_eq!(listed(&names).len(), 2);
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    // descriptors are closed before the process can be waited for, but what they held goes in the
    // background
    let deadline = Instant::now() + Duration::from_secs(20);
    while !listed(&names).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(listed(&names), [""; 0]);
}

#[test]
#[ignore = "run by nothing_is_registered_after_kill_9"]
fn as_a_child_hold_until_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let schemes = provided(&BPF_SCHEMES).unwrap();
    println!("holding {}", kernel_names(&schemes).join(" "));
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn without_root_a_bpf_scheme_says_what_it_needs() {
    use std::os::unix::process::CommandExt;
    let _alone = ONE_AT_A_TIME.lock();
    if provided(&BPF_SCHEMES).is_none() {
        return;
    }
    // a copy that the user nobody can reach
    let copy = std::env::temp_dir().join(format!("pathcast-schemes-test-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new(&copy)
        .args([
            "--exact",
            "as_a_child_try_without_root",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .uid(65534)
        .gid(65534)
        .output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("CAP_BPF"), "{text}");
}

#[test]
#[ignore = "run by without_root_a_bpf_scheme_says_what_it_needs"]
fn as_a_child_try_without_root() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let error = Schemes::provide(["vegas"]).unwrap_err();
    assert!(matches!(error, SchemeError::Bpf { .. }), "{error:?}");
    println!("{error}");
}
