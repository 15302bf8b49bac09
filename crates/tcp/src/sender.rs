//! The sending end: what to send now, and what each acknowledgment changes.

use pathcast_base::{Span, Time};
use pathcast_congestion::{Ack, Congestion, Controller, INITIAL_WINDOW, LossState, Signal};

use crate::handshake::{Handshake, Opening};
use crate::offload::{Load, Moment, load_packets};
use crate::pacer::Pacer;
use crate::prr::ProportionalRateReduction;
use crate::rack::ReorderingWindow;
use crate::rtt::RttEstimator;
use crate::scoreboard::{Delivery, Scoreboard};
use crate::segment::{AckSegment, DataSegment};
use crate::tail_probe::{TailProbe, Verdict};
use crate::undo::Undo;
use crate::window_use::WindowUse;

mod config;
mod state;

pub use config::{MAX_WINDOW_PACKETS, SenderConfig, Start};
use state::{Frto, State};

/// A TCP sender with its congestion controller.
pub struct Sender {
    config: SenderConfig,
    /// Packets that the application has given so far.
    available: u64,
    controller: Box<dyn Controller>,
    scoreboard: Scoreboard,
    rtt: RttEstimator,
    reordering: ReorderingWindow,
    tail_probe: TailProbe,
    state: State,
    undo: Option<Undo>,
    /// The effective window: the controller's, or during a recovery that of its reduction.
    cwnd: u64,
    window_use: WindowUse,
    pacer: Pacer,
    load: Load,
    /// Packets that leave together at most, and the window for which that was computed.
    load_packets: (u64, u64),
    /// The round trip ends when this packet is acknowledged.
    round_end: u64,
    /// One past the last packet that the receiver takes.
    receive_edge: u64,
    /// The timestamp of the last acknowledgment.
    echo: u16,
    last_sent_at: Option<Time>,
    /// Packets were sent since `poll_transmit` last returned none.
    in_burst: bool,
    /// The connection is not open yet, and the end that opens it has got so far.
    opening: Option<Option<Opening>>,
    /// Something leaves whatever the windows say: a tail loss probe, a question for a closed window, the
    /// acknowledgment of a SYN/ACK.
    probe_tail_now: bool,
    probe_window_now: bool,
    answer_syn_now: bool,
    /// The next new packet says that the window was reduced for a mark.
    tell_reduced: bool,
    timeout_at: Option<Time>,
    reorder_at: Option<Time>,
    /// There is something to send, and it must wait until then.
    paced_until: Option<Time>,
    /// When to ask a receiver whose window is closed.
    persist_at: Option<Time>,
    retransmits: u64,
    /// The last delivery rate measured: packets, and the time they took.
    delivery_rate: (u64, Span),
}

impl Sender {
    /// A sender that is connected and has sent nothing.
    pub fn new(config: SenderConfig, controller: Box<dyn Controller>) -> Self {
        let mut sender = Self {
            config,
            available: config.packets.unwrap_or(u64::MAX),
            controller,
            scoreboard: Scoreboard::default(),
            rtt: RttEstimator::default(),
            reordering: ReorderingWindow::default(),
            tail_probe: TailProbe::default(),
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
            timeout_at: None,
            reorder_at: None,
            paced_until: None,
            persist_at: None,
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

    /// Packets on their way, as far as is known.
    pub fn in_flight(&self) -> u64 {
        self.scoreboard.in_flight()
    }

    /// Whether everything there was to send was sent and acknowledged; never so for a bulk flow.
    pub fn is_done(&self) -> bool {
        self.available == self.scoreboard.una()
    }

    /// The next packet to send at `now`, if there is one and the windows and the pace allow it. Call
    /// until `None`.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Time) -> Option<DataSegment> {
        self.paced_until = None;
        if self.probe_tail_now || self.probe_window_now || self.opening.is_some() {
            return self.poll_special(now);
        }
        if self.scoreboard.in_flight() >= self.cwnd {
            self.pause(true);
            return None;
        }
        let again = match self.scoreboard.waiting() {
            0 => None,
            _ if self.state.sends_new_first() && self.has_new() => None,
            _ => self.scoreboard.next_to_retransmit(),
        };
        if again.is_none() && !self.may_send_new(now) {
            self.pause(false);
            return None;
        }
        let begins = match again {
            Some(seq) => !self.load.continues_with(now, seq),
            None => !self.load.is_leaving(now),
        };
        if begins && let Some(at) = self.pacer.blocked_until(now) {
            self.paced_until = Some(at);
            self.pause(false);
            return None;
        }
        if again.is_some() {
            return self.retransmit(now, begins);
        }
        if self.scoreboard.outstanding() == 0 {
            self.restart_after_idle(now);
        }
        if begins && !self.begin_load(now) {
            return None;
        }
        let pushed = self.load.on_send();
        let seq = self.scoreboard.send_new(now);
        Some(self.sent(now, seq, false, begins).with_pushed(pushed))
    }

    fn retransmit(&mut self, now: Time, begins: bool) -> Option<DataSegment> {
        let seq = self.scoreboard.retransmit(now)?;
        if seq == self.scoreboard.una() {
            // it is the one that the timer waits for (Linux's tcp_xmit_retransmit_queue)
            self.timeout_at = Some(now + self.rtt.rto());
        }
        let most = self.pacer.burst_packets().unwrap_or(u64::MAX);
        self.load.send_again(now, seq, most);
        Some(self.sent(now, seq, true, begins))
    }

    /// Takes as many new packets as leave together, or none while it is worth waiting for more room.
    #[inline]
    fn begin_load(&mut self, now: Time) -> bool {
        let next = self.scoreboard.next();
        let cwnd_room = self.cwnd - self.scoreboard.in_flight();
        let receiver_room = self.receive_edge - next;
        let moment = Moment {
            now,
            last_sent_at: self.last_sent_at,
            head_sent_at: self.scoreboard.first_sent_at(),
            srtt: self.rtt.srtt(),
            cwnd: self.cwnd,
            room: cwnd_room.min(receiver_room),
            given: self.available - next,
            load: self.load_packets(),
        };
        let recovers = matches!(self.state, State::Recovery { .. } | State::Loss { .. });
        if !recovers && moment.should_wait() {
            self.pause(cwnd_room < receiver_room);
            return false;
        }
        // two loads make a window at least, so that acknowledgments keep coming (Linux's tcp_cwnd_test)
        let half = (self.cwnd / 2).max(1);
        let packets = moment.load.min(moment.room).min(half).min(moment.given);
        self.load.begin(now, packets);
        true
    }

    /// Packets that leave together at most: by the pace, or by the one that Linux computes for all
    /// (tcp_update_pacing_rate).
    #[inline]
    fn load_packets(&mut self) -> u64 {
        if let Some(packets) = self.pacer.burst_packets() {
            return packets;
        }
        if self.load_packets.1 != self.cwnd {
            self.load_packets = (self.unpaced_load(), self.cwnd);
        }
        self.load_packets.0
    }

    #[cold]
    fn unpaced_load(&self) -> u64 {
        let Some(srtt) = self.rtt.srtt() else {
            return load_packets(u64::MAX, None, self.config.mss_bytes);
        };
        let doubling = (self.cwnd as f64) < self.controller.ssthresh() / 2.0;
        let ratio_ns = if doubling {
            2_000_000_000
        } else {
            1_200_000_000
        };
        let packets = self.cwnd.max(self.scoreboard.outstanding());
        let rate = packets.saturating_mul(ratio_ns) / srtt.as_nanos().max(1);
        load_packets(rate, self.rtt.min(), self.config.mss_bytes)
    }

    /// Whether there is a new packet and the receiver takes it.
    #[inline]
    fn has_new(&self) -> bool {
        let next = self.scoreboard.next();
        next < self.available && next < self.receive_edge
    }

    /// As [`has_new`](Self::has_new), and notes what it is that lacks.
    #[inline]
    fn may_send_new(&mut self, now: Time) -> bool {
        let next = self.scoreboard.next();
        if next == self.available {
            self.scoreboard.on_app_limited();
            return false;
        }
        if next >= self.receive_edge {
            if self.scoreboard.outstanding() == 0 && self.persist_at.is_none() {
                self.persist_at = Some(now + self.rtt.rto());
            }
            return false;
        }
        true
    }

    #[inline]
    fn pause(&mut self, limited: bool) {
        if self.state.sends_new_first() {
            self.state.end_new_data(self.scoreboard.next());
        }
        if self.in_burst || limited {
            self.in_burst = false;
            let (una, next) = self.una_and_next();
            self.window_use.on_pause(una, next, limited);
        }
    }

    /// Books a packet that leaves now.
    #[inline(always)]
    fn sent(
        &mut self,
        now: Time,
        seq: u64,
        retransmission: bool,
        begins_burst: bool,
    ) -> DataSegment {
        self.in_burst = true;
        self.last_sent_at = Some(now);
        self.pacer.on_send(now, begins_burst);
        if let Some(reduction) = self.state.reduction() {
            reduction.on_send();
        }
        let timeout_at = *self.timeout_at.get_or_insert(now + self.rtt.rto());
        if retransmission {
            self.retransmits += 1;
            if let Some(undo) = &mut self.undo {
                undo.on_retransmit(now);
            }
        } else if matches!(self.state, State::Open) && self.scoreboard.sacked() == 0 {
            let outstanding = self.scoreboard.outstanding();
            self.tail_probe
                .arm(now, self.rtt.srtt(), outstanding, Some(timeout_at));
        }
        let last = seq + 1 == self.available;
        let capable = self.config.ecn && !retransmission;
        DataSegment::new(now, seq)
            .with_retransmission(retransmission)
            .with_pushed(last)
            .with_short_by_bytes(if last {
                self.config.last_short_by_bytes
            } else {
                0
            })
            .with_echo(self.echo)
            .with_ecn_capable(capable)
            .with_reduced(capable && std::mem::take(&mut self.tell_reduced))
    }

    /// A SYN while the connection is not open; then what leaves whatever the windows say.
    #[cold]
    fn poll_special(&mut self, now: Time) -> Option<DataSegment> {
        if let Some(opening) = &mut self.opening {
            let opening = opening.as_mut().filter(|_| self.available > 0)?;
            self.timeout_at = opening.poll(now)?;
            self.retransmits += u64::from(opening.retries() > 0);
            return Some(DataSegment::new(now, 0).as_syn());
        }
        self.poll_probe(now)
    }

    /// The acknowledgment of a SYN/ACK; a question for the window; or new data if the receiver takes it, else
    /// the last packet again.
    fn poll_probe(&mut self, now: Time) -> Option<DataSegment> {
        if std::mem::take(&mut self.answer_syn_now) {
            self.probe_window_now = false;
            return Some(DataSegment::new(now, 0).as_syn_ack_ack());
        }
        if std::mem::take(&mut self.probe_window_now) {
            let una = self.scoreboard.una();
            return Some(DataSegment::new(now, una).as_window_probe());
        }
        self.probe_tail_now = false;
        let fresh = self.has_new();
        let seq = if fresh {
            self.scoreboard.send_new(now)
        } else {
            self.scoreboard.probe_with_last(now)?
        };
        // as if nothing had been sent before: the timeout is counted from here
        self.timeout_at = Some(now + self.rtt.rto());
        let segment = self.sent(now, seq, !fresh, true);
        self.tail_probe.on_sent(self.scoreboard.next(), !fresh);
        Some(segment)
    }

    /// Nothing is in flight, which the controller learns (Linux's CA_EVENT_TX_START). An idle time of more
    /// than an RTO halves the window for each RTO, down to the initial one; ssthresh keeps three quarters
    /// of what it was, up to which slow start takes it back (RFC 2861, as Linux's tcp_cwnd_restart).
    fn restart_after_idle(&mut self, now: Time) {
        let Some(last) = self.last_sent_at else {
            return;
        };
        let (idle, rto) = (now.since(last), self.rtt.rto());
        self.controller.on_idle_restart(now, idle);
        if idle > rto && self.config.slow_start_after_idle && !self.controller.manages_recovery() {
            let initial = self.config.initial_window_packets;
            let least = initial.map_or(INITIAL_WINDOW as u64, u64::from);
            let halvings = (idle.as_nanos() - 1) / rto.as_nanos().max(1);
            let halved = self.cwnd.checked_shr(halvings.min(64) as u32).unwrap_or(0);
            let cwnd = halved.max(least.min(self.cwnd));
            self.controller
                .set_window(cwnd as f64, self.current_ssthresh());
        }
        self.follow_controller();
    }

    /// A SYN/ACK arrived at `now`: the connection is open, if it was not. It is acknowledged by itself.
    #[cold]
    fn on_syn_ack(&mut self, now: Time, segment: &AckSegment) {
        self.echo = segment.stamp;
        if let Some(Some(opening)) = self.opening {
            self.timeout_at = None;
            self.on_open(now, opening.on_syn_ack(now, segment.echo));
        }
        (self.answer_syn_now, self.probe_window_now) = (true, true);
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
        // the timestamp tells the round-trip time of a packet sent twice too
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
        if delivery.advanced || alive {
            self.timeout_at = (outstanding > 0).then(|| now + self.rtt.rto());
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
        let manages = self.controller.manages_recovery();
        if delivery.delivered > 0 || (manages && lost > 0) {
            let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
            let cwnd_limited = self
                .window_use
                .is_limited(self.cwnd, || self.controller.in_slow_start());
            let rate = self.scoreboard.rate_sample(now, &delivery, min_rtt);
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
                in_flight,
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
        self.follow_controller();
        if open && self.scoreboard.sacked() == 0 {
            if delivery.advanced {
                self.tail_probe
                    .arm(now, self.rtt.srtt(), outstanding, self.timeout_at);
            }
        } else {
            self.tail_probe.disarm();
        }
    }

    #[inline]
    fn update_receive_edge(&mut self, segment: &AckSegment) {
        let window = u64::from(segment.window_packets).min(self.config.receive_window_packets);
        let edge = segment.cumulative.saturating_add(window);
        if edge > self.receive_edge {
            self.receive_edge = edge;
            self.persist_at = None;
        }
    }

    /// Packet `seq` arrived twice: it was not lost, or its copy was not.
    fn on_duplicate(&mut self, seq: u64, delivery: &Delivery) {
        let delivered = self.scoreboard.delivered();
        let prior_delivered = self.scoreboard.prior_delivered(delivery);
        self.reordering.on_duplicate(delivered, prior_delivered);
        if let Some(undo) = &mut self.undo {
            undo.on_duplicate(seq);
        }
    }

    /// Ends recovery if it is over, or if nothing was lost after all.
    #[inline]
    fn leave_state(&mut self, delivery: &Delivery, prior_una: u64, echo: Time) {
        let una = self.scoreboard.una();
        let (over, undone) = match (&self.state, &self.undo) {
            // a late report may still show that the last recovery was needless
            (State::Open, undo) => (false, undo.is_some_and(|undo| undo.all_came_twice())),
            (State::Reducing { high_seq, .. }, _) => (una > *high_seq, false),
            (State::Recovery { high_seq, .. }, undo) => {
                let over = una >= *high_seq;
                // a hole that an original filled is reordering (Linux's tcp_try_undo_partial)
                let original = undo.is_some_and(|undo| undo.original_arrived(echo));
                if delivery.advanced && original && !over {
                    let fack = self.scoreboard.fack().max(una);
                    self.reordering.on_reordering(fack - prior_una);
                }
                let settled = over || self.scoreboard.retransmitted() == 0;
                let undone = undo.is_some_and(|undo| {
                    undo.all_came_twice()
                        || (delivery.advanced && settled && undo.original_arrived(echo))
                });
                (over, undone)
            }
            (State::Loss { high_seq, frto }, undo) => {
                // what was never sent again and has arrived was not lost (RFC 5682, step 3b)
                let original = delivery.lowest_original.is_some_and(|seq| seq < *high_seq);
                let undone = undo.is_some_and(|undo| {
                    undo.all_came_twice()
                        || (delivery.advanced && undo.original_arrived(echo))
                        || (*frto != Frto::Off && original)
                });
                (una >= *high_seq, undone)
            }
        };
        if undone && let Some(undo) = self.undo.take() {
            // what was sent after a recovery that is over may be lost all the same
            let whole = matches!(self.state, State::Recovery { .. }) && over;
            if !whole && !matches!(self.state, State::Open) {
                self.scoreboard.unmark_all_lost();
            }
            self.undo_reduction(&undo);
        }
        if over || (undone && !matches!(self.state, State::Open)) {
            if over && !undone && !matches!(self.state, State::Reducing { .. }) {
                self.reordering.on_recovery_end();
            }
            self.state = State::Open;
        }
        if over || undone {
            self.follow_controller();
        }
        let (_, next) = self.una_and_next();
        let has_new = self.has_new();
        self.state.probe_timeout(delivery, next, has_new);
    }

    /// Takes over the controller's window and pace.
    #[inline]
    fn follow_controller(&mut self) {
        self.cwnd = (self.controller.cwnd() as u64).max(1);
        self.pacer.set_rate(
            self.controller.pacing_rate(),
            self.rtt.min(),
            self.config.mss_bytes,
        );
    }

    /// The threshold that a window remembers when it is lowered for another reason than congestion
    /// (Linux's tcp_current_ssthresh).
    fn current_ssthresh(&self) -> f64 {
        let ssthresh = self.controller.ssthresh();
        match self.state {
            State::Reducing { .. } | State::Recovery { .. } => ssthresh,
            State::Open | State::Loss { .. } => {
                ssthresh.max((self.cwnd / 2 + self.cwnd / 4) as f64)
            }
        }
    }

    /// Tells the controller of a congestion event; returns how to get down to its new window, if that
    /// is left to the transport.
    fn reduce(&mut self, now: Time, signal: Signal) -> Option<ProportionalRateReduction> {
        let prior_cwnd = self.cwnd as f64;
        let in_flight = self.scoreboard.in_flight();
        self.controller.on_congestion(&Congestion {
            now,
            signal,
            in_flight,
        });
        self.follow_controller();
        (!self.controller.manages_recovery())
            .then(|| ProportionalRateReduction::new(prior_cwnd, self.controller.ssthresh()))
    }

    /// A recovery was needless: the window and the threshold are what they were before it (Linux's
    /// tcp_undo_cwnd_reduction).
    fn undo_reduction(&mut self, undo: &Undo) {
        if !self.controller.manages_recovery() {
            let cwnd = self.cwnd.max(undo.prior_cwnd);
            let ssthresh = self.controller.ssthresh().max(undo.prior_ssthresh);
            self.controller.set_window(cwnd as f64, ssthresh);
        }
        self.controller.on_undo();
    }

    /// Looks for losses; returns how many packets were found lost.
    ///
    /// A packet that is lost begins a recovery unless one is on, whenever it was found: an acknowledgment
    /// that ends a recovery during which later packets were found lost begins the next one (Linux's
    /// tcp_time_to_recover). After a timeout, a copy that is lost does (FLAG_LOST_RETRANS), and what the
    /// reordering timer finds (`timer`).
    #[inline]
    fn detect_losses(&mut self, now: Time, timer: bool) -> u64 {
        let in_recovery = matches!(self.state, State::Recovery { .. } | State::Loss { .. });
        let window = self.reordering.span(
            in_recovery,
            self.scoreboard.sacked(),
            self.rtt.min().unwrap_or(Span::ZERO),
            self.rtt.srtt().unwrap_or(Span::ZERO),
        );
        let copies = self.scoreboard.retransmitted();
        let (lost, look_again) = self.scoreboard.detect_losses(now, window);
        self.reorder_at = look_again;
        let begins = match self.state {
            State::Open | State::Reducing { .. } => self.scoreboard.lost() > 0,
            State::Loss { .. } => lost > 0 && (timer || self.scoreboard.retransmitted() < copies),
            State::Recovery { .. } => false,
        };
        if begins {
            self.enter_recovery(now);
        }
        lost
    }

    fn enter_recovery(&mut self, now: Time) {
        self.tail_probe.cancel();
        let una = self.scoreboard.una();
        let reduction = if let State::Reducing { reduction, .. } = &mut self.state {
            reduction.take() // no second reduction in one round trip
        } else {
            self.undo = Some(Undo::new(una, self.cwnd, self.current_ssthresh()));
            let reduction = self.reduce(now, Signal::Loss);
            if reduction.is_some() {
                // until the caller's PRR step: room for the first retransmission
                self.cwnd = self.scoreboard.in_flight() + 1;
            }
            reduction
        };
        self.state = State::Recovery {
            high_seq: self.scoreboard.next(),
            reduction,
        };
    }

    /// When `on_timer` and then `poll_transmit` want to be called next, if at all.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        let earliest = [
            self.tail_probe.at().or(self.timeout_at),
            self.reorder_at,
            self.paced_until,
            self.persist_at,
        ]
        .into_iter()
        .fold(Time::MAX, |earliest, at| {
            at.unwrap_or(Time::MAX).min(earliest)
        });
        (earliest < Time::MAX).then_some(earliest)
    }

    /// Does what is due at `now`; then call `poll_transmit`.
    pub fn on_timer(&mut self, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.paced_until) {
            self.paced_until = None;
        }
        if due(self.persist_at) {
            self.rtt.back_off();
            self.persist_at = Some(now + self.rtt.rto());
            self.probe_window_now = true;
        }
        if due(self.reorder_at) {
            self.reorder_at = None;
            self.detect_losses(now, true);
        }
        if due(self.tail_probe.at()) {
            self.tail_probe.disarm();
            self.probe_tail_now = true;
        } else if due(self.timeout_at) && self.tail_probe.at().is_none() {
            self.on_timeout(now);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if let Some(opening) = &mut self.opening {
            self.timeout_at = None;
            if let Some(opening) = opening {
                opening.on_timeout();
            }
            return;
        }
        // what was reduced within this window is not reduced again, nor by a timeout on top of a timeout
        // (RFC 5681, equation 4; Linux's tcp_enter_loss)
        let una = self.scoreboard.una();
        let reduce = match self.state {
            State::Open => true,
            State::Reducing { high_seq, .. } | State::Recovery { high_seq, .. } => una >= high_seq,
            State::Loss { high_seq, .. } => una >= high_seq || self.rtt.backoff() == 0,
        };
        let in_recovery = matches!(self.state, State::Recovery { .. } | State::Loss { .. });
        let frto = match in_recovery && self.rtt.backoff() == 0 {
            true => Frto::Off,
            false => Frto::TimedOut,
        };
        if reduce {
            self.undo = Some(Undo::new(una, self.cwnd, self.current_ssthresh()));
            self.reduce(now, Signal::Loss);
        }
        self.controller.on_timeout(now);
        self.tail_probe.cancel();
        self.scoreboard.mark_lost_on_timeout(now);
        // what was spared is in flight, and one more may be (Linux's tcp_enter_loss)
        let cwnd = self.scoreboard.in_flight() + 1;
        let ssthresh = self.controller.ssthresh();
        self.controller.set_window(cwnd as f64, ssthresh);
        self.follow_controller();
        self.state = State::Loss {
            high_seq: self.scoreboard.next(),
            frto,
        };
        self.reorder_at = None;
        self.rtt.back_off();
        self.timeout_at = Some(now + self.rtt.rto());
    }
}

#[cfg(test)]
mod tests;
