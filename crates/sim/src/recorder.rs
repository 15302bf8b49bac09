//! What a simulation reports while it runs.

use std::fs::File;

use pathcast_path::{Span, Time};
use pathcast_scenario::Side;
use pathcast_tcp::{AckSegment, DataSegment};
use pathcast_trace::{MessageRecord, Metadata, PacketRecord, QueueRecord, Record, TableWriter};

/// A packet that crosses the senders' side of the network.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    /// When it leaves there, or arrives.
    pub at: Time,
    /// The flow that it belongs to.
    pub flow: u32,
    /// Which end sent it.
    pub from: Side,
    /// Its size with the IP header.
    pub size_bytes: u32,
}

/// Receives what happens. The constants select the kinds of events; others cost nothing.
pub trait Recorder {
    /// Whether it receives a record of the sender after each acknowledgment.
    const ACKS: bool;
    /// Whether it receives each event of each data packet.
    const PACKETS: bool;
    /// Whether it receives each message over TCP that has arrived completely.
    const MESSAGES: bool = false;
    /// Whether it samples the queues.
    const QUEUES: bool = false;

    /// Whether it receives what crosses the senders' side of the network: each packet that leaves a sender,
    /// and each that reaches one.
    const CAPTURE: bool = false;

    /// A sender, just after it processed an acknowledgment.
    fn ack(&mut self, record: Record);

    /// An event of a data packet.
    fn packet(&mut self, record: PacketRecord);

    /// A message that an application wrote and the other one has got whole.
    fn message(&mut self, _: MessageRecord) {}

    /// A data packet or a datagram, and what it acknowledges of the data that goes the other way.
    fn data(&mut self, _: Crossing, _: &DataSegment, _carried: Option<&AckSegment>) {}

    /// An acknowledgment without data, or a datagram against the data.
    fn acknowledgment(&mut self, _: Crossing, _: &AckSegment) {}

    /// When it looks at the queues next.
    fn next_look(&self) -> Time {
        Time::MAX
    }

    /// A queue at the moment of `next_look`.
    fn queue(&mut self, _: QueueRecord) {}

    /// All queues of that moment have been reported.
    fn looked(&mut self) {}
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoRecorder;

impl Recorder for NoRecorder {
    const ACKS: bool = false;
    const PACKETS: bool = false;
    fn ack(&mut self, _: Record) {}
    fn packet(&mut self, _: PacketRecord) {}
}

/// Keeps the senders' records in memory.
impl Recorder for Vec<Record> {
    const ACKS: bool = true;
    const PACKETS: bool = false;
    fn ack(&mut self, record: Record) {
        self.push(record);
    }
    fn packet(&mut self, _: PacketRecord) {}
}

/// Writes the senders' records to a file as they come.
impl Recorder for TableWriter<'_, Record> {
    const ACKS: bool = true;
    const PACKETS: bool = false;
    fn ack(&mut self, record: Record) {
        self.push(record);
    }
    fn packet(&mut self, _: PacketRecord) {}
}

/// Writes packets to a file as they come.
impl Recorder for TableWriter<'_, PacketRecord> {
    const ACKS: bool = false;
    const PACKETS: bool = true;
    fn ack(&mut self, _: Record) {}
    fn packet(&mut self, record: PacketRecord) {
        self.push(record);
    }
}

/// Writes the queues at equal intervals to a file during the run.
pub struct QueueLog<'a> {
    rows: TableWriter<'a, QueueRecord>,
    every: Span,
    next: Time,
}

impl<'a> QueueLog<'a> {
    /// Looks at them at time 0 and then each `every`.
    ///
    /// # Errors
    /// Says why the file cannot be written.
    pub fn new(file: &'a mut File, every: Span) -> Result<Self, String> {
        Ok(Self {
            rows: TableWriter::new(file)?,
            every: every.max(Span::from_nanos(1)),
            next: Time::ZERO,
        })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Says why the file cannot be written.
    pub fn finish(self, metadata: &Metadata) -> Result<(), String> {
        self.rows.finish(metadata)
    }
}

impl Recorder for Option<&mut QueueLog<'_>> {
    const ACKS: bool = false;
    const PACKETS: bool = false;
    const QUEUES: bool = true;
    fn ack(&mut self, _: Record) {}
    fn packet(&mut self, _: PacketRecord) {}
    fn next_look(&self) -> Time {
        self.as_ref().map_or(Time::MAX, |log| log.next)
    }
    fn queue(&mut self, record: QueueRecord) {
        if let Some(log) = self {
            log.rows.push(record);
        }
    }
    fn looked(&mut self) {
        if let Some(log) = self {
            log.next += log.every;
        }
    }
}

/// Both.
impl<A: Recorder, B: Recorder> Recorder for (A, B) {
    const ACKS: bool = A::ACKS || B::ACKS;
    const PACKETS: bool = A::PACKETS || B::PACKETS;
    const MESSAGES: bool = A::MESSAGES || B::MESSAGES;
    const QUEUES: bool = A::QUEUES || B::QUEUES;
    const CAPTURE: bool = A::CAPTURE || B::CAPTURE;
    fn ack(&mut self, record: Record) {
        self.0.ack(record);
        self.1.ack(record);
    }
    fn packet(&mut self, record: PacketRecord) {
        self.0.packet(record);
        self.1.packet(record);
    }
    fn message(&mut self, record: MessageRecord) {
        self.0.message(record);
        self.1.message(record);
    }
    fn data(&mut self, at: Crossing, segment: &DataSegment, carried: Option<&AckSegment>) {
        self.0.data(at, segment, carried);
        self.1.data(at, segment, carried);
    }
    fn acknowledgment(&mut self, at: Crossing, segment: &AckSegment) {
        self.0.acknowledgment(at, segment);
        self.1.acknowledgment(at, segment);
    }
    fn next_look(&self) -> Time {
        self.0.next_look().min(self.1.next_look())
    }
    fn queue(&mut self, record: QueueRecord) {
        self.0.queue(record);
        self.1.queue(record);
    }
    fn looked(&mut self) {
        self.0.looked();
        self.1.looked();
    }
}
