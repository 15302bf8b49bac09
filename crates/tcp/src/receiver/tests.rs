//! A receiver and what comes to it, packet by packet.

use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn sacks(ack: &AckSegment) -> Vec<SackBlock> {
    ack.sacks().collect()
}

fn packet(seq: u64) -> DataSegment {
    DataSegment::new(Time::ZERO, seq)
}

fn past_quick_acks() -> Receiver {
    let mut receiver = Receiver::default();
    for seq in 0..u64::from(QUICK_ACKS) {
        assert!(receiver.on_data(at(0), &packet(seq)).is_some());
    }
    receiver
}

#[test]
fn every_second_packet_is_acknowledged_or_after_40_ms() {
    let mut receiver = past_quick_acks();
    assert_eq!(receiver.on_data(at(0), &packet(16)), None);
    assert_eq!(
        receiver.on_data(at(1), &packet(17)),
        Some(AckSegment::new(18))
    );
    assert_eq!(receiver.on_data(at(2), &packet(18)), None);
    assert_eq!(receiver.next_timer(), Some(at(42)));
    assert_eq!(receiver.on_timer(at(41)), None);
    assert_eq!(receiver.on_timer(at(42)), Some(AckSegment::new(19)));
    assert_eq!(receiver.next_timer(), None);
}

#[test]
fn an_original_that_a_copy_overtook_is_dropped_and_acknowledged() {
    let sent = |millis, seq| DataSegment::new(at(millis), seq);
    let mut receiver = Receiver::default();
    receiver.on_data(at(50), &sent(0, 0)).unwrap();
    receiver.on_data(at(52), &sent(2, 2)).unwrap();
    // the copy of 1, sent at 60, fills the hole; 3 was sent before it and comes after it
    let ack = receiver.on_data(at(110), &sent(60, 1)).unwrap();
    assert_eq!((ack.cumulative, ack.echo), (3, at(60)));
    let ack = receiver.on_data(at(111), &sent(3, 3)).unwrap();
    assert_eq!((ack.cumulative, ack.block_count()), (3, 0));
    assert!(!receiver.has(3));
    // within a millisecond timestamps are the same
    let near = DataSegment::new(Time::from_nanos(60_000_000), 3);
    receiver.on_data(at(112), &near).unwrap();
    assert!(receiver.has(3));
}

#[test]
fn a_duplicate_of_long_ago_moves_no_timestamp() {
    let mut receiver = Receiver::default();
    for seq in 0..4 {
        receiver.on_data(at(50 + seq), &DataSegment::new(at(seq), seq));
    }
    let ack = receiver
        .on_data(at(90), &DataSegment::new(at(40), 1))
        .unwrap();
    assert_eq!(ack.echo, at(3));
    assert_eq!(ack.duplicate(), Some(1));
}

#[test]
fn the_end_of_a_write_is_acknowledged_at_once() {
    let mut receiver = past_quick_acks();
    for seq in 16..20 {
        let end = packet(seq).with_pushed(true);
        assert_eq!(
            receiver.on_data(at(seq), &end),
            Some(AckSegment::new(seq + 1))
        );
    }
    assert_eq!(receiver.next_timer(), None);
}

#[test]
fn an_end_that_replies_lets_acknowledgments_wait_for_its_replies() {
    let end_of_write = |seq| packet(seq).with_pushed(true);
    let mut receiver = past_quick_acks();
    let arrives = |receiver: &mut Receiver, millis, seq| {
        receiver.on_data(at(millis), &end_of_write(seq)).is_some()
    };
    // the first request is acknowledged before the application replies
    assert!(arrives(&mut receiver, 0, 16));
    assert_eq!(receiver.acknowledge_with_data(at(1)).cumulative, 17);
    // the second waits for its reply
    assert!(!arrives(&mut receiver, 100, 17));
    assert_eq!(receiver.next_timer(), Some(at(140)));
    assert_eq!(receiver.acknowledge_with_data(at(139)).cumulative, 18);
    assert_eq!(receiver.next_timer(), None);
    // a reply that comes too late, and two packets, are not waited for
    assert!(!arrives(&mut receiver, 200, 18));
    assert_eq!(receiver.on_timer(at(240)).unwrap().cumulative, 19);
    assert!(arrives(&mut receiver, 300, 19));
    receiver.acknowledge_with_data(at(345));
    assert!(arrives(&mut receiver, 400, 20));
    receiver.acknowledge_with_data(at(401));
    assert!(!arrives(&mut receiver, 500, 21));
    assert!(arrives(&mut receiver, 501, 22));
    // nor after a duplicate
    assert!(arrives(&mut receiver, 502, 22));
    assert!(arrives(&mut receiver, 503, 23));
}

#[test]
fn an_acknowledgment_waits_for_at_most_a_round_trip() {
    let waits = |rtt| {
        let mut receiver = past_quick_acks();
        receiver.on_rtt(Span::from_millis(rtt));
        let mut now = at(0);
        for seq in 16..24 {
            receiver.on_data(now, &packet(seq));
            let due = receiver.next_timer().unwrap();
            receiver.on_timer(due);
            (now, _) = (due, seq);
        }
        receiver.on_data(now, &packet(24));
        receiver.next_timer().unwrap().since(now)
    };
    for (rtt, most) in [(10, 40), (90, 90), (300, 200)] {
        assert_eq!(waits(rtt), Span::from_millis(most));
    }
}

#[test]
fn packets_past_a_gap_are_acknowledged_at_once_newest_block_first() {
    let mut receiver = past_quick_acks();
    let block = |start, end| SackBlock { start, end };
    assert_eq!(
        sacks(&receiver.on_data(at(0), &packet(17)).unwrap()),
        [block(17, 18)]
    );
    assert_eq!(
        sacks(&receiver.on_data(at(0), &packet(19)).unwrap()),
        [block(19, 20), block(17, 18)]
    );
    assert_eq!(
        sacks(&receiver.on_data(at(0), &packet(18)).unwrap()),
        [block(17, 20)]
    );
    let ack = receiver.on_data(at(0), &packet(16)).unwrap();
    assert_eq!((ack.cumulative, ack.sacks().len()), (20, 0));
    assert_eq!(receiver.delivered(), 20);
}

#[test]
fn acknowledgments_past_a_gap_are_put_together_once_it_is_told() {
    let mut receiver = Receiver::default();
    for seq in 0..u64::from(QUICK_ACKS) {
        receiver.on_data(at(20), &packet(seq));
    }
    let us = |micros: u64| at(100) + Span::from_nanos(1000 * micros);
    let mut seen = Vec::new();
    for seq in 17..30 {
        seen.push(receiver.on_data(us(seq), &packet(seq)).is_some());
    }
    // three of 17 to 19, then a wait that starts with 20 and lasts for 1.1 ms
    assert_eq!(seen.iter().position(|sent| !sent), Some(3));
    assert!(!seen[3..].contains(&true));
    assert_eq!(receiver.next_timer(), Some(us(20 + 1100)));
    let ack = receiver.on_timer(us(20 + 1100)).unwrap();
    assert_eq!(sacks(&ack), [SackBlock { start: 17, end: 30 }]);
    assert_eq!(receiver.next_timer(), None);
    // it immediately acknowledges what advances the acknowledgment, and what ends the gap
    assert_eq!(receiver.on_data(us(1200), &packet(31)), None);
    let filled = receiver.on_data(us(1300), &packet(16)).unwrap();
    assert_eq!(filled.cumulative, 30);
    let over = receiver.on_data(us(1400), &packet(30)).unwrap();
    assert_eq!((over.cumulative, over.sacks().len()), (32, 0));
    assert_eq!(receiver.next_timer(), None);
}

#[test]
fn the_wait_past_a_gap_is_a_twentieth_of_a_short_round_trip() {
    let mut receiver = Receiver::default();
    receiver.on_data(at(2), &packet(0));
    for seq in 1..u64::from(QUICK_ACKS) {
        receiver.on_data(at(2), &packet(seq));
    }
    for seq in 17..21 {
        receiver.on_data(at(3), &packet(seq));
    }
    let wait = Span::from_nanos(4_000_000 / 20) + COMPRESSION_SLACK;
    assert_eq!(receiver.next_timer(), Some(at(3) + wait));
}

#[test]
fn a_packet_that_arrives_twice_is_reported_at_once() {
    let mut receiver = past_quick_acks();
    let ack = receiver.on_data(at(0), &packet(3)).unwrap();
    assert_eq!(
        (ack.cumulative, ack.duplicate(), ack.sacks().len()),
        (16, Some(3), 0)
    );
    receiver.on_data(at(0), &packet(18));
    let ack = receiver.on_data(at(0), &packet(18)).unwrap();
    assert_eq!((ack.duplicate(), ack.block_count()), (Some(18), 2));
    assert_eq!(sacks(&ack), [SackBlock { start: 18, end: 19 }]);
}

#[test]
fn the_delay_follows_the_gaps_between_packets() {
    let mut receiver = past_quick_acks();
    receiver.on_data(at(30), &packet(16)); // ato = 20 + 30
    assert_eq!(receiver.next_timer(), Some(at(80)));
    receiver.on_data(at(31), &packet(17)); // ato = 25 + 20
    receiver.on_data(at(32), &packet(18)); // ato = 22.5 + 20
    assert_eq!(
        receiver.next_timer(),
        Some(at(32) + Span::from_secs(0.0425))
    );
}

#[test]
fn after_a_silence_acknowledgments_are_quick_again() {
    let mut receiver = past_quick_acks();
    assert!(receiver.on_data(at(400), &packet(16)).is_some());
    assert!(receiver.on_data(at(400), &packet(17)).is_some());
}

#[test]
fn the_window_closes_until_the_application_reads() {
    let mut receiver = Receiver::new(ReceiverConfig {
        window_packets: 4,
        reads_on_demand: true,
        ..ReceiverConfig::default()
    });
    let windows: Vec<u32> = (0..4)
        .map(|seq| {
            receiver
                .on_data(at(0), &packet(seq))
                .unwrap()
                .window_packets
        })
        .collect();
    assert_eq!(windows, [3, 2, 1, 0]);
    let refused = receiver.on_data(at(0), &packet(4)).unwrap();
    assert_eq!((refused.cumulative, refused.window_packets), (4, 0));
    let update = receiver.read(2).unwrap();
    assert_eq!((update.cumulative, update.window_packets), (4, 2));
    assert_eq!(receiver.read(1), None); // too small to announce
    assert_eq!(receiver.unread(), 1);
}

#[test]
fn a_mark_is_echoed_until_the_sender_has_reduced() {
    let mut receiver = past_quick_acks();
    let mut marked = packet(16).with_ecn_capable(true);
    assert!(marked.mark());
    assert!(receiver.on_data(at(0), &marked).unwrap().ecn_echo());
    assert!(receiver.on_data(at(0), &packet(17)).unwrap().ecn_echo());
    let reduced = packet(18).with_reduced(true);
    receiver.on_data(at(0), &reduced);
    assert!(!receiver.on_data(at(0), &packet(19)).unwrap().ecn_echo());
}

proptest! {
    #[test]
    fn whatever_the_order_all_packets_are_delivered_once(
        order in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
        twice in prop::collection::vec(0..60usize, 0..20),
    ) {
        let mut receiver = Receiver::default();
        let mut arrived = std::collections::BTreeSet::new();
        let again: Vec<u64> = twice.iter().map(|&i| order[i]).collect();
        for seq in order.into_iter().chain(again) {
            arrived.insert(seq);
            let ack = receiver.on_data(Time::ZERO, &packet(seq));
            let in_order = (0..).find(|n| !arrived.contains(n)).unwrap();
            prop_assert_eq!(receiver.delivered(), in_order);
            for block in ack.iter().flat_map(|ack| ack.sacks().collect::<Vec<_>>()) {
                prop_assert!(block.start > in_order);
                prop_assert!((block.start..block.end).all(|n| arrived.contains(&n)));
                prop_assert!(!arrived.contains(&block.end) && !arrived.contains(&(block.start - 1)));
            }
        }
        prop_assert_eq!(receiver.delivered(), 60);
    }
}
