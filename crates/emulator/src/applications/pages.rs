//! Pages: each of a page's connections is a flow, which opens when the browser needs it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use pathcast_path::Time;
use pathcast_probe::Joining;
use pathcast_scenario::{Exchange, Message, PageLoad, Protocol, Side, Workload};
use pathcast_trace::PageReport;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, connect};

use super::Applications;
use crate::connection::local;
use crate::error::EmulatorError;
use crate::options::Flow;
use crate::quic::Broken;
use crate::session::{Carrier, Session};

/// All pages of a run.
pub(super) struct Pages<'a> {
    loads: Vec<Load>,
    /// What accepts connections, with the first flow of each group.
    servers: &'a [(usize, OwnedFd)],
    /// The flow of each socket of a browser, by its address.
    browsers: BTreeMap<SocketAddr, usize>,
    joining: Joining,
    /// Flows whose servers' sockets have joined, in this order.
    pub(super) joined: Vec<usize>,
}

/// A page that is loaded over several flows.
struct Load {
    load: PageLoad,
    /// The flow of its first connection; those of the others follow.
    first: usize,
    start: Time,
    protocol: Protocol,
    is_done: bool,
}

impl<'a> Pages<'a> {
    /// The pages of `flows`; notes in `sessions` of which page each is a connection.
    pub(super) fn new(
        flows: &[Flow<'_>],
        sessions: &mut [Session<'a>],
        servers: &'a [(usize, OwnedFd)],
        joining: Joining,
    ) -> Result<Self, EmulatorError> {
        let (mut loads, mut browsers) = (Vec::new(), BTreeMap::new());
        for (number, (flow, session)) in flows.iter().zip(sessions).enumerate() {
            let Workload::WebPage(page) = &flow.spec.workload else {
                continue;
            };
            if flow.connection == 0 {
                loads.push(Load {
                    load: PageLoad::new(&page.page, page.http, flow.start),
                    first: number,
                    start: flow.start,
                    protocol: page.http.protocol,
                    is_done: false,
                });
            }
            session.load = Some((loads.len() - 1, flow.connection as usize));
            browsers.insert(local(&session.connection.receiver)?, number);
        }
        Ok(Self {
            loads,
            servers,
            browsers,
            joining,
            joined: Vec::new(),
        })
    }

    /// When `flow` has something to write next, if nothing arrives before; the first of a page has it for all of them.
    pub(super) fn next_write(&self, flow: &Session<'_>) -> Option<Time> {
        match flow.load {
            None => flow.application.next_write(),
            Some((load, 0)) => self.loads[load].load.next(),
            Some(_) => None,
        }
    }

    /// The next record that the server of a connection writes, if that is one of a page, and where it belongs in HTTP/3.
    pub(super) fn next_record(
        &mut self,
        connection: Option<(usize, usize)>,
        now: Time,
    ) -> Option<(Message, Option<Exchange>)> {
        let (load, connection) = connection?;
        let load = &mut self.loads[load].load;
        let record = load.take_record(now, connection)?;
        Some((record, load.exchange(&record)))
    }

    /// How each page fared.
    pub(super) fn reports(&self) -> Vec<PageReport> {
        self.loads.iter().map(Load::report).collect()
    }
}

impl Applications<'_> {
    /// What is due for the page of flow `number` happens.
    pub(super) fn advance_page(&mut self, number: usize, now: Time) {
        if let Some((load, _)) = self.flows[number].load {
            self.pages.loads[load].load.advance(now);
            self.drive_page(load, now);
        }
    }

    /// Delivers the messages of a page that have arrived whole at one end of flow `number`.
    pub(super) fn deliver_of_page(
        &mut self,
        number: usize,
        side: usize,
        now: Time,
    ) -> Result<(), Broken> {
        let flow = &mut self.flows[number];
        let (Some((load, connection)), Carrier::Stream(stream)) = (flow.load, &mut flow.carrier)
        else {
            return Ok(());
        };
        let page = &mut self.pages.loads[load].load;
        if let Some(quic) = &mut stream.quic {
            let is_open = side == Side::Sink as usize && quic.take_open();
            let mut delivered = Vec::new();
            quic.take_delivered(side, &mut delivered);
            if is_open {
                page.on_connected(now, connection);
            }
            for message in &delivered {
                page.on_delivered(now, connection, message);
            }
            if is_open || !delivered.is_empty() {
                self.drive_page(load, now);
            }
            // to acknowledge, and because acknowledgments make room
            return self.write_more(number, side, now);
        }
        let mut any = false;
        while let Some(whole) = stream.pipes[1 - side].take_delivered() {
            page.on_delivered(now, connection, &whole.message);
            any = true;
        }
        if any {
            self.drive_page(load, now);
        }
        Ok(())
    }

    /// Writes what browser and servers have written.
    fn drive_page(&mut self, number: usize, now: Time) {
        let first = self.pages.loads[number].first;
        while let Some(connection) = self.pages.loads[number].load.take_connecting() {
            let (flow, at) = (first + connection, self.instant(now));
            let opened = match self.flows[flow].quic() {
                Some(quic) => quic.open(at),
                None => Ok(()),
            };
            // it may know the server, and ask at once
            let sink = Side::Sink as usize;
            if let Err(broken) = opened.and_then(|()| self.deliver_of_page(flow, sink, now)) {
                self.break_flow(flow, broken);
            }
        }
        while let Some((connection, message)) = self.pages.loads[number].load.take_written() {
            let (flow, side) = (first + connection, message.from as usize);
            let exchange = self.pages.loads[number].load.exchange(&message);
            let written = self.open_flow(flow).and_then(|()| {
                if let Carrier::Stream(stream) = &mut self.flows[flow].carrier {
                    match (&mut stream.quic, exchange) {
                        (Some(quic), Some(exchange)) => quic.put(message, exchange)?,
                        _ => stream.pipes[side].offer(now, message),
                    }
                }
                self.write_more(flow, side, now)
            });
            if let Err(broken) = written {
                self.break_flow(flow, broken);
            }
        }
        while let Some(connection) = self.pages.loads[number].load.take_answering() {
            let flow = first + connection;
            if let Err(broken) = self.write_more(flow, 0, now) {
                self.break_flow(flow, broken);
            }
        }
        let load = &mut self.pages.loads[number];
        if load.load.is_done() && !std::mem::replace(&mut load.is_done, true) {
            let flows = &mut self.flows[first..first + load.load.connections()];
            for flow in flows.iter_mut().filter(|flow| !flow.broken) {
                flow.application.end(now);
                self.open -= 1;
            }
        }
        self.wakes.want(first as u32, load.load.next());
    }

    /// Lets the browser open its connection of flow `number`, unless it has.
    fn open_flow(&mut self, number: usize) -> Result<(), Broken> {
        let flow = &mut self.flows[number];
        let Some(server) = flow.connection.server else {
            return Ok(());
        };
        if std::mem::replace(&mut flow.opened, true) {
            return Ok(());
        }
        let socket = &flow.connection.receiver;
        match connect(socket, &server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let event = epoll::EventData::new_u64(2 * number as u64 + 1);
        epoll::add(&self.epoll, socket, event, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Lets the servers of a group of flows accept the connections that have opened.
    pub(super) fn accept(&mut self, server: usize) {
        let (first, listener) = &self.pages.servers[server];
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(listener, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    let browser = peer.and_then(|peer| self.pages.browsers.get(&peer));
                    if let Some(&flow) = browser
                        && let Err(errno) = self.accept_flow(flow, socket)
                    {
                        self.break_flow(flow, errno.into());
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    // it would be ready forever
                    let _ = epoll::delete(&self.epoll, listener);
                    return self.break_flow(*first, errno.into());
                }
            }
        }
    }

    fn accept_flow(&mut self, number: usize, socket: OwnedFd) -> Result<(), Errno> {
        let socket = self.flows[number].connection.accept(socket)?;
        let event = epoll::EventData::new_u64(2 * number as u64);
        epoll::add(&self.epoll, socket, event, epoll::EventFlags::IN)?;
        let joined = self.pages.joining.watch(socket);
        joined.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        self.pages.joined.push(number);
        Ok(())
    }
}

impl Load {
    fn report(&self) -> PageReport {
        let page = self.load.page();
        let loaded = self.load.loaded();
        let mut report = PageReport {
            name: page.name.clone(),
            protocol: self.protocol.to_string(),
            first_flow: self.first as u32,
            connections: self.load.opened() as u32,
            start_s: self.start.as_secs(),
            load_ms: loaded.map(|at| at.since(self.start).as_secs() * 1e3),
            ..PageReport::default()
        };
        for (resource, times) in page.resources.iter().zip(self.load.times()) {
            let flow = times
                .connection
                .map(|connection| (self.first + connection) as u32);
            report.push(&resource.id, times.steps_ms(self.start), flow);
        }
        report
    }
}
