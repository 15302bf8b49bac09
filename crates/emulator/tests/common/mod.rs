//! What the tests of the kernel share: runs one at a time, and only those that can be trusted.

use std::fs;
use std::path::Path as FilePath;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};

use pathcast_emulator::{Options, capabilities, emulate};
use pathcast_path::{Path, Span};
use pathcast_trace::{RunReport, Trace};

/// Runs share two processors and one clock: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The right to run alone; `None` if the emulator cannot run here.
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    let guard = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let here = capabilities();
    if here.can_emulate() {
        return Some(guard);
    }
    let root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true")
        && root
        && FilePath::new("/dev/net/tun").exists();
    assert!(
        !must_run,
        "root and /dev/net/tun are here, but: {:?}",
        here.reasons
    );
    println!(
        "skipped, the emulator cannot run here: {}",
        here.reasons.join("; ")
    );
    None
}

/// One bulk flow for each scheme over a path.
#[allow(dead_code)] // not all tests run bulk flows
pub fn options(path: &str, schemes: &[&str], duration_s: f64) -> Options {
    let path = Path::parse(path, "test.toml").unwrap();
    let schemes = schemes.iter().map(ToString::to_string).collect();
    Options::new(path, schemes, Span::from_secs(duration_s), 1)
}

/// A run, whatever it is worth.
#[allow(dead_code)] // not all tests run flows
pub fn run(options: &Options) -> (RunReport, Trace) {
    emulate(options, &|_| (), &AtomicBool::new(false)).unwrap()
}

/// Time that the host took away from this machine's processors, in hundredths of a second.
#[allow(dead_code)] // not all tests judge by themselves
pub fn stolen_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let total = stat.lines().next().unwrap();
    // cpu user nice system idle iowait irq softirq steal (proc(5))
    total
        .split_whitespace()
        .nth(8)
        .map_or(0, |n| n.parse().unwrap())
}

/// A run that can be trusted. A machine that stops for a while makes one invalid, which is what the
/// verdict is for; it does not do so eight times in a row, unless its host takes the processors away
/// all the time: then nothing real can be measured here, and this says so and gives `None`.
#[allow(dead_code)] // not all tests run flows
pub fn valid_run(options: &Options) -> Option<(RunReport, Trace)> {
    let mut stolen_in_all = true;
    for attempt in 1..=8 {
        let before = stolen_ticks();
        let (report, trace) = run(options);
        if report.valid {
            return Some((report, trace));
        }
        let stolen = stolen_ticks() - before;
        stolen_in_all &= stolen > 0;
        println!(
            "attempt {attempt} was invalid, {} ms were stolen by the host: {:?}",
            stolen * 10,
            report.invalid_because
        );
    }
    assert!(
        stolen_in_all,
        "eight invalid runs in a row; is SCHED_FIFO allowed? {:?}",
        capabilities()
    );
    println!("skipped, the host takes the processors away too often for a run in real time");
    None
}
