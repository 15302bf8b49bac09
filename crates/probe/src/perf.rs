//! The records of a tracepoint, from the rings of all processors.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use crate::sys::{PerfMemory, perf_enable, perf_set_filter, perf_tracepoint};

/// 4 MiB a processor: 26,000 records of 160 bytes, half a second at 50,000 acknowledgments a second.
const RING_PAGES: usize = 1024;

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;

/// A tracepoint that is being recorded on every processor.
pub(crate) struct Rings {
    rings: Vec<Ring>,
    buffer: Vec<u8>,
}

struct Ring {
    event: OwnedFd,
    memory: PerfMemory,
    /// Lost records, as counted by the records in the ring.
    lost: u64,
    /// Whether the kernel counts what it could not write, and `read` returns the count (since Linux 6.0).
    counts_lost: bool,
}

impl Rings {
    /// Records the events of tracepoint `id` that match `filter`, all if it is empty, from now on.
    ///
    /// # Errors
    /// What the kernel says, mostly `EACCES`: this needs `CAP_PERFMON`.
    pub(crate) fn open(id: u64, filter: &CStr) -> io::Result<Self> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let mut rings = Vec::new();
        for cpu in parse_cpu_list(&online) {
            let (event, counts_lost) = match perf_tracepoint(id, cpu, true) {
                Ok(event) => (event, true),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    (perf_tracepoint(id, cpu, false)?, false)
                }
                Err(error) => return Err(error),
            };
            let memory = PerfMemory::map(&event, RING_PAGES)?;
            if !filter.is_empty() {
                perf_set_filter(&event, filter)?;
            }
            rings.push(Ring {
                event,
                memory,
                lost: 0,
                counts_lost,
            });
        }
        for ring in &rings {
            perf_enable(&ring.event, true)?;
        }
        Ok(Self {
            rings,
            buffer: Vec::new(),
        })
    }

    /// Hands each new record to `take`, with its time in nanoseconds of the monotonic clock: in the
    /// order of time for each processor, but not over all of them.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(u64, &[u8])) {
        for ring in &mut self.rings {
            let (mut tail, head) = (ring.memory.tail(), ring.memory.head());
            while tail < head {
                let mut header = [0; 8];
                ring.memory.copy(tail, &mut header);
                // struct perf_event_header: u32 type, u16 misc, u16 size
                let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
                let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
                if size < header.len() {
                    tail = head; // never seen, but it ends the loop
                    ring.lost += 1;
                    break;
                }
                self.buffer.resize(size, 0);
                ring.memory.copy(tail, &mut self.buffer);
                let word = |at: usize| -> Option<u64> {
                    Some(u64::from_ne_bytes(
                        self.buffer.get(at..at + 8)?.try_into().ok()?,
                    ))
                };
                match kind {
                    // u64 time, u32 size, record
                    PERF_RECORD_SAMPLE => match (word(8), self.buffer.get(20..)) {
                        (Some(time_ns), Some(record)) => take(time_ns, record),
                        _ => ring.lost += 1,
                    },
                    // u64 id, u64 lost
                    PERF_RECORD_LOST => ring.lost += word(16).unwrap_or(1),
                    _ => {}
                }
                tail += size as u64;
            }
            ring.memory.release(tail);
        }
    }

    /// Ends the recording; what stands in the rings can still be drained.
    pub(crate) fn disable(&self) {
        for ring in &self.rings {
            let _ = perf_enable(&ring.event, false); // closing it does the same
        }
    }

    /// Records that found a ring full.
    pub(crate) fn lost(&self) -> u64 {
        self.rings.iter().map(Ring::lost).sum()
    }
}

impl Ring {
    fn lost(&self) -> u64 {
        // PERF_FORMAT_LOST: u64 value, u64 lost
        let mut counts = [0; 16];
        match rustix::io::read(&self.event, &mut counts) {
            Ok(16) if self.counts_lost => self.lost.max(u64::from_ne_bytes(
                counts[8..].try_into().expect("eight bytes"),
            )),
            _ => self.lost,
        }
    }
}

/// `0-1,4` is 0, 1 and 4.
fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(parse_cpu_list("0-1\n"), [0, 1]);
        assert_eq!(parse_cpu_list("0,2-4,7\n"), [0, 2, 3, 4, 7]);
        assert_eq!(parse_cpu_list("\n"), [0u32; 0]);
    }
}
