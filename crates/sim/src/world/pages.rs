//! What the hosts do with pages: each of a page's connections is a flow.

use pathcast_path::Time;
use pathcast_scenario::{Message, Side};
use pathcast_trace::PageReport;

use super::World;
use super::hosts::{Framing, Load};
use crate::network::Network;
use crate::quic::{SINK, SOURCE};
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
        while let Some(connection) = self.loads[load].load.take_connecting() {
            self.open_quic(now, first + connection as u32);
        }
        while let Some((connection, message)) = self.loads[load].load.take_written() {
            let flow = first + connection as u32;
            if self.has_quic() && self.quic(flow).is_some() {
                self.put_quic(flow, &message);
                self.drive_quic(now, flow, message.from as usize);
                continue;
            }
            let to = match message.from {
                Side::Source => flow,
                Side::Sink => self.flows[flow as usize].requests.unwrap_or(flow),
            };
            self.put(to, message);
            self.send_data(now, to);
        }
        while let Some(connection) = self.loads[load].load.take_answering() {
            let flow = first + connection as u32;
            if self.has_quic() && self.quic(flow).is_some() {
                self.drive_quic(now, flow, SOURCE);
            } else {
                self.send_data(now, flow);
            }
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

    /// Datagrams of a connection over QUIC have arrived at `end`: hands over what came with them.
    pub(super) fn deliver_quic_of_page(&mut self, now: Time, flow: u32, end: usize) {
        let Some((load, connection)) = self.load_of(flow) else {
            return;
        };
        let mut delivered = Vec::new();
        let Some(quic) = self.quic(flow) else { return };
        let is_open = end == SINK && quic.take_open();
        quic.take_delivered(end, &mut delivered);
        let page = &mut self.loads[load].load;
        if is_open {
            page.on_connected(now, connection);
        }
        for message in &delivered {
            page.on_delivered(now, connection, message);
        }
        if is_open || !delivered.is_empty() {
            self.drive_page(now, load);
        }
    }

    /// Browser or server write into a connection over QUIC, without sending it.
    fn put_quic(&mut self, flow: u32, message: &Message) {
        let Some((load, _)) = self.load_of(flow) else {
            return;
        };
        if let Some(exchange) = self.loads[load].load.exchange(message)
            && let Some(quic) = self.quic(flow)
        {
            quic.put(*message, exchange);
        }
    }

    /// Lets the server of a page write into connection `flow` over QUIC as much as it holds unsent.
    pub(super) fn fill_quic(&mut self, now: Time, flow: u32) {
        let Some((load, connection)) = self.load_of(flow) else {
            return;
        };
        while self.loads[load].load.has_record(connection)
            && self.quic(flow).is_some_and(|quic| quic.has_room())
            && let Some(record) = self.loads[load].load.take_record(now, connection)
        {
            self.put_quic(flow, &record);
        }
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
        let loaded = self.load.loaded();
        let mut report = PageReport {
            name: page.name.clone(),
            protocol: self.protocol.to_string(),
            first_flow: self.first,
            connections: self.load.opened() as u32,
            start_s: self.start.as_secs(),
            load_ms: loaded.map(|at| at.since(self.start).as_secs() * 1e3),
            ..PageReport::default()
        };
        for (resource, times) in page.resources.iter().zip(self.load.times()) {
            let flow = times
                .connection
                .map(|connection| self.first + connection as u32);
            report.push(&resource.id, times.steps_ms(self.start), flow);
        }
        report
    }
}
