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

    /// The message of that number, the last that was offered, ends with what was written of it.
    pub fn cut(&mut self, number: u64) {
        if let Some(last) = self.ends.back_mut()
            && last.message.number == number
            && let Some(unwritten) = self.pending.pop_back()
        {
            last.end -= unwritten;
            self.offered -= unwritten;
        }
    }

    /// The first message that has not arrived whole, and how much of it has.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let next = self.ends.front()?;
        Some((next.message.number, self.arrived.saturating_sub(next.first)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Side;

    fn message(number: u64, bytes: u64) -> Message {
        Message {
            from: Side::Source,
            number,
            bytes,
            clock: Time::ZERO,
        }
    }

    #[test]
    fn what_is_cut_ends_with_what_was_written() {
        let mut pipe = Pipe::default();
        pipe.offer(Time::ZERO, message(0, 10));
        pipe.offer(Time::ZERO, message(1, 100));
        let mut room = 30;
        let written = pipe.write(50, |bytes, _| {
            let taken = bytes.min(room);
            room -= taken;
            Ok::<_, ()>(taken)
        });
        assert_eq!(written, Ok(()));
        pipe.cut(0); // it was written whole
        assert_eq!(pipe.offered, 110);
        pipe.cut(1);
        pipe.cut(1);
        assert_eq!((pipe.offered, pipe.pending.len()), (30, 0));
        pipe.offer(Time::ZERO, message(2, 5));
        pipe.arrived = 14;
        let mut whole = || pipe.take_delivered().map(|whole| whole.message.number);
        assert_eq!((whole(), whole()), (Some(0), None));
        assert_eq!(pipe.progress(), Some((1, 4)));
        pipe.arrived = 35;
        let mut whole = || pipe.take_delivered().map(|whole| whole.message.number);
        assert_eq!((whole(), whole(), whole()), (Some(1), Some(2), None));
        assert_eq!(pipe.progress(), None);
    }
}
