//! Whether a recovery was needless: nothing was lost, packets were only late (RFC 3522 by timestamps,
//! RFC 3708 by duplicates, as Linux's tcp_may_undo).

use pathcast_base::Time;

/// A recovery's notes, kept until the next begins.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    /// The first packet not acknowledged when it began.
    marker: u64,
    /// The window before it, in packets, and the threshold.
    pub prior_cwnd: u64,
    pub prior_ssthresh: f64,
    /// When a packet was first sent again in it.
    first_retransmit_at: Option<Time>,
    /// Packets sent again less those reported to have come twice.
    unexplained: u64,
}

impl Undo {
    /// A recovery begins with window `prior_cwnd`, threshold `prior_ssthresh` and first unacknowledged
    /// packet `una`.
    pub const fn new(una: u64, prior_cwnd: u64, prior_ssthresh: f64) -> Self {
        Self {
            marker: una,
            prior_cwnd,
            prior_ssthresh,
            first_retransmit_at: None,
            unexplained: 0,
        }
    }

    /// A packet was sent again.
    #[inline]
    pub fn on_retransmit(&mut self, now: Time) {
        self.first_retransmit_at.get_or_insert(now);
        self.unexplained += 1;
    }

    /// Packet `seq` came twice.
    pub const fn on_duplicate(&mut self, seq: u64) {
        if seq >= self.marker {
            self.unexplained = self.unexplained.saturating_sub(1);
        }
    }

    /// Whether all that was sent again came twice.
    pub const fn all_came_twice(&self) -> bool {
        self.first_retransmit_at.is_some() && self.unexplained == 0
    }

    /// Whether the packet sent at `echo` that filled the first hole was the original, not a copy.
    pub fn original_arrived(&self, echo: Time) -> bool {
        self.first_retransmit_at.is_some_and(|at| echo < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_is_needless_when_each_copy_was_a_duplicate() {
        let mut undo = Undo::new(5, 20, f64::INFINITY);
        assert!(!undo.all_came_twice());
        undo.on_retransmit(Time::from_nanos(10));
        undo.on_retransmit(Time::from_nanos(11));
        undo.on_duplicate(4); // before it began
        undo.on_duplicate(5);
        assert!(!undo.all_came_twice());
        undo.on_duplicate(6);
        assert!(undo.all_came_twice());
    }

    #[test]
    fn a_timestamp_from_before_the_first_copy_is_the_originals() {
        let mut undo = Undo::new(5, 20, f64::INFINITY);
        assert!(!undo.original_arrived(Time::ZERO));
        undo.on_retransmit(Time::from_nanos(10));
        assert!(undo.original_arrived(Time::from_nanos(9)));
        assert!(!undo.original_arrived(Time::from_nanos(10)));
    }
}
