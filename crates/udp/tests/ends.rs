//! The two ends over a wire in virtual time, and what hostile datagrams do to them.

use pathcast_base::{Span, Time};
use pathcast_congestion::Scheme;
use pathcast_tcp::{AckSegment, DataSegment};
use pathcast_udp::wire::{Datagram, HELLO_BYTES, MOST_BYTES, MOST_PAYLOAD_BYTES, read, write};
use pathcast_udp::{Over, ReceivingEnd, SendingEnd, SendingOptions};
use proptest::prelude::*;

type Address = u8;

const WAY: Span = Span::from_millis(10);
const SENDER: Address = 1;

/// A wire of 10 ms each way that drops the datagrams whose count `lost` names; no rate.
struct Wire<F> {
    sending: SendingEnd,
    receiving: ReceivingEnd<Address>,
    under_way: Vec<(Time, bool, Vec<u8>)>,
    lost: F,
    carried: u64,
    now: Time,
}

impl<F: FnMut(u64) -> bool> Wire<F> {
    fn new(scheme: &str, bytes: u64, lost: F) -> Self {
        let options = SendingOptions {
            bytes: Some(bytes),
            ..SendingOptions::unlimited(99)
        };
        Self {
            sending: SendingEnd::new(&Scheme::named(scheme), &options),
            receiving: ReceivingEnd::default(),
            under_way: Vec::new(),
            lost,
            carried: 0,
            now: Time::ZERO,
        }
    }

    fn carry(&mut self, forward: bool, bytes: &[u8]) {
        self.carried += 1;
        if !(self.lost)(self.carried) {
            self.under_way
                .push((self.now + WAY, forward, bytes.to_vec()));
        }
    }

    /// Runs until the sender is over; returns how.
    fn run(&mut self) -> Over {
        let mut buffer = [0; MOST_BYTES];
        loop {
            while let Some(size) = self.sending.poll(self.now, &mut buffer) {
                self.carry(true, &buffer[..size]);
            }
            if let Some(how) = self.sending.over() {
                return how;
            }
            let due = self.under_way.first().map(|(at, ..)| *at);
            let times = [due, self.sending.next_timer(), self.receiving.next_timer()];
            self.now = times.into_iter().flatten().min().expect("a timer runs");
            assert!(self.now.as_secs() < 1000.0, "no end");
            if due.is_some_and(|at| at <= self.now) {
                let (_, forward, bytes) = self.under_way.remove(0);
                if forward {
                    let answer = self
                        .receiving
                        .on_datagram(self.now, SENDER, &bytes, &mut buffer);
                    if let Some(size) = answer {
                        self.carry(false, &buffer[..size]);
                    }
                } else {
                    self.sending.on_datagram(self.now, &bytes);
                }
            } else if let Some((_, size)) = self.receiving.on_timer(self.now, &mut buffer) {
                self.carry(false, &buffer[..size]);
            } else {
                self.sending.on_timer(self.now);
            }
        }
    }
}

#[test]
fn a_transfer_arrives_whole_by_every_scheme() {
    let mut schemes = Scheme::all();
    schemes.push(Scheme::named("fixed:20"));
    for scheme in schemes {
        let bytes = 300_001;
        let mut wire = Wire::new(&scheme.to_string(), bytes, |count| count % 37 == 0);
        assert_eq!(wire.run(), Over::Done, "{scheme}");
        assert_eq!(wire.receiving.received_bytes(), bytes, "{scheme}");
        assert_eq!(wire.sending.acknowledged_bytes(), bytes, "{scheme}");
        assert!(
            wire.sending.sent_bytes() > bytes,
            "{scheme} repaired nothing"
        );
        assert!(wire.sending.sender().retransmits() > 0, "{scheme}");
    }
}

#[test]
fn the_round_trip_time_is_that_of_the_wire() {
    let mut wire = Wire::new("copa", 100_000, |_| false);
    wire.run();
    let min = wire.sending.sender().rtt().min().unwrap();
    assert!((min.as_secs() - 0.020).abs() < 1e-4, "{min:?}");
    assert_eq!(wire.sending.opened_at().unwrap().as_secs(), 0.020);
}

#[test]
fn a_transfer_shorter_than_a_packet_counts_its_own_bytes() {
    let mut wire = Wire::new("reno", 5, |_| false);
    assert_eq!(wire.run(), Over::Done);
    assert_eq!(wire.receiving.received_bytes(), 5);
    assert_eq!(wire.sending.acknowledged_bytes(), 5);
}

#[test]
fn a_sender_without_a_receiver_ends() {
    let mut wire = Wire::new("copa", 1000, |_| true);
    assert_eq!(wire.run(), Over::NoAnswer);
    assert!((10.0..13.0).contains(&wire.now.as_secs()), "{:?}", wire.now);
}

#[test]
fn a_sender_whose_receiver_vanishes_ends() {
    let mut wire = Wire::new("copa", 10_000_000, |count| count > 500);
    assert_eq!(wire.run(), Over::Silent);
}

/// What a receiver answers to `datagram` from an address.
fn answer(
    receiving: &mut ReceivingEnd<Address>,
    now: Time,
    from: Address,
    datagram: &Datagram,
) -> Option<Datagram> {
    let (mut bytes, mut said) = ([0; MOST_BYTES], [0; MOST_BYTES]);
    let size = write(datagram, &mut bytes);
    let size = receiving.on_datagram(now, from, &bytes[..size], &mut said)?;
    assert!(
        size < HELLO_BYTES || !matches!(datagram, Datagram::Hello { .. }),
        "amplified"
    );
    read(&said[..size])
}

fn token_for(receiving: &mut ReceivingEnd<Address>, from: Address) -> u64 {
    match answer(receiving, Time::ZERO, from, &Datagram::Hello { nonce: 5 }) {
        Some(Datagram::Welcome { nonce: 5, token }) => token,
        other => panic!("{other:?}"),
    }
}

fn data(token: u64, seq: u64) -> Datagram {
    Datagram::Data {
        token,
        segment: DataSegment::new(Time::ZERO, seq),
        payload_bytes: MOST_PAYLOAD_BYTES,
    }
}

#[test]
fn a_token_is_of_one_address_and_a_receiver_of_one_peer() {
    let mut receiving = ReceivingEnd::default();
    let token = token_for(&mut receiving, 1);
    let other = token_for(&mut receiving, 2);
    assert_ne!(token, other);
    assert_eq!(answer(&mut receiving, Time::ZERO, 2, &data(token, 0)), None);
    assert_eq!(
        answer(&mut receiving, Time::ZERO, 1, &data(token ^ 1, 0)),
        None
    );
    assert!(answer(&mut receiving, Time::ZERO, 1, &data(token, 0)).is_some());
    // the second one has a token, and comes too late
    assert_eq!(answer(&mut receiving, Time::ZERO, 2, &data(other, 0)), None);
    assert_eq!(
        answer(&mut receiving, Time::ZERO, 2, &Datagram::Hello { nonce: 1 }),
        None
    );
    assert_eq!(
        answer(&mut receiving, Time::ZERO, 2, &Datagram::Close { token }),
        None
    );
    assert_eq!(receiving.refused(), 5);
    assert_eq!(receiving.received_bytes(), MOST_PAYLOAD_BYTES as u64);
    // a peer that ended makes room, and its token is no more
    answer(&mut receiving, Time::ZERO, 1, &Datagram::Close { token });
    assert_eq!(answer(&mut receiving, Time::ZERO, 1, &data(token, 1)), None);
    let token = token_for(&mut receiving, 2);
    assert!(answer(&mut receiving, Time::ZERO, 2, &data(token, 0)).is_some());
    assert_eq!(receiving.peers(), 2);
}

#[test]
fn a_peer_that_falls_silent_makes_room() {
    let mut receiving = ReceivingEnd::default();
    let token = token_for(&mut receiving, 1);
    answer(&mut receiving, Time::ZERO, 1, &data(token, 0));
    let hello = Datagram::Hello { nonce: 1 };
    let later = |ms| Time::ZERO + Span::from_millis(ms);
    assert_eq!(answer(&mut receiving, later(9_999), 2, &hello), None);
    assert!(answer(&mut receiving, later(10_000), 2, &hello).is_some());
}

#[test]
fn numbers_far_ahead_are_not_remembered() {
    let mut receiving = ReceivingEnd::default();
    let token = token_for(&mut receiving, 1);
    for seq in [u64::MAX, u64::MAX - 1, 1 << 40, 1 << 16] {
        let said = answer(&mut receiving, Time::ZERO, 1, &data(token, seq));
        match said {
            Some(Datagram::Ack { segment, .. }) => assert_eq!(segment.block_count(), 0, "{seq}"),
            other => panic!("{seq}: {other:?}"),
        }
    }
    assert_eq!(receiving.received_bytes(), 0);
}

/// A sender with packets in flight, and its token.
fn sender_in_flight() -> (SendingEnd, u64) {
    let options = SendingOptions::unlimited(99);
    let mut sending = SendingEnd::new(&Scheme::named("cubic"), &options);
    let mut buffer = [0; MOST_BYTES];
    let _ = sending.poll(Time::ZERO, &mut buffer);
    let size = write(
        &Datagram::Welcome {
            nonce: 99,
            token: 4,
        },
        &mut buffer,
    );
    let now = Time::ZERO + WAY;
    sending.on_datagram(now, &buffer[..size]);
    while sending.poll(now, &mut buffer).is_some() {}
    assert_eq!(sending.sender().in_flight(), 10);
    (sending, 4)
}

#[test]
fn acknowledgments_of_what_was_not_sent_are_refused() {
    let (mut sending, token) = sender_in_flight();
    let mut buffer = [0; MOST_BYTES];
    let mut tell = |sending: &mut SendingEnd, token, segment| {
        let size = write(&Datagram::Ack { token, segment }, &mut buffer);
        sending.on_datagram(Time::ZERO + WAY + WAY, &buffer[..size]);
        sending.sender().in_flight()
    };
    assert_eq!(tell(&mut sending, token, AckSegment::new(11)), 10);
    assert_eq!(tell(&mut sending, token, AckSegment::new(u64::MAX)), 10);
    assert_eq!(tell(&mut sending, token + 1, AckSegment::new(3)), 10);
    let mut late = AckSegment::new(3);
    late.echo = Time::from_nanos(u64::MAX);
    assert_eq!(tell(&mut sending, token, late), 10);
    assert_eq!(sending.refused(), 4);
    let mut good = AckSegment::new(3);
    good.echo = Time::ZERO + WAY;
    assert_eq!(tell(&mut sending, token, good), 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes, the sender neither panics nor sends without end.
    #[test]
    fn a_sender_bears_any_acknowledgment(
        acks in proptest::collection::vec(
            (0_u64..40, 0_u64..40_000_000, 0_u32..70_000, proptest::collection::vec((0_u64..40, 0_u64..40), 0..4), any::<bool>()),
            1..40,
        ),
    ) {
        let (mut sending, token) = sender_in_flight();
        let mut now = Time::ZERO + WAY;
        let mut buffer = [0; MOST_BYTES];
        for (cumulative, echo, window, blocks, twice) in acks {
            let mut bytes = vec![4, blocks.len().min(3) as u8 | if twice { 4 } else { 0 }];
            for number in [token, cumulative, echo] {
                bytes.extend(number.to_be_bytes());
            }
            bytes.extend(window.to_be_bytes());
            for (start, end) in blocks.iter().take(3) {
                bytes.extend(start.to_be_bytes());
                bytes.extend(end.to_be_bytes());
            }
            now += Span::from_millis(3);
            sending.on_datagram(now, &bytes);
            if sending.next_timer().is_some_and(|at| at <= now) {
                sending.on_timer(now);
            }
            let mut sent = 0;
            while sending.poll(now, &mut buffer).is_some() {
                sent += 1;
                prop_assert!(sent < 10_000);
            }
        }
    }

    #[test]
    fn a_receiver_bears_any_data(
        packets in proptest::collection::vec((any::<u64>(), 0_u64..70_000, any::<u64>(), 0_u8..4, 0_usize..3), 1..60),
        near in any::<bool>(),
    ) {
        let mut receiving = ReceivingEnd::default();
        let token = token_for(&mut receiving, 1);
        let mut answer = [0; MOST_BYTES];
        for (far, close, sent_at, flags, size) in packets {
            let mut bytes = vec![3, flags];
            for number in [token, if near { close } else { far }, sent_at] {
                bytes.extend(number.to_be_bytes());
            }
            bytes.extend(std::iter::repeat_n(0, size));
            let _ = receiving.on_datagram(Time::ZERO, 1, &bytes, &mut answer);
            let _ = receiving.on_timer(Time::ZERO + Span::from_millis(300), &mut answer);
        }
    }
}
