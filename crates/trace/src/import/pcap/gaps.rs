//! Data that a capture does not show in its place. It was lost before the point of capture,
//! overtaken by later data, captured after its acknowledgment, or not captured.

use std::collections::BTreeMap;

use super::segment::Segment;

/// Only this many gaps are remembered.
const MAX_GAPS: usize = 1 << 14;
/// Data that is at most this late counts as overtaken, if no round-trip time and no packet order is
/// known.
const DEFAULT_LATE_NS: i64 = 3_000_000;
/// Ids further apart than this say nothing about order.
const MAX_ID_STEP: i16 = 1 << 10;

/// Evidence of the order in which packets were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    stamp: Option<u32>,
    id: Option<u16>,
}

impl Order {
    pub fn of(segment: &Segment) -> Self {
        Self {
            stamp: segment.options.timestamps.map(|(value, _)| value),
            id: segment.packet.id,
        }
    }

    /// Whether it was sent before `other`, if known.
    pub fn is_before(&self, other: &Self) -> Option<bool> {
        if let (Some(own), Some(others)) = (self.stamp, other.stamp)
            && own != others
        {
            return Some((own.wrapping_sub(others) as i32) < 0);
        }
        let step = self.id?.wrapping_sub(other.id?) as i16;
        (step != 0 && step.saturating_abs() <= MAX_ID_STEP).then_some(step < 0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    end: u64,
    since_ns: i64,
    /// The packet that overtook the data; `None` if an acknowledgment did.
    overtaken_by: Option<Order>,
}

/// How newly seen data filled gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Not seen before, and sent for the first time.
    pub late_bytes: u64,
    /// Not seen before, but a retransmission.
    pub again_bytes: u64,
}

/// The gaps of a flow.
#[derive(Default)]
pub struct Gaps(BTreeMap<u64, Gap>);

impl Gaps {
    /// Records a gap: a packet passed over the data from `start` to `end`, or an acknowledgment
    /// covered it before it was seen.
    pub fn open(&mut self, start: u64, end: u64, since_ns: i64, overtaken_by: Option<Order>) {
        if start >= end {
            return;
        }
        let gap = Gap {
            end,
            since_ns,
            overtaken_by,
        };
        self.0.insert(start, gap);
        if self.0.len() > MAX_GAPS {
            self.0.pop_first();
        }
    }

    /// Fills the gaps from `start` to `end` with data seen now.
    pub fn fill(
        &mut self,
        start: u64,
        end: u64,
        now_ns: i64,
        order: Order,
        rtt_ns: Option<i64>,
    ) -> Filled {
        let mut filled = Filled::default();
        while let Some((&at, &gap)) = self.0.range(..end).next_back() {
            if gap.end <= start {
                break;
            }
            self.0.remove(&at);
            let (from, to) = (at.max(start), gap.end.min(end));
            let bytes = to - from;
            if at < from {
                self.0.insert(at, Gap { end: from, ..gap });
            }
            if to < gap.end {
                self.0.insert(to, gap);
            }
            let late_ns = now_ns.saturating_sub(gap.since_ns);
            let soon = late_ns < rtt_ns.unwrap_or(DEFAULT_LATE_NS);
            let before = gap.overtaken_by.and_then(|other| order.is_before(&other));
            if before.unwrap_or(soon) {
                filled.late_bytes += bytes;
            } else {
                filled.again_bytes += bytes;
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(stamp: u32, id: u16) -> Order {
        Order {
            stamp: (stamp > 0).then_some(stamp),
            id: (id > 0).then_some(id),
        }
    }

    #[test]
    fn what_fills_a_gap_was_overtaken_or_sent_again() {
        let rtt_ns = Some(50_000_000);
        for (what, filler, after_ns, late) in [
            ("older timestamp", order(4, 0), 1_000_000_000, true),
            ("newer timestamp", order(6, 0), 1_000, false),
            (
                "same timestamp, lower id",
                order(5, 99),
                1_000_000_000,
                true,
            ),
            ("same timestamp, higher id", order(5, 101), 1_000, false),
            ("random ids, soon", order(0, 40_000), 1_000, true),
            ("nothing, soon", order(0, 0), 1_000, true),
            (
                "nothing, after a round trip",
                order(0, 0),
                60_000_000,
                false,
            ),
        ] {
            let mut gaps = Gaps::default();
            gaps.open(1000, 3000, 0, Some(order(5, 100)));
            let filled = gaps.fill(1500, 2500, after_ns, filler, rtt_ns);
            let (late_bytes, again_bytes) = if late { (1000, 0) } else { (0, 1000) };
            let wanted = Filled {
                late_bytes,
                again_bytes,
            };
            assert_eq!(filled, wanted, "{what}");
            // and the remainder
            assert_eq!(gaps.0.keys().collect::<Vec<_>>(), [&1000, &2500], "{what}");
            assert_eq!(gaps.fill(1500, 2500, 0, filler, rtt_ns), Filled::default());
        }
    }
}
