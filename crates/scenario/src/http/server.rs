//! The server at the end of a connection: which response it writes next.

use std::collections::VecDeque;

use pathcast_page::{Priority, Protocol};

use super::settings::{Http, StreamOrder};

/// A response that is being written.
#[derive(Clone, Copy, Debug)]
struct Response {
    resource: u32,
    priority: Priority,
    /// Of its header and body, still to be written.
    header_bytes: u64,
    body_bytes: u64,
}

/// The part of a response that a server writes with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) resource: u32,
    /// All of it.
    pub(super) bytes: u64,
    /// What of it is the response's body.
    pub(super) body_bytes: u64,
    pub(super) is_last: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// In the order in which they became ready.
    responses: VecDeque<Response>,
    has_answered: bool,
}

impl Server {
    /// The response to a request is ready.
    pub(super) fn answer(
        &mut self,
        http: &Http,
        resource: u32,
        priority: Priority,
        header_bytes: u64,
        body_bytes: u64,
    ) {
        let is_first = !std::mem::replace(&mut self.has_answered, true);
        self.responses.push_back(Response {
            resource,
            priority,
            header_bytes: http.header_bytes(header_bytes, is_first),
            body_bytes,
        });
    }

    /// Whether there is anything to write.
    pub(super) fn has_more(&self) -> bool {
        !self.responses.is_empty()
    }

    /// The next record.
    pub(super) fn next(&mut self, http: &Http) -> Option<Record> {
        let in_turn = http.protocol != Protocol::Http1 && http.streams == StreamOrder::RoundRobin;
        let at = match in_turn {
            true => 0,
            // the first of the most urgent
            false => (0..self.responses.len()).min_by_key(|&at| self.responses[at].priority)?,
        };
        let response = self.responses.get_mut(at)?;
        let room = http.record_bytes();
        let header_bytes = response.header_bytes.min(room);
        let body_bytes = response.body_bytes.min(room - header_bytes);
        response.header_bytes -= header_bytes;
        response.body_bytes -= body_bytes;
        let is_last = response.header_bytes + response.body_bytes == 0;
        let resource = response.resource;
        if is_last {
            self.responses.remove(at);
        } else if in_turn {
            self.responses.rotate_left(1);
        }
        Some(Record {
            resource,
            bytes: header_bytes + body_bytes + http.overhead_bytes(),
            body_bytes,
            is_last,
        })
    }
}
