//! What the hosts do with pages: each of a page's connections is a flow.

use pathcast_path::Time;
use pathcast_scenario::{Message, Side};
use pathcast_trace::PageReport;

use super::World;
use super::hosts::{Framing, Load};
use crate::network::Network;
use crate::recorder::Recorder;

/// A server's socket holds so many packets that have not left at least, and otherwise as many as its window: the kernel
/// lets a socket hold twice what is in flight (`tcp_sndbuf_expand`).
const LEAST_UNSENT: u64 = 10;

impl<N: Network, R: Recorder> World<'_, N, R> {
    /// How each page fared.
    pub fn page_reports(&self) -> Vec<PageReport> {
        self.loads.iter().map(Load::report).collect()
    }

    /// The page of `flow`, and which of the page's connections it is.
    fn load_of(&self, flow: u32) -> Option<(usize, usize)> {
        let load = self.flows.get(flow as usize)?.load? as usize;
        Some((load, (flow - self.loads[load].first) as usize))
    }

    /// A message of the page that `flow` is a connection of has arrived.
    #[cold]
    #[inline(never)]
    pub(super) fn deliver_of_page(&mut self, now: Time, flow: u32, message: &Message) {
        let Some((load, connection)) = self.load_of(flow) else {
            return;
        };
        if message.from == Side::Sink
            && let Some(requests) = self.flows[flow as usize].requests
        {
            self.open_answers(now, flow, requests);
        }
        self.loads[load].load.on_delivered(now, connection, message);
        self.drive_page(now, load);
    }

    /// What is due for the page of `flow` happens.
    #[cold]
    #[inline(never)]
    pub(super) fn advance_page(&mut self, now: Time, flow: u32) {
        if let Some((load, _)) = self.load_of(flow) {
            self.loads[load].load.advance(now);
            self.drive_page(now, load);
        }
    }

    /// Writes what browser and servers have written.
    fn drive_page(&mut self, now: Time, load: usize) {
        let first = self.loads[load].first;
        while let Some((connection, message)) = self.loads[load].load.take_written() {
            let flow = first + connection as u32;
            let to = match message.from {
                Side::Source => flow,
                Side::Sink => self.flows[flow as usize].requests.unwrap_or(flow),
            };
            self.put(to, message);
            self.send_data(now, to);
        }
        while let Some(connection) = self.loads[load].load.take_answering() {
            self.send_data(now, first + connection as u32);
        }
        let page = &self.loads[load].load;
        if page.is_done() && self.flows[first as usize].application.completed().is_none() {
            self.loading -= 1;
            for connection in 0..page.connections() as u32 {
                let application = &mut self.flows[(first + connection) as usize].application;
                application.end(now);
                self.open -= 1;
            }
        }
        let next = page.next();
        self.timers.want(self.application(first), next);
    }

    /// Puts a message into a connection, without sending it.
    fn put(&mut self, connection: u32, message: Message) {
        let connection = &mut self.connections[connection as usize];
        let (_, next) = connection.sender.una_and_next();
        if let Framing::Messages(stream) = &mut connection.framing {
            let packets = stream.write_filling(message, next);
            connection.sender.supply(packets);
        }
    }

    /// Lets the server of a page write into connection `flow` as much as its socket holds.
    #[inline]
    pub(super) fn fill(&mut self, now: Time, flow: u32) {
        let Some((load, connection)) = self.load_of(flow) else {
            return;
        };
        while self.loads[load].load.has_record(connection) {
            let sender = &self.connections[flow as usize].sender;
            let (most, next) = (sender.cwnd().max(LEAST_UNSENT), sender.una_and_next().1);
            let Framing::Messages(stream) = &self.connections[flow as usize].framing else {
                return;
            };
            if stream.unsent(next) >= most {
                return;
            }
            if let Some(record) = self.loads[load].load.take_record(now, connection) {
                self.put(flow, record);
            }
        }
    }
}

impl Load {
    fn report(&self) -> PageReport {
        let page = self.load.page();
        let since = |at: Option<Time>| at.map(|at| at.since(self.start).as_secs() * 1e3);
        let mut report = PageReport {
            name: page.name.clone(),
            protocol: self.protocol.to_string(),
            first_flow: self.first,
            connections: self.load.opened() as u32,
            start_s: self.start.as_secs(),
            load_ms: since(self.load.loaded()),
            ..PageReport::default()
        };
        for (resource, times) in page.resources.iter().zip(self.load.times()) {
            let steps = [times.wanted, times.asked, times.first_byte, times.finished];
            let flow = times
                .connection
                .map(|connection| self.first + connection as u32);
            report.push(&resource.id, steps.map(since), flow);
        }
        report
    }
}
