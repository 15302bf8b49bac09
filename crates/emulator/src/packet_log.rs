//! The log of every packet, both directions: what the pump tells, and the thread that writes it down.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use pathcast_netns::read_headers;
use pathcast_path::DropReason;
use pathcast_trace::{
    Direction, Metadata, PacketEvent, PacketRecord, TableWriter, TraceError, write_beside,
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
    pub(crate) size_bytes: u32,
    pub(crate) event: Event,
}

pub(crate) enum Message {
    Entries(Vec<Entry>),
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
        let Some((conversation, sequence)) = self.conversation(bytes, packet.to) else {
            return;
        };
        self.batch.push(Entry {
            at_ns,
            entered_ns,
            conversation,
            to: packet.to,
            sequence,
            size_bytes: packet.size_bytes,
            event,
        });
        if self.batch.len() == BATCH {
            self.hand_over();
        }
    }

    /// Of a packet that goes `to`: its conversation, and its place in it.
    #[inline]
    fn conversation(&self, bytes: &[u8], to: End) -> Option<(Conversation, u32)> {
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
            return Some(((header.group as u64, near, 0, 0), header.sequence));
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
        Some((conversation, headers.sequence))
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

impl LogWriter {
    /// Writes the log to `file` until its end is told; if it never is, nothing is left of it.
    ///
    /// Times count from `began_ns`, which is 0 before the run has begun; packets of before (handshakes)
    /// have negative times.
    pub(crate) fn write(self, file: &Path, began_ns: impl Fn() -> u64) -> Result<(), TraceError> {
        write_beside(file, |file| {
            let mut rows = TableWriter::<PacketRecord>::new(file)?;
            let (mut waiting, mut naming) = (Vec::new(), None);
            loop {
                match self.0.recv() {
                    Err(_) => return Err("the run was stopped".into()),
                    Ok(Message::Entries(entries)) => waiting.push(entries),
                    Ok(Message::Flows(flows)) => naming = Some(Naming::new(flows)),
                    Ok(Message::End(metadata)) => {
                        if let Some(naming) = &mut naming {
                            flush(&mut waiting, naming, began_ns(), &mut rows);
                        }
                        return rows.finish(&metadata);
                    }
                }
                if let Some(naming) = &mut naming
                    && began_ns() > 0
                {
                    flush(&mut waiting, naming, began_ns(), &mut rows);
                }
            }
        })
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
        push(entry, &mut self.naming, self.began_ns, self.rows);
    }
}

fn push(
    entry: &Entry,
    naming: &mut Naming,
    began_ns: u64,
    rows: &mut TableWriter<'_, PacketRecord>,
) {
    if let Some(record) = naming.record(entry, began_ns) {
        rows.push(record);
        if matches!(entry.event, Event::Delivered { marked: true }) {
            let event = PacketEvent::Marked;
            rows.push(PacketRecord { event, ..record });
        }
    }
}

fn flush(
    waiting: &mut Vec<Vec<Entry>>,
    naming: &mut Naming,
    began_ns: u64,
    rows: &mut TableWriter<'_, PacketRecord>,
) {
    for entry in waiting.drain(..).flatten() {
        push(&entry, naming, began_ns, rows);
    }
}

/// Finds the flow of each packet, and its place in it.
struct Naming {
    flows: Flows,
    /// The flows that have come so far, if that is how they are numbered.
    seen: BTreeMap<Conversation, u32>,
    /// Of each flow and direction: the first sequence number seen, and the last one, unwrapped.
    sequences: BTreeMap<(u32, u8), (u64, u64)>,
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

    /// The number of a segment's first payload byte, from 0: a SYN, which has the first number, takes
    /// one that is no payload.
    fn unwrap(&mut self, flow: u32, direction: Direction, sequence: u32) -> u64 {
        let (first, last) = self
            .sequences
            .entry((flow, direction as u8))
            .or_insert((u64::from(sequence) + 1, u64::from(sequence)));
        // the nearest number with these last 32 bits
        let step = sequence.wrapping_sub(*last as u32) as i32;
        *last = last.saturating_add_signed(i64::from(step));
        last.saturating_sub(*first)
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
