//! One flow of a capture from its sender's point of view: windows from bytes in flight, round-trip
//! times from acknowledgments, and packets.

use std::collections::VecDeque;

use super::board::{Board, DUPLICATES};
use super::gaps::{Filled, Gaps, Order};
use super::segment::{ACK, FIN, RST, SYN, Segment};
use super::vantage::Vantage;

/// Timestamps that are remembered, of each side.
const MAX_STAMPS: usize = 2048;
/// The largest payload that counts as one packet: a jumbo frame's.
const MAX_MSS_BYTES: u32 = 8960;

/// This many packets of the largest size are full ones, not application messages.
const FULL_PACKETS: u64 = 16;

/// The sender's state just before an acknowledgment reached it.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub time_ns: i64,
    pub pipe_bytes: u64,
    pub srtt: Srtt,
    pub snd_nxt: u64,
    pub snd_una: u64,
    pub rwnd_bytes: Option<u64>,
    pub retransmits: u64,
}

/// Smoothed round-trip times in nanoseconds (RFC 6298, section 2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Srtt {
    /// Between the capture and the receiver.
    pub outer_ns: Option<f64>,
    /// Between the sender and the receiver, as far as the capture shows it.
    pub whole_ns: Option<f64>,
}

impl Srtt {
    fn smoothed(srtt_ns: Option<f64>, sample_ns: i64) -> Option<f64> {
        let sample = sample_ns as f64;
        Some(srtt_ns.map_or(sample, |srtt| srtt + (sample - srtt) / 8.0))
    }
}

/// Data that the sender handed to the network.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub time_ns: i64,
    pub start: u64,
    pub payload_bytes: u32,
    pub header_bytes: u32,
}

/// What a segment revealed.
#[derive(Default)]
pub struct Seen {
    pub look: Option<Look>,
    pub given: Option<Given>,
}

/// When each timestamp value was first seen.
#[derive(Default)]
struct Stamps(VecDeque<(u32, i64)>);

impl Stamps {
    fn saw(&mut self, value: u32, time_ns: i64) {
        if self.0.back().is_none_or(|(last, _)| *last != value) {
            self.0.push_back((value, time_ns));
            if self.0.len() > MAX_STAMPS {
                self.0.pop_front();
            }
        }
    }

    /// Returns how long ago `echo` was first seen, and forgets older values.
    fn answered(&mut self, echo: u32, time_ns: i64) -> Option<i64> {
        let at = self.0.iter().position(|(value, _)| *value == echo)?;
        self.0.drain(..at);
        let since = time_ns.checked_sub(self.0.front()?.1)?;
        (since >= 0).then_some(since)
    }
}

/// The counters of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Payload, including retransmissions.
    pub payload_bytes: u64,
    /// Retransmitted payload, in bytes and in packets of full payload.
    pub again_bytes: u64,
    pub retransmits: u64,
    /// Segments that later ones overtook, or that appear after their acknowledgment.
    pub late_segments: u64,
    /// Bytes that were acknowledged or passed over but not captured.
    pub missed_bytes: u64,
    /// Segments beyond the capacity of the board.
    pub overflowed: u64,
}

/// The flow so far.
pub struct Sender {
    board: Board,
    /// Sequence number of the first byte; known from the first segment that is seen.
    base: Option<u32>,
    snd_nxt: u64,
    snd_una: u64,
    duplicates: u64,
    saw_sacks: bool,
    mss_option: [Option<u16>; 2],
    timestamps: bool,
    window_scale: Option<u8>,
    srtt: Srtt,
    /// Until then the handshake's round trip is the only one the sender knows.
    handshake_until_ns: Option<i64>,
    vantage: Vantage,
    gaps: Gaps,
    counts: Counts,
    /// The order of the first data seen.
    first: Order,
    /// The receiver's window; `None` while its scale is unknown.
    rwnd_bytes: Option<u64>,
    window_is_shut: bool,
    last_data_ns: i64,
    /// Whether data was seen since the last row.
    unanswered: bool,
    sizes: Vec<u64>,
    largest_bytes: u32,
    own_stamps: Stamps,
    first_ack: Option<(i64, u64)>,
    last_ack: Option<(i64, u64)>,
}

impl Sender {
    pub fn new() -> Self {
        Self {
            board: Board::default(),
            base: None,
            snd_nxt: 0,
            snd_una: 0,
            duplicates: 0,
            saw_sacks: false,
            mss_option: [None; 2],
            timestamps: false,
            window_scale: None,
            srtt: Srtt::default(),
            handshake_until_ns: None,
            vantage: Vantage::default(),
            gaps: Gaps::default(),
            counts: Counts::default(),
            first: Order::default(),
            rwnd_bytes: None,
            window_is_shut: false,
            last_data_ns: 0,
            unanswered: false,
            sizes: vec![0; MAX_MSS_BYTES as usize + 1],
            largest_bytes: 0,
            own_stamps: Stamps::default(),
            first_ack: None,
            last_ack: None,
        }
    }

    /// Returns a sequence number near `near`, extended past 2^32.
    fn unwrapped(&self, number: u32, near: u64) -> Option<u64> {
        let near_low = (near as u32).wrapping_add(self.base?);
        near.checked_add_signed(i64::from(number.wrapping_sub(near_low) as i32))
    }

    /// The payload of a full packet.
    pub fn mss_bytes(&self) -> u32 {
        let agreed = self.mss_option.iter().flatten().min();
        let options = if self.timestamps { 12 } else { 0 };
        let agreed = agreed.map(|mss| u32::from(*mss).saturating_sub(options));
        let agreed = agreed.filter(|mss| *mss >= 64);
        // the most common data size; it is not a packet's size if the capture holds unsplit packets
        let (common, _) = (self.sizes.iter().enumerate())
            .skip(64)
            .max_by_key(|(size, count)| *count * *size as u64)
            .unwrap_or((0, &0));
        let full = common as u32 == self.largest_bytes && self.sizes[common] >= FULL_PACKETS;
        match agreed {
            // the path's MTU is below what both ends accept
            Some(mss) if self.largest_bytes < mss && full => common as u32,
            Some(mss) => mss,
            None if self.sizes[common] > 0 => common as u32,
            None => self.largest_bytes.clamp(64, 1448),
        }
    }

    /// The rate of acknowledged bytes, in bit/s.
    pub fn goodput_bps(&self) -> Option<f64> {
        let ((from_ns, from), (to_ns, to)) = (self.first_ack?, self.last_ack?);
        let seconds = to_ns.checked_sub(from_ns)? as f64 * 1e-9;
        (seconds > 0.0).then(|| to.saturating_sub(from) as f64 * 8.0 / seconds)
    }

    /// The position of the capture.
    pub fn vantage(&self) -> &Vantage {
        &self.vantage
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The sender's state after the last data, if no acknowledgment followed.
    pub fn unanswered(&self) -> Option<Look> {
        self.unanswered.then(|| self.look(self.last_data_ns))
    }

    fn look(&self, time_ns: i64) -> Look {
        Look {
            time_ns,
            pipe_bytes: self.pipe_bytes(),
            srtt: self.srtt,
            snd_nxt: self.snd_nxt,
            snd_una: self.snd_una,
            rwnd_bytes: self.rwnd_bytes,
            retransmits: self.counts.retransmits,
        }
    }

    /// Takes a segment of the flow's own direction.
    pub fn data(&mut self, segment: &Segment, time_ns: i64) -> Seen {
        self.vantage.segment(segment, true, time_ns);
        self.begin_srtt();
        if let Some((value, _)) = segment.options.timestamps {
            self.timestamps = true;
            self.own_stamps.saw(value, time_ns);
        }
        let mut seq = segment.seq;
        if segment.flags & SYN != 0 {
            self.mss_option[0] = segment.options.mss.or(self.mss_option[0]);
            seq = segment.seq.wrapping_add(1); // the number of data in the SYN (RFC 7413)
            self.base.get_or_insert(seq);
        }
        if segment.flags & RST != 0 || segment.payload_bytes == 0 {
            return Seen::default();
        }
        let order = Order::of(segment);
        if self.largest_bytes == 0 {
            self.first = order;
        }
        self.base.get_or_insert(seq);
        let Some(start) = self.unwrapped(seq, self.snd_nxt) else {
            // it precedes the first data seen
            self.count_early(segment.payload_bytes, order);
            return Seen::default();
        };
        let end = start + u64::from(segment.payload_bytes);
        // a keepalive, or a zero-window probe
        let shut = self.window_is_shut && start >= self.snd_una;
        if segment.payload_bytes == 1 && (end <= self.snd_una || shut) {
            return Seen::default();
        }
        self.counts.payload_bytes += u64::from(segment.payload_bytes);
        self.largest_bytes = self.largest_bytes.max(segment.payload_bytes);
        if let Some(count) = self.sizes.get_mut(segment.payload_bytes as usize) {
            *count += 1;
        }
        if start < self.snd_nxt {
            self.below(start, end.min(self.snd_nxt), time_ns, order);
        }
        if end > self.snd_nxt {
            let passed_over = start.saturating_sub(self.snd_nxt);
            self.counts.missed_bytes += passed_over;
            self.gaps.open(self.snd_nxt, start, time_ns, Some(order));
            // data that the capture missed is in flight too
            if !self.board.sent(self.snd_nxt, end, time_ns) {
                self.counts.overflowed += 1;
            }
            self.snd_nxt = end;
        }
        self.last_data_ns = time_ns;
        self.unanswered = self.board.pipe_bytes() > 0;
        let given = Given {
            time_ns,
            start,
            payload_bytes: segment.payload_bytes,
            header_bytes: segment.header_bytes,
        };
        Seen {
            given: Some(given),
            look: None,
        }
    }

    /// Takes data below the highest seen: retransmitted, or late.
    fn below(&mut self, start: u64, end: u64, time_ns: i64, order: Order) {
        let rtt_ns = self.vantage.least_ns();
        let Filled {
            late_bytes,
            again_bytes,
        } = self.gaps.fill(start, end, time_ns, order, rtt_ns);
        self.counts.missed_bytes -= late_bytes + again_bytes;
        self.counts.late_segments += u64::from(late_bytes > 0);
        let again = end - start - late_bytes;
        if again > 0 {
            self.counts.again_bytes += again;
            self.counts.retransmits += again.div_ceil(u64::from(self.packet_bytes()));
            self.board.sent_again(start.max(self.snd_una), end, time_ns);
        }
    }

    /// Takes data before the first seen: the capture began in the middle of the flow.
    fn count_early(&mut self, payload_bytes: u32, order: Order) {
        self.counts.payload_bytes += u64::from(payload_bytes);
        if order.is_before(&self.first) == Some(true) {
            self.counts.late_segments += 1;
            return;
        }
        self.counts.again_bytes += u64::from(payload_bytes);
        self.counts.retransmits += u64::from(payload_bytes.div_ceil(self.packet_bytes()));
    }

    /// Takes the handshake as the first round trip, as the kernel does.
    fn begin_srtt(&mut self) {
        if self.srtt.whole_ns.is_none()
            && self.srtt.outer_ns.is_none()
            && let Some(parts) = self.vantage.handshake()
        {
            self.srtt = Srtt {
                outer_ns: Some(parts.outer_ns as f64),
                whole_ns: Some(parts.total_ns() as f64),
            };
        }
    }

    /// Takes a new round trip between the capture and the receiver.
    fn sample(&mut self, outer_ns: i64, time_ns: i64) {
        self.vantage.outer(outer_ns);
        self.srtt.outer_ns = Srtt::smoothed(self.srtt.outer_ns, outer_ns);
        if let Some(inner_ns) = self.vantage.inner_ns() {
            self.srtt.whole_ns = Srtt::smoothed(self.srtt.whole_ns, outer_ns + inner_ns);
        } else if let Some(parts) = self.vantage.handshake() {
            // after this acknowledgment, the sender knows more than its handshake
            let until = *self
                .handshake_until_ns
                .get_or_insert(time_ns.saturating_add(parts.inner_ns));
            self.srtt.whole_ns = self.srtt.whole_ns.filter(|_| time_ns <= until);
        }
    }

    /// The packet size, as far as known while reading.
    fn packet_bytes(&self) -> u32 {
        let agreed = self.mss_option.iter().flatten().min();
        match agreed {
            Some(mss) => u32::from(*mss).max(64),
            None => self.largest_bytes.clamp(64, 1460),
        }
    }

    /// Takes a segment of the other direction.
    pub fn acknowledgment(&mut self, segment: &Segment, time_ns: i64) -> Seen {
        self.vantage.segment(segment, false, time_ns);
        self.begin_srtt();
        if segment.flags & SYN != 0 {
            self.mss_option[1] = segment.options.mss.or(self.mss_option[1]);
            self.window_scale = Some(segment.options.window_scale.unwrap_or(0));
            if segment.flags & ACK == 0 {
                return Seen::default();
            }
            self.base.get_or_insert(segment.ack);
        }
        if segment.flags & ACK == 0 || segment.flags & RST != 0 || self.base.is_none() {
            return Seen::default();
        }
        // an old acknowledgment, or one of data before the capture
        let Some(ack) = self.unwrapped(segment.ack, self.snd_una) else {
            return Seen::default();
        };
        let sacks = &segment.options.sacks[..segment.options.sack_count];
        self.saw_sacks |= !sacks.is_empty();
        let syn = segment.flags & SYN != 0;
        let scale = if syn { Some(0) } else { self.window_scale };
        self.rwnd_bytes = scale.map(|scale| u64::from(segment.window) << scale);
        self.window_is_shut = segment.window == 0;
        let look = (self.board.pipe_bytes() > 0).then(|| self.look(time_ns));
        let mut sample = None;
        if ack > self.snd_una {
            sample = self.board.acknowledged(ack);
            self.snd_una = ack;
            // the FIN counts as a byte that was never sent as data
            let fin = u64::from(segment.flags & FIN != 0 || ack == self.snd_nxt + 1);
            let missed = ack.saturating_sub(self.snd_nxt + fin);
            if missed > 0 {
                // or captured only after this: hosts merge packets before the capture sees them
                self.counts.missed_bytes += missed;
                self.gaps
                    .open(self.snd_nxt, self.snd_nxt + missed, time_ns, None);
            }
            self.snd_nxt = self.snd_nxt.max(ack);
            self.duplicates = 0;
            self.first_ack.get_or_insert((time_ns, ack));
            self.last_ack = Some((time_ns, ack));
        } else if ack == self.snd_una && segment.payload_bytes == 0 && look.is_some() {
            self.duplicates += 1;
            if !self.saw_sacks && self.duplicates == DUPLICATES {
                self.board.lose_first(u64::from(self.packet_bytes()));
            }
        }
        for &(from, to) in sacks {
            let near = self.snd_una;
            if let (Some(from), Some(to)) = (self.unwrapped(from, near), self.unwrapped(to, near)) {
                // a block below the acknowledgment reports a duplicate (RFC 2883)
                let new = self
                    .board
                    .sacked(from.max(self.snd_una), to.min(self.snd_nxt));
                sample = sample.or(new);
            }
        }
        if !sacks.is_empty() {
            self.board.find_losses(u64::from(self.packet_bytes()));
        }
        let mut sample_ns = sample.and_then(|sent_ns| time_ns.checked_sub(sent_ns));
        if sample_ns.is_none()
            && ack > look.map_or(ack, |look| look.snd_una)
            && let Some((_, echo)) = segment.options.timestamps
        {
            sample_ns = self.own_stamps.answered(echo, time_ns);
        }
        if let Some(sample_ns) = sample_ns.filter(|sample| *sample >= 0) {
            self.sample(sample_ns, time_ns);
        }
        self.unanswered = false;
        Seen { look, given: None }
    }

    /// Bytes in flight. Without SACK, each duplicate acknowledgment means that one packet has
    /// arrived.
    fn pipe_bytes(&self) -> u64 {
        let pipe_bytes = self.board.pipe_bytes();
        if self.saw_sacks {
            return pipe_bytes;
        }
        let arrived = self
            .duplicates
            .saturating_mul(u64::from(self.packet_bytes()));
        pipe_bytes.saturating_sub(arrived).max(1)
    }
}
