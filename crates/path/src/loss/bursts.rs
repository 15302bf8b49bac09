//! A list of bursts: packets by number, or all that leave the link in spans of time (outages).

use crate::units::Time;

/// What is lost. Both lists are sorted and their ranges lie apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    /// First and last packet of each burst; the first packet of all is number 1.
    pub packets: Vec<(u64, u64)>,
    /// Begin and end of each burst; the end belongs to it no more.
    pub times: Vec<(Time, Time)>,
}

/// The list, as far as it has been worked off.
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
