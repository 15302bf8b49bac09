//! One flow of a capture, seen from its sender's side: windows from bytes in flight, round-trip
//! times from acknowledgments, packets.

use std::collections::VecDeque;

use super::board::{Board, DUPLICATES};
use super::segment::{ACK, FIN, RST, SYN, Segment};

/// Times of timestamps that are remembered, of each side.
const MAX_STAMPS: usize = 2048;
/// The largest payload that is taken for one packet's: that of a jumbo frame.
const MAX_MSS_BYTES: u32 = 8960;

/// What the sender showed just before an acknowledgment reached it.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub time_ns: i64,
    pub pipe_bytes: u64,
    pub srtt_ns: Option<f64>,
    pub snd_nxt: u64,
    pub snd_una: u64,
    pub rwnd_bytes: u64,
    pub retransmits: u64,
}

/// Data that the sender gave to the network.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub time_ns: i64,
    pub start: u64,
    pub payload_bytes: u32,
    pub header_bytes: u32,
}

/// What came of a segment.
#[derive(Default)]
pub struct Seen {
    pub look: Option<Look>,
    pub given: Option<Given>,
}

/// When each value of a timestamp was first seen.
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

    /// How long ago `echo` was first seen; what is older is forgotten.
    fn answered(&mut self, echo: u32, time_ns: i64) -> Option<i64> {
        let at = self.0.iter().position(|(value, _)| *value == echo)?;
        self.0.drain(..at);
        let since = time_ns.checked_sub(self.0.front()?.1)?;
        (since >= 0).then_some(since)
    }
}

/// The flow so far.
pub struct Sender {
    board: Board,
    /// Number of the first byte, as it stands in segments; known from the first that is seen.
    base: Option<u32>,
    snd_nxt: u64,
    snd_una: u64,
    duplicates: u64,
    saw_sacks: bool,
    mss_option: [Option<u16>; 2],
    timestamps: bool,
    window_scale: u8,
    srtt_ns: Option<f64>,
    retransmits: u64,
    sizes: Vec<u64>,
    largest_bytes: u32,
    own_stamps: Stamps,
    their_stamps: Stamps,
    /// Smallest time from data to its acknowledgment, and from that to new data.
    outer_ns: Option<i64>,
    inner_ns: Option<i64>,
    /// Bytes that were acknowledged or skipped without having been captured.
    pub missed_bytes: u64,
    /// Segments beyond what a board holds.
    pub overflowed: u64,
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
            window_scale: 0,
            srtt_ns: None,
            retransmits: 0,
            sizes: vec![0; MAX_MSS_BYTES as usize + 1],
            largest_bytes: 0,
            own_stamps: Stamps::default(),
            their_stamps: Stamps::default(),
            outer_ns: None,
            inner_ns: None,
            missed_bytes: 0,
            overflowed: 0,
            first_ack: None,
            last_ack: None,
        }
    }

    /// A number near `near`, counted on past 2^32.
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
        // the size that most data came in; of a capture with packets not yet cut up, no packet's
        let (common, _) = (self.sizes.iter().enumerate())
            .skip(64)
            .max_by_key(|(size, count)| *count * *size as u64)
            .unwrap_or((0, &0));
        match agreed {
            Some(mss) if self.largest_bytes > 0 && self.largest_bytes < mss => {
                // the path's MTU is below what both ends could take
                if common > 0 { common as u32 } else { mss }
            }
            Some(mss) => mss,
            None if self.sizes[common] > 0 => common as u32,
            None => self.largest_bytes.clamp(64, 1448),
        }
    }

    /// Bytes acknowledged a second, in bit/s.
    pub fn goodput_bps(&self) -> Option<f64> {
        let ((from_ns, from), (to_ns, to)) = (self.first_ack?, self.last_ack?);
        let seconds = to_ns.checked_sub(from_ns)? as f64 * 1e-9;
        (seconds > 0.0).then(|| to.saturating_sub(from) as f64 * 8.0 / seconds)
    }

    /// The share of a round trip that lies between the sender and the point of capture.
    pub fn distance(&self) -> Option<f64> {
        let (inner, outer) = (self.inner_ns? as f64, self.outer_ns? as f64);
        (inner + outer > 0.0).then(|| inner / (inner + outer))
    }

    /// A segment of the flow's own direction.
    pub fn data(&mut self, segment: &Segment, time_ns: i64) -> Seen {
        if let Some((value, echo)) = segment.options.timestamps {
            self.timestamps = true;
            self.own_stamps.saw(value, time_ns);
            if segment.payload_bytes > 0 && segment.flags & ACK != 0 {
                let inner = self.their_stamps.answered(echo, time_ns);
                self.inner_ns = least(self.inner_ns, inner);
            }
        }
        if segment.flags & SYN != 0 {
            self.mss_option[0] = segment.options.mss.or(self.mss_option[0]);
            self.base.get_or_insert(segment.seq.wrapping_add(1));
            return Seen::default();
        }
        if segment.flags & RST != 0 || segment.payload_bytes == 0 {
            return Seen::default();
        }
        self.base.get_or_insert(segment.seq);
        let Some(start) = self.unwrapped(segment.seq, self.snd_nxt) else {
            // from before the first that was seen: sent again, and long acknowledged
            self.retransmits += 1;
            return Seen::default();
        };
        let end = start + u64::from(segment.payload_bytes);
        // a keepalive
        if segment.payload_bytes == 1 && end <= self.snd_una {
            return Seen::default();
        }
        self.largest_bytes = self.largest_bytes.max(segment.payload_bytes);
        if let Some(count) = self.sizes.get_mut(segment.payload_bytes as usize) {
            *count += 1;
        }
        if start < self.snd_nxt {
            let again = end.min(self.snd_nxt) - start;
            self.retransmits += again.div_ceil(u64::from(self.packet_bytes()));
            self.board
                .sent_again(start.max(self.snd_una), end.min(self.snd_nxt), time_ns);
        }
        if end > self.snd_nxt {
            self.missed_bytes += start.saturating_sub(self.snd_nxt);
            // what the capture missed is in flight all the same
            if !self.board.sent(self.snd_nxt, end, time_ns) {
                self.overflowed += 1;
            }
            self.snd_nxt = end;
        }
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

    /// The size of a packet as far as it is known while reading.
    fn packet_bytes(&self) -> u32 {
        let agreed = self.mss_option.iter().flatten().min();
        match agreed {
            Some(mss) => u32::from(*mss).max(64),
            None => self.largest_bytes.clamp(64, 1460),
        }
    }

    /// A segment of the other direction.
    pub fn acknowledgment(&mut self, segment: &Segment, time_ns: i64) -> Seen {
        if let Some((value, _)) = segment.options.timestamps {
            self.their_stamps.saw(value, time_ns);
        }
        if segment.flags & SYN != 0 {
            self.mss_option[1] = segment.options.mss.or(self.mss_option[1]);
            self.window_scale = segment.options.window_scale.unwrap_or(0);
            if segment.flags & ACK != 0 {
                self.base.get_or_insert(segment.ack);
            }
            return Seen::default();
        }
        if segment.flags & ACK == 0 || segment.flags & RST != 0 || self.base.is_none() {
            return Seen::default();
        }
        // an old acknowledgment, or one of what came before the capture
        let Some(ack) = self.unwrapped(segment.ack, self.snd_una) else {
            return Seen::default();
        };
        let sacks = &segment.options.sacks[..segment.options.sack_count];
        self.saw_sacks |= !sacks.is_empty();
        let look = (self.board.pipe_bytes() > 0).then(|| Look {
            time_ns,
            pipe_bytes: self.pipe_bytes(),
            srtt_ns: self.srtt_ns,
            snd_nxt: self.snd_nxt,
            snd_una: self.snd_una,
            rwnd_bytes: u64::from(segment.window) << self.window_scale,
            retransmits: self.retransmits,
        });
        let mut sample = None;
        if ack > self.snd_una {
            sample = self.board.acknowledged(ack);
            self.snd_una = ack;
            // the end of the connection counts as a byte, which was never sent as data
            let fin = u64::from(segment.flags & FIN != 0 || ack == self.snd_nxt + 1);
            self.missed_bytes += ack.saturating_sub(self.snd_nxt + fin);
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
                // a block below tells of a duplicate (RFC 2883)
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
            self.outer_ns = least(self.outer_ns, Some(sample_ns));
            // RFC 6298, section 2
            let sample = sample_ns as f64;
            self.srtt_ns = Some(
                self.srtt_ns
                    .map_or(sample, |srtt| srtt + (sample - srtt) / 8.0),
            );
        }
        Seen { look, given: None }
    }

    /// In flight; without SACK, each duplicate acknowledgment tells of a packet that has arrived.
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

fn least(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
