//! Exchanges: the client opens a stream for each request, and the response comes back on it (RFC 9114, section 4).
//!
//! A byte that is lost holds up what comes after it on its own stream, and nothing else.

use noq_proto::{Connection, Dir, FinishError, Side, StreamEvent, StreamId};

use crate::endpoint::take_all;
use crate::ranges::Frontier;
use crate::{Endpoint, QuicError};

/// What has arrived of each exchange at one end.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// By the numbers of the exchanges.
    read: Vec<Frontier>,
    /// Those that have something to read.
    readable: Vec<StreamId>,
    /// Those of which more is whole than before.
    news: Vec<usize>,
}

/// The stream of exchange `number`.
fn stream(number: usize) -> StreamId {
    StreamId::new(Side::Client, Dir::Bi, number as u64)
}

impl Exchanges {
    /// Something happened to the exchanges of `connection`.
    pub(crate) fn note(&mut self, connection: &mut Connection, event: &StreamEvent) {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => {
                while let Some(id) = connection.streams().accept(Dir::Bi) {
                    self.readable.push(id);
                }
            }
            StreamEvent::Readable { id } if id.dir() == Dir::Bi => self.readable.push(*id),
            _ => {}
        }
    }

    /// Takes what has arrived out of noq's buffers; in any order and after each datagram, as
    /// [`Endpoint`] says.
    pub(crate) fn drain(&mut self, connection: &mut Connection) {
        while let Some(id) = self.readable.pop() {
            let number = id.index() as usize;
            if self.read.len() <= number {
                self.read.resize(number + 1, Frontier::default());
            }
            let read = &mut self.read[number];
            let before = read.whole();
            take_all(connection, id, read);
            if read.whole() > before {
                self.news.push(number);
            }
        }
    }
}

impl Endpoint {
    /// Opens an exchange; its number. None while the server allows no more, or there is no connection.
    pub fn open_exchange(&mut self) -> Option<usize> {
        let (_, connection) = self.connection.as_mut()?;
        let id = connection.streams().open(Dir::Bi)?;
        Some(id.index() as usize)
    }

    /// Whatever of an exchange waits at this end leaves before that of less urgent ones, and in turn with that of equally
    /// urgent ones.
    pub fn set_urgency(&mut self, exchange: usize, urgency: i32) {
        if let Some((_, connection)) = &mut self.connection {
            // one that has ended has nothing to send
            let _ = connection
                .send_stream(stream(exchange))
                .set_priority(urgency);
        }
    }

    /// Writes up to `bytes` bytes into an exchange; returns how many were accepted.
    ///
    /// # Errors
    /// There is no connection, or it has ended.
    pub fn write_exchange(&mut self, exchange: usize, bytes: u64) -> Result<u64, QuicError> {
        self.write_stream(stream(exchange), bytes)
    }

    /// This end writes no more into an exchange.
    ///
    /// # Errors
    /// There is no connection, or it has ended.
    pub fn end_exchange(&mut self, exchange: usize) -> Result<(), QuicError> {
        let Some((_, connection)) = &mut self.connection else {
            return Err(self.unconnected());
        };
        match connection.send_stream(stream(exchange)).finish() {
            // the other end needs no more
            Ok(()) | Err(FinishError::Stopped(_)) => Ok(()),
            Err(error) => Err(QuicError::Lost(error.to_string())),
        }
    }

    /// An exchange of which more has arrived than when this was last asked, and how many of its bytes are there from the
    /// beginning on. Call until none.
    pub fn take_news(&mut self) -> Option<(usize, u64)> {
        let number = self.exchanges.news.pop()?;
        Some((number, self.exchanges.read[number].whole()))
    }
}
