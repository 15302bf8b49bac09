//! What a simulation tells as it runs.

use pathcast_trace::{MessageRecord, PacketRecord, Record, TableWriter};

/// Is told what happens. The constants say what it wants to hear; what it does not costs nothing.
pub trait Recorder {
    /// Whether it wants a record of the sender after each acknowledgment.
    const ACKS: bool;
    /// Whether it wants each event of each data packet.
    const PACKETS: bool;
    /// Whether it wants each message over TCP that has arrived whole.
    const MESSAGES: bool = false;

    /// A sender, just after it acted upon an acknowledgment.
    fn ack(&mut self, record: Record);

    /// An event of a data packet.
    fn packet(&mut self, record: PacketRecord);

    /// A message that an application wrote and the other one has got whole.
    fn message(&mut self, _: MessageRecord) {}
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

/// Both.
impl<A: Recorder, B: Recorder> Recorder for (A, B) {
    const ACKS: bool = A::ACKS || B::ACKS;
    const PACKETS: bool = A::PACKETS || B::PACKETS;
    const MESSAGES: bool = A::MESSAGES || B::MESSAGES;
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
}
