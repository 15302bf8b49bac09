//! Packets that a capture contains more than once: from both sides of a bridge, from several
//! mirrored switch ports, or from several interfaces. A retransmission is a different packet.

use std::collections::{HashMap, VecDeque};

use super::segment::{SYN, Segment};

/// How many packets are remembered, of both directions together.
const MAX_REMEMBERED: usize = 1 << 15;
/// Copies from one place are closer together than this; retransmissions come after a round trip or
/// a timeout. Some hosts retransmit with the original IP id.
const APART_NS: i64 = 20_000_000;
/// The limit if only sequence numbers distinguish packets.
const APART_WITHOUT_ID_NS: i64 = 1_000_000;
/// The limit for a different place: a mirror port may deliver late.
const APART_ELSEWHERE_NS: i64 = 1_000_000_000;

/// Everything that a copy shares with its packet. The place of capture and the hop limit may
/// differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Print {
    backward: bool,
    id: Option<u16>,
    numbers: (u32, u32),
    flags: u8,
    window: u16,
    payload_bytes: u32,
    checksum: u16,
    timestamps: Option<(u32, u32)>,
    sacks: [(u32, u32); 4],
}

#[derive(Clone, Copy)]
struct Seen {
    time_ns: i64,
    place: u64,
    /// How many packets came before it.
    number: u64,
}

/// Packets of one connection, and which of them are copies.
#[derive(Default)]
pub struct Duplicates {
    seen: HashMap<Print, Seen>,
    oldest: VecDeque<(Print, u64)>,
    /// Per direction: the last packet, and whether it had the same id as its predecessor.
    last: [Option<Print>; 2],
    constant: [bool; 2],
    packets: u64,
    /// Copies found.
    pub copies: u64,
}

impl Duplicates {
    /// Whether a packet is a copy of an earlier one; `rtt_ns` is the shortest round trip.
    pub fn is_copy(
        &mut self,
        segment: &Segment,
        backward: bool,
        time_ns: i64,
        rtt_ns: Option<i64>,
    ) -> bool {
        let print = Print {
            backward,
            id: segment.packet.id,
            numbers: (segment.seq, segment.ack),
            flags: segment.flags,
            window: segment.window,
            payload_bytes: segment.payload_bytes,
            checksum: segment.packet.checksum,
            timestamps: segment.options.timestamps,
            sacks: segment.options.sacks,
        };
        let side = usize::from(backward);
        if let Some(last) = self.last[side]
            && last != print
        {
            self.constant[side] = last.id == print.id;
        }
        self.last[side] = Some(print);
        self.packets += 1;
        if let Some(seen) = self.seen.get(&print) {
            let apart_ns = time_ns.saturating_sub(seen.time_ns).saturating_abs();
            let elsewhere = seen.place != segment.packet.place;
            let has_id = print.id.is_some() && !self.constant[side];
            let limit_ns = match (has_id, print.timestamps) {
                (true, _) if elsewhere => APART_ELSEWHERE_NS,
                (true, _) | (false, Some(_)) => rtt_ns.unwrap_or(APART_NS).clamp(1, APART_NS),
                (false, None) => rtt_ns
                    .unwrap_or(APART_WITHOUT_ID_NS)
                    .clamp(1, APART_WITHOUT_ID_NS),
            };
            // acknowledgments with the same number may follow each other
            let carries = segment.payload_bytes > 0 || segment.flags & SYN != 0;
            let doubled = self.copies * 3 >= self.packets;
            if apart_ns < limit_ns && (has_id || carries || elsewhere || doubled) {
                self.copies += 1;
                return true;
            }
        }
        self.remember(print, time_ns, segment.packet.place);
        false
    }

    fn remember(&mut self, print: Print, time_ns: i64, place: u64) {
        let number = self.packets;
        let seen = Seen {
            time_ns,
            place,
            number,
        };
        self.seen.insert(print, seen);
        self.oldest.push_back((print, number));
        if self.oldest.len() > MAX_REMEMBERED
            && let Some((oldest, number)) = self.oldest.pop_front()
            && self
                .seen
                .get(&oldest)
                .is_some_and(|seen| seen.number == number)
        {
            self.seen.remove(&oldest);
        }
    }
}
