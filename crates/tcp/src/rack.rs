//! RACK's reordering window: how much later than others a packet may come before it counts as lost
//! (RFC 8985, sections 6.2 and 7, as Linux's tcp_recovery.c).

use pathcast_base::Span;

/// Packets SACKed past a hole that say it is a loss and not a reordering (RFC 5681's DupThresh).
const DUP_THRESH: u64 = 3;
/// Recoveries for which a window that was too small stays larger (Linux's TCP_RACK_RECOVERY_THRESH).
const PERSIST_RECOVERIES: u8 = 16;

/// A quarter of the smallest round-trip time for each round trip in which a duplicate showed that
/// this was too little, up to a whole round-trip time; nothing at all while packets keep their order.
#[derive(Clone, Debug)]
pub struct ReorderingWindow {
    /// How far a packet has been seen to arrive out of order, in packets; 0: none has.
    degree: u64,
    quarters: u64,
    persist: u8,
    /// The next widening needs a packet sent after this many had been delivered.
    widened_at: u64,
}

impl Default for ReorderingWindow {
    fn default() -> Self {
        Self {
            degree: 0,
            quarters: 1,
            persist: 0,
            widened_at: 0,
        }
    }
}

impl ReorderingWindow {
    /// A packet arrived, never sent again, after one sent `distance` packets after it; 0: in order.
    #[inline]
    pub const fn on_reordering(&mut self, distance: u64) {
        if distance > self.degree {
            self.degree = distance;
        }
    }

    /// Whether packets arrive so far out of order that SACKs alone raise the window.
    #[inline]
    pub const fn is_common(&self) -> bool {
        self.degree > DUP_THRESH
    }

    /// A duplicate arrived: a packet was sent again that had not been lost. `delivered` are the packets
    /// delivered so far, of which `prior_delivered` when the acknowledged one was sent.
    pub fn on_duplicate(&mut self, delivered: u64, prior_delivered: u64) {
        if self.degree > 0 && prior_delivered >= self.widened_at {
            self.quarters = (self.quarters + 1).min(255);
            self.widened_at = delivered;
            self.persist = PERSIST_RECOVERIES;
        }
    }

    /// A recovery ended that was not needless.
    pub fn on_recovery_end(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }

    /// How long to wait now, with `sacked` packets past the holes.
    #[inline]
    pub fn span(&self, in_recovery: bool, sacked: u64, min_rtt: Span, srtt: Span) -> Span {
        if self.degree == 0 && (in_recovery || sacked >= DUP_THRESH) {
            return Span::ZERO;
        }
        Span::from_nanos(min_rtt.as_nanos().saturating_mul(self.quarters) / 4).min(srtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(100);

    #[test]
    fn packets_in_order_need_no_window_once_three_were_sacked() {
        let mut window = ReorderingWindow::default();
        assert_eq!(window.span(false, 2, RTT, RTT), Span::from_millis(25));
        assert_eq!(window.span(false, 3, RTT, RTT), Span::ZERO);
        assert_eq!(window.span(true, 0, RTT, RTT), Span::ZERO);
        window.on_reordering(1);
        assert_eq!(window.span(true, 9, RTT, RTT), Span::from_millis(25));
    }

    #[test]
    fn duplicates_without_reordering_leave_it_alone() {
        let mut window = ReorderingWindow::default();
        window.on_duplicate(10, 0);
        window.on_reordering(5);
        assert_eq!(window.span(true, 9, RTT, RTT), Span::from_millis(25));
        assert!(window.is_common());
    }

    #[test]
    fn duplicates_widen_it_once_a_round_trip_up_to_a_round_trip() {
        let mut window = ReorderingWindow::default();
        window.on_reordering(1);
        window.on_duplicate(10, 0);
        window.on_duplicate(11, 5); // of the same round trip
        assert_eq!(window.span(true, 9, RTT, RTT), Span::from_millis(50));
        for round in 1..10 {
            window.on_duplicate(10 + 10 * round, 10 * round);
        }
        assert_eq!(window.span(true, 9, RTT, RTT), RTT);
        for _ in 0..PERSIST_RECOVERIES {
            window.on_recovery_end();
        }
        assert_eq!(window.span(true, 9, RTT, RTT), Span::from_millis(25));
    }
}
