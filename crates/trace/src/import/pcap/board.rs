//! A sender's data in flight, as a capture near it shows: segments sent, selectively acknowledged,
//! lost by the rule of RFC 6675, and sent again. Their sum is its `pipe`.

use std::collections::{BTreeMap, BTreeSet};

/// A larger flight is implausible: 190 MB in packets of 1448 B.
const MAX_SEGMENTS: usize = 1 << 17;
/// How many segments below the highest selective acknowledgment are summed to decide on losses.
const MAX_STEPS: usize = 64;
/// The shortest retransmission timeout of Linux.
const LEAST_TIMEOUT_NS: i64 = 200_000_000;
/// Duplicate acknowledgments that indicate a loss (RFC 5681).
pub const DUPLICATES: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Sent {
    end: u64,
    sent_ns: i64,
    sacked: bool,
    lost: bool,
    /// Sent again, and that copy is not known to be lost.
    again: bool,
    /// Sent again at some time, so that its acknowledgment gives no round-trip time (Karn).
    ambiguous: bool,
}

impl Sent {
    fn alike(&self, other: &Self) -> bool {
        let state = |sent: &Self| (sent.sacked, sent.lost, sent.again, sent.ambiguous);
        state(self) == state(other) && self.sent_ns == other.sent_ns
    }

    /// packets_out - sacked_out - lost_out + retrans_out
    fn in_flight(&self, start: u64) -> u64 {
        let length = self.end - start;
        match (self.sacked, self.lost, self.again) {
            (true, ..) | (false, true, false) => 0,
            (false, true, true) | (false, false, false) => length,
            (false, false, true) => 2 * length,
        }
    }
}

/// The bytes between the acknowledged byte and the next to send.
#[derive(Default)]
pub struct Board {
    segments: BTreeMap<u64, Sent>,
    /// Starts of the segments in flight, so that the cost of a timeout depends only on what it
    /// changes.
    in_flight: BTreeSet<u64>,
    pipe_bytes: u64,
    highest_sacked: u64,
    lost_below: u64,
    /// The latest sending time among the segments that have arrived.
    newest_arrived_ns: i64,
}

impl Board {
    pub fn pipe_bytes(&self) -> u64 {
        self.pipe_bytes
    }

    fn insert(&mut self, start: u64, sent: Sent) {
        let in_flight = sent.in_flight(start);
        if in_flight > 0 {
            self.pipe_bytes += in_flight;
            self.in_flight.insert(start);
        }
        self.segments.insert(start, sent);
    }

    fn remove(&mut self, start: u64) -> Option<Sent> {
        let sent = self.segments.remove(&start)?;
        let in_flight = sent.in_flight(start);
        if in_flight > 0 {
            self.pipe_bytes -= in_flight;
            self.in_flight.remove(&start);
        }
        Some(sent)
    }

    /// Makes `at` a boundary between segments.
    fn split(&mut self, at: u64) {
        let Some((&start, sent)) = self.segments.range(..at).next_back() else {
            return;
        };
        if sent.end <= at {
            return;
        }
        if let Some(sent) = self.remove(start) {
            self.insert(start, Sent { end: at, ..sent });
            self.insert(at, sent);
        }
    }

    /// Returns the starts of the segments from `from` to `to`, which become boundaries.
    fn within(&mut self, from: u64, to: u64) -> Vec<u64> {
        if from >= to {
            return Vec::new();
        }
        self.split(from);
        self.split(to);
        self.segments
            .range(from..to)
            .map(|(&start, _)| start)
            .collect()
    }

    /// Takes new data that was sent. Returns false if the board is full.
    pub fn sent(&mut self, start: u64, end: u64, sent_ns: i64) -> bool {
        if self.segments.len() >= MAX_SEGMENTS {
            return false;
        }
        self.insert(
            start,
            Sent {
                end,
                sent_ns,
                sacked: false,
                lost: false,
                again: false,
                ambiguous: false,
            },
        );
        true
    }

    /// Takes data that was sent again.
    pub fn sent_again(&mut self, start: u64, end: u64, sent_ns: i64) {
        let head = self
            .segments
            .first_key_value()
            .map(|(&at, sent)| (at, *sent));
        if let Some((at, sent)) = head
            && (start..end).contains(&at)
            && self.timed_out(at, &sent, sent_ns)
        {
            self.lose_all();
        }
        let (highest_sacked, newest_arrived_ns) = (self.highest_sacked, self.newest_arrived_ns);
        self.change(start, end, |at, sent| Sent {
            // if later data has arrived, the sender regarded it as lost; otherwise it sent it as a
            // probe
            lost: sent.lost || at < highest_sacked || sent.sent_ns < newest_arrived_ns,
            again: true,
            ambiguous: true,
            sent_ns,
            ..sent
        });
    }

    /// Whether the head is sent again because of a timeout. That is so if nothing indicates its
    /// loss, or if its last copy is older than the minimum timeout.
    fn timed_out(&self, at: u64, head: &Sent, now_ns: i64) -> bool {
        match head.again {
            true => now_ns.saturating_sub(head.sent_ns) >= LEAST_TIMEOUT_NS,
            false => {
                let overtaken = self.highest_sacked > at || head.sent_ns < self.newest_arrived_ns;
                !head.lost && !overtaken && self.segments.len() > 1
            }
        }
    }

    /// Marks all data that has not arrived as lost, after a timeout (RFC 5681, section 3.1).
    fn lose_all(&mut self) {
        let all: Vec<u64> = self.in_flight.iter().copied().collect();
        for at in all {
            if let Some(sent) = self.remove(at) {
                self.insert(
                    at,
                    Sent {
                        lost: !sent.sacked,
                        again: false,
                        ..sent
                    },
                );
            }
        }
    }

    /// Marks all data before `una` as arrived. Returns when the first of it was sent, unless it was
    /// sent again.
    pub fn acknowledged(&mut self, una: u64) -> Option<i64> {
        self.split(una);
        let mut first = None;
        let mut ambiguous = false;
        while let Some((&start, _)) = self.segments.first_key_value() {
            if start >= una {
                break;
            }
            let sent = self.remove(start)?;
            self.newest_arrived_ns = self.newest_arrived_ns.max(sent.sent_ns);
            ambiguous |= sent.ambiguous;
            if !sent.sacked && first.is_none() {
                first = Some(sent.sent_ns);
            }
        }
        first.filter(|_| !ambiguous)
    }

    /// Marks the data from `from` to `to` as arrived, though not all before it. Returns when the
    /// first newly arrived segment was sent, if that was sent only once.
    pub fn sacked(&mut self, from: u64, to: u64) -> Option<i64> {
        let mut first = None;
        let mut newest_arrived_ns = self.newest_arrived_ns;
        let reached = self.change(from, to, |_, sent| {
            newest_arrived_ns = newest_arrived_ns.max(sent.sent_ns);
            if !sent.sacked && !sent.ambiguous && first.is_none() {
                first = Some(sent.sent_ns);
            }
            Sent {
                sacked: true,
                again: false,
                lost: false,
                sent_ns: 0, // already returned
                ..sent
            }
        });
        self.highest_sacked = self.highest_sacked.max(reached);
        self.newest_arrived_ns = newest_arrived_ns;
        first
    }

    /// Changes the segments from `from` to `to` and returns their end. Merges equal neighbors, so
    /// that repeating a change costs nothing extra.
    fn change(&mut self, from: u64, to: u64, mut change: impl FnMut(u64, Sent) -> Sent) -> u64 {
        let mut run: Option<(u64, Sent)> = None;
        let mut reached = 0;
        for start in self.within(from, to) {
            let Some(sent) = self.remove(start) else {
                continue;
            };
            let sent = change(start, sent);
            reached = sent.end;
            run = match run {
                Some((at, known)) if known.end == start && known.alike(&sent) => {
                    let end = sent.end;
                    Some((at, Sent { end, ..known }))
                }
                other => {
                    if let Some((at, known)) = other {
                        self.insert(at, known);
                    }
                    Some((start, sent))
                }
            };
        }
        if let Some((at, known)) = run {
            self.insert(at, known);
        }
        reached
    }

    /// Marks data as lost that has more than two packets' worth of arrivals above it (RFC 6675,
    /// IsLost).
    pub fn find_losses(&mut self, mss_bytes: u64) {
        let mut above = 0;
        let mut limit = None;
        let runs = self.segments.range(..self.highest_sacked).rev();
        for (&start, sent) in runs.take(MAX_STEPS) {
            if sent.sacked {
                above += sent.end - start;
                if above > (DUPLICATES - 1) * mss_bytes {
                    // the unneeded part of this run cannot be lost
                    limit = Some(start);
                    break;
                }
            }
        }
        let Some(limit) = limit else { return };
        self.lose_between(self.lost_below, limit);
        self.lost_below = self.lost_below.max(limit);
    }

    /// Marks the first segment as lost, after duplicate acknowledgments without SACK.
    pub fn lose_first(&mut self, mss_bytes: u64) {
        if let Some((&start, sent)) = self.segments.first_key_value()
            && !sent.lost
        {
            self.lose_between(start, start + mss_bytes);
        }
    }

    fn lose_between(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let starts: Vec<u64> = (self.segments.range(from..to))
            .filter(|(_, sent)| !sent.sacked && !sent.lost && sent.end <= to)
            .map(|(&start, _)| start)
            .collect();
        for start in starts {
            if let Some(sent) = self.remove(start) {
                self.insert(start, Sent { lost: true, ..sent });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(packets: u64) -> Board {
        let mut board = Board::default();
        for i in 0..packets {
            assert!(board.sent(i * 100, (i + 1) * 100, i as i64));
        }
        board
    }

    #[test]
    fn arrivals_above_make_losses_and_repairs_count_again() {
        let mut board = of(10);
        assert_eq!(board.pipe_bytes(), 1000);
        assert_eq!(board.sacked(300, 500), Some(3));
        board.find_losses(100);
        assert_eq!(board.pipe_bytes(), 800);
        assert_eq!(board.sacked(300, 600), Some(5));
        board.find_losses(100);
        assert_eq!(board.pipe_bytes(), 400); // 0 to 3 lost, 3 to 6 arrived
        board.sent_again(0, 100, 50);
        assert_eq!(board.pipe_bytes(), 500);
        assert_eq!(board.acknowledged(100), None);
        assert_eq!(board.pipe_bytes(), 400);
        assert_eq!(board.acknowledged(650), Some(1));
        assert_eq!(board.pipe_bytes(), 350);
        assert_eq!(board.acknowledged(1000), Some(6));
        assert_eq!(board.pipe_bytes(), 0);
    }

    #[test]
    fn what_something_sent_later_overtook_is_lost_and_timed_nothing_out() {
        let mut board = of(10);
        board.sacked(100, 500);
        board.find_losses(100);
        board.sent_again(0, 100, 50); // after all of them
        assert!(board.sent(1000, 1100, 60));
        // the copy is acknowledged, and 500 was sent before it (RACK)
        board.acknowledged(500);
        board.sent_again(500, 600, 70);
        assert_eq!(board.pipe_bytes(), 600);
    }

    #[test]
    fn a_timeout_empties_the_pipe() {
        let mut board = of(10);
        board.sent_again(0, 100, 90);
        assert_eq!(board.pipe_bytes(), 100);
    }

    #[test]
    fn super_segments_are_split_where_acknowledgments_fall() {
        let mut board = Board::default();
        board.sent(0, 1000, 7);
        assert_eq!(board.acknowledged(250), Some(7));
        assert_eq!(board.sacked(500, 600), Some(7));
        assert_eq!(board.pipe_bytes(), 650);
        board.sacked(400, 900);
        assert_eq!(board.pipe_bytes(), 250);
    }
}
