//! What a thread asks of the scheduler.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use crate::sys;

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

/// While it lives, idle processors wait without sleeping, if this process may say so.
///
/// A virtual processor that sleeps takes 50 to 100 us to wake, and each packet of a run wakes one or two. The
/// kernel's way to ask is a file that stays open (`Documentation/power/pm_qos_interface.rst`); only root may
/// write it. Without it, all is as before, but later.
#[derive(Debug)]
pub struct AwakeProcessors {
    _request: Option<File>,
}

impl AwakeProcessors {
    /// Asks the kernel.
    pub fn ask() -> Self {
        let ask = || {
            let mut file = OpenOptions::new()
                .write(true)
                .open("/dev/cpu_dma_latency")?;
            file.write_all(&0_i32.to_ne_bytes())?;
            io::Result::Ok(file)
        };
        Self {
            _request: ask().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn processors_are_asked_to_stay_awake() {
        let request = AwakeProcessors::ask();
        if request._request.is_none() {
            eprintln!("not asked: this process may not write /dev/cpu_dma_latency");
            return;
        }
        // what the file says is the least that anyone asked for, in microseconds
        let mut bytes = [0; 4];
        let mut file = File::open("/dev/cpu_dma_latency").unwrap();
        file.read_exact(&mut bytes).unwrap();
        assert_eq!(i32::from_ne_bytes(bytes), 0);
    }
}
