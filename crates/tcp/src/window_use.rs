//! Whether the window is what holds the sender back: one that is not used does not grow (RFC 2861
//! and 7661, as Linux's tcp_cwnd_validate and tcp_is_cwnd_limited).

/// How much of the window was used in the current round trip.
#[derive(Clone, Debug, Default)]
pub struct WindowUse {
    limited: bool,
    most_outstanding: u64,
    /// The round trip ends when this packet is acknowledged.
    until: u64,
}

impl WindowUse {
    /// The sender stops for now, because the window is full (`limited`) or for another reason, with
    /// all from `una` to `next` outstanding.
    #[inline]
    pub fn on_pause(&mut self, una: u64, next: u64, limited: bool) {
        let outstanding = next - una;
        if una >= self.until || limited || (!self.limited && outstanding > self.most_outstanding) {
            self.limited = limited;
            self.most_outstanding = outstanding;
            self.until = next;
        }
    }

    /// Whether a window of `cwnd` may grow; in slow start half of it must have been used.
    #[inline]
    pub fn is_limited(&self, cwnd: u64, in_slow_start: impl FnOnce() -> bool) -> bool {
        self.limited || (cwnd < 2 * self.most_outstanding && in_slow_start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_counts_until_its_round_trip_is_over() {
        let mut window = WindowUse::default();
        window.on_pause(0, 10, true);
        window.on_pause(4, 12, false);
        assert!(window.is_limited(10, || false));
        window.on_pause(10, 12, false);
        assert!(!window.is_limited(10, || true));
    }

    #[test]
    fn half_a_window_is_enough_in_slow_start() {
        let mut window = WindowUse::default();
        window.on_pause(0, 6, false);
        assert!(window.is_limited(10, || true));
        assert!(!window.is_limited(10, || false));
        assert!(!window.is_limited(12, || true));
    }
}
