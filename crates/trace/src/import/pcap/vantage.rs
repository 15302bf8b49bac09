//! The position of a capture between a flow's sender and receiver, and the round-trip time between
//! the sender and the capture.

use std::collections::VecDeque;

use super::segment::{ACK, RST, SYN, Segment};

/// Timestamp values that are remembered.
const MAX_STAMPS: usize = 2048;

/// The two parts of a round trip, each from a packet to its answer at the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// From the capture to the receiver and back.
    pub outer_ns: i64,
    /// From the capture to the sender and back.
    pub inner_ns: i64,
}

impl Parts {
    pub fn total_ns(&self) -> i64 {
        self.outer_ns.saturating_add(self.inner_ns)
    }
}

/// The three packets that begin a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Handshake {
    /// The last unanswered SYN: its time, and whether the flow's sender sent it.
    syn: Option<(i64, bool)>,
    /// The time from the SYN to its answer, and when the answer last appeared.
    answered: Option<(i64, i64)>,
    parts: Option<Parts>,
}

impl Handshake {
    fn segment(&mut self, segment: &Segment, from_sender: bool, time_ns: i64) {
        if self.parts.is_some() || segment.flags & RST != 0 {
            return;
        }
        match (segment.flags & SYN != 0, segment.flags & ACK != 0) {
            (true, false) if self.answered.is_none() => self.syn = Some((time_ns, from_sender)),
            (true, true) => {
                if let Some((syn_ns, by_sender)) = self.syn
                    && by_sender != from_sender
                {
                    let first = time_ns.saturating_sub(syn_ns).max(0);
                    let first = self.answered.map_or(first, |(first, _)| first);
                    self.answered = Some((first, time_ns));
                }
            }
            (false, true) => {
                let (Some((_, by_sender)), Some((first_ns, answer_ns))) = (self.syn, self.answered)
                else {
                    return;
                };
                if by_sender != from_sender {
                    return;
                }
                let second_ns = time_ns.saturating_sub(answer_ns).max(0);
                let (outer_ns, inner_ns) = match by_sender {
                    true => (first_ns, second_ns),
                    false => (second_ns, first_ns),
                };
                self.parts = Some(Parts { outer_ns, inner_ns });
            }
            _ => {}
        }
    }
}

/// Acknowledgments by their timestamps, which the sender's data echoes.
#[derive(Default)]
struct Echoes {
    /// Timestamp value, when it was first seen, and the number acknowledged with it.
    stamps: VecDeque<(u32, i64, u32)>,
    latest: Option<u32>,
}

impl Echoes {
    fn acknowledgment(&mut self, value: u32, ack: u32, time_ns: i64) {
        if self.stamps.back().is_none_or(|(last, ..)| *last != value) {
            self.stamps.push_back((value, time_ns, ack));
            if self.stamps.len() > MAX_STAMPS {
                self.stamps.pop_front();
            }
        }
    }

    /// Takes the first data that echoes a value, and returns how long ago the capture saw the
    /// value. The flag is true if the sender had data in flight, so that it was waiting for the
    /// acknowledgment.
    fn echoed(&mut self, echo: u32, seq: u32, time_ns: i64) -> Option<(i64, bool)> {
        if self.latest == Some(echo) {
            return None;
        }
        self.latest = Some(echo);
        let at = self.stamps.iter().position(|(value, ..)| *value == echo)?;
        self.stamps.drain(..at);
        let (_, since_ns, ack) = *self.stamps.front()?;
        let passed_ns = time_ns.checked_sub(since_ns)?;
        let busy = (seq.wrapping_sub(ack) as i32) > 0;
        (passed_ns >= 0).then_some((passed_ns, busy))
    }
}

/// What is known about a capture's position.
#[derive(Default)]
pub struct Vantage {
    handshake: Handshake,
    echoes: Echoes,
    /// Smallest times from data to its acknowledgment, and from an acknowledgment to data that
    /// echoes it.
    least_outer_ns: Option<i64>,
    least_inner_ns: Option<i64>,
    /// Sum and number of times from data to its acknowledgment.
    outer_sum_ns: (f64, u64),
    /// Latest time from an acknowledgment to the data that it released.
    released_ns: Option<i64>,
    /// Hop limits of the first segments, of the sender and of the receiver.
    hops: [Option<u8>; 2],
}

/// The position of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// This share of a round trip away from the sender.
    Away(f64),
    /// At the sender's side, by the hop limits of the packets.
    AtSender,
    /// It cannot be known.
    Unknown,
}

impl Vantage {
    /// Takes any segment of the connection.
    pub fn segment(&mut self, segment: &Segment, from_sender: bool, time_ns: i64) {
        self.handshake.segment(segment, from_sender, time_ns);
        self.hops[usize::from(!from_sender)].get_or_insert(segment.packet.ttl);
        let Some((value, echo)) = segment.options.timestamps else {
            return;
        };
        if segment.flags & ACK == 0 {
            return;
        }
        if !from_sender {
            self.echoes.acknowledgment(value, segment.ack, time_ns);
        } else if segment.payload_bytes > 0
            && let Some((inner_ns, busy)) = self.echoes.echoed(echo, segment.seq, time_ns)
        {
            self.least_inner_ns = least(self.least_inner_ns, Some(inner_ns));
            if busy {
                self.released_ns = Some(inner_ns);
            }
        }
    }

    /// Takes a round trip between the capture and the receiver.
    pub fn outer(&mut self, outer_ns: i64) {
        self.least_outer_ns = least(self.least_outer_ns, Some(outer_ns));
        self.outer_sum_ns.0 += outer_ns as f64;
        self.outer_sum_ns.1 += 1;
    }

    /// The handshake's times.
    pub fn handshake(&self) -> Option<Parts> {
        // a clock that did not advance measured nothing
        self.handshake.parts.filter(|parts| parts.total_ns() > 0)
    }

    /// The current round trip between the capture and the sender, by timestamps.
    pub fn inner_ns(&self) -> Option<i64> {
        let shortest = self.handshake().map(|parts| parts.inner_ns);
        // data that waited for the application took longer than the path
        self.released_ns
            .or_else(|| least(self.least_inner_ns, shortest))
            .filter(|_| self.least_inner_ns.is_some())
    }

    /// The shortest known whole round trip.
    pub fn least_ns(&self) -> Option<i64> {
        let seen = (self.least_outer_ns.zip(self.least_inner_ns))
            .map(|(outer_ns, inner_ns)| outer_ns.saturating_add(inner_ns));
        let handshake = self.handshake().map(|parts| parts.total_ns());
        least(seen, handshake)
    }

    /// The share of a usual round trip that lies between the sender and the capture. The
    /// handshake's own share is unreliable: on a short path, clock and scheduler errors are as
    /// large as the handshake. Beside a queue, those errors hardly matter.
    fn distance(&self) -> Option<f64> {
        let shortest = self.handshake().or_else(|| {
            let (outer_ns, inner_ns) = (self.least_outer_ns?, self.least_inner_ns?);
            Some(Parts { outer_ns, inner_ns })
        })?;
        let (sum_ns, count) = self.outer_sum_ns;
        let usual_ns = sum_ns / count.max(1) as f64;
        let inner_ns = shortest.inner_ns as f64;
        let total_ns = inner_ns + usual_ns.max(shortest.outer_ns as f64);
        (total_ns > 0.0).then(|| inner_ns / total_ns)
    }

    pub fn place(&self) -> Place {
        if let Some(distance) = self.distance() {
            return Place::Away(distance);
        }
        let fresh = |ttl: u8| matches!(ttl, 64 | 128 | 255);
        match self.hops {
            [Some(sender), Some(receiver)] if fresh(sender) && !fresh(receiver) => Place::AtSender,
            _ => Place::Unknown,
        }
    }
}

fn least(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
