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

/// Datagrams in transit: when they arrive, their number, their destination, and their content.
type Way = BinaryHeap<Reverse<(Instant, u64, usize, Vec<u8>)>>;

/// The ends of a connection. Time 0 is when both know that they are connected; as in the emulator, the last
/// datagrams of the handshake are still in transit then. Ends that are [apart](Self::apart) at time 0 connect later,
/// and whoever moves their datagrams moves those of the handshake too.
///
/// Packets of data are not encrypted, because they do not leave this process; they have the size of
/// encrypted ones. The same seed gives the same packets and timers, except with BBR: noq draws the times of
/// its probes from the system's randomness.
pub struct Pair {
    ends: [Endpoint; 2],
    zero: Instant,
    /// The last datagrams of the handshake.
    last: Way,
    /// The end that connects.
    client: usize,
}

impl Pair {
    /// Connects a client, end 0, with a server, end 1. A datagram of `bytes` bytes that leaves `end`
    /// arrives after `travel(end, bytes)`; none is lost.
    ///
    /// # Errors
    /// The settings are invalid, or the handshake takes more than 40 s.
    pub fn connect(
        settings: &Settings,
        identity: &Identity,
        seed: u64,
        travel: impl Fn(usize, usize) -> Duration,
    ) -> Result<Self, QuicError> {
        let mut pair = Self::apart(settings, identity, seed, 0)?;
        pair.open(Duration::ZERO)?;
        pair.shake_hands(travel)?;
        Ok(pair)
    }

    /// Ends that have not connected; end `client` will, by [`open`](Self::open).
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn apart(
        settings: &Settings,
        identity: &Identity,
        seed: u64,
        client: usize,
    ) -> Result<Self, QuicError> {
        // virtual times are this and a duration: Instant has no other constructor
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let kind = |end: usize| {
            let mut bytes = [u8::from(end != client); 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            Kind::InMemory { seed: bytes }
        };
        let end = |end| match end == client {
            true => Endpoint::client_of(kind(end), settings, identity),
            false => Endpoint::server_of(kind(end), settings, identity),
        };
        Ok(Self {
            ends: [end(0)?, end(1)?],
            zero: *ORIGIN.get_or_init(Instant::now),
            last: Way::new(),
            client,
        })
    }

    /// The client begins to connect, `at` after time 0.
    ///
    /// # Errors
    /// TLS refuses the server's name.
    pub fn open(&mut self, at: Duration) -> Result<(), QuicError> {
        self.ends[self.client].connect(address(1 - self.client), self.zero + at)
    }

    /// Connects, and waits for the sessions that the server of `identity` gives.
    pub(crate) fn visit(settings: &Settings, identity: &Identity) -> Result<(), QuicError> {
        let way = Duration::from_millis(1);
        let mut pair = Self::connect(settings, identity, 0, |_, _| way)?;
        let mut now = pair.zero;
        // they come with the server's last datagrams, or with those that follow
        for _ in 0..20 {
            now += way;
            pair.handle_last(now);
            let mut datagram = Vec::new();
            for end in [0, 1] {
                while pair.ends[end].transmit(now, &mut datagram) {
                    pair.ends[1 - end].handle(now, address(end), &datagram);
                }
            }
        }
        Ok(())
    }

    fn shake_hands(&mut self, travel: impl Fn(usize, usize) -> Duration) -> Result<(), QuicError> {
        let begin = self.zero;
        let (mut now, mut sent) = (begin, 0u64);
        let mut datagram = Vec::new();
        loop {
            for (number, end) in self.ends.iter_mut().enumerate() {
                while end.transmit(now, &mut datagram) {
                    sent += 1;
                    let at = now + travel(number, datagram.len());
                    self.last
                        .push(Reverse((at, sent, 1 - number, datagram.clone())));
                }
                if let Some(failure) = end.failure() {
                    return Err(failure.clone());
                }
            }
            if self.ends.iter().all(Endpoint::is_connected) {
                self.zero = now;
                return Ok(());
            }
            let arrival = self.last.peek().map(|Reverse((at, ..))| *at);
            let timeouts = self.ends.iter().filter_map(Endpoint::timeout);
            now = match timeouts.chain(arrival).min() {
                Some(next) if next < begin + CONNECT_WITHIN => now.max(next),
                _ => {
                    let waited_s = CONNECT_WITHIN.as_secs();
                    let why = format!("no handshake within {waited_s} s");
                    return Err(QuicError::Lost(why));
                }
            };
            self.handle_last(now);
            for end in &mut self.ends {
                if end.timeout().is_some_and(|at| at <= now) {
                    end.handle_timeout(now);
                }
            }
        }
    }

    /// Hands over what has arrived of the handshake by `now`.
    fn handle_last(&mut self, now: Instant) {
        while let Some(Reverse((at, ..))) = self.last.peek()
            && *at <= now
            && let Some(Reverse((_, _, end, datagram))) = self.last.pop()
        {
            self.ends[end].handle(now, address(1 - end), &datagram);
        }
    }

    /// From time 0 on counts what is sent; see [`Endpoint::begin`].
    pub fn begin(&mut self, keep: bool) {
        self.ends.iter_mut().for_each(|end| end.begin(keep));
    }

    /// An end. Of [connected](Self::connect) ones 0 is the client.
    pub const fn end(&self, end: usize) -> &Endpoint {
        &self.ends[end]
    }

    /// Both ends.
    pub const fn ends(&self) -> &[Endpoint; 2] {
        &self.ends
    }

    /// Both ends, for what does not depend on the time.
    pub const fn ends_mut(&mut self) -> &mut [Endpoint; 2] {
        &mut self.ends
    }

    /// Takes a datagram that arrived at an end, `at` after time 0.
    pub fn handle(&mut self, end: usize, at: Duration, datagram: &[u8]) {
        self.ends[end].handle(self.zero + at, address(1 - end), datagram);
    }

    /// See [`Endpoint::transmit`].
    pub fn transmit(&mut self, end: usize, at: Duration, datagram: &mut Vec<u8>) -> bool {
        self.ends[end].transmit(self.zero + at, datagram)
    }

    /// When [`Pair::handle_timeout`] is to be called at the latest, from time 0 on.
    pub fn timeout(&self, end: usize) -> Option<Duration> {
        let last = self.last.peek().map(|Reverse((at, ..))| *at);
        let at = self.ends[end].timeout().into_iter().chain(last).min()?;
        Some(at.saturating_duration_since(self.zero))
    }

    /// An end does what is due; so does the handshake, at both.
    pub fn handle_timeout(&mut self, end: usize, at: Duration) {
        let now = self.zero + at;
        self.handle_last(now);
        if self.ends[end].timeout().is_some_and(|due| due <= now) {
            self.ends[end].handle_timeout(now);
        }
    }

    /// See [`Endpoint::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&mut self, end: usize, bytes: u64) -> Result<u64, QuicError> {
        self.ends[end].write(bytes)
    }

    /// See [`Endpoint::write_little`].
    ///
    /// # Errors
    /// As there.
    pub fn write_little(&mut self, end: usize, bytes: u64) -> Result<u64, QuicError> {
        self.ends[end].write_little(bytes)
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
            assert_eq!(pair.write(0, 5000).unwrap(), 5000);
            let sizes = exchange(&mut pair, ways, Duration::from_millis(200));
            assert_eq!(pair.end(1).read(), 5000);
            assert_eq!(pair.end(0).sender().acknowledged_bytes, 5000);
            assert_eq!(sizes.iter().filter(|size| **size == 1472).count(), 3);
        }
    }

    /// Lets the ends talk for so long from time 0 on; the sizes of the datagrams.
    fn exchange(pair: &mut Pair, ways: [Duration; 2], until: Duration) -> Vec<usize> {
        let mut under_way = BinaryHeap::new();
        let (mut now, mut sizes, mut datagram) = (Duration::ZERO, Vec::new(), Vec::new());
        loop {
            for end in [0, 1] {
                while pair.transmit(end, now, &mut datagram) {
                    sizes.push(datagram.len());
                    let at = now + ways[end];
                    under_way.push(Reverse((at, sizes.len(), 1 - end, datagram.clone())));
                }
            }
            let timeouts = [0, 1].into_iter().filter_map(|end| pair.timeout(end));
            let arrival = under_way.peek().map(|Reverse((at, ..))| *at);
            match timeouts.chain(arrival).min() {
                Some(next) if next <= until => now = now.max(next),
                _ => return sizes,
            }
            while let Some(Reverse((at, ..))) = under_way.peek()
                && *at <= now
                && let Some(Reverse((_, _, end, datagram))) = under_way.pop()
            {
                pair.handle(end, now, &datagram);
            }
            (0..2).for_each(|end| pair.handle_timeout(end, now));
        }
    }

    /// A client, end 1, that asks over one exchange after another: when each of `count` responses of `bytes` was whole, by
    /// the order of the requests, and the datagrams of both ends. `drops` says which datagrams of the server are lost.
    fn ask(
        identity: &Identity,
        settings: &Settings,
        count: usize,
        bytes: u64,
        drops: impl Fn(usize) -> bool,
    ) -> (Vec<Option<Duration>>, [usize; 2]) {
        let way = Duration::from_millis(10);
        let mut pair = Pair::apart(settings, identity, 1, 1).unwrap();
        pair.begin(false);
        pair.open(Duration::ZERO).unwrap();
        let mut under_way = BinaryHeap::new();
        let (mut now, mut datagram, mut sent) = (Duration::ZERO, Vec::new(), [0, 0]);
        let (mut asked, mut whole) = (0, vec![None; count]);
        loop {
            while asked < count && pair.end(1).is_open() {
                let Some(exchange) = pair.ends[1].open_exchange() else {
                    break;
                };
                assert_eq!(exchange, asked);
                assert_eq!(pair.ends[1].write_exchange(exchange, 100), Ok(100));
                pair.ends[1].end_exchange(exchange).unwrap();
                asked += 1;
            }
            while let Some((exchange, there)) = pair.ends[0].take_news() {
                if there == 100 {
                    assert_eq!(pair.ends[0].write_exchange(exchange, bytes), Ok(bytes));
                    pair.ends[0].end_exchange(exchange).unwrap();
                }
            }
            while let Some((exchange, there)) = pair.ends[1].take_news() {
                if there == bytes {
                    whole[exchange] = Some(now);
                }
            }
            for end in [0, 1] {
                while pair.transmit(end, now, &mut datagram) {
                    sent[end] += 1;
                    if end == 1 || !drops(sent[0]) {
                        let parcel = (now + way, sent, 1 - end, datagram.clone());
                        under_way.push(Reverse(parcel));
                    }
                }
            }
            let arrival = under_way.peek().map(|Reverse((at, ..))| *at);
            let timeouts = [0, 1].into_iter().filter_map(|end| pair.timeout(end));
            match timeouts.chain(arrival).min() {
                Some(next) if next < Duration::from_secs(2) => now = now.max(next),
                _ => return (whole, sent),
            }
            while let Some(Reverse((at, ..))) = under_way.peek()
                && *at <= now
                && let Some(Reverse((_, _, end, datagram))) = under_way.pop()
            {
                pair.handle(end, now, &datagram);
            }
            (0..2).for_each(|end| pair.handle_timeout(end, now));
        }
    }

    fn exchanging() -> Settings {
        Settings::new(QuicScheme::Cubic, 20, 16 << 20).with_exchanges(100)
    }

    fn ms(at: Option<Duration>) -> u128 {
        at.unwrap().as_millis()
    }

    #[test]
    fn exchanges_begin_a_round_trip_after_the_ends_begin_to_connect() {
        let identity = Identity::with_certificate_bytes(3000).unwrap();
        let (whole, _) = ask(&identity, &exchanging(), 3, 500, |_| false);
        // handshake, request and response: two round trips
        assert!(whole.iter().all(|at| ms(*at) == 40), "{whole:?}");
    }

    #[test]
    fn a_certificate_of_more_than_three_datagrams_waits_for_the_client() {
        // before it knows the client's address, a server sends three times what it got (RFC 9000, section 8)
        let identity = Identity::with_certificate_bytes(3500).unwrap();
        let (whole, _) = ask(&identity, &exchanging(), 1, 500, |_| false);
        assert_eq!(ms(whole[0]), 60);
    }

    #[test]
    fn a_server_that_is_known_answers_in_one_round_trip() {
        let identity = Identity::known(3000, &exchanging(), 3).unwrap();
        for _ in 0..3 {
            let (whole, _) = ask(&identity, &exchanging(), 1, 500, |_| false);
            assert_eq!(ms(whole[0]), 20);
        }
    }

    #[test]
    fn a_loss_holds_up_its_own_exchange_alone() {
        let identity = Identity::new().unwrap();
        let (clean, sent) = ask(&identity, &exchanging(), 6, 1300, |_| false);
        // they are paced
        assert!(
            clean.iter().all(|at| (40..50).contains(&ms(*at))),
            "{clean:?}"
        );
        // one of the datagrams with responses; the last ones acknowledge
        let (lossy, _) = ask(&identity, &exchanging(), 6, 1300, |number| {
            number + 4 == sent[0]
        });
        let late = lossy.iter().filter(|at| ms(**at) >= 60).count();
        assert!((1..=2).contains(&late), "{lossy:?}");
    }

    #[test]
    fn more_exchanges_than_allowed_wait_for_others_to_end() {
        let identity = Identity::new().unwrap();
        let few = exchanging().with_exchanges(2);
        let (whole, _) = ask(&identity, &few, 5, 500, |_| false);
        let times: Vec<u128> = whole.iter().map(|at| ms(*at)).collect();
        assert_eq!(times[..2], [40, 40]);
        assert!(times[2] >= 60 && times[4] >= 80, "{times:?}");
    }

    #[test]
    fn a_seed_gives_the_same_packets_whatever_came_before() {
        let sizes = |seed| {
            let settings = Settings::new(QuicScheme::Cubic, 20, 16 << 20);
            let identity = Identity::new().unwrap();
            let way = Duration::from_millis(10);
            let mut pair = Pair::connect(&settings, &identity, seed, |_, _| way).unwrap();
            pair.write(0, 5_000_000).unwrap();
            exchange(&mut pair, [way; 2], Duration::from_secs(20))
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
