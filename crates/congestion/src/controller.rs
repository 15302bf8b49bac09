//! What a transport and its congestion controller say to each other.

use pathcast_path::{Span, Time};

/// An acknowledgment of new data, as the transport saw it.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// Packets that it newly acknowledged, cumulatively or selectively.
    pub acked_packets: u64,
    /// Round-trip time of the last packet that it acknowledges; none for one sent twice.
    pub rtt: Option<Span>,
    /// Smallest round-trip time of the connection so far.
    pub min_rtt: Span,
    /// Whether it ends a round trip: it acknowledges a packet sent after the last such moment.
    pub round_ends: bool,
    /// Whether the window was what held the sender back; a window that is not used does not grow.
    pub cwnd_limited: bool,
}

/// A congestion controller: window in, window out.
///
/// Windows are in packets of one MSS and may be fractions; a transport sends whole packets and
/// rounds down.
pub trait Controller: Send {
    /// The kernel's name of the algorithm.
    fn name(&self) -> &'static str;

    /// The congestion window in packets, at least 1.
    fn cwnd(&self) -> f64;

    /// The slow-start threshold in packets; infinite before the first congestion event.
    fn ssthresh(&self) -> f64;

    /// New data was acknowledged outside loss recovery.
    fn on_ack(&mut self, ack: &Ack);

    /// Packets were lost or marked, for the first time in this round trip: sets ssthresh and the
    /// window that holds after recovery.
    fn on_congestion(&mut self, now: Time);

    /// The retransmission timer expired: ssthresh as on congestion, the window back to one packet.
    fn on_timeout(&mut self, now: Time);

    /// Whether the window is below the slow-start threshold.
    fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ordinary acknowledgment of `acked` packets at `now_s` with a 100 ms round trip.
    pub fn ack(now_s: f64, acked: u64) -> Ack {
        Ack {
            now: Time::ZERO + Span::from_secs(now_s),
            acked_packets: acked,
            rtt: Some(Span::from_millis(100)),
            min_rtt: Span::from_millis(100),
            round_ends: false,
            cwnd_limited: true,
        }
    }
}
