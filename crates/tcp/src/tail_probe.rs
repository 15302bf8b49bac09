//! The tail loss probe: after two round trips without an acknowledgment, one packet detects whether the end
//! of what was sent is lost, before the retransmission timer expires (RFC 8985, section 7).

use pathcast_base::{Span, Time};

/// Allowance for a delayed acknowledgment of a lone packet (Linux's TCP_RTO_MIN).
const LONE_PACKET: Span = Span::from_millis(200);
/// Allowance otherwise (Linux's TCP_TIMEOUT_MIN, two ticks at 1000 Hz).
const SEVERAL_PACKETS: Span = Span::from_millis(2);

/// The probe's timer, and the probe in flight.
#[derive(Clone, Debug, Default)]
pub struct TailProbe {
    at: Option<Time>,
    sent: Option<Probe>,
    off: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The next new packet when it was sent.
    high_seq: u64,
    retransmission: bool,
}

/// What an acknowledgment says about the probe in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet, or no probe is in flight.
    Open,
    /// The packet and its probe both arrived, or the probe was new data: nothing was lost.
    NothingLost,
    /// The probe repaired a loss, which was a congestion event like any other.
    Repaired,
}

impl TailProbe {
    /// Of a transport that has none.
    pub const fn off() -> Self {
        Self {
            at: None,
            sent: None,
            off: true,
        }
    }

    /// When the probe is due, if it is to be sent.
    #[inline]
    pub const fn at(&self) -> Option<Time> {
        self.at
    }

    /// Something was sent or acknowledged at `now`, with `outstanding` packets and the retransmission
    /// timer at `timeout`: the probe is due two round trips from here.
    #[inline]
    pub fn arm(&mut self, now: Time, srtt: Option<Span>, outstanding: u64, timeout: Time) {
        self.at = match srtt {
            Some(srtt) if outstanding > 0 && self.sent.is_none() && !self.off => {
                let allowance = if outstanding == 1 {
                    LONE_PACKET
                } else {
                    SEVERAL_PACKETS
                };
                Some((now + srtt + srtt + allowance).min(timeout))
            }
            _ => None,
        };
    }

    /// No probe for now: losses are known, and others see to them.
    #[inline]
    pub const fn disarm(&mut self) {
        self.at = None;
    }

    /// The probe was sent: new data, or the last packet again; `high_seq` is the next new packet.
    pub const fn on_sent(&mut self, high_seq: u64, retransmission: bool) {
        self.at = None;
        self.sent = Some(Probe {
            high_seq,
            retransmission,
        });
    }

    /// Recovery begins, which answers what the probe asks.
    pub const fn cancel(&mut self) {
        (self.at, self.sent) = (None, None);
    }

    /// An acknowledgment up to `cumulative` arrived that says that packet `duplicate` came twice.
    #[inline]
    pub fn on_ack(&mut self, cumulative: u64, duplicate: Option<u64>) -> Verdict {
        let Some(probe) = self.sent else {
            return Verdict::Open;
        };
        if cumulative < probe.high_seq {
            return Verdict::Open;
        }
        let verdict = if !probe.retransmission || duplicate == Some(probe.high_seq - 1) {
            Verdict::NothingLost
        } else if cumulative > probe.high_seq {
            Verdict::Repaired
        } else {
            return Verdict::Open; // the duplicate may yet be reported
        };
        self.sent = None;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn it_is_due_after_two_round_trips_and_never_after_the_timeout() {
        let mut probe = TailProbe::default();
        let srtt = Some(Span::from_millis(100));
        probe.arm(at(0), srtt, 5, at(300));
        assert_eq!(probe.at(), Some(at(202)));
        probe.arm(at(0), srtt, 1, at(1000));
        assert_eq!(probe.at(), Some(at(400)));
        probe.arm(at(0), srtt, 1, at(300));
        assert_eq!(probe.at(), Some(at(300)));
        probe.arm(at(0), srtt, 0, at(300));
        assert_eq!(probe.at(), None);
    }

    #[test]
    fn it_tells_a_repaired_loss_from_a_needless_probe() {
        let sent = |retransmission| {
            let mut probe = TailProbe::default();
            probe.on_sent(10, retransmission);
            probe
        };
        assert_eq!(sent(false).on_ack(10, None), Verdict::NothingLost);
        assert_eq!(sent(true).on_ack(9, None), Verdict::Open);
        assert_eq!(sent(true).on_ack(10, Some(9)), Verdict::NothingLost);
        let mut probe = sent(true);
        assert_eq!(probe.on_ack(10, None), Verdict::Open);
        assert_eq!(probe.on_ack(11, None), Verdict::Repaired);
        assert_eq!(probe.on_ack(12, None), Verdict::Open);
    }
}
