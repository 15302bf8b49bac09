//! The service's time: seconds since 1970 that do not jump with the machine's clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A machine's clock that differs by more than this was set anew, seconds.
const JUMP_S: f64 = 1.0;

/// Follows the steady clock. Where the machine's clock was set anew, it goes over to that, and counts it.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    offset_s: Mutex<f64>,
    jumps: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            offset_s: Mutex::new(wall_s()),
            jumps: AtomicU64::new(0),
        }
    }
}

fn wall_s() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

impl Clock {
    /// Seconds since 1970.
    pub fn now_s(&self) -> f64 {
        *self.offset_s.lock().expect("no panic holds it") + self.start.elapsed().as_secs_f64()
    }

    /// Compares with the machine's clock; to be called now and then.
    pub fn check(&self) {
        let off_s = wall_s() - self.now_s();
        if off_s.abs() > JUMP_S {
            self.jumps.fetch_add(1, Ordering::Relaxed);
        }
        // small differences are followed too: they are the steady clock's drift
        *self.offset_s.lock().expect("no panic holds it") += off_s;
    }

    /// How often the machine's clock was set anew.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }
}
