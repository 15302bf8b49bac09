//! The messages on their way over a connection of TCP or QUIC.

use std::collections::VecDeque;

use pathcast_path::Time;

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
    /// Messages written, and arrived whole.
    pub messages: (u64, u64),
}

/// A message that has not arrived whole.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Its first byte.
    pub first: u64,
    /// The one after its last.
    pub end: u64,
    /// When its clock began: that of an answer with the request.
    pub clock: Time,
    /// When it was written.
    pub written: Time,
}

impl Pipe {
    /// The application writes a message of `bytes` bytes at `written`, whose clock began at `clock`.
    pub fn offer(&mut self, clock: Time, written: Time, bytes: u64) {
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
    pub fn take_delivered(&mut self) -> Option<Pending> {
        let message = *self.ends.front()?;
        if message.end > self.arrived {
            return None;
        }
        self.ends.pop_front();
        self.messages.1 += 1;
        Some(message)
    }

    /// Writes messages, in chunks of `most` bytes at most, by `take`, which is told whether a chunk is its
    /// message's last and says how many bytes it took, until it takes none.
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
