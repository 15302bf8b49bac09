//! Browser, servers and connections, event by event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use pathcast_path::{Span, Time, seed};
use pathcast_scenario::{Http, Message, Page, PageLoad, Side, Times};
use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::connection::{Connection, Link};
use crate::model::{LossCurve, Model};

/// A page that takes longer has not come.
const LONGEST_S: f64 = 300.0;

/// One load of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// From the beginning to the load event, in milliseconds; none if it did not come within 300 s.
    pub load_ms: Option<f64>,
    /// Of each resource, until then.
    pub times: Vec<Times>,
    /// Connections that were opened.
    pub connections: usize,
}

/// What happens at a connection.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A message of the browser arrives, or one of the server.
    Arrives(Message),
    /// QUIC has connected.
    Opens,
    /// The server may send more.
    Sends,
}

/// Events by time, those of one moment in their order.
#[derive(Default)]
struct Agenda {
    /// Times, and the numbers of the events.
    heap: BinaryHeap<Reverse<(Time, usize)>>,
    events: Vec<(usize, Event)>,
}

impl Agenda {
    fn note(&mut self, at: Time, connection: usize, event: Event) {
        self.heap.push(Reverse((at, self.events.len())));
        self.events.push((connection, event));
    }

    fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    fn pop(&mut self) -> Option<(usize, Event)> {
        let Reverse((_, number)) = self.heap.pop()?;
        Some(self.events[number])
    }
}

/// A load that runs.
struct Run<'a> {
    model: &'a Model,
    load: PageLoad,
    connections: Vec<Option<Connection>>,
    link: Link,
    agenda: Agenda,
    draws: Xoshiro256PlusPlus,
    /// A loss holds up only its stream.
    has_streams: bool,
    /// Servers take requests with the first packets.
    early: bool,
}

/// Loads a page once; the losses are drawn with `seed`.
pub fn load(page: &Arc<Page>, http: Http, model: &Model, seed: u64) -> Loaded {
    let load = PageLoad::new(page, http, Time::ZERO);
    let mut connections = Vec::new();
    connections.resize_with(load.connections(), || None);
    let mut run = Run {
        model,
        load,
        connections,
        link: Link::new(model),
        agenda: Agenda::default(),
        draws: seed::generator(seed, "page.losses"),
        has_streams: http.protocol.is_over_quic(),
        early: http.early_data,
    };
    let end = Time::ZERO + Span::from_secs(LONGEST_S);
    let mut now = Time::ZERO;
    run.load.advance(now);
    while run.load.loaded().is_none() {
        run.write(now);
        let Some(next) = run.next().filter(|next| *next <= end) else {
            break;
        };
        now = next;
        run.step(now);
    }
    Loaded {
        load_ms: run.load.loaded().map(|at| at.as_secs() * 1e3),
        times: run.load.times().to_vec(),
        connections: run.load.opened(),
    }
}

impl<'a> Run<'a> {
    fn next(&self) -> Option<Time> {
        self.agenda.next().into_iter().chain(self.load.next()).min()
    }

    /// Does the first thing that is due at `now`.
    fn step(&mut self, now: Time) {
        if self.load.next().is_some_and(|at| at <= now) {
            self.load.advance(now);
        } else if let Some((number, event)) = self.agenda.pop() {
            match event {
                Event::Arrives(message) => self.load.on_delivered(now, number, &message),
                Event::Opens => self.load.on_connected(now, number),
                Event::Sends => self.send(now, number),
            }
        }
    }

    /// Takes over what browser and servers wrote.
    fn write(&mut self, now: Time) {
        while let Some(number) = self.load.take_connecting() {
            let seed = self.draws.next_u64();
            let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            self.connections[number] = Some(Connection::new(self.model, rng));
            // QUIC opens in one round trip, and a server that is known takes requests at once
            let opens = if self.early {
                now
            } else {
                now + self.model.rtt
            };
            self.agenda.note(opens, number, Event::Opens);
        }
        while let Some((number, message)) = self.load.take_written() {
            let opens = self.connections[number].is_none();
            let connection = self.connections[number].get_or_insert_with(|| {
                let seed = self.draws.next_u64();
                Connection::new(self.model, Xoshiro256PlusPlus::seed_from_u64(seed))
            });
            if message.from == Side::Source {
                connection.write(0, message);
                self.send(now, number);
            } else {
                // requests are small: they cross the empty path, after the handshake of TCP
                let rtt = self.model.rtt;
                let handshake = if opens { rtt } else { Span::ZERO };
                let at = now + handshake + rtt.mul_div(1, 2);
                self.agenda.note(at, number, Event::Arrives(message));
            }
        }
        while let Some(number) = self.load.take_answering() {
            self.send(now, number);
        }
    }

    /// The losses of as many connections as send now: fewer as objects run out.
    fn curve(&self, now: Time) -> &'a LossCurve {
        let busy = |one: &&Connection| one.is_busy(now);
        let connections = match self.model.curves.len() {
            1 => 1,
            _ => self.connections.iter().flatten().filter(busy).count(),
        };
        self.model.curve(connections.max(1))
    }

    /// The server of a connection sends what the window allows.
    fn send(&mut self, now: Time, number: usize) {
        let curve = self.curve(now);
        let Some(connection) = &mut self.connections[number] else {
            return;
        };
        let again = connection.send(
            now,
            self.model,
            curve,
            &mut self.link,
            || {
                let record = self.load.take_record(now, number)?;
                let exchange = self.load.exchange(&record).filter(|_| self.has_streams);
                Some((exchange.map_or(0, |one| one.resource), record))
            },
            |at, message| self.agenda.note(at, number, Event::Arrives(message)),
        );
        if let Some(at) = again {
            self.agenda.note(at, number, Event::Sends);
        }
    }
}
