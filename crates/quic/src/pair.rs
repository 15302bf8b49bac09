//! Both ends of a connection in one process, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::endpoint::Kind;
use crate::{Endpoint, Identity, QuicError, Settings};

/// What the handshake may take, as in the emulator.
const CONNECT_WITHIN: Duration = Duration::from_secs(40);

/// For what is still to be said when the handshake is over: delayed acknowledgments wait up to 25 ms
/// (RFC 9000, section 18.2).
const SETTLE: Duration = Duration::from_millis(30);

/// The ends of a connection, which have connected before time 0.
///
/// Packets of data are not encrypted, for nobody could read them but this process; they have the size of
/// encrypted ones. The same seed gives the same packets and the same timers, but for BBR: noq draws when
/// it probes from the system.
pub struct Pair {
    ends: [Endpoint; 2],
    zero: Instant,
}

impl Pair {
    /// Connects a client, end 0, with a server, end 1. A datagram of so many bytes that leaves an end arrives after
    /// `travel(end, bytes)`; none is lost.
    ///
    /// # Errors
    /// The settings are not as they must be, or the handshake takes more than 40 s.
    pub fn connect(
        settings: &Settings,
        identity: &Identity,
        seed: u64,
        travel: impl Fn(usize, usize) -> Duration,
    ) -> Result<Self, QuicError> {
        // virtual times are this and a duration: Instant has no other constructor
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let begin = *ORIGIN.get_or_init(Instant::now);
        let kind = |end: u8| {
            let mut bytes = [end; 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            Kind::InMemory { seed: bytes }
        };
        let client = Endpoint::client_of(kind(0), settings, identity, address(1), begin)?;
        let server = Endpoint::server_of(kind(1), settings, identity)?;
        let mut pair = Self {
            ends: [client, server],
            zero: begin,
        };
        pair.shake_hands(travel)?;
        Ok(pair)
    }

    fn shake_hands(&mut self, travel: impl Fn(usize, usize) -> Duration) -> Result<(), QuicError> {
        let begin = self.zero;
        let (mut now, mut sent) = (begin, 0u64);
        let mut way = BinaryHeap::new();
        let mut datagram = Vec::new();
        let mut settled = None;
        loop {
            for (number, end) in self.ends.iter_mut().enumerate() {
                while end.transmit(now, &mut datagram) {
                    sent += 1;
                    let at = now + travel(number, datagram.len());
                    way.push(Reverse((at, sent, 1 - number, datagram.clone())));
                }
                if let Some(failure) = end.failure() {
                    return Err(failure.clone());
                }
            }
            if settled.is_none() && self.ends.iter().all(Endpoint::is_connected) {
                settled = Some(now + SETTLE);
            }
            let arrival = way.peek().map(|Reverse((at, ..))| *at);
            let timeouts = self.ends.iter().filter_map(Endpoint::timeout);
            let next = timeouts.chain(arrival).min();
            if let Some(settled) = settled
                && arrival.is_none()
                && next.is_none_or(|next| next > settled)
            {
                self.zero = now.max(settled);
                return Ok(());
            }
            now = match next {
                Some(next) if next < begin + CONNECT_WITHIN => now.max(next),
                _ => {
                    let waited_s = CONNECT_WITHIN.as_secs();
                    let why = format!("no handshake within {waited_s} s");
                    return Err(QuicError::Lost(why));
                }
            };
            while let Some(Reverse((at, ..))) = way.peek()
                && *at <= now
                && let Some(Reverse((_, _, end, datagram))) = way.pop()
            {
                self.ends[end].handle(now, address(1 - end), &datagram);
            }
            for end in &mut self.ends {
                if end.timeout().is_some_and(|at| at <= now) {
                    end.handle_timeout(now);
                }
            }
        }
    }

    /// From time 0 on counts what is sent; see [`Endpoint::begin`].
    pub fn begin(&mut self, keep: bool) {
        self.ends.iter_mut().for_each(|end| end.begin(keep));
    }

    /// The client (0) or the server (1).
    pub const fn end(&self, end: usize) -> &Endpoint {
        &self.ends[end]
    }

    /// Takes a datagram that arrived at an end, `at` after time 0.
    pub fn handle(&mut self, end: usize, at: Duration, datagram: &[u8]) {
        self.ends[end].handle(self.zero + at, address(1 - end), datagram);
    }

    /// See [`Endpoint::transmit`].
    pub fn transmit(&mut self, end: usize, at: Duration, datagram: &mut Vec<u8>) -> bool {
        self.ends[end].transmit(self.zero + at, datagram)
    }

    /// When an end has something to do next, from time 0 on.
    pub fn timeout(&self, end: usize) -> Option<Duration> {
        let at = self.ends[end].timeout()?;
        Some(at.saturating_duration_since(self.zero))
    }

    /// See [`Endpoint::handle_timeout`].
    pub fn handle_timeout(&mut self, end: usize, at: Duration) {
        self.ends[end].handle_timeout(self.zero + at);
    }

    /// See [`Endpoint::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&mut self, end: usize, bytes: u64) -> Result<u64, QuicError> {
        self.ends[end].write(bytes)
    }

    /// See [`Endpoint::write_greedily`].
    ///
    /// # Errors
    /// As there.
    pub fn write_greedily(&mut self, end: usize) -> Result<u64, QuicError> {
        self.ends[end].write_greedily()
    }

    /// See [`Endpoint::take_packets`].
    pub fn take_packets(&mut self, end: usize, into: &mut Vec<crate::Packet>) {
        self.ends[end].take_packets(into);
    }
}

/// Of an end.
fn address(end: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, end as u8 + 1), 4000).into()
}

#[cfg(test)]
mod tests {
    use pathcast_scenario::QuicScheme;

    use super::*;

    #[test]
    fn ends_are_connected_before_time_0_and_know_the_round_trip_time() {
        for scheme in QuicScheme::ALL {
            let settings = Settings::new(scheme, 20, 16 << 20);
            let identity = Identity::new().unwrap();
            let ways = [10, 20].map(Duration::from_millis);
            let mut pair = Pair::connect(&settings, &identity, 1, |end, _| ways[end]).unwrap();
            pair.begin(false);
            assert_eq!(pair.end(0).sender().rtt, Duration::from_millis(30));
            assert_eq!(pair.end(0).sender().sent_bytes, 0);
            assert!(pair.end(0).is_connected() && pair.end(1).is_connected());
            assert_eq!(pair.write(0, 1000).unwrap(), 1000);
            let (mut datagram, mut sizes) = (Vec::new(), Vec::new());
            while pair.transmit(0, Duration::ZERO, &mut datagram) {
                sizes.push(datagram.len());
                pair.handle(1, ways[0], &datagram);
            }
            assert_eq!(pair.end(1).read(), 1000);
            assert!(sizes.len() == 1 && sizes[0] <= 1472, "{sizes:?}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_packets_whatever_came_before() {
        let sizes = |seed| {
            let settings = Settings::new(QuicScheme::Cubic, 20, 16 << 20);
            let identity = Identity::new().unwrap();
            let way = Duration::from_millis(10);
            let mut pair = Pair::connect(&settings, &identity, seed, |_, _| way).unwrap();
            let (mut datagram, mut sizes) = (Vec::new(), Vec::new());
            for round in 0..2000 {
                let at = Duration::from_millis(20 * round);
                pair.write(0, 10_000).unwrap();
                for end in [0, 1, 0] {
                    while pair.transmit(end, at, &mut datagram) {
                        // the header's first byte is masked, the sizes of packet numbers are not
                        sizes.push(datagram.len());
                        pair.handle(1 - end, at + way, &datagram);
                    }
                }
            }
            sizes
        };
        let first = sizes(3);
        assert_eq!(first, sizes(3));
        assert_ne!(first, sizes(4)); // other packet numbers are skipped
    }

    #[test]
    fn whoever_never_answers_is_given_up() {
        let settings = Settings::new(QuicScheme::Cubic, 20, 16 << 20);
        let identity = Identity::new().unwrap();
        let never = Duration::from_secs(100);
        let error = Pair::connect(&settings, &identity, 1, |_, _| never).err();
        assert!(
            error
                .unwrap()
                .to_string()
                .contains("no handshake within 40 s")
        );
    }
}
