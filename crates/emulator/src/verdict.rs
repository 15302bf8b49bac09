//! Can the run be trusted?

use pathcast_path::Span;

/// How late the 99th percentile of packets may leave: 0.2 ms, or 0.5 % of the round-trip time of
/// the empty path if that is more.
///
/// A thread in `SCHED_FIFO` that wakes for each packet stays below 0.05 ms and one that wakes every
/// 50 us below 0.15 ms on a busy machine; one without real-time priority is tens of milliseconds
/// late there.
pub fn slip_bound(base_rtt: Span) -> Span {
    Span::from_nanos(200_000.max(base_rtt.as_nanos() / 200))
}

/// How late the 99.9th percentile may leave: five times that. Stalls of some milliseconds are too few
/// packets for the 99th percentile, but keep slow start from ending in time. With `SCHED_FIFO` it is
/// 0.01 to 0.4 ms, without it up to 3.4 ms on a machine that is hardly busy.
pub(crate) fn stall_bound(base_rtt: Span) -> Span {
    slip_bound(base_rtt).mul_div(5, 1)
}

/// Fewer packets have no 99.9th percentile worth the name: one stall of the host would be it.
pub(crate) const PACKETS_FOR_STALLS: u64 = 10_000;

/// What a run left to judge it by. Packets are data packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) slip_p99: Span,
    pub(crate) slip_bound: Span,
    /// Zero if there were too few packets to estimate it.
    pub(crate) slip_p999: Span,
    pub(crate) stall_bound: Span,
    /// Packets that the devices dropped by themselves.
    pub(crate) device_drops: u64,
    /// Datagrams of QUIC that sockets had no room for.
    pub(crate) socket_drops: u64,
    /// Packets that the devices did not take from us, or could not give us.
    pub(crate) device_errors: u64,
    /// Records of the probe that were lost.
    pub(crate) records_lost: u64,
    /// Packets that the path dropped.
    pub(crate) drops: u64,
    /// Of those, dropped long enough before the end to have been repaired.
    pub(crate) drops_to_repair: u64,
    /// Packets sent again.
    pub(crate) retransmits: u64,
    /// Of those, retransmitted long enough before the end for the receiver to have answered.
    pub(crate) retransmits_answered: u64,
    /// Packets that the receiver said it got twice: sent again without need.
    pub(crate) duplicates: u64,
    /// Packets that receivers dropped for a timestamp older than that of a copy which overtook them (PAWS);
    /// they are sent again.
    pub(crate) outdated: u64,
    /// Acknowledgments that the path dropped, any of which may have reported a duplicate.
    pub(crate) acknowledgments_dropped: u64,
    /// Flows that broke, or of which too little is known, in words.
    pub(crate) broken: Vec<String>,
    /// Flows that the receiver's window held back although it was below the path's
    /// bandwidth-delay product, in words.
    pub(crate) window_limited: Vec<String>,
}

impl Evidence {
    /// Why the run cannot be trusted; empty if it can.
    pub(crate) fn invalid_because(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let us = |span: Span| span.as_secs() * 1e6;
        for (share, slip, bound) in [
            ("1 %", self.slip_p99, self.slip_bound),
            ("0.1 %", self.slip_p999, self.stall_bound),
        ] {
            if slip > bound {
                reasons.push(format!(
                    "the emulator slipped: {share} of packets left more than {:.0} us late, the \
                     bound is {:.0} us",
                    us(slip),
                    us(bound)
                ));
            }
        }
        let counts = [
            (
                self.device_drops,
                "packets were dropped by the devices, outside the path",
            ),
            (
                self.device_errors,
                "packets could not be read from or written to the devices",
            ),
            (
                self.records_lost,
                "records of the probe were lost: the trace has gaps",
            ),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            reasons.push(format!("{count} {what}"));
        }
        // each drop is repaired by one retransmission, except those of the last round trips
        if self.retransmits < self.drops_to_repair {
            reasons.push(format!(
                "the path dropped {} packets that should have been repaired, but the senders sent \
                 only {} again",
                self.drops_to_repair, self.retransmits
            ));
        }
        // and each packet sent again either repairs a drop or arrives twice
        let explained = self.drops + self.duplicates + self.outdated + self.acknowledgments_dropped;
        if self.retransmits_answered > explained {
            reasons.push(format!(
                "the senders sent {} packets again, but the path dropped only {} and {} arrived \
                 twice: packets were lost outside the path",
                self.retransmits_answered, self.drops, self.duplicates
            ));
        }
        if self.socket_drops > 0 {
            reasons.push(format!(
                "{} datagrams were dropped by sockets without room: packets were lost outside the path",
                self.socket_drops
            ));
        }
        reasons.extend(self.broken.iter().cloned());
        reasons.extend(self.window_limited.iter().cloned());
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Evidence {
        Evidence {
            slip_p99: Span::from_nanos(40_000),
            slip_bound: slip_bound(Span::from_millis(20)),
            slip_p999: Span::from_nanos(300_000),
            stall_bound: stall_bound(Span::from_millis(20)),
            drops: 20,
            drops_to_repair: 18,
            retransmits: 19,
            retransmits_answered: 18,
            ..Evidence::default()
        }
    }

    #[test]
    fn a_sound_run_is_valid() {
        assert_eq!(sound().invalid_because(), [""; 0]);
    }

    #[test]
    fn the_bound_is_a_fixed_time_on_short_paths_and_a_share_on_long_ones() {
        assert_eq!(slip_bound(Span::ZERO), Span::from_nanos(200_000));
        assert_eq!(slip_bound(Span::from_millis(40)), Span::from_nanos(200_000));
        assert_eq!(slip_bound(Span::from_millis(200)), Span::from_millis(1));
    }

    #[test]
    fn each_trouble_is_told() {
        let reason = |change: fn(&mut Evidence)| {
            let mut evidence = sound();
            change(&mut evidence);
            let reasons = evidence.invalid_because();
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            reasons[0].clone()
        };
        assert!(reason(|e| e.slip_p99 = Span::from_millis(1)).contains("1 % of packets left more"));
        assert!(reason(|e| e.slip_p999 = Span::from_millis(2)).contains("0.1 % of packets"));
        assert!(
            reason(|e| e.device_drops = 3).starts_with("3 packets were dropped by the devices")
        );
        assert!(reason(|e| e.socket_drops = 2).starts_with("2 datagrams were dropped by sockets"));
        assert!(reason(|e| e.device_errors = 1).contains("read from or written to"));
        assert!(reason(|e| e.records_lost = 7).starts_with("7 records"));
        assert!(reason(|e| e.retransmits = 17).contains("sent only 17 again"));
        assert!(reason(|e| e.retransmits_answered = 21).contains("lost outside the path"));
        assert_eq!(
            reason(|e| e.broken = vec!["flow 0 broke".into()]),
            "flow 0 broke"
        );
    }

    #[test]
    fn what_was_sent_again_without_need_is_explained_by_duplicates() {
        let mut evidence = Evidence {
            retransmits_answered: 25,
            retransmits: 25,
            ..sound()
        };
        assert_eq!(evidence.invalid_because().len(), 1);
        evidence.duplicates = 5;
        assert!(evidence.invalid_because().is_empty());
        (evidence.duplicates, evidence.acknowledgments_dropped) = (0, 5);
        assert!(evidence.invalid_because().is_empty());
        (evidence.acknowledgments_dropped, evidence.outdated) = (0, 5);
        assert!(evidence.invalid_because().is_empty());
    }
}
