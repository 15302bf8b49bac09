//! Token-bucket policer: drops what exceeds a rate and a burst, and delays nothing.

use pathcast_base::{Bandwidth, Time};

use crate::packet::FULL_PACKET_BYTES;
use crate::queue::QueueLimit;
use crate::reader::{Field, RATE, Read};

/// A policer as a path file describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicerSpec {
    /// Rate at which tokens come.
    pub rate: Bandwidth,
    /// Most tokens that can be saved up, in bytes.
    pub burst_bytes: u64,
}

/// A bucket with a token for each byte, full at the start (as the token bucket C of RFC 2697).
#[derive(Clone, Debug)]
pub struct Policer {
    bytes_per_ns: f64,
    burst_bytes: f64,
    tokens_bytes: f64,
    filled_at: Time,
}

impl Policer {
    /// A full bucket.
    pub fn new(spec: PolicerSpec) -> Self {
        let burst_bytes = spec.burst_bytes as f64;
        Self {
            bytes_per_ns: spec.rate.as_bps() / 8e9,
            burst_bytes,
            tokens_bytes: burst_bytes,
            filled_at: Time::ZERO,
        }
    }

    /// Whether a packet of `size_bytes` may pass at `now`; takes its tokens if so.
    #[inline]
    pub fn admits(&mut self, now: Time, size_bytes: u32) -> bool {
        let waited_ns = now.since(self.filled_at).as_nanos() as f64;
        self.filled_at = self.filled_at.max(now);
        self.tokens_bytes =
            (self.tokens_bytes + waited_ns * self.bytes_per_ns).min(self.burst_bytes);
        let size_bytes = f64::from(size_bytes);
        let admits = self.tokens_bytes >= size_bytes;
        if admits {
            self.tokens_bytes -= size_bytes;
        }
        admits
    }
}

impl PolicerSpec {
    /// The value of the key `policer`.
    pub(crate) fn read(field: Field<'_, '_>) -> Read<Self> {
        let table = field.table(
            "a table such as { rate = \"12 Mbit/s\", burst = \"30 kB\" }",
            &["rate", "burst"],
        )?;
        let burst = table.need("burst")?;
        let burst_bytes = match burst.quantity("a size such as \"30 kB\"")? {
            QueueLimit::Bytes(bytes) if bytes >= FULL_PACKET_BYTES => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(FULL_PACKET_BYTES),
            _ => {
                return burst
                    .wrong("expected at least one packet of 1500 bytes, such as \"30 kB\"");
            }
        };
        Ok(Self {
            rate: table.need("rate")?.quantity(RATE)?,
            burst_bytes,
        })
    }

    pub(crate) fn to_toml(self) -> String {
        let Self { rate, burst_bytes } = self;
        format!("{{ rate = \"{rate}\", burst = \"{burst_bytes} B\" }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut policer = Policer::new(PolicerSpec {
            rate: Bandwidth::from_bps(12e6).unwrap(),
            burst_bytes: 15_000,
        });
        let at_once = (0..100)
            .filter(|_| policer.admits(Time::ZERO, 1500))
            .count();
        assert_eq!(at_once, 10);
        // 36 Mbit/s offered for 10 s: 12 Mbit/s pass, a packet a millisecond
        let passed = (1..=30_000u64)
            .filter(|n| policer.admits(Time::from_nanos(n * 1_000_000 / 3), 1500))
            .count();
        assert!((9_999..=10_000).contains(&passed), "{passed}");
    }

    #[test]
    fn silence_saves_up_no_more_than_the_burst() {
        let mut policer = Policer::new(PolicerSpec {
            rate: Bandwidth::from_bps(1e9).unwrap(),
            burst_bytes: 3000,
        });
        let later = Time::from_nanos(60_000_000_000);
        assert_eq!((0..9).filter(|_| policer.admits(later, 1500)).count(), 2);
    }
}
