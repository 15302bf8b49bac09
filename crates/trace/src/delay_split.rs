//! Where messages spend their time: in the sender's stack, the network, or the receiver's stack
//! (Lübben and Fidler, section V-B, Fig. 1).

use std::collections::{BTreeMap, VecDeque};

use crate::delay::DelayHistogram;
use crate::record::{Direction, MessageRecord};
use crate::report::DelaySplit;

/// A completely read message, as the application reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The flow's number.
    pub flow: u32,
    /// Direction of the message relative to the flow's data.
    pub direction: Direction,
    /// Number of the message within its flow and direction, from 0.
    pub number: u64,
    /// Its first byte.
    pub first: u64,
    /// The byte after its last.
    pub end: u64,
    /// When it was written, in nanoseconds since the run began.
    pub written_ns: u64,
    /// When it was completely read.
    pub read_ns: u64,
}

/// Payload that entered or left the network: a byte range of one flow and direction. Times are in
/// nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its first byte.
    pub first: u64,
    /// The byte after its last.
    pub end: u64,
    /// When it entered the network.
    pub entered_ns: u64,
    /// When it left; `None` for a segment that only entered.
    pub left_ns: Option<u64>,
}

/// One direction of a flow.
#[derive(Default)]
struct Stream {
    /// End of the bytes that have entered after each step, and when the last of them first entered.
    entered: VecDeque<(u64, u64)>,
    /// Bytes that have left, by the first byte of each range: its end, when it first left, and when
    /// it had entered.
    left: BTreeMap<u64, (u64, u64, u64)>,
    /// Messages up to this byte have been handed over.
    told: u64,
    waiting: VecDeque<Read>,
}

impl Stream {
    fn note(&mut self, segment: Segment) {
        let Some(left_ns) = segment.left_ns else {
            let before = self.entered.back().map_or(self.told, |(end, _)| *end);
            if segment.end > before {
                self.entered.push_back((segment.end, segment.entered_ns));
            }
            return;
        };
        // data that left before, whole or in part, does not complete a message
        let mut first = segment.first.max(self.told);
        while first < segment.end {
            if let Some((_, &(end, ..))) = self.left.range(..=first).next_back()
                && end > first
            {
                first = end;
                continue;
            }
            let next = self.left.range(first..).next();
            let end = next.map_or(segment.end, |(next, _)| segment.end.min(*next));
            self.left.insert(first, (end, left_ns, segment.entered_ns));
            first = end;
        }
    }

    /// Returns the next message whose times are all known. The times are: its last byte first
    /// entered; the packet that completed it entered; that packet left.
    fn tell(&mut self) -> Option<(Read, [u64; 3])> {
        let read = *self.waiting.front()?;
        let whole = self.entered.back().is_some_and(|(end, _)| *end >= read.end);
        let (mut complete, mut last) = (read.first, (0, 0));
        for (&first, &(end, left_ns, entered_ns)) in self.left.range(..read.end) {
            if first > complete {
                break;
            }
            complete = complete.max(end);
            if left_ns > last.0 && end > read.first {
                last = (left_ns, entered_ns);
            }
        }
        if !whole || complete < read.end {
            return None;
        }
        let at = self.entered.partition_point(|(end, _)| *end < read.end);
        let entered_ns = self.entered[at].1;
        self.entered.drain(..at);
        self.waiting.pop_front();
        self.told = read.end;
        // a packet may hold the end of one message and the beginning of the next
        while let Some(entry) = self.left.first_entry()
            && entry.get().0 <= read.end
        {
            entry.remove();
        }
        Some((read, [entered_ns, last.1, last.0]))
    }
}

/// The parts of one flow's delays.
struct Parts {
    sender: DelayHistogram,
    network: DelayHistogram,
    receiver: DelayHistogram,
    buffered: u64,
}

impl Parts {
    fn new() -> Self {
        Self {
            sender: DelayHistogram::coarse(),
            network: DelayHistogram::coarse(),
            receiver: DelayHistogram::coarse(),
            buffered: 0,
        }
    }

    fn summary(&self) -> DelaySplit {
        DelaySplit {
            sender_stack: self.sender.latency_ms(),
            network: self.network.latency_ms(),
            receiver_stack: self.receiver.latency_ms(),
            buffered_fraction: self.buffered as f64 / self.sender.count().max(1) as f64,
        }
    }
}

/// Combines packet times and application times of the same bytes.
pub struct Splitter {
    streams: BTreeMap<(u32, u8), Stream>,
    parts: BTreeMap<u32, Parts>,
    /// A message is buffered if it stays longer than this in the sender's stack, in nanoseconds.
    bound_ns: u64,
}

impl Splitter {
    /// Follows the flows with these numbers, which write messages over TCP or QUIC. A message that
    /// stays longer than `bound_ns` in the sender's stack counts as buffered.
    pub fn new(flows: impl IntoIterator<Item = u32>, bound_ns: u64) -> Self {
        let ways = [Direction::Data as u8, Direction::Back as u8];
        let streams = flows
            .into_iter()
            .flat_map(|flow| ways.map(|way| ((flow, way), Stream::default())));
        Self {
            streams: streams.collect(),
            parts: BTreeMap::new(),
            bound_ns,
        }
    }

    /// Whether this splitter follows the messages of a flow.
    pub fn knows(&self, flow: u32) -> bool {
        self.streams.contains_key(&(flow, Direction::Data as u8))
    }

    /// Takes a packet that entered or left the network. Within one direction of a flow, entering
    /// packets come in time order, and so do leaving ones.
    pub fn packet(&mut self, flow: u32, direction: Direction, segment: Segment) {
        if let Some(stream) = self.streams.get_mut(&(flow, direction as u8)) {
            stream.note(segment);
        }
    }

    /// Takes a message that was read. Messages of one direction of a flow come in order.
    pub fn read(&mut self, read: Read) {
        let key = (read.flow, read.direction as u8);
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.waiting.push_back(read);
        }
    }

    /// Hands over the messages whose times are all known by now. The run began at `began_ns` of the
    /// monotonic clock.
    pub fn tell(&mut self, began_ns: u64, mut take: impl FnMut(MessageRecord)) {
        for stream in self.streams.values_mut() {
            while let Some((read, [entered_ns, sent_ns, left_ns])) = stream.tell() {
                let of_run = |at_ns: u64| at_ns.saturating_sub(began_ns);
                let [entered_ns, sent_ns, left_ns] = [entered_ns, sent_ns, left_ns].map(of_run);
                let seconds = |ns: u64| ns as f64 * 1e-9;
                take(MessageRecord {
                    flow: read.flow,
                    direction: read.direction,
                    message: read.number,
                    bytes: read.end - read.first,
                    written_s: seconds(read.written_ns),
                    entered_s: seconds(entered_ns),
                    sent_s: seconds(sent_ns),
                    left_s: seconds(left_ns),
                    read_s: seconds(read.read_ns),
                });
                if read.direction == Direction::Back {
                    continue;
                }
                let parts = self.parts.entry(read.flow).or_insert_with(Parts::new);
                parts.sender.record(sent_ns.saturating_sub(read.written_ns));
                parts.network.record(left_ns.saturating_sub(sent_ns));
                parts.receiver.record(read.read_ns.saturating_sub(left_ns));
                let waited_ns = entered_ns.saturating_sub(read.written_ns);
                parts.buffered += u64::from(waited_ns > self.bound_ns);
            }
        }
    }

    /// The summary of each flow, by its number.
    pub fn summaries(&self) -> BTreeMap<u32, DelaySplit> {
        let summary = |(flow, parts): (&u32, &Parts)| (*flow, parts.summary());
        self.parts.iter().map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(number: u64, first: u64, end: u64, read_ms: u64) -> Read {
        Read {
            flow: 3,
            direction: Direction::Data,
            number,
            first,
            end,
            written_ns: 0,
            read_ns: read_ms * MS,
        }
    }

    fn split(packets: &[(u64, u64, u64, Option<u64>)], reads: &[Read]) -> Vec<[f64; 3]> {
        let mut splitter = Splitter::new([3], MS);
        for &(first, end, entered_ms, left_ms) in packets {
            let segment = Segment {
                first,
                end,
                entered_ns: entered_ms * MS,
                left_ns: left_ms.map(|ms| ms * MS),
            };
            splitter.packet(3, Direction::Data, segment);
            splitter.packet(4, Direction::Data, segment); // a flow without messages
        }
        for &read in reads {
            splitter.read(read);
        }
        let mut rows = Vec::new();
        splitter.tell(0, |row| {
            rows.push([row.entered_s, row.sent_s, row.left_s].map(|s| (s * 1e3).round()));
        });
        rows
    }

    #[test]
    fn a_message_in_one_packet_and_one_in_three() {
        let packets = [
            (0, 100, 1, None),
            (0, 100, 1, Some(11)),
            (100, 200, 2, None),
            (200, 300, 3, None),
            (300, 350, 4, None),
            (100, 200, 2, Some(12)),
            (200, 300, 3, Some(13)),
            (300, 350, 4, Some(14)),
        ];
        let reads = [read(0, 0, 100, 12), read(1, 100, 350, 15)];
        let told = [[1.0, 1.0, 11.0], [4.0, 4.0, 14.0]];
        assert_eq!(split(&packets, &reads), told);
        // a message without all of its times is not handed over
        assert_eq!(split(&packets[..7], &reads), told[..1]);
    }

    #[test]
    fn waiting_for_what_came_before_is_no_time_in_the_network() {
        // the first packet is lost and sent again at 30 ms; the second message arrived at 12 ms
        let packets = [
            (0, 100, 1, None),
            (100, 200, 2, None),
            (100, 200, 2, Some(12)),
            (0, 100, 30, None),
            (0, 100, 30, Some(40)),
            (0, 100, 35, Some(45)), // again, without need
        ];
        let reads = [read(0, 0, 100, 41), read(1, 100, 200, 41)];
        assert_eq!(
            split(&packets, &reads),
            [[1.0, 30.0, 40.0], [2.0, 2.0, 12.0]]
        );
    }

    #[test]
    fn a_packet_sent_again_may_hold_more_than_before() {
        let packets = [
            (0, 50, 1, None),
            (50, 100, 2, None),
            (50, 100, 2, Some(12)),
            (0, 100, 20, None),
            (0, 100, 20, Some(30)),
            (100, 150, 21, None),
            (100, 150, 21, Some(31)),
        ];
        let reads = [read(0, 0, 50, 31), read(1, 50, 150, 32)];
        assert_eq!(
            split(&packets, &reads),
            [[1.0, 20.0, 30.0], [21.0, 21.0, 31.0]]
        );
    }

    #[test]
    fn the_parts_are_those_between_the_times() {
        let mut splitter = Splitter::new([3], MS);
        for left_ns in [None, Some(25 * MS)] {
            let segment = Segment {
                first: 0,
                end: 10,
                entered_ns: 5 * MS,
                left_ns,
            };
            splitter.packet(3, Direction::Data, segment);
        }
        splitter.read(read(0, 0, 10, 26));
        splitter.tell(0, |_| ());
        let split = splitter.summaries()[&3];
        let close = |part: f64, ms: f64| (part / ms - 1.0).abs() < 0.01;
        assert!(close(split.sender_stack.p50, 5.0), "{split:?}");
        assert!(close(split.network.mean, 20.0), "{split:?}");
        assert!(close(split.receiver_stack.p99, 1.0), "{split:?}");
        assert_eq!(split.buffered_fraction, 1.0);
    }
}
