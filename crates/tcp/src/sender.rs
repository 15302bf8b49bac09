//! The sending end: what to send now, and what each acknowledgment changes.

use pathcast_base::{Span, Time};
use pathcast_congestion::{Ack, Controller, LossState, Repair, Signal};

use crate::handshake::{Handshake, Opening};
use crate::offload::Load;
use crate::pacer::Pacer;
use crate::rack::ReorderingWindow;
use crate::rtt::RttEstimator;
use crate::scoreboard::{Delivery, Scoreboard};
use crate::segment::AckSegment;
use crate::tail_probe::{TailProbe, Verdict};
use crate::undo::Undo;
use crate::window_use::WindowUse;

mod config;
mod recovery;
mod state;
mod transmit;
mod utp;

pub use config::{MAX_WINDOW_PACKETS, SenderConfig, Start};
use state::State;
use utp::UtpRepair;

/// Of a timer that is not set.
const NEVER: Time = Time::MAX;

/// A TCP sender with its congestion controller.
///
/// Its fields are in the order in which acknowledgments need them, the rare ones last: with thousands of connections
/// a run takes as long as it takes to fetch them from memory, 64 bytes at a time.
#[repr(C)]
pub struct Sender {
    controller: Box<dyn Controller>,
    /// The effective window: the controller's, or during a recovery that of its reduction.
    cwnd: u64,
    /// One past the last packet that the receiver takes.
    receive_edge: u64,
    /// Packets that the application has given so far.
    available: u64,
    /// The round trip ends when this packet is acknowledged.
    round_end: u64,
    timeout_at: Time,
    reorder_at: Time,
    /// There is something to send, and it must wait until then.
    paced_until: Time,
    /// When to ask a receiver whose window is closed.
    persist_at: Time,
    /// Packets were sent since `poll_transmit` last returned none.
    in_burst: bool,
    /// Something leaves whatever the windows say: a tail loss probe, a question for a closed window, the
    /// acknowledgment of a SYN/ACK.
    probe_tail_now: bool,
    probe_window_now: bool,
    answer_syn_now: bool,
    /// The next new packet says that the window was reduced for a mark.
    tell_reduced: bool,
    /// The timestamp of the last acknowledgment.
    echo: u16,
    tail_probe: TailProbe,
    scoreboard: Scoreboard,
    rtt: RttEstimator,
    load: Load,
    /// Packets that leave together at most, and the window for which that was computed.
    load_packets: (u64, u64),
    window_use: WindowUse,
    last_sent_at: Option<Time>,
    reordering: ReorderingWindow,
    state: State,
    undo: Option<Undo>,
    pacer: Pacer,
    /// The last delivery rate measured: packets, and the time they took.
    delivery_rate: (u64, Span),
    config: SenderConfig,
    /// The connection is not open yet, and the end that opens it has got so far.
    opening: Option<Option<Opening>>,
    retransmits: u64,
    /// How losses are found and repaired.
    repair: Repair,
    utp: UtpRepair,
}

impl Sender {
    /// A sender that is connected and has sent nothing.
    pub fn new(config: SenderConfig, controller: Box<dyn Controller>) -> Self {
        let repair = controller.repair();
        let (scoreboard, rtt, tail_probe) = match repair {
            Repair::Tcp => Default::default(),
            Repair::Utp => (
                Scoreboard::short_sighted(),
                RttEstimator::with_least_rto(utp::LEAST_RTO),
                TailProbe::off(),
            ),
        };
        let mut sender = Self {
            config,
            available: config.packets.unwrap_or(u64::MAX),
            controller,
            repair,
            utp: UtpRepair::default(),
            scoreboard,
            rtt,
            reordering: ReorderingWindow::default(),
            tail_probe,
            state: State::Open,
            undo: None,
            cwnd: 0,
            window_use: WindowUse::default(),
            pacer: Pacer::default(),
            load: Load::default(),
            load_packets: (0, 0),
            round_end: 0,
            receive_edge: (config.first_receive_window_packets)
                .map_or(config.receive_window_packets, u64::from),
            echo: 0,
            last_sent_at: None,
            in_burst: false,
            opening: match config.start {
                Start::Open | Start::After(_) => None,
                Start::Opens => Some(Some(Opening::default())),
                Start::Accepts => Some(None),
            },
            probe_tail_now: false,
            probe_window_now: false,
            answer_syn_now: false,
            tell_reduced: false,
            timeout_at: NEVER,
            reorder_at: NEVER,
            paced_until: NEVER,
            persist_at: NEVER,
            retransmits: 0,
            delivery_rate: (0, Span::ZERO),
        };
        if let Some(packets) = config.initial_window_packets {
            let ssthresh = sender.controller.ssthresh();
            sender.controller.set_window(f64::from(packets), ssthresh);
        }
        sender.follow_controller();
        if let Start::After(handshake) = config.start {
            sender.on_open(Time::ZERO, handshake);
        }
        sender
    }

    /// The connection opened at `now` by `handshake`; no effect if it was open before.
    pub fn on_open(&mut self, now: Time, handshake: Handshake) {
        if self.opening.take().is_none() && !matches!(self.config.start, Start::After(_)) {
            return;
        }
        match handshake.rtt {
            Some(rtt) => self.rtt.on_sample(rtt, rtt, 0, 0),
            None => self.rtt.fall_back(),
        }
        if handshake.is_lossy {
            let ssthresh = self.controller.ssthresh();
            self.controller.set_window(1.0, ssthresh);
        }
        if let Some(srtt) = self.rtt.srtt() {
            self.controller.on_open(now, srtt);
        }
        self.follow_controller();
    }

    /// Whether the connection is open.
    pub const fn is_open(&self) -> bool {
        self.opening.is_none()
    }

    /// The application gives `packets` more to send; then call `poll_transmit`.
    pub fn supply(&mut self, packets: u64) {
        self.available = self.available.saturating_add(packets);
    }

    /// The application has given no more than `packets` in all, of which those sent remain sent.
    pub fn end_at(&mut self, packets: u64) {
        self.available = packets.max(self.scoreboard.next());
    }

    /// The window that holds now, in whole packets: that of the recovery while there is one, unless
    /// the controller manages recovery.
    #[inline]
    pub const fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// The controller.
    pub fn controller(&self) -> &dyn Controller {
        self.controller.as_ref()
    }

    /// Round-trip times.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The first packet not acknowledged and the next new one.
    pub fn una_and_next(&self) -> (u64, u64) {
        (self.scoreboard.una(), self.scoreboard.next())
    }

    /// Packets sent again, SYNs among them.
    pub const fn retransmits(&self) -> u64 {
        self.retransmits
    }

    /// The last delivery rate that was measured, in packets a second.
    pub fn delivery_rate(&self) -> Option<f64> {
        let (packets, interval) = self.delivery_rate;
        (interval > Span::ZERO).then(|| packets as f64 / interval.as_secs())
    }

    /// Whether the application gave packets that were never sent.
    pub fn has_unsent(&self) -> bool {
        self.scoreboard.next() < self.available
    }

    /// Packets past those acknowledged that the receiver takes; none: all that TCP can say.
    pub fn receive_window(&self) -> Option<u64> {
        let is_limited = self.config.receive_window_packets < MAX_WINDOW_PACKETS
            || self.config.first_receive_window_packets.is_some();
        is_limited.then(|| self.receive_edge - self.scoreboard.una())
    }

    /// Packets in flight, as far as the sender knows.
    pub fn in_flight(&self) -> u64 {
        self.scoreboard.in_flight()
    }

    /// Whether everything there was to send was sent and acknowledged; never so for a bulk flow.
    pub fn is_done(&self) -> bool {
        self.available == self.scoreboard.una()
    }

    /// Whether an acknowledgment that came with data says anything new; if so, pass it to `on_ack`.
    pub fn has_news(&self, segment: &AckSegment) -> bool {
        segment.cumulative > self.scoreboard.una()
            || segment.block_count() > 0
            || segment.ecn_echo()
            || self.edge_of(segment) > self.receive_edge
    }

    /// A SYN/ACK arrived at `now`: the connection is open, if it was not. It is acknowledged by itself.
    #[cold]
    fn on_syn_ack(&mut self, now: Time, segment: &AckSegment) {
        self.echo = segment.stamp;
        if let Some(Some(opening)) = self.opening {
            self.timeout_at = NEVER;
            self.on_open(now, opening.on_syn_ack(now, segment.echo));
        }
        (self.answer_syn_now, self.probe_window_now) = (true, true);
    }

    /// Reads a little of all that an acknowledgment needs, so that the processor has fetched it when one comes: for
    /// callers with many senders, who know which is next. The result says nothing.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.cwnd
            ^ self.persist_at.as_nanos()
            ^ self.scoreboard.touch()
            ^ self.rtt.touch()
            ^ self.load_packets.0
            ^ u64::from(self.undo.is_some())
            ^ self.delivery_rate.0
            ^ self.config.receive_window_packets
            ^ self.controller.cwnd().to_bits()
    }

    /// Takes an acknowledgment that arrived at `now`.
    #[inline(always)]
    pub fn on_ack(&mut self, now: Time, segment: &AckSegment) {
        if segment.is_syn {
            return self.on_syn_ack(now, segment);
        }
        let prior_in_flight = self.scoreboard.in_flight();
        let prior_una = self.scoreboard.una();
        let delivery = self.scoreboard.on_ack(now, segment, self.rtt.min());
        self.update_receive_edge(segment);
        self.echo = segment.stamp;
        // the timestamp gives the round-trip time also of a packet that was sent twice
        let echoed = || delivery.advanced.then(|| now.since(segment.echo));
        if let Some(rtt) = delivery.first_rtt.or_else(echoed) {
            let (una, next) = self.una_and_next();
            self.rtt
                .on_sample(rtt, delivery.rtt.unwrap_or(rtt), una, next);
        }
        let una = self.scoreboard.una();
        let outstanding = self.scoreboard.outstanding();
        // a SACK of what was sent before the first packet was last sent says that the path is alive, and
        // that it is too early to expect that packet (Linux's tcp_clean_rtx_queue)
        let alive = delivery.first_rtt.is_some_and(|rtt| {
            let sent_at = self.scoreboard.first_sent_at();
            sent_at.is_some_and(|at| rtt > now.since(at))
        });
        // uTP waits from whatever arrives
        let alive = alive || (delivery.sacked && self.repairs_as_utp());
        if delivery.advanced || alive {
            self.timeout_at = match outstanding {
                0 => NEVER,
                _ => now + self.rtt.rto(),
            };
        }
        self.reordering.on_reordering(delivery.reordered);
        let probe = self.tail_probe.on_ack(una, segment.duplicate());
        if let Some(seq) = segment.duplicate()
            && probe != Verdict::NothingLost
        {
            self.on_duplicate(seq, &delivery);
        }
        let round_ends = una > self.round_end;
        if round_ends {
            self.load_packets.1 = 0; // the round-trip time may be another
            self.round_end = self.scoreboard.next();
        }
        if probe == Verdict::Repaired {
            self.reduce(now, Signal::Loss);
        }
        self.leave_state(&delivery, prior_una, segment.echo);
        // not what a timer found before (Linux's rs->losses)
        let lost = self.detect_losses(now, false) + u64::from(probe == Verdict::Repaired);
        if segment.ecn_echo() && matches!(self.state, State::Open) {
            let reduction = self.reduce(now, Signal::Mark);
            self.tell_reduced = true;
            self.undo = None;
            self.state = State::Reducing {
                high_seq: self.scoreboard.next(),
                reduction,
            };
        }
        let in_flight = self.scoreboard.in_flight();
        if let Some(reduction) = self.state.reduction() {
            let progress = delivery.advanced && lost == 0;
            self.cwnd = reduction
                .cwnd(delivery.delivered, in_flight, progress)
                .max(1);
            return;
        }
        let open = matches!(self.state, State::Open);
        if delivery.delivered > 0 || (lost > 0 && self.controller.manages_recovery()) {
            self.tell_controller(now, segment, &delivery, prior_in_flight, lost, round_ends);
        }
        self.follow_controller();
        if self.cwnd == 0 {
            self.wait_for_timeout(now);
        }
        if open && self.scoreboard.sacked() == 0 {
            if delivery.advanced {
                self.tail_probe
                    .arm(now, self.rtt.srtt(), outstanding, self.timeout_at);
            }
        } else {
            self.tail_probe.disarm();
        }
    }

    /// Reports an acknowledgment to the controller. `prior_in_flight` packets were in flight before; the
    /// acknowledgment showed that `lost` of them are lost.
    #[inline(always)]
    fn tell_controller(
        &mut self,
        now: Time,
        segment: &AckSegment,
        delivery: &Delivery,
        prior_in_flight: u64,
        lost: u64,
        round_ends: bool,
    ) {
        let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
        let cwnd_limited = self
            .window_use
            .is_limited(self.cwnd, || self.controller.in_slow_start());
        let rate = self.scoreboard.rate_sample(now, delivery, min_rtt);
        if let Some(rate) = &rate {
            self.delivery_rate = (rate.delivered_packets, rate.interval);
        }
        self.controller.on_ack(&Ack {
            now,
            acked_packets: delivery.delivered,
            lost_packets: lost,
            marked_packets: u64::from(segment.ecn_echo()) * delivery.delivered,
            rtt: delivery.rtt,
            srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
            min_rtt,
            in_flight: self.scoreboard.in_flight(),
            prior_in_flight,
            departs_at: self.pacer.next(),
            delivered: self.scoreboard.delivered(),
            lost: self.scoreboard.found_lost(),
            rate,
            round_ends,
            cwnd_limited,
            in_order: delivery.advanced || self.reordering.is_common(),
            state: match self.state {
                State::Open | State::Reducing { .. } => LossState::Open,
                State::Recovery { .. } => LossState::Recovery,
                State::Loss { .. } => LossState::Loss,
            },
        });
    }

    /// One past the last packet that the receiver takes, as `segment` says.
    #[inline]
    fn edge_of(&self, segment: &AckSegment) -> u64 {
        let window = u64::from(segment.window_packets).min(self.config.receive_window_packets);
        segment.cumulative.saturating_add(window)
    }

    #[inline]
    fn update_receive_edge(&mut self, segment: &AckSegment) {
        let edge = self.edge_of(segment);
        if edge > self.receive_edge {
            self.receive_edge = edge;
            self.persist_at = NEVER;
        }
    }

    /// Takes over the controller's window and pace.
    #[inline]
    fn follow_controller(&mut self) {
        let least = u64::from(!self.repairs_as_utp());
        self.cwnd = (self.controller.cwnd() as u64).max(least);
        self.pacer.set_rate(
            self.controller.pacing_rate(),
            self.rtt.min(),
            self.config.mss_bytes,
        );
    }

    /// When to call `on_timer` and then `poll_transmit` next, if at all.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        let recovery = self.tail_probe.at().unwrap_or(self.timeout_at);
        let others = self.reorder_at.min(self.paced_until).min(self.persist_at);
        let earliest = recovery.min(others);
        (earliest < NEVER).then_some(earliest)
    }

    /// Does what is due at `now`; then call `poll_transmit`.
    pub fn on_timer(&mut self, now: Time) {
        if self.paced_until <= now {
            self.paced_until = NEVER;
        }
        if self.persist_at <= now {
            self.rtt.back_off();
            self.persist_at = now + self.rtt.rto();
            self.probe_window_now = true;
        }
        if self.reorder_at <= now {
            self.reorder_at = NEVER;
            self.detect_losses(now, true);
        }
        match self.tail_probe.at() {
            Some(at) if at <= now => {
                self.tail_probe.disarm();
                self.probe_tail_now = true;
            }
            None if self.timeout_at <= now => self.on_timeout(now),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
