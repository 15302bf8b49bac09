//! How uTP repairs losses (libutp's selective_ack; [`Repair::Utp`]), in place of RACK-TLP.

use pathcast_base::{Span, Time};
use pathcast_congestion::Repair;

use super::state::State;
use super::{NEVER, Sender};

/// The shortest retransmission timeout.
pub const LEAST_RTO: Span = Span::from_millis(1000);
/// Packets that one acknowledgment sends again at most.
const RESENT_AT_ONCE: u64 = 4;

/// What is remembered from one acknowledgment to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct UtpRepair {
    /// Packets before this one are not sent again before the timeout (fast_resend_seq_nr).
    looked: u64,
    /// Packets that are sent again whatever the window.
    at_once: u64,
}

impl Sender {
    #[inline]
    pub(super) fn repairs_as_utp(&self) -> bool {
        self.repair == Repair::Utp
    }

    /// Looks for losses after an acknowledgment; returns how many packets were found lost.
    pub(super) fn detect_losses_of_utp(&mut self, now: Time) -> u64 {
        let first = self.utp.looked.max(self.scoreboard.una());
        let (found, looked) = self.scoreboard.lose_before_three(first, RESENT_AT_ONCE);
        self.utp = UtpRepair {
            looked,
            at_once: found,
        };
        if found > 0 && matches!(self.state, State::Open) {
            self.enter_recovery(now);
        }
        found
    }

    /// Whether a lost packet leaves although the window is full; each is asked for once.
    pub(super) const fn takes_one_at_once(&mut self) -> bool {
        let takes = self.utp.at_once > 0;
        self.utp.at_once = self.utp.at_once.saturating_sub(1);
        takes
    }

    /// The window is less than a packet: with nothing in flight, only the timeout opens it.
    pub(super) fn wait_for_timeout(&mut self, now: Time) {
        if self.timeout_at == NEVER && self.scoreboard.next() < self.available {
            self.timeout_at = now + self.rtt.rto();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Spy, Wire};

    /// A window of 20 packets over 100 ms, repaired as uTP does; when each copy of a packet was sent, in ms.
    fn copies(packets: u64, lost: impl FnMut(u64, u32) -> bool) -> Vec<(u64, f64)> {
        let spy = Spy {
            cwnd: 20.0,
            manages_recovery: true,
            repair: Repair::Utp,
            ..Spy::default()
        };
        let mut wire = Wire::with(packets, Box::new(spy), lost);
        wire.run();
        let mut seen = std::collections::BTreeSet::new();
        let sent = wire.sent.iter().filter(|(_, seq)| !seen.insert(*seq));
        sent.map(|(at, seq)| (*seq, at.as_secs() * 1e3)).collect()
    }

    #[test]
    fn a_packet_is_sent_again_at_once_when_three_after_it_have_arrived() {
        // packets 20 to 39 leave at 100 ms, and the window is full when the loss is found
        let again = copies(100, |seq, copy| seq == 24 && copy == 0);
        assert_eq!(again, [(24, 200.0)]);
        // of the last two packets, nothing says so
        let again = copies(40, |seq, copy| seq == 38 && copy == 0);
        assert_eq!(again, [(38, 1200.0)]);
    }

    #[test]
    fn a_copy_that_is_lost_waits_for_the_timeout() {
        let again = copies(200, |seq, copy| seq == 24 && copy < 2);
        let times: Vec<_> = again.iter().map(|(_, ms)| *ms).collect();
        assert_eq!(again.iter().filter(|(seq, _)| *seq == 24).count(), 2);
        assert_eq!(times[0], 200.0);
        // 1 s after the last acknowledgment, which the receiver held back for 1.1 ms
        assert_eq!(times[1], 1301.1);
    }

    #[test]
    fn an_acknowledgment_sends_four_packets_again_at_most() {
        let again = copies(200, |seq, copy| (20..30).contains(&seq) && copy == 0);
        let numbers: Vec<_> = again.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (20..30).collect::<Vec<_>>());
        // three acknowledgments: the third of the packets past the hole, the next that the receiver sends, and that of
        // the first copies
        let at = |ms: f64| again.iter().filter(|(_, at)| *at == ms).count();
        assert_eq!((at(200.0), at(201.1), at(300.0)), (4, 4, 2), "{again:?}");
    }
}
