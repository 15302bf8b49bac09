//! The log of every packet in both directions: the pump's entries, and the thread that writes them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use pathcast_netns::read_headers;
use pathcast_path::{DropReason, End};
use pathcast_quic::seal_of;
use pathcast_trace::{
    DelaySplit, MessageRecord, Metadata, PacketEvent, PacketRecord, Read, Segment, Splitter,
    TableWriter, TraceError, User, write_beside_for,
};

use crate::naming::{Flows, Naming};
use crate::packet::{Packet, inspect};
use crate::seals::{Crossed, Left, SealedPacket, Seals};

/// Entries handed over together: the pump must never wait.
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
    /// A policer's drop counts as a queue's: a policer is a queue without room.
    pub(crate) const fn of(reason: DropReason) -> Self {
        match reason {
            DropReason::Queue | DropReason::Aqm | DropReason::Policer => Self::DroppedByQueue,
            DropReason::Loss => Self::DroppedByLoss,
        }
    }
}

/// What packets of one conversation have in common, both ways: group or addresses, port at the near
/// end, port at the far end, protocol. Of groups, the first three are all that is needed.
pub(crate) type Conversation = (u64, u16, u16, u8);

/// One event of one packet, as the pump saw it.
pub(crate) struct Entry {
    pub(crate) at_ns: u64,
    pub(crate) entered_ns: u64,
    pub(crate) conversation: Conversation,
    pub(crate) to: End,
    /// TCP's sequence number, or QUIC's seal.
    pub(crate) sequence: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) size_bytes: u32,
    pub(crate) event: Event,
}

pub(crate) enum Message {
    Entries(Vec<Entry>),
    Sealed(Vec<SealedPacket>),
    Reads(Vec<Read>),
    Flows(Flows),
    End(Box<Metadata>),
}

/// The pump's end.
pub(crate) struct Log {
    /// Of each group of flows, whether they are over QUIC.
    sealed: Vec<bool>,
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
    fn conversation(&self, bytes: &[u8], to: End) -> Option<(Conversation, u64, u32)> {
        let order = |from: u16, at: u16| {
            if to == End::Far {
                (from, at)
            } else {
                (at, from)
            }
        };
        if !self.everything {
            let header = inspect(bytes)?;
            let (near, far) = order(header.ports.0, header.ports.1);
            let conversation = (header.group as u64, near, far, 0);
            let sequence = match self.sealed.get(header.group) {
                Some(true) => seal_of(bytes),
                _ => header.sequence.into(),
            };
            return Some((conversation, sequence, header.payload_bytes));
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
        Some((conversation, headers.sequence.into(), headers.payload_bytes))
    }

    fn hand_over(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        // the writer has failed: its error is returned when the thread is joined
        let _ = self.messages.send(Message::Entries(batch));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// The conductor's end: reports the flows, and what is known at the end.
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

    /// Reports the content of each packet of QUIC that left.
    pub(crate) fn sealed(&self, packets: Vec<SealedPacket>) {
        if !packets.is_empty() {
            let _ = self.0.send(Message::Sealed(packets));
        }
    }

    /// The log is whole; without this it is not kept.
    pub(crate) fn end(self, metadata: Metadata) {
        let _ = self.0.send(Message::End(Box::new(metadata)));
    }
}

/// The writer's end.
pub(crate) struct LogWriter(Receiver<Message>);

/// A log: for the pump, for the conductor, for the thread that writes; `sealed` says of each group of
/// flows whether they are over QUIC.
pub(crate) fn packet_log(sealed: Vec<bool>) -> (Log, Conclusion, LogWriter) {
    let (messages, written) = channel();
    let log = Log {
        sealed,
        everything: false,
        batch: Vec::with_capacity(BATCH),
        messages: messages.clone(),
    };
    (log, Conclusion(messages), LogWriter(written))
}

/// A log of whatever crosses: for the pump, for whoever knows the end, and what they send.
pub(crate) fn log_of_everything() -> (Log, Conclusion, Receiver<Message>) {
    let (mut log, conclusion, writer) = packet_log(Vec::new());
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
    /// Writes the log to `files` until its end is reported; if it never is, the files are removed. Returns
    /// the outcome of the messages of each flow, by its number.
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
        if_wanted(None, files.packets, |packets| {
            if_wanted(None, files.messages, |messages| {
                let mut sinks = Sinks {
                    packets: packets.map(TableWriter::new).transpose()?,
                    messages: messages.map(TableWriter::new).transpose()?,
                    splitter,
                    seals: Seals::default(),
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

    /// Processes entries until the end is reported; none if it never is.
    fn follow(self, sinks: &mut Sinks<'_>, began_ns: impl Fn() -> u64) -> Option<Box<Metadata>> {
        let (mut waiting, mut naming) = (Vec::new(), None);
        loop {
            let mut end = None;
            match self.0.recv().ok()? {
                Message::Entries(entries) => waiting.push(entries),
                Message::Sealed(packets) => packets.into_iter().for_each(|p| sinks.seals.note(p)),
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
    seals: Seals,
}

impl Sinks<'_> {
    fn push(&mut self, entry: &Entry, naming: &mut Naming, began_ns: u64) {
        let Some(record) = naming.record(entry, began_ns) else {
            return;
        };
        if let Some(rows) = &mut self.packets {
            push(entry, record, rows);
        }
        if naming.is_sealed(entry) {
            // what entered before the run began was the handshake, which is not reported
            if self.splitter.knows(record.flow) && entry.entered_ns >= began_ns {
                self.seals.cross(Crossed {
                    flow: record.flow,
                    direction: record.direction,
                    seal: entry.sequence,
                    entered_ns: entry.entered_ns,
                    left: match entry.event {
                        Event::Sent => None,
                        Event::Delivered { .. } => Some(Left::At(entry.at_ns)),
                        Event::DroppedByQueue | Event::DroppedByLoss => Some(Left::Dropped),
                    },
                });
            }
            return;
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
        self.seals.tell(&mut self.splitter);
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

/// Does `work` with a new file that replaces `file` if all went well; without one, with none. For a
/// `user`, it is theirs, and made with no more rights than they have.
pub(crate) fn if_wanted(
    user: Option<User>,
    file: Option<&PathBuf>,
    work: impl FnOnce(Option<&mut File>) -> Result<(), String>,
) -> Result<(), TraceError> {
    match file {
        Some(file) => write_beside_for(user, file, |file| work(Some(file))),
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

    /// See [`Naming::conversations`].
    pub(crate) fn conversations(&self) -> String {
        self.naming.conversations()
    }
}

fn push(entry: &Entry, record: PacketRecord, rows: &mut TableWriter<'_, PacketRecord>) {
    rows.push(record);
    if matches!(entry.event, Event::Delivered { marked: true }) {
        let event = PacketEvent::Marked;
        rows.push(PacketRecord { event, ..record });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::tests::{entry, naming_of_one};
    use pathcast_trace::Direction;

    #[test]
    fn what_crossed_waits_until_it_is_known_what_was_in_it() {
        let mut naming = naming_of_one();
        let mut sinks = Sinks {
            packets: None,
            messages: None,
            splitter: Splitter::new([3], 1),
            seals: Seals::default(),
        };
        let read = Read {
            flow: 3,
            direction: Direction::Data,
            number: 0,
            first: 0,
            end: 100,
            written_ns: 0,
            read_ns: 40,
        };
        let sealed = |seal, bytes| SealedPacket {
            flow: 3,
            direction: Direction::Data,
            packet: pathcast_quic::Packet { seal, bytes },
        };
        let told = |sinks: &mut Sinks<'_>| {
            let mut rows = Vec::new();
            sinks.seals.tell(&mut sinks.splitter);
            sinks.splitter.tell(0, |row| rows.push(row));
            rows
        };
        // a handshake; a packet with 60 bytes that is lost, one with the rest, and the 60 again
        for (seal, at_ns, entered_ns, event) in [
            (1, 2, 2, Event::Sent),
            (2, 10, 10, Event::Sent),
            (3, 11, 11, Event::Sent),
            (2, 12, 10, Event::DroppedByLoss),
            (3, 21, 11, Event::Delivered { marked: false }),
            (4, 30, 30, Event::Sent),
            (4, 39, 30, Event::Delivered { marked: false }),
        ] {
            sinks.push(&entry(seal, at_ns, entered_ns, event), &mut naming, 5);
        }
        sinks.splitter.read(read);
        sinks.seals.note(sealed(3, 60..100));
        assert!(told(&mut sinks).is_empty());
        sinks.seals.note(sealed(2, 0..60));
        assert!(told(&mut sinks).is_empty());
        sinks.seals.note(sealed(4, 0..30));
        sinks.seals.note(sealed(4, 30..60));
        let rows = told(&mut sinks);
        let times = [rows[0].entered_s, rows[0].sent_s, rows[0].left_s];
        assert_eq!(times.map(|s| (s * 1e9).round()), [11.0, 30.0, 39.0]);
        assert!(sinks.seals.is_empty());
    }
}
