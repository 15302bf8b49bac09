//! A list of bursts: packets by number, or all that leave the link in spans of time (outages).

use pathcast_base::{Span, Time};

use crate::reader::{Field, Read, TIME, Table};
use crate::writer::join;

/// What is lost. Both lists are sorted, and their ranges do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    /// First and last packet of each burst; the first packet of all is number 1.
    pub packets: Vec<(u64, u64)>,
    /// Begin and end of each burst; the end belongs to it no more.
    pub times: Vec<(Time, Time)>,
}

/// The list, and how far it has been processed.
#[derive(Clone, Debug)]
pub struct BurstLoss {
    spec: Bursts,
    packet: u64,
    packets_done: usize,
    times_done: usize,
}

impl BurstLoss {
    /// The list at its beginning.
    pub const fn new(spec: Bursts) -> Self {
        Self {
            spec,
            packet: 0,
            packets_done: 0,
            times_done: 0,
        }
    }

    /// Whether the next packet, which leaves the link at `sent`, is lost.
    pub fn drops_next(&mut self, sent: Time) -> bool {
        self.packet += 1;
        let (packets, times) = (&self.spec.packets, &self.spec.times);
        while packets
            .get(self.packets_done)
            .is_some_and(|(_, last)| *last < self.packet)
        {
            self.packets_done += 1;
        }
        while times
            .get(self.times_done)
            .is_some_and(|(_, end)| *end <= sent)
        {
            self.times_done += 1;
        }
        packets
            .get(self.packets_done)
            .is_some_and(|(first, _)| *first <= self.packet)
            || times
                .get(self.times_done)
                .is_some_and(|(begin, _)| *begin <= sent)
    }
}

impl Bursts {
    pub(super) const KEYS: &[&str] = &["packets", "times"];

    pub(super) fn read(field: Field<'_, '_>, table: Table<'_, '_>) -> Read<Self> {
        const PACKETS: &str = "bursts in order such as [10, 20], from the first packet to the last";
        const TIMES: &str = "bursts in order such as [\"1 s\", \"1.5 s\"], from begin to end";
        let mut bursts = Self::default();
        for item in table
            .get("packets")
            .map(|list| list.list(PACKETS))
            .into_iter()
        {
            for item in item? {
                let [first, last] = item.pair(PACKETS)?;
                let (first, last) = (first.whole(1, 1 << 53)?, last.whole(1, 1 << 53)?);
                let after = bursts.packets.last().map_or(0, |(_, last)| *last);
                if first > last || first <= after {
                    return item.wrong(format_args!("got [{first}, {last}], expected {PACKETS}"));
                }
                bursts.packets.push((first, last));
            }
        }
        for item in table.get("times").map(|list| list.list(TIMES)).into_iter() {
            for item in item? {
                let [begin, end] = item.pair(TIMES)?;
                let (begin, end): (Span, Span) = (begin.quantity(TIME)?, end.quantity(TIME)?);
                let after = bursts.times.last().map_or(Time::ZERO, |(_, end)| *end);
                if begin >= end || Time::ZERO + begin < after {
                    return item.wrong(format_args!(
                        "got [\"{begin}\", \"{end}\"], expected {TIMES}"
                    ));
                }
                bursts.times.push((Time::ZERO + begin, Time::ZERO + end));
            }
        }
        if bursts == Self::default() {
            return field.wrong("got no burst, expected some in `packets` or `times`");
        }
        Ok(bursts)
    }

    pub(super) fn to_toml(&self) -> String {
        let packets = self.packets.iter().map(|(a, b)| format!("[{a}, {b}]"));
        let times = self
            .times
            .iter()
            .map(|(a, b)| format!("[\"{}\", \"{}\"]", a.since(Time::ZERO), b.since(Time::ZERO)));
        let (packets, times) = (join(packets), join(times));
        format!("{{ kind = \"bursts\", packets = [{packets}], times = [{times}] }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn just_what_is_listed_is_lost() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mut process = BurstLoss::new(Bursts {
            packets: vec![(2, 3), (5, 5)],
            times: vec![(at(8), at(10))],
        });
        // packet n leaves at n ms
        let lost: Vec<u64> = (1..=12).filter(|n| process.drops_next(at(*n))).collect();
        assert_eq!(lost, [2, 3, 5, 8, 9]);
    }
}
