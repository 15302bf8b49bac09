//! What the tests of the kernel share: runs one at a time, and only those that can be trusted.

use std::fs;
use std::path::Path as FilePath;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

/// Ticks of this machine's processors, all of them together, in hundredths of a second.
#[allow(dead_code)] // not all tests judge by themselves
#[derive(Clone, Copy)]
pub struct Ticks {
    all: u64,
    idle: u64,
    /// What the host took away.
    stolen: u64,
}

#[allow(dead_code)] // not all tests judge by themselves
impl Ticks {
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let total = stat.lines().next().unwrap();
        // cpu user nice system idle iowait irq softirq steal (proc(5)); guests are users too
        let ticks: Vec<u64> = total
            .split_whitespace()
            .skip(1)
            .take(8)
            .map(|n| n.parse().unwrap())
            .collect();
        Self {
            all: ticks.iter().sum(),
            idle: ticks[3] + ticks[4],
            stolen: ticks.get(7).copied().unwrap_or(0),
        }
    }

    /// Why a run since then may have been kept from its processors; `None` if nothing was in its way.
    pub fn busy_since(self) -> Option<String> {
        let now = Self::now();
        let (all, idle) = (now.all - self.all, now.idle - self.idle);
        let stolen = now.stolen - self.stolen;
        // a run of its own takes less than half of two processors
        (stolen > 0 || idle * 3 < all).then(|| {
            let percent = |ticks: u64| 100 * ticks / all.max(1);
            format!(
                "the processors were idle for {} % of the time, stolen by the host for {} %",
                percent(idle),
                percent(stolen)
            )
        })
    }
}

/// A thread that wakes each millisecond, in `SCHED_FIFO` where that is allowed, and keeps how late: what
/// no run can do better.
struct Wakes {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Wakes {
    fn start() -> Self {
        const EACH: Duration = Duration::from_millis(1);
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let id = fs::read_link("/proc/thread-self").unwrap();
            // of this thread alone; below the emulator's
            let _ = Command::new("chrt")
                .args(["--fifo", "--pid", "1"])
                .arg(id.file_name().unwrap())
                .output();
            let mut late = Vec::new();
            while !end.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(EACH);
                late.push(before.elapsed().saturating_sub(EACH));
            }
            late
        });
        Self { ended, thread }
    }

    /// Why a run beside it may have been held back: wakes came late that come near a run's bounds.
    fn late(self) -> Option<String> {
        self.ended.store(true, Ordering::Relaxed);
        let mut late = self.thread.join().unwrap();
        late.sort_unstable();
        let [hundredth, thousandth] = [100, 1000].map(|one_in| {
            let place = late.len() / one_in;
            late.iter().rev().nth(place).copied().unwrap_or_default()
        });
        (hundredth > Duration::from_micros(250) || thousandth > Duration::from_millis(1)).then(
            || {
                format!(
                    "one wake in a hundred was {hundredth:?} late, one in a thousand {thousandth:?}"
                )
            },
        )
    }
}

/// A run that can be trusted. A machine that is kept busy makes one invalid, which is what the verdict
/// is for: another one is tried, at most eight. If all were invalid on a busy machine, nothing real can
/// be measured here, and this says so and gives `None`; on one that had time, something is wrong.
#[allow(dead_code)] // not all tests run flows
pub fn valid_run(options: &Options) -> Option<(RunReport, Trace)> {
    valid_run_that(options, |_, _| true)
}

/// The same, of what a busy machine may hold back within the bounds of a valid run: another one is tried
/// too if `expected` does not hold. If it never does, the last valid run that had the machine's time is
/// given, for the test to fail by.
#[allow(dead_code)] // not all tests run flows
pub fn valid_run_that(
    options: &Options,
    expected: impl Fn(&RunReport, &Trace) -> bool,
) -> Option<(RunReport, Trace)> {
    let (mut busy, mut unexpected) = (None, None);
    for attempt in 1..=8 {
        let (before, wakes) = (Ticks::now(), Wakes::start());
        let (report, trace) = run(options);
        let late = wakes.late();
        if report.valid && expected(&report, &trace) {
            return Some((report, trace));
        }
        println!(
            "attempt {attempt} was {}: {:?}",
            if report.valid { "held back" } else { "invalid" },
            report.invalid_because
        );
        let kept_busy = before.busy_since().or(late);
        if report.valid && kept_busy.is_none() {
            unexpected = Some((report, trace));
        }
        busy = kept_busy.or(busy);
    }
    if unexpected.is_some() {
        return unexpected;
    }
    let Some(busy) = busy else {
        panic!(
            "eight invalid runs in a row on a machine that had time; is SCHED_FIFO allowed? {:?}",
            capabilities()
        );
    };
    println!("skipped: eight runs in a row were invalid or held back; {busy}");
    None
}
