//! Tests that play those who have not the key, and who have recorded what a client said.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crate::client::ask;
use crate::handshake::{Datagram, MOST_BYTES, Session};
use crate::key::Key;
use crate::tunnel::{Arrived, Tunnel, Welcoming};

/// No test waits longer for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server's tunnel on the loopback, and who has come to it.
struct Server {
    address: SocketAddr,
    key: Key,
    arrived: Receiver<Arrived>,
}

impl Server {
    fn start<'s>(scope: &'s Scope<'s, '_>, over: &'s AtomicBool) -> Self {
        let key = Key::random().unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        let (sender, arrived) = channel();
        let welcoming = Welcoming::new(key.clone(), 4, sender).unwrap();
        let (tunnel, _) = Tunnel::new(udp, Some(welcoming)).unwrap();
        scope.spawn(move || tunnel.run(0, over));
        Self {
            address,
            key,
            arrived,
        }
    }

    /// A client that has the key.
    fn client(&self, through: SocketAddr) -> (UdpSocket, Session) {
        let name = (through.ip().to_string(), through.port());
        let (udp, session, _) = ask(&name, &self.key, &AtomicBool::new(false)).unwrap();
        (udp, session)
    }
}

/// Ends the threads of a test also when it fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn socket_at(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// What a client of `server` says until it is welcome, and the socket that it said it from.
fn recorded(server: &Server) -> (Vec<Vec<u8>>, UdpSocket) {
    let (inside, outside) = (socket_at("127.0.0.1:0"), socket_at("127.0.0.1:0"));
    let (at, over) = (inside.local_addr().unwrap(), AtomicBool::new(false));
    for socket in [&inside, &outside] {
        let look_often = Some(Duration::from_millis(2));
        socket.set_read_timeout(look_often).unwrap();
    }
    let address = server.address;
    let said = thread::scope(|scope| {
        let relay = scope.spawn(|| {
            let (mut said, mut client, mut bytes) = (Vec::new(), None, [0; MOST_BYTES]);
            while !over.load(Ordering::Relaxed) {
                if let Ok((size, from)) = inside.recv_from(&mut bytes) {
                    client = Some(from);
                    said.push(bytes[..size].to_vec());
                    outside.send_to(&bytes[..size], address).unwrap();
                }
                if let Ok(size) = outside.recv(&mut bytes) {
                    inside.send_to(&bytes[..size], client.unwrap()).unwrap();
                }
            }
            said
        });
        let _over = Over(&over);
        server.client(at);
        drop(_over);
        relay.join().unwrap()
    });
    (said, outside)
}

#[test]
fn a_recorded_hello_replayed_from_many_addresses_locks_nobody_out() {
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        let server = Server::start(scope, &over);
        let (said, own) = recorded(&server);
        let is_hello =
            |datagram: &Vec<u8>| matches!(Datagram::parse(datagram), Some(Datagram::Hello(_)));
        assert!(!said.is_empty() && said.iter().all(is_hello));
        let mut attackers: Vec<UdpSocket> = (2..8)
            .map(|host| socket_at(&format!("127.0.0.{host}:0")))
            .collect();
        // also from where it was said
        attackers.push(own);
        let (address, over, sent) = (server.address, &over, &sent);
        scope.spawn(move || {
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let hello = &said[turn % said.len()];
                attackers[turn / said.len() % attackers.len()]
                    .send_to(hello, address)
                    .unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                // twice as many as the server has places, then 200 a second
                if turn > 64 {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let begin = Instant::now();
        while sent.load(Ordering::Relaxed) < 80 {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        // unused places are freed after 5 s, and none before that
        let name = (address.ip().to_string(), address.port());
        let (done, waiting) = channel::<()>();
        let enough = &enough;
        scope.spawn(move || {
            let _ = waiting.recv_timeout(Duration::from_secs(4));
            enough.store(true, Ordering::Relaxed);
        });
        let asked = ask(&name, &server.key, enough);
        drop(done);
        asked.expect("a place for a true client");
    });
}

#[test]
fn the_same_hello_gets_the_same_answer_and_one_from_elsewhere_gets_no_more_than_it_sent() {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        let server = Server::start(scope, &over);
        let (said, own) = recorded(&server);
        own.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = said.last().unwrap();
        let answer = |socket: &UdpSocket| {
            let mut bytes = [0; MOST_BYTES];
            socket.send_to(hello, server.address).unwrap();
            let size = socket.recv(&mut bytes).unwrap();
            bytes[..size].to_vec()
        };
        let first = answer(&own);
        assert!(matches!(
            Datagram::parse(&first),
            Some(Datagram::Welcome { .. })
        ));
        for _ in 0..40 {
            assert_eq!(answer(&own), first);
        }
        let other = socket_at("127.0.0.9:0");
        for _ in 0..40 {
            let said = answer(&other);
            assert!(said.len() <= hello.len());
            assert_eq!(Datagram::parse(&said), None, "no welcome");
        }
        // one changed bit, and the server does not answer
        let mut forged = hello.clone();
        forged[40] ^= 1;
        other.send_to(&forged, server.address).unwrap();
        other
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        assert!(other.recv(&mut [0; MOST_BYTES]).is_err());
    });
}

#[test]
fn a_datagram_that_was_overtaken_does_not_move_the_peer_back() {
    const QUESTION: [u8; 9] = [1, 0, 0, 0, 0, 0, 0, 0, 0];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        let server = Server::start(scope, &over);
        let (before, mut session) = server.client(server.address);
        let after = socket_at("127.0.0.1:0");
        before.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut question = || {
            let mut datagram = [0; MOST_BYTES];
            let (_, size) = session.seal(&QUESTION, &mut datagram);
            datagram[..size].to_vec()
        };
        let (first, overtaken, newest) = (question(), question(), question());
        let mut bytes = [0; MOST_BYTES];
        before.send_to(&first, server.address).unwrap();
        server.arrived.recv_timeout(PATIENCE).unwrap();
        // the client has moved; what it said before comes later
        after.send_to(&newest, server.address).unwrap();
        after.recv(&mut bytes).unwrap();
        before.send_to(&overtaken, server.address).unwrap();
        after
            .recv(&mut bytes)
            .expect("its answer goes where the client is");
        // and so does what is said next
        after.send_to(&question(), server.address).unwrap();
        after.recv(&mut bytes).unwrap();
    });
}
