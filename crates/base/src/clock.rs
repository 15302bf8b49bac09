//! The clocks of the machine, for crates that run in real time.

use rustix::time::{ClockId, clock_gettime};

use crate::Time;

/// Nanoseconds of `CLOCK_MONOTONIC`, which the kernel's trace records carry too.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time that the calling thread has used, in seconds.
pub fn thread_cpu_s() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime) as f64 * 1e-9
}

/// How far the real-time clock is ahead of the monotonic one, in nanoseconds.
pub fn realtime_offset_ns() -> i64 {
    nanoseconds(ClockId::Realtime) as i64 - monotonic_ns() as i64
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The clock of a run in real time: zero at its origin, and before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunClock {
    /// The origin, on the monotonic clock.
    pub origin_ns: u64,
}

impl RunClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self {
            origin_ns: monotonic_ns(),
        }
    }

    /// The time that this clock shows.
    #[inline]
    pub fn now(self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.origin_ns))
    }

    /// The moment on the monotonic clock at which this clock shows `at`.
    #[inline]
    pub const fn monotonic_ns(self, at: Time) -> u64 {
        self.origin_ns.saturating_add(at.as_nanos())
    }
}
