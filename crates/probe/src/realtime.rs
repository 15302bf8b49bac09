//! The clock of a run, and what a thread asks of the scheduler.

use std::io;

use rustix::time::{ClockId, clock_gettime};

use crate::sys;

/// Nanoseconds of `CLOCK_MONOTONIC`, which the kernel's trace records carry too.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time that the calling thread has used, in seconds.
pub fn thread_cpu_s() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime) as f64 * 1e-9
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Puts the calling thread into the real-time class `SCHED_FIFO` at `priority` (1 to 99), and its
/// timers to the finest slack.
///
/// A busy machine delays an ordinary thread by tens of milliseconds and a FIFO thread by tens of
/// microseconds; but a FIFO thread that never sleeps is stopped by the kernel for 50 ms a second.
///
/// # Errors
/// What the kernel says, mostly `EPERM`: this needs `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`.
pub fn request_fifo(priority: i32) -> io::Result<()> {
    sys::set_fine_timer_slack()?;
    sys::set_fifo(priority)
}

/// How far the real-time clock is ahead of the monotonic one, in nanoseconds.
pub(crate) fn realtime_offset_ns() -> i64 {
    nanoseconds(ClockId::Realtime) as i64 - monotonic_ns() as i64
}
