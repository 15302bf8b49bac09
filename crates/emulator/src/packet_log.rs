//! The log of every packet, both directions: what the pump tells, and the thread that writes it down.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use pathcast_netns::{PayloadCount, read_headers};
use pathcast_path::DropReason;
use pathcast_trace::{
    DelaySplit, Direction, MessageRecord, Metadata, PacketEvent, PacketRecord, Read, Segment,
    Splitter, TableWriter, TraceError, write_beside,
};

use crate::addresses::End;
use crate::packet::{Packet, inspect};

/// Entries handed over at once: the pump must not wait for anybody.
const BATCH: usize = 4096;

/// What happened to a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Sent,
    Delivered { marked: bool },
    DroppedByQueue,
    DroppedByLoss,
}

impl Event {
    /// A policer's drop is told as a queue's, for it is a queue without room.
    pub(crate) const fn of(reason: DropReason) -> Self {
        match reason {
            DropReason::Queue | DropReason::Aqm | DropReason::Policer => Self::DroppedByQueue,
            DropReason::Loss => Self::DroppedByLoss,
        }
    }
}

/// What packets of one conversation have in common, both ways: group or addresses, port at the near
/// end, port at the far end, protocol. Of groups, the first two are all that is needed.
type Conversation = (u64, u16, u16, u8);

/// One event of one packet, as the pump saw it.
pub(crate) struct Entry {
    pub(crate) at_ns: u64,
    pub(crate) entered_ns: u64,
    conversation: Conversation,
    pub(crate) to: End,
    sequence: u32,
    payload_bytes: u32,
    pub(crate) size_bytes: u32,
    pub(crate) event: Event,
}

pub(crate) enum Message {
    Entries(Vec<Entry>),
    Reads(Vec<Read>),
    Flows(Flows),
    End(Box<Metadata>),
}

/// The flows of a run, for those who see packets only.
pub(crate) enum Flows {
    /// Flow and where its data goes, by group and the port at the near end.
    ByPort(BTreeMap<(u16, u16), (u32, End)>),
    /// Numbered as they come; what goes to the far end is data.
    AsTheyCome,
}

/// The pump's end.
pub(crate) struct Log {
    /// Whether packets need not be of a group.
    everything: bool,
    batch: Vec<Entry>,
    messages: Sender<Message>,
}

impl Log {
    #[inline]
    pub(crate) fn note(&mut self, at_ns: u64, entered_ns: u64, packet: &Packet, event: Event) {
        let bytes = &packet.buffer[..packet.size_bytes as usize];
        let Some((conversation, sequence, payload_bytes)) = self.conversation(bytes, packet.to)
        else {
            return;
        };
        self.batch.push(Entry {
            at_ns,
            entered_ns,
            conversation,
            to: packet.to,
            sequence,
            payload_bytes,
            size_bytes: packet.size_bytes,
            event,
        });
        if self.batch.len() == BATCH {
            self.hand_over();
        }
    }

    /// Of a packet that goes `to`: its conversation, its place in it, and its payload's size.
    #[inline]
    fn conversation(&self, bytes: &[u8], to: End) -> Option<(Conversation, u32, u32)> {
        let order = |from: u16, at: u16| {
            if to == End::Far {
                (from, at)
            } else {
                (at, from)
            }
        };
        if !self.everything {
            let header = inspect(bytes)?;
            let (near, _) = order(header.ports.0, header.ports.1);
            let conversation = (header.group as u64, near, 0, 0);
            return Some((conversation, header.sequence, header.payload_bytes));
        }
        let headers = read_headers(bytes)?;
        let (near, far) = order(headers.ports.0, headers.ports.1);
        let (from, at) = headers.addresses;
        let (here, there) = if to == End::Far {
            (from, at)
        } else {
            (at, from)
        };
        let addresses = u64::from(here) << 32 | u64::from(there);
        let conversation = (addresses, near, far, headers.protocol as u8);
        Some((conversation, headers.sequence, headers.payload_bytes))
    }

    fn hand_over(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        // the writer has given up: its error is told when it is joined
        let _ = self.messages.send(Message::Entries(batch));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// The conductor's end: says which flows there are, and what is known at the end.
#[derive(Clone)]
pub(crate) struct Conclusion(Sender<Message>);

impl Conclusion {
    pub(crate) fn flows(&self, flows: Flows) {
        let _ = self.0.send(Message::Flows(flows));
    }

    /// Messages that applications have read.
    pub(crate) fn reads(&self, reads: Vec<Read>) {
        let _ = self.0.send(Message::Reads(reads));
    }

    /// The log is whole; without this it is not kept.
    pub(crate) fn end(self, metadata: Metadata) {
        let _ = self.0.send(Message::End(Box::new(metadata)));
    }
}

/// The writer's end.
pub(crate) struct LogWriter(Receiver<Message>);

/// A log: for the pump, for the conductor, for the thread that writes.
pub(crate) fn packet_log() -> (Log, Conclusion, LogWriter) {
    let (messages, written) = channel();
    let log = Log {
        everything: false,
        batch: Vec::with_capacity(BATCH),
        messages: messages.clone(),
    };
    (log, Conclusion(messages), LogWriter(written))
}

/// A log of whatever crosses: for the pump, for whoever knows the end, and what they send.
pub(crate) fn log_of_everything() -> (Log, Conclusion, Receiver<Message>) {
    let (mut log, conclusion, writer) = packet_log();
    log.everything = true;
    (log, conclusion, writer.0)
}

/// Where a log goes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Files<'a> {
    pub(crate) packets: Option<&'a PathBuf>,
    pub(crate) messages: Option<&'a PathBuf>,
}

impl LogWriter {
    /// Writes the log to `files` until its end is told; if it never is, nothing is left of them. What
    /// became of the messages of each flow is returned, by its number.
    ///
    /// Times count from `began_ns`, which is 0 before the run has begun; packets of before (handshakes)
    /// have negative times.
    pub(crate) fn write(
        self,
        files: Files<'_>,
        splitter: Splitter,
        began_ns: impl Fn() -> u64,
    ) -> Result<BTreeMap<u32, DelaySplit>, TraceError> {
        let mut summaries = BTreeMap::new();
        if_wanted(files.packets, |packets| {
            if_wanted(files.messages, |messages| {
                let mut sinks = Sinks {
                    packets: packets.map(TableWriter::new).transpose()?,
                    messages: messages.map(TableWriter::new).transpose()?,
                    splitter,
                };
                match self.follow(&mut sinks, began_ns) {
                    Some(metadata) => {
                        summaries = sinks.splitter.summaries();
                        sinks.finish(&metadata)
                    }
                    None if files.packets.or(files.messages).is_none() => Ok(()),
                    None => Err("the run was stopped".into()),
                }
            })
            .map_err(|error| error.to_string())
        })?;
        Ok(summaries)
    }

    /// Takes what comes until the end is told; none if it never is.
    fn follow(self, sinks: &mut Sinks<'_>, began_ns: impl Fn() -> u64) -> Option<Box<Metadata>> {
        let (mut waiting, mut naming) = (Vec::new(), None);
        loop {
            let mut end = None;
            match self.0.recv().ok()? {
                Message::Entries(entries) => waiting.push(entries),
                Message::Reads(reads) => reads.into_iter().for_each(|r| sinks.splitter.read(r)),
                Message::Flows(flows) => naming = Some(Naming::new(flows)),
                Message::End(metadata) => end = Some(metadata),
            }
            if let Some(naming) = &mut naming
                && began_ns() > 0
            {
                for entry in waiting.drain(..).flatten() {
                    sinks.push(&entry, naming, began_ns());
                }
                sinks.tell(began_ns());
            }
            if end.is_some() {
                return end;
            }
        }
    }
}

/// What takes the rows of a log.
struct Sinks<'a> {
    packets: Option<TableWriter<'a, PacketRecord>>,
    messages: Option<TableWriter<'a, MessageRecord>>,
    splitter: Splitter,
}

impl Sinks<'_> {
    fn push(&mut self, entry: &Entry, naming: &mut Naming, began_ns: u64) {
        let Some(record) = naming.record(entry, began_ns) else {
            return;
        };
        if let Some(rows) = &mut self.packets {
            push(entry, record, rows);
        }
        let left_ns = match entry.event {
            Event::Sent => None,
            Event::Delivered { .. } => Some(entry.at_ns),
            Event::DroppedByQueue | Event::DroppedByLoss => return,
        };
        if entry.payload_bytes > 0 {
            let segment = Segment {
                first: record.seq,
                end: record.seq + u64::from(entry.payload_bytes),
                entered_ns: entry.entered_ns,
                left_ns,
            };
            self.splitter.packet(record.flow, record.direction, segment);
        }
    }

    fn tell(&mut self, began_ns: u64) {
        let rows = &mut self.messages;
        self.splitter.tell(began_ns, |record| {
            if let Some(rows) = rows {
                rows.push(record);
            }
        });
    }

    fn finish(self, metadata: &Metadata) -> Result<(), String> {
        self.packets.map_or(Ok(()), |rows| rows.finish(metadata))?;
        self.messages.map_or(Ok(()), |rows| rows.finish(metadata))
    }
}

/// Does `work` with a new file that replaces `file` if all went well; without one, with none.
pub(crate) fn if_wanted(
    file: Option<&PathBuf>,
    work: impl FnOnce(Option<&mut File>) -> Result<(), String>,
) -> Result<(), TraceError> {
    match file {
        Some(file) => write_beside(file, |file| work(Some(file))),
        None => work(None).map_err(|message| TraceError {
            file: "log".into(),
            place: None,
            message,
        }),
    }
}

/// Rows of packets whose flows are numbered as they come; times count from `began_ns`.
pub(crate) struct Rows<'a, 'f> {
    naming: Naming,
    began_ns: u64,
    rows: &'a mut TableWriter<'f, PacketRecord>,
}

impl<'a, 'f> Rows<'a, 'f> {
    pub(crate) fn new(began_ns: u64, rows: &'a mut TableWriter<'f, PacketRecord>) -> Self {
        Self {
            naming: Naming::new(Flows::AsTheyCome),
            began_ns,
            rows,
        }
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        if let Some(record) = self.naming.record(entry, self.began_ns) {
            push(entry, record, self.rows);
        }
    }
}

fn push(entry: &Entry, record: PacketRecord, rows: &mut TableWriter<'_, PacketRecord>) {
    rows.push(record);
    if matches!(entry.event, Event::Delivered { marked: true }) {
        let event = PacketEvent::Marked;
        rows.push(PacketRecord { event, ..record });
    }
}

/// Finds the flow of each packet, and its place in it.
struct Naming {
    flows: Flows,
    /// The flows that have come so far, if that is how they are numbered.
    seen: BTreeMap<Conversation, u32>,
    /// Of each flow and direction.
    sequences: BTreeMap<(u32, u8), PayloadCount>,
}

impl Naming {
    const fn new(flows: Flows) -> Self {
        Self {
            flows,
            seen: BTreeMap::new(),
            sequences: BTreeMap::new(),
        }
    }

    fn record(&mut self, entry: &Entry, began_ns: u64) -> Option<PacketRecord> {
        let (group, near_port, ..) = entry.conversation;
        let (flow, data_to) = match &self.flows {
            Flows::ByPort(by_port) => *by_port.get(&(group as u16, near_port))?,
            Flows::AsTheyCome => {
                let next = self.seen.len() as u32;
                let flow = *self.seen.entry(entry.conversation).or_insert(next);
                (flow, End::Far)
            }
        };
        let direction = if entry.to == data_to {
            Direction::Data
        } else {
            Direction::Back
        };
        let time_s = (entry.at_ns as f64 - began_ns as f64) * 1e-9;
        let delay_ns = entry.at_ns - entry.entered_ns.min(entry.at_ns);
        let (event, one_way_delay_s) = match entry.event {
            Event::Sent => (PacketEvent::Sent, None),
            Event::Delivered { .. } => (PacketEvent::Delivered, Some(delay_ns as f64 * 1e-9)),
            Event::DroppedByQueue => (PacketEvent::DroppedByQueue, None),
            Event::DroppedByLoss => (PacketEvent::DroppedByLoss, None),
        };
        Some(PacketRecord {
            time_s,
            flow,
            seq: self.unwrap(flow, direction, entry.sequence),
            size_bytes: entry.size_bytes,
            event,
            one_way_delay_s,
            direction,
        })
    }

    fn unwrap(&mut self, flow: u32, direction: Direction, sequence: u32) -> u64 {
        self.sequences
            .entry((flow, direction as u8))
            .or_insert_with(|| PayloadCount::beginning(sequence))
            .advance(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_are_counted_from_the_first_byte_and_never_wrap() {
        let flows = Flows::ByPort(BTreeMap::new());
        let mut naming = Naming::new(flows);
        let isn = u32::MAX - 1000;
        let mut seq = |offset: u32| naming.unwrap(0, Direction::Data, isn.wrapping_add(offset));
        assert_eq!(seq(0), 0); // the SYN
        assert_eq!(seq(1), 0);
        assert_eq!(seq(1449), 1448);
        assert_eq!(seq(2897), 2896);
        assert_eq!(seq(1449), 1448); // again
        for _ in 0..5 {
            for quarter in 1..4 {
                seq(quarter << 30);
            }
            seq(0);
        }
        assert_eq!(seq(1), 5 << 32);
    }
}
