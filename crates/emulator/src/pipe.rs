//! The messages on their way over a TCP connection.

use std::collections::VecDeque;

use pathcast_path::Time;

/// One way over a TCP connection.
#[derive(Default)]
pub(crate) struct Pipe {
    /// Bytes still to be written of each message that is not written whole.
    pub(crate) pending: VecDeque<u64>,
    /// The messages that have not arrived whole.
    pub(crate) ends: VecDeque<Pending>,
    /// Bytes of all messages so far, and bytes that arrived.
    pub(crate) offered: u64,
    pub(crate) arrived: u64,
    /// Messages written, and arrived whole.
    pub(crate) messages: (u64, u64),
}

/// A message that has not arrived whole.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    /// Its first byte, and the one after its last.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// When its clock began: that of an answer with the request.
    pub(crate) clock: Time,
    pub(crate) written: Time,
}

impl Pipe {
    pub(crate) fn offer(&mut self, clock: Time, written: Time, bytes: u64) {
        self.pending.push_back(bytes);
        self.ends.push_back(Pending {
            first: self.offered,
            end: self.offered + bytes,
            clock,
            written,
        });
        self.offered += bytes;
        self.messages.0 += 1;
    }

    /// The next message that is whole.
    pub(crate) fn take_delivered(&mut self) -> Option<Pending> {
        let message = *self.ends.front()?;
        if message.end > self.arrived {
            return None;
        }
        self.ends.pop_front();
        self.messages.1 += 1;
        Some(message)
    }
}
