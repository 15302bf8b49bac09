//! Browser, servers and connections, event by event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use pathcast_path::{Time, seed};
use pathcast_scenario::{Http, Message, Page, PageLoad, Side, Times};
use rand_core::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::connection::{Connection, Link};
use crate::model::Model;

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
    /// The server may send more.
    Sends,
}

/// Events by time, those of one moment in their order.
#[derive(Default)]
struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u32, u32)>>,
    events: Vec<(u32, Event)>,
}

impl Agenda {
    fn note(&mut self, at: Time, connection: usize, event: Event) {
        let number = self.events.len() as u32;
        self.events.push((connection as u32, event));
        self.heap.push(Reverse((at, number, 0)));
    }

    fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    fn pop(&mut self) -> Option<(usize, Event)> {
        let Reverse((_, number, _)) = self.heap.pop()?;
        let (connection, event) = self.events[number as usize];
        Some((connection as usize, event))
    }
}

/// Loads a page once; the losses are drawn with `seed`.
pub fn load(page: &Arc<Page>, http: Http, model: &Model, seed: u64) -> Loaded {
    let mut load = PageLoad::new(page, http, Time::ZERO);
    let mut draws = seed::generator(seed, "page.losses");
    let mut connections: Vec<Option<Connection>> = Vec::new();
    connections.resize_with(load.connections(), || None);
    let mut link = Link::new(model);
    let mut agenda = Agenda::default();
    let end = Time::ZERO + pathcast_path::Span::from_secs(LONGEST_S);
    load.advance(Time::ZERO);
    let mut now = Time::ZERO;
    loop {
        // what browser and servers wrote
        while let Some((number, message)) = load.take_written() {
            let opens = connections[number].is_none();
            let connection = connections[number].get_or_insert_with(|| {
                Connection::new(model, Xoshiro256PlusPlus::seed_from_u64(draws.next_u64()))
            });
            if message.from == Side::Source {
                connection.write(message);
                send(
                    now,
                    number,
                    &mut connections,
                    model,
                    &mut link,
                    &mut load,
                    &mut agenda,
                );
            } else {
                // requests are small: they cross the empty path, after the handshake of TCP
                let handshake = if opens {
                    model.rtt
                } else {
                    pathcast_path::Span::ZERO
                };
                let at = now + handshake + model.rtt.mul_div(1, 2);
                agenda.note(at, number, Event::Arrives(message));
            }
        }
        while let Some(number) = load.take_answering() {
            send(
                now,
                number,
                &mut connections,
                model,
                &mut link,
                &mut load,
                &mut agenda,
            );
        }
        if load.loaded().is_some() {
            break;
        }
        let Some(next) = agenda.next().into_iter().chain(load.next()).min() else {
            break;
        };
        if next > end {
            break;
        }
        now = next;
        if load.next().is_some_and(|at| at <= now) {
            load.advance(now);
        } else if let Some((number, event)) = agenda.pop() {
            match event {
                Event::Arrives(message) => load.on_delivered(now, number, &message),
                Event::Sends => {
                    send(
                        now,
                        number,
                        &mut connections,
                        model,
                        &mut link,
                        &mut load,
                        &mut agenda,
                    );
                }
            }
        }
    }
    Loaded {
        load_ms: load.loaded().map(|at| at.as_secs() * 1e3),
        times: load.times().to_vec(),
        connections: load.opened(),
    }
}

fn send(
    now: Time,
    number: usize,
    connections: &mut [Option<Connection>],
    model: &Model,
    link: &mut Link,
    load: &mut PageLoad,
    agenda: &mut Agenda,
) {
    let Some(connection) = &mut connections[number] else {
        return;
    };
    let mut arrivals = Vec::new();
    let again = connection.send(
        now,
        model,
        link,
        || load.take_record(now, number),
        |at, message| arrivals.push((at, message)),
    );
    for (at, message) in arrivals {
        agenda.note(at, number, Event::Arrives(message));
    }
    if let Some(at) = again {
        agenda.note(at, number, Event::Sends);
    }
}
