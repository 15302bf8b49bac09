//! What browser and server of a page write into a connection of HTTP/3: an exchange for each request and its response.

use std::collections::VecDeque;

use pathcast_scenario::{Exchange, Message, Pipe, Side};

use crate::{Endpoint, QuicError};

/// The end of the server, and that of the browser.
const SOURCE: usize = Side::Source as usize;
const SINK: usize = Side::Sink as usize;

/// A server holds so many bytes unsent at least, ten datagrams, and otherwise as many as its window.
pub(crate) const LEAST_UNSENT_BYTES: u64 = 14_720;

/// One exchange, both ways.
#[derive(Default)]
struct Lane {
    pipes: [Pipe; 2],
    /// Which sides have written their last message, and of which the transport has ended the stream.
    ends: [bool; 2],
    ended: [bool; 2],
}

/// See the module. Both ends are in this process: the server is end 0, the browser end 1.
#[derive(Default)]
pub struct Conversation {
    /// By the numbers of the exchanges.
    lanes: Vec<Lane>,
    /// The exchange of each resource that was asked for.
    of_resource: Vec<(u32, usize)>,
    /// Requests that the server has no exchange for yet.
    waiting: VecDeque<(Message, Exchange)>,
    /// Ends and exchanges of which a full window left something in the pipe.
    blocked: Vec<(usize, usize)>,
    is_open: bool,
}

impl Conversation {
    /// Whether the browser may ask, since this was last asked.
    pub fn take_open(&mut self, ends: &[Endpoint; 2]) -> bool {
        ends[SINK].is_open() && !std::mem::replace(&mut self.is_open, true)
    }

    /// Whether the server may write more.
    pub fn has_room(&self, ends: &[Endpoint; 2]) -> bool {
        let unsent_bytes = ends[SOURCE].unsent_bytes();
        unsent_bytes < LEAST_UNSENT_BYTES || unsent_bytes < ends[SOURCE].sender().window_bytes
    }

    /// Browser or server writes a message.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn put(
        &mut self,
        ends: &mut [Endpoint; 2],
        message: Message,
        exchange: Exchange,
    ) -> Result<(), QuicError> {
        let end = message.from as usize;
        let number = match message.from {
            Side::Sink => match ends[SINK].open_exchange() {
                Some(number) => {
                    self.lanes.push(Lane::default());
                    self.of_resource.push((exchange.resource, number));
                    number
                }
                None => {
                    self.waiting.push_back((message, exchange));
                    return Ok(());
                }
            },
            Side::Source => {
                let asked = self.of_resource.iter().rev();
                let found = asked.copied().find(|(one, _)| *one == exchange.resource);
                let Some((_, number)) = found else {
                    return Ok(()); // no one asked for it
                };
                if self.lanes[number].pipes[SOURCE].offered == 0 {
                    ends[SOURCE].set_urgency(number, exchange.urgency);
                }
                number
            }
        };
        let lane = &mut self.lanes[number];
        lane.pipes[end].offer(message.clock, message);
        lane.ends[end] |= exchange.is_last;
        self.write(ends, end, number)
    }

    /// Writes of an exchange what the connection takes.
    fn write(
        &mut self,
        ends: &mut [Endpoint; 2],
        end: usize,
        number: usize,
    ) -> Result<(), QuicError> {
        let lane = &mut self.lanes[number];
        let transport = &mut ends[end];
        lane.pipes[end].write(u64::MAX, |bytes, _| transport.write_exchange(number, bytes))?;
        if !lane.pipes[end].pending.is_empty() {
            if !self.blocked.contains(&(end, number)) {
                self.blocked.push((end, number));
            }
        } else if lane.ends[end] && !std::mem::replace(&mut lane.ended[end], true) {
            transport.end_exchange(number)?;
        }
        Ok(())
    }

    /// Writes what waited for room, or for an exchange.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn write_waiting(&mut self, ends: &mut [Endpoint; 2]) -> Result<(), QuicError> {
        for (end, number) in std::mem::take(&mut self.blocked) {
            self.write(ends, end, number)?;
        }
        for _ in 0..self.waiting.len() {
            if let Some((message, exchange)) = self.waiting.pop_front() {
                self.put(ends, message, exchange)?;
            }
        }
        Ok(())
    }

    /// Bytes of responses that have arrived.
    pub fn arrived_bytes(&self) -> u64 {
        self.lanes
            .iter()
            .map(|lane| lane.pipes[SOURCE].arrived)
            .sum()
    }

    /// Appends the messages that are whole at `end` and were not before.
    pub fn take_delivered(
        &mut self,
        ends: &mut [Endpoint; 2],
        end: usize,
        into: &mut Vec<Message>,
    ) {
        while let Some((number, whole_bytes)) = ends[end].take_news() {
            let pipe = &mut self.lanes[number].pipes[1 - end];
            pipe.arrived = whole_bytes;
            while let Some(whole) = pipe.take_delivered() {
                into.push(whole.message);
            }
        }
    }
}
