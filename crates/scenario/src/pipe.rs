//! The messages in transit over a connection of TCP or QUIC.

use std::collections::VecDeque;

use pathcast_path::Time;

use crate::application::Message;

/// One way over a connection of TCP or QUIC.
#[derive(Clone, Debug, Default)]
pub struct Pipe {
    /// Bytes still to be written of each message that is not written whole.
    pub pending: VecDeque<u64>,
    /// The messages that have not arrived whole.
    pub ends: VecDeque<Pending>,
    /// Bytes of all messages so far.
    pub offered: u64,
    /// Bytes that arrived.
    pub arrived: u64,
}

/// A message that has not arrived whole.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Its first byte.
    pub first: u64,
    /// The one after its last.
    pub end: u64,
    /// What it is.
    pub message: Message,
    /// When it was written.
    pub written: Time,
}

impl Pipe {
    /// The application writes a message at `written`.
    pub fn offer(&mut self, written: Time, message: Message) {
        let end = self.offered + message.bytes;
        self.pending.push_back(message.bytes);
        self.ends.push_back(Pending {
            first: self.offered,
            end,
            message,
            written,
        });
        self.offered = end;
    }

    /// The next message that is whole.
    pub fn take_delivered(&mut self) -> Option<Pending> {
        self.ends.front().filter(|next| next.end <= self.arrived)?;
        self.ends.pop_front()
    }

    /// Writes messages by `take` in chunks of at most `most` bytes, until `take` accepts none. `take`
    /// receives whether a chunk is the last of its message, and returns how many bytes it accepted.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn write<E>(
        &mut self,
        most: u64,
        mut take: impl FnMut(u64, bool) -> Result<u64, E>,
    ) -> Result<(), E> {
        while let Some(bytes) = self.pending.front_mut() {
            let size = (*bytes).min(most);
            let taken = take(size, size == *bytes)?;
            *bytes -= taken;
            if *bytes == 0 {
                self.pending.pop_front();
            } else if taken == 0 {
                break;
            }
        }
        Ok(())
    }
}
