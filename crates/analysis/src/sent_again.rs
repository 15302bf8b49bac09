//! Loss events from the retransmission counter.
//!
//! A fall of the window alone is ambiguous: it may be a pausing application, a window inferred from
//! a capture, or BBR probing for the round-trip time. If a trace counts retransmissions, losses are
//! exactly the rises of that counter.

/// Packets lost within this many round trips of the first are one loss event (one per window of
/// data, RFC 5681).
pub(crate) const EVENT_RTTS: f64 = 1.5;
/// The counter's last value holds for this long, seconds. After a longer gap, losses are found from
/// the window as in a trace without the counter.
pub(crate) const HOLD_S: f64 = 5.0;

/// Follows the counter record by record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentAgain {
    counted: f64,
    known_s: f64,
    /// When the newest loss event began, and when the counter last rose, seconds.
    event_s: f64,
    rise_s: f64,
}

/// The result of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rise {
    /// No retransmission, or one that belongs to the previous event.
    None,
    /// A loss event.
    Event,
    /// The counter rose during a long gap: at least one event.
    Unseen,
}

impl SentAgain {
    /// Starts from the first record with the counter. Its value then counts earlier losses.
    pub(crate) fn new(time_s: f64, counted: f64) -> Self {
        Self {
            counted,
            known_s: time_s,
            event_s: f64::NEG_INFINITY,
            rise_s: f64::NEG_INFINITY,
        }
    }

    /// Takes the counter of a record that has it.
    pub(crate) fn observe(&mut self, time_s: f64, counted: f64, rtt_s: f64) -> Rise {
        let rose = counted > self.counted;
        let unseen = !self.is_known(time_s);
        (self.counted, self.known_s) = (counted, time_s);
        if !rose {
            return Rise::None;
        }
        self.rise_s = time_s;
        if time_s - self.event_s < EVENT_RTTS * rtt_s {
            return Rise::None;
        }
        self.event_s = time_s;
        if unseen { Rise::Unseen } else { Rise::Event }
    }

    /// When the counter was last present, seconds.
    pub(crate) fn known_s(&self) -> f64 {
        self.known_s
    }

    /// Whether the counter determines losses at this time.
    pub(crate) fn is_known(&self, time_s: f64) -> bool {
        time_s - self.known_s <= HOLD_S
    }

    /// Whether anything was retransmitted since then.
    pub(crate) fn rose_since(&self, time_s: f64) -> bool {
        self.rise_s >= time_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_again_within_a_window_of_data_is_one_event() {
        let mut counter = SentAgain::new(0.0, 7.0);
        let mut at = |time_s: f64, counted: f64| counter.observe(time_s, counted, 0.1);
        assert_eq!(at(0.05, 7.0), Rise::None); // lost before the first record
        assert_eq!(at(0.1, 8.0), Rise::Event);
        assert_eq!(at(0.2, 30.0), Rise::None);
        assert_eq!(at(0.24, 31.0), Rise::None);
        assert_eq!(at(0.26, 32.0), Rise::Event);
        assert_eq!(at(0.5, 3.0), Rise::None); // begins anew
        assert_eq!(at(0.6, 4.0), Rise::Event);
        assert_eq!(at(5.7, 5.0), Rise::Unseen);
    }
}
