//! A fluid model of one CUBIC download as Linux sends it, one step a round trip.
//!
//! A round is a window of packets. They arrive back to back at the link's rate, since acknowledgments
//! release them twice as fast as that in slow start; the next round begins a round-trip time after
//! this one began, or when this one's last packet has arrived if that is later: then a queue stands, and
//! the path is full.

use pathcast_window_law::{
    CUBIC_BETA, RENO_FRIENDLY_SLOPE, cubic_beyond, cubic_k_s, fast_convergence,
};

/// Before its first loss Linux adds a packet for each 20 acknowledged at least (`tcp_cubic.c`).
const GROWTH_BEFORE_LOSS: f64 = 1.0 / 20.0;
/// No more than a packet for two acknowledged (`tcp_cubic.c`).
const MOST_GROWTH: f64 = 0.5;
/// HyStart does not act below this window, packets (`hystart_low_window`).
const HYSTART_LOW_WINDOW: f64 = 16.0;
/// Acknowledgments further apart end HyStart's train, seconds (`hystart_ack_delta_us`).
const HYSTART_TRAIN_GAP_S: f64 = 2e-3;
/// Packets that the eight acknowledgments cover at which HyStart looks for a grown delay.
const HYSTART_DELAY_PACKETS: f64 = 16.0;
/// Below this window a loss is not seen by later packets and waits for the timeout, packets.
const TIMEOUT_WINDOW: f64 = 4.0;
/// Linux's least timeout, seconds.
const LEAST_RTO_S: f64 = 0.2;

/// What the packets cross.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    /// Packets a second.
    pub rate: f64,
    /// Of the empty path, seconds.
    pub rtt_s: f64,
    /// Packets that path and queue hold together: beyond it there is loss.
    pub room: f64,
    /// The largest window that the receiver offers, packets.
    pub window_limit: f64,
}

impl Link {
    /// From the first packet of a round to the first of the next on an empty path, seconds: an
    /// acknowledgment waits for a second packet.
    fn round_s(&self) -> f64 {
        self.rtt_s + 2.0 / self.rate
    }
}

/// What ends slow start before a loss does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Exit {
    /// HyStart, as on a link without jitter.
    HyStart,
    /// Something at this window, packets: HyStart by jitter, or nothing if infinite.
    At(f64),
}

/// CUBIC's window, packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub cwnd: f64,
    pub in_slow_start: bool,
    /// Before a loss 0.
    w_max: f64,
    origin: f64,
    k_s: f64,
    age_s: f64,
    reno: f64,
}

impl Window {
    pub fn new(initial: f64) -> Self {
        Self {
            cwnd: initial,
            in_slow_start: true,
            w_max: 0.0,
            origin: initial,
            k_s: 0.0,
            age_s: 0.0,
            reno: initial,
        }
    }

    /// Slow start is over at `cwnd`: an epoch begins on the plateau.
    fn leave_slow_start(&mut self, cwnd: f64) {
        self.cwnd = cwnd;
        self.in_slow_start = false;
        self.begin_epoch();
    }

    fn begin_epoch(&mut self) {
        self.age_s = 0.0;
        self.reno = self.cwnd;
        self.origin = self.w_max.max(self.cwnd);
        self.k_s = cubic_k_s(self.origin, self.cwnd);
    }

    pub fn lose(&mut self) {
        self.w_max = fast_convergence(self.cwnd, self.w_max);
        self.cwnd = (CUBIC_BETA * self.cwnd).max(2.0);
        self.in_slow_start = false;
        self.begin_epoch();
    }

    /// A round in congestion avoidance: `part` of its packets were acknowledged in it, over `took_s`.
    fn avoid_congestion(&mut self, part: f64, took_s: f64) {
        self.age_s += took_s;
        let target = self.origin + cubic_beyond(self.age_s - self.k_s);
        self.reno += RENO_FRIENDLY_SLOPE * part;
        let least = if self.w_max == 0.0 {
            self.cwnd * (1.0 + GROWTH_BEFORE_LOSS * part)
        } else {
            self.cwnd
        };
        let most = self.cwnd * (1.0 + MOST_GROWTH * part);
        self.cwnd = target.max(self.reno).max(least).min(most);
    }
}

/// One round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    /// Packets that arrived before it.
    pub before: f64,
    /// Its packets that arrive: the window less what the queue had no room for.
    pub packets: f64,
    /// When its first packet arrives, seconds since the flow's first.
    pub at_s: f64,
    /// When the packets after a loss are handed on, seconds; their number since the flow's first.
    pub repair: Option<(f64, f64)>,
    rate: f64,
}

impl Round {
    /// When the flow's `packet`-th packet, one of this round, is with the application, seconds.
    pub fn arrival_s(&self, packet: f64) -> f64 {
        let arrival = self.at_s + (packet - self.before - 1.0).max(0.0) / self.rate;
        match self.repair {
            Some((lost, repaired_s)) if packet >= lost => arrival.max(repaired_s),
            _ => arrival,
        }
    }
}

/// A running download, at the beginning of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Flow {
    pub window: Window,
    exit: Exit,
    /// Packets that have arrived.
    pub arrived: f64,
    /// When the round's first packet arrives, seconds since the flow's first.
    pub at_s: f64,
    /// How long that packet waited in the queue, seconds.
    wait_s: f64,
}

impl Flow {
    pub fn new(initial_window: f64, exit: Exit) -> Self {
        Self {
            window: Window::new(initial_window),
            exit,
            arrived: 0.0,
            at_s: 0.0,
            wait_s: 0.0,
        }
    }

    /// The same download at its first packet.
    pub fn at_the_start(&self, initial_window: f64) -> Self {
        Self::new(initial_window, self.exit)
    }

    /// Packets of the round that begins.
    pub fn in_flight(&self, link: &Link) -> f64 {
        self.window.cwnd.min(link.window_limit)
    }

    /// Whether the path is full: packets arrive without a gap.
    pub fn is_full(&self, link: &Link) -> bool {
        self.in_flight(link) >= link.rate * link.round_s()
    }

    /// One round; `next_loss` is the number of the packet that is lost next, if it is in this round.
    pub fn round(&mut self, link: &Link, next_loss: f64) -> Round {
        let window = self.in_flight(link);
        let too_many = (window - link.room).max(0.0);
        let packets = window - too_many;
        let took_s = link.round_s().max(window / link.rate);
        let lost = self.arrived + packets >= next_loss || too_many > 0.0;
        let mut round = Round {
            before: self.arrived,
            packets,
            at_s: self.at_s,
            repair: None,
            rate: link.rate,
        };
        let mut next_at_s = self.at_s + took_s;
        if lost {
            let first = if too_many > 0.0 {
                self.arrived + packets
            } else {
                next_loss
            };
            // retransmitted a round trip later; without later packets that show the loss, after the timeout
            let repaired_s = round.arrival_s(first) + took_s;
            round.repair = Some((first, repaired_s));
            if window < TIMEOUT_WINDOW {
                next_at_s += LEAST_RTO_S.max(2.0 * link.rtt_s);
            }
            if self.window.in_slow_start {
                // it grew until later packets showed the loss
                self.window.cwnd += (first - self.arrived).clamp(0.0, window);
            }
            self.window.lose();
        } else if window >= link.window_limit {
            // what the receiver holds back does not grow
        } else if self.window.in_slow_start {
            self.slow_start(link, window, took_s);
        } else {
            self.window.avoid_congestion(1.0, took_s);
        }
        self.wait_s = (took_s - link.round_s()).max(0.0);
        self.arrived += packets;
        self.at_s = next_at_s;
        round
    }

    fn slow_start(&mut self, link: &Link, window: f64, took_s: f64) {
        let exit = match self.exit {
            Exit::At(exit) => exit,
            Exit::HyStart => self.hystart(link, window),
        };
        if exit < 2.0 * window {
            let exit = exit.max(window);
            self.window.leave_slow_start(exit);
            let part = 2.0 - exit / window;
            self.window.avoid_congestion(part, part * took_s);
        } else {
            self.window.cwnd = 2.0 * window;
        }
    }

    /// The window at which HyStart ends slow start if it does in a round of `window` packets, else
    /// infinite (Ha and Rhee 2011, as in Linux).
    fn hystart(&self, link: &Link, window: f64) -> f64 {
        let threshold_s = (link.rtt_s / 8.0).clamp(4e-3, 16e-3);
        let mut exit = f64::INFINITY;
        // the acknowledgments at the head of the round came late
        if self.wait_s > threshold_s {
            exit = window + HYSTART_DELAY_PACKETS.min(window);
        }
        // the train of acknowledgments is half a round-trip time long
        let train = link.rate * link.rtt_s / 2.0;
        if 2.0 / link.rate <= HYSTART_TRAIN_GAP_S && window >= train {
            exit = exit.min(window + train);
        }
        if exit < HYSTART_LOW_WINDOW {
            f64::INFINITY
        } else {
            exit
        }
    }
}
