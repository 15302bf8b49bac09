//! What became of the data packets of each group of flows: of each table of a scenario.

use crate::delay::DelayHistogram;
use crate::report::GroupReport;

/// Counts by group, where there are two groups or more.
#[derive(Clone, Debug, Default)]
pub struct Groups(Vec<Tally>);

#[derive(Clone, Debug, Default)]
struct Tally {
    offered: u64,
    dropped: u64,
    delivered: u64,
    delays: DelayHistogram,
}

impl Groups {
    /// Most groups that are counted apart: each takes 270 kB.
    pub const MOST: usize = 64;

    /// So many groups. One group is the whole run and not counted apart, nor are more than [`Groups::MOST`].
    pub fn new(groups: usize) -> Self {
        let counted = if (2..=Self::MOST).contains(&groups) {
            groups
        } else {
            0
        };
        Self(vec![Tally::default(); counted])
    }

    /// Whether groups are counted apart.
    #[inline]
    pub const fn are_counted(&self) -> bool {
        !self.0.is_empty()
    }

    /// A data packet of `group` was offered to the path.
    #[inline]
    pub fn offer(&mut self, group: usize) {
        if let Some(tally) = self.0.get_mut(group) {
            tally.offered += 1;
        }
    }

    /// One of them was dropped.
    #[inline]
    pub fn drop(&mut self, group: usize) {
        if let Some(tally) = self.0.get_mut(group) {
            tally.dropped += 1;
        }
    }

    /// One of them arrived, after `delay_ns`.
    #[inline]
    pub fn deliver(&mut self, group: usize, delay_ns: u64) {
        if let Some(tally) = self.0.get_mut(group) {
            tally.delivered += 1;
            tally.delays.record(delay_ns);
        }
    }

    /// The reports of groups that have so many `flows` each.
    pub fn reports(&self, flows: impl IntoIterator<Item = u32>) -> Vec<GroupReport> {
        let counted = self.0.iter().zip(flows);
        counted
            .map(|(tally, flows)| GroupReport {
                flows,
                packets_delivered: tally.delivered,
                loss_rate: tally.dropped as f64 / tally.offered.max(1) as f64,
                one_way_delay_ms: tally.delays.one_way_delay_ms(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_counts_for_its_own_group_only() {
        let mut groups = Groups::new(2);
        for delay_ms in [10, 20, 30] {
            groups.offer(0);
            groups.deliver(0, delay_ms * 1_000_000);
        }
        groups.offer(0);
        groups.drop(0);
        groups.offer(1);
        groups.deliver(1, 500_000_000);
        let reports = groups.reports([3, 1]);
        let [first, second] = &reports[..] else {
            panic!("{reports:?}");
        };
        assert_eq!((first.flows, first.packets_delivered), (3, 3));
        assert_eq!(first.loss_rate, 0.25);
        assert_eq!(first.one_way_delay_ms.mean, 20.0);
        assert_eq!((second.packets_delivered, second.loss_rate), (1, 0.0));
        assert_eq!(second.one_way_delay_ms.p95, 500.0);
    }

    #[test]
    fn one_group_is_the_run_and_too_many_are_not_counted() {
        for groups in [0, 1, Groups::MOST + 1] {
            let mut groups = Groups::new(groups);
            groups.offer(0);
            groups.deliver(0, 1);
            assert!(!groups.are_counted());
            assert!(groups.reports([1]).is_empty());
        }
    }
}
