//! The receiving end: order, delayed acknowledgments, SACK blocks.

use std::ops::ControlFlow;

use pathcast_base::{Span, Time};

use crate::handshake::{Accepting, Handshake};
use crate::receive_window::{GrowingBuffer, GrowingWindow, stamp};
use crate::segment::{AckSegment, DataSegment, Ecn, MAX_SACK_BLOCKS, SackBlock};

/// Least time for which an acknowledgment of one packet may wait for a second (Linux's TCP_ATO_MIN).
const MIN_DELAY: Span = Span::from_millis(40);
/// Longest such time (Linux's TCP_DELACK_MAX).
const MAX_DELAY: Span = Span::from_millis(200);
/// Packets acknowledged one by one at the start, so that slow start is not slowed, and after a
/// duplicate (Linux's TCP_MAX_QUICKACKS).
const QUICK_ACKS: u32 = 16;
/// The same after the first mark.
const QUICK_ACKS_AFTER_MARK: u32 = 2;
/// Acknowledgments past the same gap that are sent one by one before the rest are put together (Linux's
/// TCP_FASTRETRANS_THRESH).
const SINGLE_DUPLICATES: u32 = 3;
/// Acknowledgments that one may stand for (Linux's net.ipv4.tcp_comp_sack_nr).
const MAX_COMPRESSED: u32 = 44;
/// Longest time for which they are put together (Linux's net.ipv4.tcp_comp_sack_delay_ns), and how much
/// later its timer may expire (tcp_comp_sack_slack_ns).
const MAX_COMPRESSION: Span = Span::from_millis(1);
const COMPRESSION_SLACK: Span = Span::from_nanos(100_000);
/// Blocks that Linux keeps ready; before one more comes, what was put together is sent (TCP_NUM_SACKS).
const READY_BLOCKS: usize = 4;
/// Timestamps count these.
const TICK_NS: u64 = 1_000_000;
/// After a silence of a round trip and the larger of these two, acknowledgments are quick again (Linux: after
/// the RTO, which the receiver of a bulk flow knows from the handshake).
const IDLE_VARIATION: Span = Span::from_millis(200);
const IDLE_ROUND_TRIPS: u64 = 2;
/// The assumed round-trip time if that of the handshake is not known.
const UNKNOWN_RTT: Span = Span::from_millis(50);

/// What a receiver takes.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Its buffer in packets, if that does not grow.
    pub window_packets: u32,
    /// A buffer that grows with what arrives; its application reads immediately.
    pub buffer: Option<GrowingBuffer>,
    /// Whether the application reads by [`Receiver::read`] only, instead of immediately.
    pub reads_on_demand: bool,
    /// Whether the connection opens by a SYN; else it is open from the start.
    pub accepts: bool,
    /// The round-trip time that a handshake before the start measured.
    pub rtt: Option<Span>,
}

impl Default for ReceiverConfig {
    /// No limit, and an application that reads immediately.
    fn default() -> Self {
        Self {
            window_packets: u32::MAX,
            buffer: None,
            reads_on_demand: false,
            accepts: false,
            rtt: None,
        }
    }
}

/// Puts packets in order and acknowledges them.
#[derive(Clone, Debug)]
pub struct Receiver {
    window_packets: u32,
    reads_on_demand: bool,
    growing: Option<Box<GrowingWindow>>,
    /// The next packet in order.
    next: u64,
    /// Blocks past `next`, ascending, with gaps between them.
    blocks: Vec<SackBlock>,
    /// A packet in each of the blocks that changed last, newest first.
    recent: [u64; MAX_SACK_BLOCKS],
    /// Packets in order that arrived since the last acknowledgment.
    unacknowledged: u64,
    /// When an acknowledgment is sent that waits for a second packet, or stands for several past a gap.
    timer: Option<Time>,
    /// Acknowledgments past a gap that wait for the timer, and how many were sent since `next` moved.
    compressed: u32,
    duplicates: u32,
    /// For how long they may wait: a twentieth of a round trip, for which twice the first packet's way stands
    /// if the handshake measured none.
    compression: Span,
    /// After a silence as long as this acknowledgments are quick again.
    idle: Span,
    rtt: Option<Span>,
    /// The SYN, until the connection is open; then what the handshake said.
    accepting: Option<Box<Accepting>>,
    handshake: Option<Handshake>,
    /// How long the next acknowledgment may wait, which follows the gaps between packets (Linux's
    /// `ato`), and how many may not.
    delay: Span,
    /// The longest that it may wait: a round trip within the limits above (Linux's tcp_send_delayed_ack).
    max_delay: Span,
    quick: u32,
    /// This end replies to what it receives, so that acknowledgments wait for a reply that carries them
    /// (Linux's pingpong mode).
    interactive: bool,
    last_data_at: Option<Time>,
    /// What the last acknowledgment said: the next packet, and one past the last packet taken.
    acknowledged: u64,
    edge: u64,
    /// Timestamp of the packet that makes the next acknowledgment due (TS.Recent).
    echo: Time,
    /// The packet that just arrived twice.
    duplicate: Option<u64>,
    /// Packets in order that the application has read.
    read: u64,
    ecn_echo: bool,
    tail_short_by_bytes: u16,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new(ReceiverConfig::default())
    }
}

impl Receiver {
    /// A receiver that is connected and has got nothing.
    pub fn new(config: ReceiverConfig) -> Self {
        let growing = config.buffer.map(GrowingWindow::new).map(Box::new);
        let window_packets = match &growing {
            Some(growing) => growing.first_packets() as u32,
            None => config.window_packets,
        };
        let mut receiver = Self {
            window_packets,
            reads_on_demand: config.reads_on_demand,
            growing,
            next: 0,
            blocks: Vec::new(),
            recent: [0; MAX_SACK_BLOCKS],
            unacknowledged: 0,
            timer: None,
            compressed: 0,
            duplicates: 0,
            compression: MAX_COMPRESSION,
            idle: idle_span(UNKNOWN_RTT),
            rtt: None,
            accepting: config.accepts.then(Box::default),
            handshake: None,
            delay: MIN_DELAY,
            max_delay: MAX_DELAY,
            quick: QUICK_ACKS,
            interactive: false,
            last_data_at: None,
            acknowledged: 0,
            // no packet lies before it until the connection is open
            edge: match config.accepts {
                true => 0,
                false => u64::from(window_packets),
            },
            echo: Time::ZERO,
            duplicate: None,
            read: 0,
            ecn_echo: false,
            tail_short_by_bytes: 0,
        };
        if let Some(rtt) = config.rtt {
            receiver.on_rtt(rtt);
        }
        receiver
    }

    /// The handshake measured a round-trip time of `rtt`.
    pub fn on_rtt(&mut self, rtt: Span) {
        self.rtt = Some(rtt);
        self.compression = rtt.mul_div(1, 20).min(MAX_COMPRESSION);
        self.idle = idle_span(rtt);
        self.max_delay = rtt.max(MIN_DELAY).min(MAX_DELAY);
    }

    /// The handshake by which the connection opened, if it opened by one.
    pub const fn handshake(&self) -> Option<Handshake> {
        self.handshake
    }

    /// Packets in order.
    pub const fn delivered(&self) -> u64 {
        self.next
    }

    /// Whether packet `seq` has arrived.
    pub fn has(&self, seq: u64) -> bool {
        let at = self.blocks.partition_point(|block| block.end <= seq);
        seq < self.next || self.blocks.get(at).is_some_and(|block| block.start <= seq)
    }

    /// Bytes received in order: `mss_bytes` for each packet except a shorter last one.
    pub fn delivered_bytes(&self, mss_bytes: u32) -> u64 {
        (self.next * u64::from(mss_bytes)).saturating_sub(u64::from(self.tail_short_by_bytes))
    }

    /// Packets in order that wait to be read.
    pub const fn unread(&self) -> u64 {
        if self.reads_on_demand {
            self.next - self.read
        } else {
            0
        }
    }

    /// The application reads up to `packets` that wait; returns an acknowledgment if the window has grown
    /// so much that the sender should know (to twice the announced window, as in Linux).
    pub fn read(&mut self, packets: u64) -> Option<AckSegment> {
        self.read += packets.min(self.unread());
        let told = self.edge - self.next;
        (self.window() > 0 && u64::from(self.window()) >= 2 * told).then(|| self.acknowledge())
    }

    /// Packets past the next one that it takes.
    fn window(&self) -> u32 {
        let free = u64::from(self.window_packets).saturating_sub(self.unread());
        free as u32
    }

    /// Reads a little of all that a packet needs, as [`Sender::touch`](crate::Sender::touch) does.
    #[inline]
    pub fn touch(&self) -> u64 {
        let Self {
            next,
            unacknowledged,
            delay,
            read,
            tail_short_by_bytes,
            ..
        } = self;
        next ^ unacknowledged ^ delay.as_nanos() ^ read ^ u64::from(*tail_short_by_bytes)
    }

    /// Takes a packet that arrived at `now`; returns an acknowledgment if one is due immediately.
    #[inline(always)]
    pub fn on_data(&mut self, now: Time, segment: &DataSegment) -> Option<AckSegment> {
        match self.growing {
            None => self.take(now, segment),
            Some(_) => self.take_and_grow(now, segment),
        }
    }

    /// As [`take`](Self::take), while the window grows.
    #[inline(never)]
    fn take_and_grow(&mut self, now: Time, segment: &DataSegment) -> Option<AckSegment> {
        let is_new = !segment.is_empty() && segment.seq < self.edge && !self.has(segment.seq);
        if is_new && let Some(growing) = &mut self.growing {
            if segment.seq == self.next {
                growing.on_next(now, segment, self.next);
            }
            // announce the window immediately (Linux's tcp_grow_window)
            self.quick |= u32::from(growing.open());
        }
        let mut answer = self.take(now, segment);
        if let Some(answer) = &mut answer {
            answer.stamp = stamp(now);
        }
        // the application reads after the acknowledgment has left
        let last = self.blocks.last().map_or(self.next, |block| block.end);
        if let Some(growing) = &mut self.growing {
            match segment.seq < self.next {
                true => growing.on_read(now, self.next, last),
                false => growing.on_gap(self.next, last),
            }
        }
        answer
    }

    #[inline(always)]
    fn take(&mut self, now: Time, segment: &DataSegment) -> Option<AckSegment> {
        let seq = segment.seq;
        if (segment.is_empty() || seq >= self.edge)
            && let ControlFlow::Break(answer) = self.on_special(now, segment)
        {
            return answer;
        }
        if segment.sent_at.as_nanos() / TICK_NS < self.echo.as_nanos() / TICK_NS {
            return Some(self.reject(seq));
        }
        let had_gap = !self.blocks.is_empty();
        // not of a duplicate of long ago, which Linux drops before it looks (tcp_sequence)
        let at_edge = seq <= self.acknowledged && seq + 1 >= self.acknowledged;
        if at_edge && segment.sent_at > self.echo {
            self.echo = segment.sent_at;
        }
        if self.last_data_at.is_none() && self.rtt.is_none() {
            let way = now.since(segment.sent_at);
            self.compression = (way + way).mul_div(1, 20).min(MAX_COMPRESSION);
        }
        self.adapt_delay(now);
        if segment.has_ecn_news() {
            self.on_ecn(segment);
        }
        if segment.short_by_bytes() > 0 {
            self.tail_short_by_bytes = segment.short_by_bytes();
        }
        // a block that no acknowledgment has reported yet must not be dropped for a new one
        let is_crowded = self.compressed > 0 && self.blocks.len() >= READY_BLOCKS;
        let crowded = (is_crowded && !self.touches_block(seq)).then(|| self.acknowledge());
        if seq == self.next {
            self.next += 1;
            self.unacknowledged += 1;
            self.duplicates = 0;
            if had_gap && self.blocks[0].start == self.next {
                self.next = self.blocks.remove(0).end;
            }
        } else if seq < self.next {
            self.duplicate = Some(seq);
            self.be_quick(QUICK_ACKS);
        } else if !self.insert(seq) {
            self.duplicate = Some(seq);
        }
        if had_gap || !self.blocks.is_empty() || seq + 1 != self.next {
            let late = self.acknowledge_past_gap(now);
            return crowded.or(late);
        }
        // an application that reads what has come acknowledges the end of a write (Linux's ICSK_ACK_PUSHED),
        // unless its reply will do so
        let prompt = segment.is_pushed() || self.quick > 0;
        if self.unacknowledged >= 2 || (prompt && !self.interactive) {
            return Some(self.acknowledge());
        }
        self.timer
            .get_or_insert(now + self.delay.min(self.max_delay));
        None
    }

    /// Returns the acknowledgment that data carries which this end sends at `now`. One that waited no longer
    /// has to leave by itself.
    ///
    /// A reply within the delay of an acknowledgment makes the connection interactive: later
    /// acknowledgments wait for replies (Linux's tcp_event_data_sent).
    pub fn acknowledge_with_data(&mut self, now: Time) -> AckSegment {
        let replies = self
            .last_data_at
            .is_some_and(|at| now.since(at) < self.delay);
        self.interactive |= replies;
        let mut segment = self.acknowledge();
        if self.growing.is_some() {
            segment.stamp = stamp(now);
        }
        segment
    }

    /// Acknowledges the next packets one by one (Linux's tcp_enter_quickack_mode).
    const fn be_quick(&mut self, packets: u32) {
        self.interactive = false;
        if packets > self.quick {
            self.quick = packets;
        }
    }

    /// Takes a packet without data, past the window, or the first of a connection that is not open; breaks
    /// off with its answer unless it is data to take in.
    #[cold]
    fn on_special(&mut self, now: Time, segment: &DataSegment) -> ControlFlow<Option<AckSegment>> {
        if let Some(accepting) = &mut self.accepting {
            if segment.is_syn() {
                self.timer = Some(accepting.on_syn(now, segment.sent_at));
                return ControlFlow::Break(Some(self.syn_ack()));
            }
            if !accepting.has_answered() {
                return ControlFlow::Break(None); // the SYN was forgotten; Linux would reset the connection
            }
            let handshake = accepting.on_open(now);
            self.accepting = None;
            self.timer = None;
            self.edge = u64::from(self.window_packets);
            self.handshake = Some(handshake);
            if let Some(growing) = &mut self.growing {
                growing.on_open(now);
            }
            if let Some(rtt) = handshake.rtt {
                self.on_rtt(rtt);
            }
        }
        if segment.is_syn() || segment.asks_for_window() {
            return ControlFlow::Break(Some(self.acknowledge()));
        }
        if segment.is_empty() {
            return ControlFlow::Break(None);
        }
        match segment.seq >= self.edge {
            true => ControlFlow::Break(Some(self.acknowledge())),
            false => ControlFlow::Continue(()),
        }
    }

    /// The answer to a SYN.
    fn syn_ack(&self) -> AckSegment {
        let mut segment = AckSegment::new(0);
        segment.is_syn = true;
        segment.echo = self.accepting.as_ref().map_or(Time::ZERO, |syn| syn.echo());
        segment.window_packets = self.window_packets;
        segment
    }

    /// Past a gap, the receiver acknowledges each of the first three packets immediately, so that the
    /// sender detects the gap, and then several packets together (Linux's __tcp_ack_snd_check).
    fn acknowledge_past_gap(&mut self, now: Time) -> Option<AckSegment> {
        self.duplicates += 1;
        let told = self.duplicates > SINGLE_DUPLICATES && self.quick == 0;
        if !told || self.blocks.is_empty() || self.compressed == MAX_COMPRESSED {
            return Some(self.acknowledge());
        }
        self.compressed += 1;
        if self.compressed == 1 {
            self.timer = Some(now + self.compression + COMPRESSION_SLACK);
        }
        None
    }

    /// A timestamp older than that of a packet which moved the acknowledgment: taken for a packet of long
    /// ago, it is acknowledged and dropped (PAWS, RFC 7323, section 5; Linux's tcp_paws_discard). On a path
    /// that reorders, that is what becomes of originals which a copy overtook.
    fn reject(&mut self, seq: u64) -> AckSegment {
        if seq < self.next {
            self.duplicate = Some(seq);
            self.be_quick(QUICK_ACKS);
        }
        self.acknowledge()
    }

    /// The delay follows the gaps between packets (Linux's tcp_event_data_recv).
    #[inline]
    fn adapt_delay(&mut self, now: Time) {
        let half = Span::from_nanos(MIN_DELAY.as_nanos() / 2);
        if let Some(last) = self.last_data_at.replace(now) {
            let gap = now.since(last);
            if gap <= half {
                if self.delay > MIN_DELAY {
                    self.delay = self.delay.mul_div(1, 2) + half;
                }
            } else if gap < self.delay {
                self.delay = (self.delay.mul_div(1, 2) + gap).min(MAX_DELAY);
            } else if gap > self.idle {
                self.quick = QUICK_ACKS;
            }
        }
    }

    /// A mark is echoed until the sender says that it reduced (RFC 3168, section 6.1.3).
    fn on_ecn(&mut self, segment: &DataSegment) {
        if segment.has_reduced() {
            self.ecn_echo = false;
        }
        if segment.ecn() == Ecn::Marked {
            if !self.ecn_echo {
                self.be_quick(QUICK_ACKS_AFTER_MARK);
            }
            self.ecn_echo = true;
        }
    }

    /// When an acknowledgment is due, if one waits.
    #[inline]
    pub const fn next_timer(&self) -> Option<Time> {
        self.timer
    }

    /// The acknowledgment that waited, if it is due at `now`.
    pub fn on_timer(&mut self, now: Time) -> Option<AckSegment> {
        if self.timer? > now {
            return None;
        }
        let mut answer = if let Some(accepting) = &mut self.accepting {
            self.timer = accepting.on_timeout(now);
            self.timer?;
            self.syn_ack()
        } else {
            if self.compressed == 0 {
                // no second packet or reply came in time: the next may wait longer, or not for a reply
                // (Linux's tcp_delack_timer_handler)
                self.delay = match std::mem::take(&mut self.interactive) {
                    true => MIN_DELAY,
                    false => (self.delay + self.delay).min(MAX_DELAY),
                };
            }
            self.acknowledge()
        };
        if self.growing.is_some() {
            answer.stamp = stamp(now);
        }
        Some(answer)
    }

    /// Notes a packet past a gap; returns whether it is new.
    fn insert(&mut self, seq: u64) -> bool {
        // most packets past a gap extend the last block
        let at = match self.blocks.last() {
            Some(last) if last.end <= seq => self.blocks.len(),
            _ => self.blocks.partition_point(|block| block.end <= seq),
        };
        if self.blocks.get(at).is_some_and(|block| block.start <= seq) {
            return false;
        }
        let extends_left = at > 0 && self.blocks[at - 1].end == seq;
        let extends_right = self
            .blocks
            .get(at)
            .is_some_and(|block| block.start == seq + 1);
        match (extends_left, extends_right) {
            (true, true) => self.blocks[at - 1].end = self.blocks.remove(at).end,
            (true, false) => self.blocks[at - 1].end += 1,
            (false, true) => self.blocks[at].start -= 1,
            (false, false) => self.blocks.insert(
                at,
                SackBlock {
                    start: seq,
                    end: seq + 1,
                },
            ),
        }
        let changed = self.block_of(seq);
        if self.block_of(self.recent[0]) != changed {
            self.recent.rotate_right(1);
        }
        self.recent[0] = seq;
        true
    }

    /// Whether `seq` lies in order, or in or next to a block.
    fn touches_block(&self, seq: u64) -> bool {
        let at = self.blocks.partition_point(|block| block.end < seq);
        let beside = (self.blocks.get(at)).is_some_and(|block| block.start <= seq + 1);
        seq <= self.next || beside
    }

    fn block_of(&self, seq: u64) -> Option<SackBlock> {
        let at = self.blocks.partition_point(|block| block.end <= seq);
        self.blocks
            .get(at)
            .copied()
            .filter(|block| block.start <= seq)
    }

    #[inline(always)]
    fn acknowledge(&mut self) -> AckSegment {
        self.unacknowledged = 0;
        self.compressed = 0;
        self.timer = None;
        self.quick = self.quick.saturating_sub(1);
        self.acknowledged = self.next;
        let edge = match &mut self.growing {
            None => self.next + u64::from(self.window()),
            Some(growing) => {
                // the packet that is being acknowledged has not been read yet
                let held = self.blocks.iter().map(|block| block.end - block.start);
                growing.offer(self.next, 1 + held.sum::<u64>())
            }
        };
        self.edge = self.edge.max(edge);
        let mut ack = AckSegment::new(self.next).with_ecn_echo(self.ecn_echo);
        ack.echo = self.echo;
        // the edge never goes back, whatever arrived past a gap
        ack.window_packets = (self.edge - self.next).min(u64::from(u32::MAX)) as u32;
        if let Some(seq) = self.duplicate.take() {
            ack.push_duplicate(seq);
        }
        if !self.blocks.is_empty() {
            for seq in self.recent {
                if let Some(block) = self.block_of(seq) {
                    ack.push(block);
                }
            }
        }
        ack
    }
}

/// The RTO after one sample of `rtt`.
fn idle_span(rtt: Span) -> Span {
    rtt + IDLE_VARIATION.max(rtt.mul_div(IDLE_ROUND_TRIPS, 1))
}

#[cfg(test)]
mod tests;
