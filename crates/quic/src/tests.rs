//! Two ends in memory.

use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{Controller, Endpoint, Identity, Packet, Settings, seal_of};

const SETTINGS: Settings = Settings {
    controller: Controller::Cubic,
    datagram_bytes: 1472,
    window_bytes: 16 << 20,
    exchanges: 0,
    mtu_discovery: false,
    initial_window_packets: None,
};

fn address(end: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, end as u8 + 1), 4000).into()
}

type Order = std::cmp::Reverse<(Instant, u64)>;

/// A path on which each datagram takes 10 ms and up to `jitter` more, some are lost, some come twice. Those
/// of the client may have to queue for a link.
struct Wire {
    ends: [Endpoint; 2],
    now: Instant,
    random: Xoshiro256PlusPlus,
    loss: f64,
    jitter: Duration,
    twice: f64,
    /// In bits a second, and the longest that a datagram waits for it.
    link: Option<(f64, Duration)>,
    /// When the link is free.
    free: Instant,
    /// In order of arrival, then of sending: reversed, because the heap returns the largest first.
    way: BinaryHeap<(Order, usize, Vec<u8>)>,
    sent: u64,
    lost: u64,
    /// Those of the client that arrived.
    seals: Vec<u64>,
}

impl Wire {
    fn new(controller: Controller) -> Self {
        let identity = Identity::new().unwrap();
        Self::between(controller, &identity, &identity)
    }

    fn between(controller: Controller, client: &Identity, server: &Identity) -> Self {
        let settings = Settings {
            controller,
            ..SETTINGS
        };
        let now = Instant::now();
        Self {
            ends: [
                Endpoint::client(&settings, client, address(1), now).unwrap(),
                Endpoint::server(&settings, server).unwrap(),
            ],
            now,
            random: Xoshiro256PlusPlus::seed_from_u64(5),
            loss: 0.0,
            jitter: Duration::ZERO,
            twice: 0.0,
            link: None,
            free: now,
            way: BinaryHeap::new(),
            sent: 0,
            lost: 0,
            seals: Vec::new(),
        }
    }

    fn chance(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn send(&mut self) {
        let mut datagram = Vec::new();
        for end in 0..2 {
            while self.ends[end].transmit(self.now, &mut datagram) {
                assert!(datagram.len() <= 1472);
                if self.chance() < self.loss {
                    self.lost += 1;
                    continue;
                }
                let Some(waits) = self.queue(end, datagram.len()) else {
                    self.lost += 1;
                    continue;
                };
                let copies = if self.chance() < self.twice { 2 } else { 1 };
                for _ in 0..copies {
                    let extra = self.jitter.mul_f64(self.chance());
                    let at = self.now + waits + Duration::from_millis(10) + extra;
                    self.sent += 1;
                    let order = std::cmp::Reverse((at, self.sent));
                    self.way.push((order, 1 - end, datagram.clone()));
                }
            }
        }
    }

    /// How long a datagram waits for the link and is on it; none if there is no room.
    fn queue(&mut self, from: usize, bytes: usize) -> Option<Duration> {
        let Some((rate_bps, most)) = self.link.filter(|_| from == 0) else {
            return Some(Duration::ZERO);
        };
        let free = self.free.max(self.now);
        if free - self.now > most {
            return None;
        }
        self.free = free + Duration::from_secs_f64((bytes + 28) as f64 * 8.0 / rate_bps);
        Some(self.free - self.now)
    }

    /// Continues to the next event, if there is one.
    fn step(&mut self) -> bool {
        self.send();
        let arrival = self.way.peek().map(|(at, ..)| at.0.0);
        let timeouts = self.ends.iter().filter_map(Endpoint::timeout);
        let Some(next) = timeouts.chain(arrival).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some((at, ..)) = self.way.peek()
            && at.0.0 <= self.now
        {
            let (_, end, datagram) = self.way.pop().unwrap();
            if end == 1 {
                self.seals.push(seal_of(&datagram));
            }
            self.ends[end].handle(self.now, address(1 - end), &datagram);
        }
        for end in &mut self.ends {
            if end.timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now);
            }
        }
        true
    }

    fn connect(&mut self) {
        let begin = self.now;
        while !self.ends.iter().all(Endpoint::is_connected) {
            assert!(self.step() && self.now < begin + Duration::from_secs(20));
            assert_eq!(self.ends.iter().find_map(Endpoint::failure), None);
        }
    }

    /// Sends `bytes` from the end `from`; how long it took until all were read.
    fn transfer(&mut self, from: usize, bytes: u64) -> Duration {
        let (begin, mut written, mut read) = (self.now, 0, 0);
        while read < bytes {
            written += self.ends[from].write(bytes - written).unwrap();
            assert!(self.step());
            let whole = self.ends[1 - from].read();
            assert!(whole >= read && whole <= bytes);
            read = whole;
            assert!(self.now < begin + Duration::from_secs(600));
        }
        self.now - begin
    }
}

const ALL: [Controller; 3] = [Controller::Cubic, Controller::NewReno, Controller::Bbr3];

#[test]
fn all_bytes_arrive_once_both_ways_over_a_path_that_loses_reorders_and_doubles() {
    for controller in ALL {
        let mut wire = Wire::new(controller);
        (wire.loss, wire.twice) = (0.02, 0.01);
        wire.jitter = Duration::from_millis(3);
        wire.connect();
        wire.ends.iter_mut().for_each(|end| end.begin(false));
        for from in [0, 1] {
            wire.transfer(from, 1_000_000);
            for _ in 0..200 {
                wire.step(); // what is still in flight must not be counted again
            }
            assert_eq!(wire.ends[1 - from].read(), 1_000_000);
            let sender = wire.ends[from].sender();
            assert_eq!(sender.sent_bytes, 1_000_000);
            assert_eq!(sender.acknowledged_bytes, 1_000_000);
            assert_eq!(
                (sender.unreadable_packets, wire.ends[from].unsent_bytes()),
                (0, 0)
            );
            assert!(sender.resent_packets > 0 && sender.lost_packets >= sender.resent_packets / 2);
        }
    }
}

#[test]
fn what_is_lost_is_what_the_sender_says() {
    let mut wire = Wire::new(Controller::Cubic);
    wire.connect();
    wire.ends.iter_mut().for_each(|end| end.begin(false));
    wire.loss = 0.01;
    wire.transfer(0, 3_000_000);
    let lost = wire.lost; // of both directions: nearly all that the server sends are acknowledgments
    wire.loss = 0.0;
    for _ in 0..100 {
        wire.step();
    }
    let said = wire.ends[0].sender().lost_packets;
    assert!(said > 10 && said <= lost, "{said} of {lost}");
    assert_eq!(wire.ends[1].sender().sent_bytes, 0);
}

#[test]
fn a_thousand_gaps_end_no_connection() {
    let mut wire = Wire::new(Controller::NewReno);
    wire.connect();
    // until the window is some thousand packets
    wire.transfer(0, 20_000_000);
    wire.loss = 0.5;
    let mut written = 0;
    for _ in 0..2000 {
        written += wire.ends[0].write(8_000_000 - written).unwrap();
        wire.step();
    }
    wire.loss = 0.0;
    while wire.ends[1].read() < 28_000_000 {
        written += wire.ends[0].write(8_000_000 - written).unwrap();
        assert!(wire.step());
        assert_eq!(wire.ends[1].failure(), None);
    }
}

#[test]
fn each_packet_is_known_by_its_seal() {
    let mut wire = Wire::new(Controller::Cubic);
    wire.connect();
    wire.ends[0].begin(true);
    wire.seals.clear();
    wire.loss = 0.02;
    wire.transfer(0, 500_000);
    let mut packets: Vec<Packet> = Vec::new();
    wire.ends[0].take_packets(&mut packets);
    let mut arrived = crate::Frontier::default();
    for seal in &wire.seals {
        let found: Vec<_> = packets
            .iter()
            .filter(|packet| packet.seal == *seal)
            .collect();
        assert!(!found.is_empty());
        for packet in found {
            arrived.add(packet.bytes.clone());
        }
    }
    assert_eq!(arrived.whole(), 500_000);
    assert!(wire.ends[0].sender().resent_packets > 0);
    packets.clear();
    wire.ends[0].take_packets(&mut packets);
    assert!(packets.is_empty());
}

#[test]
fn a_server_with_another_certificate_is_refused() {
    let (client, server) = (Identity::new().unwrap(), Identity::new().unwrap());
    let mut wire = Wire::between(Controller::Cubic, &client, &server);
    for _ in 0..100 {
        wire.step();
    }
    assert!(!wire.ends[0].is_connected());
    let failure = wire.ends[0].failure().unwrap().to_string();
    assert!(failure.contains("certificate"), "{failure}");
}

#[test]
fn hostile_datagrams_neither_panic_nor_end_a_connection() {
    let mut wire = Wire::new(Controller::Cubic);
    let noise = |wire: &mut Wire| {
        let mut datagram = Vec::new();
        for round in 0..300u64 {
            let end = (round % 2) as usize;
            // noise; with the first byte of each kind of header; and a real one with a byte changed
            let mut bytes = vec![0; (wire.random.next_u64() % 1500) as usize];
            wire.random.fill_bytes(&mut bytes);
            if let Some(first) = bytes.first_mut() {
                *first = [0x40, 0xc0, 0xd0, 0xe0, 0xf0, *first][(round % 6) as usize];
            }
            if round % 3 == 0 && wire.ends[1 - end].transmit(wire.now, &mut datagram) {
                bytes.clone_from(&datagram);
                let at = wire.random.next_u64() as usize % bytes.len();
                bytes[at] ^= 1 << (round % 8);
            }
            wire.ends[end].handle(wire.now, address(1 - end), &bytes);
            wire.step();
        }
    };
    noise(&mut wire);
    wire.connect();
    noise(&mut wire);
    wire.transfer(0, 200_000);
    noise(&mut wire);
    wire.transfer(1, 200_000);
    assert_eq!(wire.ends.iter().find_map(Endpoint::failure), None);
}

#[test]
fn nothing_can_be_written_before_the_handshake_is_over() {
    let mut wire = Wire::new(Controller::Cubic);
    assert!(wire.ends[0].write(10).is_err());
    assert_eq!(wire.ends[1].read(), 0);
    let small = Settings {
        datagram_bytes: 1000,
        ..SETTINGS
    };
    assert!(Endpoint::server(&small, &Identity::new().unwrap()).is_err());
}

#[test]
fn a_flow_that_has_nothing_to_send_keeps_its_window() {
    // 40 kB each 100 ms over 20 ms: a window of ten packets grows until that goes in one round trip
    let mut wire = Wire::new(Controller::Cubic);
    wire.connect();
    let window = |wire: &Wire| wire.ends[0].sender().window_bytes;
    assert_eq!(window(&wire), 14_720);
    for _ in 0..50 {
        let until = wire.now + Duration::from_millis(100);
        wire.ends[0].write(40_000).unwrap();
        while wire.now < until && wire.step() {}
        wire.now = wire.now.max(until);
    }
    assert!(
        (20_000..200_000).contains(&window(&wire)),
        "{}",
        window(&wire)
    );
}

#[test]
fn each_controller_fills_a_link_and_gives_up_what_its_queue_drops() {
    // of 9.6 Mbit/s at most; a queue of two round trips
    for (controller, least_bps) in [
        (Controller::Cubic, 9.3e6),
        (Controller::NewReno, 9.2e6),
        (Controller::Bbr3, 8.0e6),
    ] {
        let mut wire = Wire::new(controller);
        wire.connect();
        wire.link = Some((10e6, Duration::from_millis(40)));
        wire.ends[0].begin(false);
        let took = wire.transfer(0, 12_000_000);
        let goodput_bps = 12e6 * 8.0 / took.as_secs_f64();
        assert!(
            (least_bps..9.62e6).contains(&goodput_bps),
            "{controller:?}: {goodput_bps}"
        );
        assert_eq!(wire.ends[0].sender().lost_packets, wire.lost);
        assert!(wire.lost > 0 || controller == Controller::Bbr3);
    }
}
