//! What a transport and its congestion controller say to each other.

use pathcast_base::{Span, Time};

/// How fast the path delivered, measured on the packet that an acknowledgment is for
/// (draft-cheng-iccrg-delivery-rate-estimation-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Packets delivered between the sending of that packet and its acknowledgment.
    pub delivered_packets: u64,
    /// How long that took: the longer of the time to send and the time to acknowledge them.
    pub interval: Span,
    /// All packets that had been delivered when that packet was sent.
    pub prior_delivered: u64,
    /// Packets in flight when it was sent, itself included.
    pub sent_in_flight: u64,
    /// Packets found lost between its sending and its acknowledgment.
    pub lost_packets: u64,
    /// Whether the sender had run out of data, so that this is only a lower bound.
    pub app_limited: bool,
}

impl RateSample {
    /// Packets a second; none over no time.
    pub fn packets_per_s(&self) -> Option<f64> {
        (self.interval > Span::ZERO)
            .then(|| self.delivered_packets as f64 / self.interval.as_secs())
    }
}

/// An acknowledgment, as the transport saw it.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// Packets that it newly acknowledged, cumulatively or selectively.
    pub acked_packets: u64,
    /// Packets that it showed to be lost.
    pub lost_packets: u64,
    /// Packets that it said were marked by the network (ECN).
    pub marked_packets: u64,
    /// Round-trip time of the last packet that it acknowledges; none for one sent twice.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time.
    pub srtt: Span,
    /// Smallest round-trip time of the connection so far.
    pub min_rtt: Span,
    /// Packets in flight after it.
    pub in_flight: u64,
    /// Packets in flight before it.
    pub prior_in_flight: u64,
    /// When the pace lets the next packet leave; in the past if it does not hold one back.
    pub departs_at: Time,
    /// All packets delivered so far.
    pub delivered: u64,
    /// All packets found lost so far, those that a timer found too.
    pub lost: u64,
    /// How fast the path delivers, if that could be measured.
    pub rate: Option<RateSample>,
    /// Whether it ends a round trip: it acknowledges a packet sent after the last such moment.
    pub round_ends: bool,
    /// Whether the window was what held the sender back; a window that is not used does not grow.
    pub cwnd_limited: bool,
    /// Whether it acknowledges data in order, or packets are known to arrive out of order: what is only
    /// SACKed does not raise a window (RFC 5681, section 3.2; Linux's tcp_may_raise_cwnd).
    pub in_order: bool,
    /// How the transport recovers from loss after this acknowledgment; only controllers that manage
    /// recovery see any state but [`LossState::Open`] and, after a timeout, [`LossState::Loss`].
    pub state: LossState,
}

impl Ack {
    /// Whether a window that follows acknowledgments may grow.
    #[inline]
    pub const fn may_grow(&self) -> bool {
        self.cwnd_limited && self.in_order
    }

    /// Whether the transport is recovering from loss.
    #[inline]
    pub fn in_recovery(&self) -> bool {
        self.state != LossState::Open
    }
}

/// How a transport recovers from loss, by Linux's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossState {
    /// It does not: nothing is lost, or packets were marked and none was lost (Open, Disorder, CWR).
    Open,
    /// Acknowledgments showed losses.
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

/// How a transport finds and repairs losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// As the kernel's TCP: RACK-TLP, and timeouts of 200 ms and more.
    #[default]
    Tcp,
    /// As uTP (libutp): the sender takes a packet for lost when three packets sent after it have arrived. It sends it
    /// again immediately, even with a full window, but no more than four packets for each acknowledgment. If the copy
    /// is lost too, the sender waits for the timeout, of 1 s at least. An acknowledgment reports only the first 32
    /// packets past the first that is missing.
    Utp,
}

/// Why a congestion event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Packets were lost.
    Loss,
    /// Packets were marked (ECN), and none was lost.
    Mark,
}

/// The first loss or mark in a round trip.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    /// When it was found out.
    pub now: Time,
    /// What it was.
    pub signal: Signal,
    /// Packets in flight then.
    pub in_flight: u64,
}

/// What a controller is doing, by the names that BBR gives it; others know the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Looking for the path's rate: slow start, Startup.
    SlowStart = 0,
    /// Holding a window or rate: congestion avoidance.
    Avoidance = 1,
    /// Emptying the queue that Startup made.
    Drain = 2,
    /// Emptying the queue to see the smallest round-trip time.
    ProbeRtt = 3,
    /// Sending less than the path's rate, after a probe of it.
    Down = 4,
    /// Sending at the path's rate.
    Cruise = 5,
    /// Filling the path before a probe.
    Refill = 6,
    /// Sending more than the path's rate, to see whether there is more.
    Up = 7,
}

impl Mode {
    /// All, each at the place of its number.
    pub const ALL: [Self; 8] = [
        Self::SlowStart,
        Self::Avoidance,
        Self::Drain,
        Self::ProbeRtt,
        Self::Down,
        Self::Cruise,
        Self::Refill,
        Self::Up,
    ];

    /// The mode with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What a controller believes of the path and does about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// What it is doing.
    pub mode: Mode,
    /// The path's rate, in packets a second; none if it does not model it, or has seen nothing.
    pub bandwidth: Option<f64>,
    /// The model's round-trip time without queues.
    pub min_rtt: Option<Span>,
}

impl Belief {
    /// The state of a controller that does not model the path.
    pub fn of_window(in_slow_start: bool) -> Self {
        let mode = match in_slow_start {
            true => Mode::SlowStart,
            false => Mode::Avoidance,
        };
        Self {
            mode,
            bandwidth: None,
            min_rtt: None,
        }
    }
}

/// A congestion controller: window in, window out.
///
/// Windows are in packets of one MSS and may be fractions; a transport sends whole packets and
/// rounds down.
pub trait Controller: Send {
    /// The kernel's name of the algorithm.
    fn name(&self) -> &'static str;

    /// The congestion window in packets, at least 1; with [`Repair::Utp`] it may be less.
    fn cwnd(&self) -> f64;

    /// The slow-start threshold in packets; infinite before the first congestion event.
    fn ssthresh(&self) -> f64;

    /// New data was acknowledged, or packets were found lost. Outside recovery only, unless the
    /// controller manages recovery itself.
    fn on_ack(&mut self, ack: &Ack);

    /// Packets were lost or marked, for the first time in this round trip: sets ssthresh and the
    /// window that holds after recovery.
    fn on_congestion(&mut self, event: &Congestion);

    /// The retransmission timer expired: the window goes back to one packet, until the transport sets
    /// another. If the window was not reduced before in this round trip, `on_congestion` has just set ssthresh.
    fn on_timeout(&mut self, now: Time);

    /// The transport sets the window and ssthresh, in packets, by rules that hold for all controllers:
    /// the initial window, the decay after an idle time, the return to the window before a needless
    /// recovery. Controllers whose window follows from a model of the path may ignore it.
    fn set_window(&mut self, cwnd: f64, ssthresh: f64);

    /// The connection opened at `now`; `rtt` is the round-trip time of its handshake.
    fn on_open(&mut self, _now: Time, _rtt: Span) {}

    /// A recovery was needless: no packet had been lost.
    fn on_undo(&mut self) {}

    /// The sender begins again after it had sent nothing for `idle`.
    fn on_idle_restart(&mut self, _now: Time, _idle: Span) {}

    /// Whether the controller sets the window in recovery too (BBR), instead of leaving it to
    /// proportional rate reduction.
    fn manages_recovery(&self) -> bool {
        false
    }

    /// How the transport finds and repairs losses, where it can do so in more ways than one.
    fn repair(&self) -> Repair {
        Repair::Tcp
    }

    /// How fast to send, in packets a second; none: as fast as the window allows.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    /// Whether the window is below the slow-start threshold.
    fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh()
    }

    /// What it believes of the path, for records of a run.
    fn belief(&self) -> Belief {
        Belief::of_window(self.in_slow_start())
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
            lost_packets: 0,
            marked_packets: 0,
            srtt: Span::from_millis(100),
            in_flight: 0,
            prior_in_flight: acked,
            departs_at: Time::ZERO,
            delivered: 0,
            lost: 0,
            rate: None,
            state: LossState::Open,
            rtt: Some(Span::from_millis(100)),
            min_rtt: Span::from_millis(100),
            round_ends: false,
            cwnd_limited: true,
            in_order: true,
        }
    }

    /// A loss at the start of the run.
    pub fn loss() -> Congestion {
        Congestion {
            now: Time::ZERO,
            signal: Signal::Loss,
            in_flight: 0,
        }
    }
}
