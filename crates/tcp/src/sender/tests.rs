//! A sender, a receiver and a wire on which everything can go wrong.

use pathcast_base::{Span, Time};
use pathcast_congestion::{LossState, Scheme, Signal};

use super::{Sender, SenderConfig};
use crate::receiver::{Receiver, ReceiverConfig};
use crate::testing::{Report, Spy, Wire};

#[test]
fn slow_start_doubles_the_window_each_round_trip() {
    // 10 + 20 + 40 + 80 = 150 packets in four round trips of 100 ms
    let took_s = Wire::new(150, |_, _| false).run();
    assert!((0.4..0.45).contains(&took_s), "{took_s}");
}

#[test]
fn one_loss_costs_one_retransmission_and_halves_the_window() {
    let mut wire = Wire::new(300, |seq, copy| seq == 40 && copy == 0);
    wire.run();
    assert_eq!(wire.sender.retransmits(), 1);
    let ssthresh = wire.sender.controller().ssthresh();
    assert!((20.0..45.0).contains(&ssthresh), "{ssthresh}");
}

#[test]
fn many_losses_in_one_window_are_one_congestion_event() {
    let mut one = Wire::new(300, |seq, copy| seq == 40 && copy == 0);
    let mut many = Wire::new(300, |seq, copy| {
        (40..60).contains(&seq) && seq % 3 == 1 && copy == 0
    });
    one.run();
    many.run();
    assert_eq!(many.sender.retransmits(), 7);
    assert!(many.sender.controller().ssthresh() >= one.sender.controller().ssthresh() * 0.8);
}

#[test]
fn a_lost_retransmission_is_found_without_a_timeout() {
    let once_s = Wire::new(400, |seq, copy| seq == 40 && copy == 0).run();
    let mut wire = Wire::new(400, |seq, copy| seq == 40 && copy < 2);
    let twice_s = wire.run();
    assert_eq!(wire.sender.retransmits(), 2);
    assert_eq!(wire.sender.rtt().backoff(), 0);
    assert!(
        twice_s <= once_s + 0.2,
        "{twice_s}, {once_s} with the first copy lost only"
    );
}

#[test]
fn a_lost_tail_is_found_by_a_probe_after_two_round_trips() {
    let spy = Spy {
        cwnd: 10.0,
        ..Spy::default()
    };
    let mut wire = Wire::with(20, Box::new(spy.clone()), |seq, copy| {
        seq == 19 && copy == 0
    });
    wire.run();
    assert_eq!(wire.sender.retransmits(), 1);
    let probe = wire.sent.last().unwrap();
    assert_eq!(probe.1, 19);
    // packet 18 ends a load and is acknowledged at 200 ms; the timeout would be before two round trips and
    // the 200 ms for a lone packet, and the probe replaces it
    let (at_s, rto_s) = (probe.0.as_secs(), 0.305);
    assert!((at_s - 0.2 - rto_s).abs() < 0.01, "{at_s}");
    assert_eq!(spy.read().timeouts, 0);
}

#[test]
fn a_probe_shows_the_losses_before_it() {
    let mut wire = Wire::new(40, |seq, copy| (36..39).contains(&seq) && copy == 0);
    let mut tail = Wire::new(40, |seq, copy| seq >= 36 && copy == 0);
    wire.run();
    tail.run();
    // SACKs find three holes immediately; with the whole tail lost, the probe's SACK does
    assert_eq!(wire.sender.retransmits(), 3);
    assert!(
        (4..=5).contains(&tail.sender.retransmits()),
        "{}",
        tail.sender.retransmits()
    );
    assert_eq!(tail.sender.rtt().backoff(), 0);
}

#[test]
fn reordering_is_no_loss_once_it_has_been_seen() {
    let mut wire = Wire::new(600, |_, _| false);
    for seq in (20..500).step_by(40) {
        wire.late.insert((seq, 0), Span::from_millis(20)); // a fifth of a round trip
    }
    wire.run();
    // the first may be taken for a loss; then RACK waits a quarter of a round trip
    assert!(
        wire.sender.retransmits() <= 1,
        "{}",
        wire.sender.retransmits()
    );
}

#[test]
fn a_window_comes_back_when_the_loss_was_none() {
    let mut wire = Wire::new(2000, |_, _| false);
    wire.late.insert((200, 0), Span::from_millis(70));
    let took_s = wire.run();
    let undisturbed_s = Wire::new(2000, |_, _| false).run();
    let lossy_s = Wire::new(2000, |seq, copy| seq == 200 && copy == 0).run();
    assert_eq!(wire.sender.retransmits(), 1);
    assert!(
        took_s < lossy_s && took_s >= undisturbed_s,
        "{took_s} {lossy_s} {undisturbed_s}"
    );
}

#[test]
fn a_timeout_that_was_needless_is_undone() {
    // from packet 30 on the path stalls for 0.8 s and keeps the order: nothing was lost
    let mut wire = Wire::new(1000, |_, _| false);
    for seq in 30..=70 {
        wire.late.insert((seq, 0), Span::from_millis(800));
        wire.late.insert((seq, 1), Span::from_millis(600));
    }
    wire.run();
    let resent = wire.sender.retransmits();
    assert!(resent <= 3, "{resent} sent again of 40 that were late");
}

#[test]
fn marks_reduce_the_window_once_a_round_trip_and_cost_no_packet() {
    let spy = Spy {
        cwnd: 20.0,
        ..Spy::default()
    };
    let config = SenderConfig {
        packets: Some(400),
        ecn: true,
        ..SenderConfig::default()
    };
    let mut wire = Wire::configured(config, Box::new(spy.clone()), |_, _| false);
    wire.marked.extend([100, 103, 105, 250]);
    wire.run();
    let report = spy.read();
    assert_eq!(wire.sender.retransmits(), 0);
    assert_eq!(report.congestion.len(), 2);
    assert!(
        report
            .congestion
            .iter()
            .all(|event| event.signal == Signal::Mark)
    );
}

#[test]
fn after_an_idle_time_the_window_is_small_again_and_grows_back() {
    let mut wire = Wire::new(600, |_, _| false);
    wire.run();
    let before = wire.sender.cwnd();
    assert!(before > 100);
    wire.now += Span::from_secs(30.0);
    wire.sender.supply(500);
    let from = wire.sent.len();
    wire.run();
    let first = wire.sent[from].0;
    let burst = wire.sent[from..]
        .iter()
        .filter(|(at, _)| *at == first)
        .count();
    assert_eq!(burst, 10);
    assert!(wire.sender.cwnd() > 100);
}

#[test]
fn the_initial_window_can_be_chosen() {
    for packets in [2u32, 10, 40] {
        let config = SenderConfig {
            packets: Some(500),
            initial_window_packets: Some(packets),
            ..SenderConfig::default()
        };
        let mut wire = Wire::configured(config, Scheme::named("reno").controller(0), |_, _| false);
        wire.run();
        let burst = wire.sent.iter().filter(|(at, _)| *at == Time::ZERO).count();
        assert_eq!(burst as u32, packets);
        let second = wire
            .sent
            .iter()
            .filter(|(at, _)| (0.09..0.19).contains(&at.as_secs()))
            .count();
        assert_eq!(second as u32, 2 * packets);
    }
}

#[test]
fn the_receivers_window_holds_the_sender_back() {
    let mut wire = Wire::new(100, |_, _| false);
    wire.receiver = Receiver::new(ReceiverConfig {
        window_packets: 4,
        ..ReceiverConfig::default()
    });
    let config = SenderConfig {
        packets: Some(100),
        receive_window_packets: 4,
        ..SenderConfig::default()
    };
    wire.sender = Sender::new(config, Scheme::named("reno").controller(0));
    let took_s = wire.run();
    assert!(
        (2.4..2.6).contains(&took_s),
        "4 packets each 100 ms: {took_s}"
    );
}

#[test]
fn a_closed_window_is_asked_after_until_it_opens() {
    let config = SenderConfig {
        packets: Some(20),
        receive_window_packets: 4,
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(config, Scheme::named("reno").controller(0));
    let mut receiver = Receiver::new(ReceiverConfig {
        window_packets: 4,
        reads_on_demand: true,
        ..ReceiverConfig::default()
    });
    let mut now = Time::ZERO;
    let pass = |sender: &mut Sender, receiver: &mut Receiver, now: Time| {
        while let Some(segment) = sender.poll_transmit(now) {
            if let Some(ack) = receiver.on_data(now, &segment) {
                sender.on_ack(now, &ack);
            }
        }
    };
    pass(&mut sender, &mut receiver, now);
    assert_eq!(receiver.delivered(), 4);
    while receiver.delivered() < 20 {
        receiver.read(2); // the update is lost in transit
        now = sender.next_timer().expect("it asks");
        sender.on_timer(now);
        pass(&mut sender, &mut receiver, now);
        assert!(now.as_secs() < 100.0);
    }
    assert!(sender.is_done());
}

#[test]
fn the_last_packet_may_be_shorter() {
    let config = SenderConfig {
        packets: Some(30),
        last_short_by_bytes: 1000,
        ..SenderConfig::default()
    };
    let mut wire = Wire::configured(config, Scheme::named("reno").controller(0), |_, _| false);
    wire.run();
    assert_eq!(wire.receiver.delivered_bytes(1448), 30 * 1448 - 1000);
}

#[test]
fn timeouts_back_off() {
    let mut wire = Wire::new(1, |_, copy| copy < 4);
    let took_s = wire.run();
    // 1 + 2 + 4 + 8 s, then a round trip
    assert!((15.0..15.2).contains(&took_s), "{took_s}");
}

#[test]
fn the_window_is_delivered_once_a_round_trip() {
    let spy = Spy {
        cwnd: 20.0,
        ..Spy::default()
    };
    Wire::with(400, Box::new(spy.clone()), |_, _| false).run();
    let Report { acks, .. } = spy.read();
    assert_eq!(acks.last().unwrap().delivered, 400);
    // after the first round trip, which starts from nothing
    for ack in &acks[20..] {
        let rate = ack.rate.unwrap().packets_per_s().unwrap();
        // the last packet of a window may leave alone, and its acknowledgment then waits for 40 ms
        assert!((140.0..=210.0).contains(&rate), "{rate}");
        assert_eq!(ack.in_flight + ack.acked_packets, ack.prior_in_flight);
    }
    let limited = acks.iter().filter(|ack| ack.rate.unwrap().app_limited);
    assert_eq!(
        limited.count(),
        0,
        "the last window was sent with all its data there"
    );
}

#[test]
fn a_controller_that_manages_recovery_sees_every_ack_and_keeps_its_window() {
    let spy = |manages_recovery| Spy {
        cwnd: 20.0,
        manages_recovery,
        ..Spy::default()
    };
    let lost = |seq, copy| seq == 100 && copy == 0;
    let (managing, leaving) = (spy(true), spy(false));
    let mut wire = Wire::with(300, Box::new(managing.clone()), lost);
    wire.run();
    Wire::with(300, Box::new(leaving.clone()), lost).run();
    let (managing, leaving) = (managing.read(), leaving.read());
    assert_eq!(recoveries(&managing), 1);
    assert_eq!(recoveries(&leaving), 0);
    for report in [&managing, &leaving] {
        assert_eq!(report.congestion.len(), 1);
    }
    let told: u64 = managing.acks.iter().map(|ack| ack.acked_packets).sum();
    assert_eq!(told, 300);
    let told: u64 = managing.acks.iter().map(|ack| ack.lost_packets).sum();
    assert_eq!(told, 1);
    // during recovery, as much is in flight as the controller's window
    assert!(
        managing
            .acks
            .iter()
            .skip(30)
            .all(|ack| ack.prior_in_flight >= 15 || ack.delivered > 280)
    );
}

/// How often the acknowledgments that a controller saw go from Open to Recovery.
fn recoveries(report: &Report) -> usize {
    let states: Vec<LossState> = report.acks.iter().map(|ack| ack.state).collect();
    states
        .windows(2)
        .filter(|two| two == &[LossState::Open, LossState::Recovery])
        .count()
}

#[test]
fn a_loss_found_during_a_recovery_begins_the_next_one_when_it_ends() {
    // 40 and its first copy are lost, so that the recovery lasts two round trips; 70 is sent in it
    let lost = |seq, copy| (seq == 40 && copy < 2) || (seq == 70 && copy == 0);
    let spy = Spy {
        cwnd: 20.0,
        manages_recovery: true,
        ..Spy::default()
    };
    Wire::with(300, Box::new(spy.clone()), lost).run();
    let report = spy.read();
    assert_eq!(report.congestion.len(), 2);
    assert_eq!(recoveries(&report), 1, "the state is never Open in between");

    let mut both = Wire::new(300, |seq, copy| {
        (seq == 40 && copy < 2) || (seq == 100 && copy == 0)
    });
    let mut alone = Wire::new(300, |seq, copy| seq == 40 && copy < 2);
    both.run();
    alone.run();
    assert_eq!(both.sender.retransmits(), 3);
    assert_eq!(wire_ssthresh(&both), (wire_ssthresh(&alone) / 2.0).floor());
}

fn wire_ssthresh<F: FnMut(u64, u32) -> bool>(wire: &Wire<F>) -> f64 {
    wire.sender.controller().ssthresh()
}

#[test]
fn a_loss_after_an_idle_time_halves_the_window_that_is_in_force() {
    let mut wire = Wire::new(600, |seq, copy| seq == 620 && copy == 0);
    wire.run();
    let before = wire.sender.cwnd();
    assert!(before > 100);
    wire.now += Span::from_secs(30.0);
    wire.sender.supply(100);
    wire.run();
    assert_eq!(wire.sender.retransmits(), 1);
    // 10 packets after the pause, some 20 when the loss shows
    let ssthresh = wire_ssthresh(&wire);
    assert!((5.0..=20.0).contains(&ssthresh), "{ssthresh}");
}

#[test]
fn the_threshold_after_an_idle_time_is_three_quarters_of_the_window() {
    let mut wire = Wire::new(600, |seq, copy| seq == 300 && copy == 0);
    wire.run();
    let before = wire.sender.cwnd();
    let threshold = wire_ssthresh(&wire);
    wire.now += Span::from_secs(30.0);
    wire.sender.supply(10);
    wire.run();
    let three_quarters = (before / 2 + before / 4) as f64;
    assert_eq!(wire_ssthresh(&wire), threshold.max(three_quarters));
}

#[test]
fn needless_recoveries_leave_no_trace_when_a_packet_is_really_lost() {
    let late = Span::from_millis(70);
    let lost = |seq, copy| (seq == 60 || seq == 19_000) && copy == 0;
    let mut wire = Wire::new(20_000, lost);
    for seq in [200u64, 3_000, 6_000, 9_000, 12_000] {
        wire.late.insert((seq, 0), late);
    }
    wire.run();
    let mut undisturbed = Wire::new(20_000, lost);
    undisturbed.run();
    let (with, without) = (wire_ssthresh(&wire), wire_ssthresh(&undisturbed));
    assert!(with > 0.7 * without, "{with} against {without}");
}

#[test]
fn the_first_loss_halves_a_chosen_initial_window_too() {
    let config = SenderConfig {
        packets: Some(200),
        initial_window_packets: Some(50),
        ..SenderConfig::default()
    };
    let lost = |seq, copy| seq == 49 && copy == 0;
    let mut wire = Wire::configured(config, Scheme::named("reno").controller(0), lost);
    wire.run();
    // 49 of the first 50 packets were acknowledged when the loss showed
    let ssthresh = wire_ssthresh(&wire);
    assert!((48.0..=50.0).contains(&ssthresh), "{ssthresh}");
}

#[test]
fn a_timeout_in_a_recovery_reduces_no_second_time() {
    // the only copy that the window allows is lost too, until the timer expires
    let spy = Spy {
        cwnd: 20.0,
        ..Spy::default()
    };
    let mut wire = Wire::with(40, Box::new(spy.clone()), |seq, copy| {
        (25..39).contains(&seq) && copy < 1 || seq == 25 && copy < 2
    });
    wire.run();
    let report = spy.read();
    assert_eq!(report.timeouts, 1);
    assert_eq!(report.congestion.len(), 1);
}

#[test]
fn a_timeout_spares_what_was_sent_within_the_last_round_trip() {
    let spy = Spy {
        cwnd: 20.0,
        ..Spy::default()
    };
    let config = SenderConfig {
        packets: Some(10),
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(config, Box::new(spy.clone()));
    let mut receiver = Receiver::new(ReceiverConfig::default());
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    // a round trip of 100 ms
    while let Some(segment) = sender.poll_transmit(at(0)) {
        if let Some(ack) = receiver.on_data(at(50), &segment) {
            sender.on_ack(at(100), &ack);
        }
    }
    // five packets and the probe of the tail are lost
    sender.supply(5);
    while sender.poll_transmit(at(100)).is_some() {}
    let probe_at = sender.next_timer().unwrap();
    sender.on_timer(probe_at);
    assert!(sender.poll_transmit(probe_at).is_some());
    // three more leave just before the timeout
    let timeout_at = sender.next_timer().unwrap();
    let just_before = Time::from_nanos(timeout_at.as_nanos() - 10_000_000);
    sender.supply(3);
    while sender.poll_transmit(just_before).is_some() {}
    sender.on_timer(timeout_at);
    assert_eq!(spy.read().timeouts, 1);
    assert_eq!(sender.in_flight(), 3);
    assert_eq!(spy.read().windows.last().unwrap().0, 4.0);
}

#[test]
fn packets_leave_at_the_pace_that_the_controller_sets() {
    let spy = Spy {
        cwnd: 1000.0,
        pacing_rate: Some(100.0),
        ..Spy::default()
    };
    let mut wire = Wire::with(100, Box::new(spy.clone()), |_, _| false);
    wire.run();
    for (i, (at, _)) in wire.sent.iter().enumerate() {
        // the first ten leave at once; from the ninth on each pair takes 20 ms of the pace
        let pairs = (i as u64 / 2).saturating_sub(4);
        assert_eq!(at.as_nanos(), pairs * 20_000_000, "{i}");
    }
    let acks = spy.read().acks;
    let rate = acks[45].rate.unwrap().packets_per_s().unwrap();
    assert!((90.0..=110.0).contains(&rate), "{rate}");
}

#[test]
fn a_sender_without_data_says_so_in_its_samples() {
    let spy = Spy {
        cwnd: 50.0,
        pacing_rate: Some(10_000.0),
        ..Spy::default()
    };
    let mut wire = Wire::with(60, Box::new(spy.clone()), |seq, copy| {
        seq == 58 && copy == 0
    });
    wire.run();
    let acks = spy.read().acks;
    assert!(!acks[0].rate.unwrap().app_limited);
    // sent again when nothing else was left to send
    assert!(acks.last().unwrap().rate.unwrap().app_limited);
}

proptest::proptest! {
    #[test]
    fn whatever_is_lost_everything_arrives(seed in proptest::prelude::any::<u64>(), p in 0.0..0.4f64) {
        let mut state = seed | 1;
        let mut wire = Wire::new(200, |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64 <= p
        });
        wire.run();
    }

    #[test]
    fn whatever_is_lost_everything_arrives_by_utp_too(seed in proptest::prelude::any::<u64>(), p in 0.0..0.2f64) {
        let mut state = seed | 1;
        let mut wire = Wire::with(200, Scheme::named("utp").controller(0), |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64 <= p
        });
        wire.run();
    }

    #[test]
    fn whatever_is_late_doubled_or_lost_everything_arrives(
        seed in proptest::prelude::any::<u64>(),
        lost in 0.0..0.2f64,
        late in proptest::collection::btree_map((0..300u64, 0..3u32), 0..600_000_000u64, 0..60),
        twice in proptest::collection::btree_set((0..300u64, 0..3u32), 0..60),
        marked in proptest::collection::btree_set(0..300u64, 0..20),
        ecn in proptest::prelude::any::<bool>(),
    ) {
        let mut state = seed | 1;
        let config = SenderConfig { packets: Some(300), ecn, ..SenderConfig::default() };
        let mut wire = Wire::configured(config, Scheme::named("cubic").controller(0), |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64 <= lost
        });
        wire.late = late.into_iter().map(|(copy, ns)| (copy, Span::from_nanos(ns))).collect();
        wire.twice = twice;
        wire.marked = marked;
        wire.run();
    }
}

#[test]
fn after_a_timeout_new_data_leaves_before_more_is_sent_again() {
    // a whole window is lost, and the probe of its tail
    let mut wire = Wire::new(300, |seq, copy| (70..151).contains(&seq) && copy == 0);
    wire.run();
    let again = wire.sent.iter().rposition(|(_, seq)| *seq == 70).unwrap();
    let sent: Vec<u64> = wire.sent[again..].iter().map(|(_, seq)| *seq).collect();
    assert_eq!(sent[..4], [70, 151, 152, 71]);
}

#[test]
fn a_paced_load_is_half_a_window_at_most() {
    let spy = Spy {
        cwnd: 21.0,
        pacing_rate: Some(50_000.0), // a load of 48 packets in a 1024th of a second
        ..Spy::default()
    };
    let mut wire = Wire::with(60, Box::new(spy), |_, _| false);
    wire.run();
    let first = wire.sent.iter().filter(|(at, _)| *at == Time::ZERO);
    assert_eq!(first.count(), 10);
    assert_eq!(wire.sent[10].0, Time::ZERO + Span::from_nanos(200_000));
}
