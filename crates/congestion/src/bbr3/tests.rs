use super::*;
use crate::bottleneck::{Bottleneck, run, run_and_look};
use crate::controller::{RateSample, tests::ack};

fn in_probe_bw() -> Bbr3 {
    let mut bbr = Bbr3::new(1);
    bbr.full_pipe = true;
    bbr.seen_rtt = true;
    bbr.min_rtt = Some(Span::from_millis(100));
    bbr.max_bw.update(0, 1000.0);
    bbr.cwnd = 200.0;
    bbr.state = State::Cruise;
    bbr
}

fn sample(sent_in_flight: u64, lost_packets: u64) -> RateSample {
    RateSample {
        delivered_packets: 50,
        interval: Span::from_millis(100),
        prior_delivered: 10,
        sent_in_flight,
        lost_packets,
        app_limited: false,
    }
}

#[test]
fn loss_is_too_much_above_two_percent_of_what_was_in_flight() {
    assert!(!Bbr3::is_inflight_too_high(&sample(100, 2)));
    assert!(Bbr3::is_inflight_too_high(&sample(100, 3)));
}

#[test]
fn a_probe_that_loses_too_much_sets_the_long_term_bound_and_goes_down() {
    let mut bbr = in_probe_bw();
    bbr.start_up(&ack(0.0, 1), 1000.0);
    let lossy = Ack {
        lost_packets: 5,
        ..ack(0.1, 1)
    };
    bbr.adapt_long_term_model(&lossy, &sample(120, 5), false);
    assert_eq!((bbr.state, bbr.inflight_longterm), (State::Down, 120.0));
    // and cruising leaves 15 % of it free
    assert_eq!(bbr.in_flight_with_headroom(), 102.0);
}

#[test]
fn losses_while_cruising_bound_rate_and_volume_by_what_was_delivered() {
    let mut bbr = in_probe_bw();
    bbr.loss_in_round = true;
    bbr.loss_round_starts = true;
    (bbr.bw_latest, bbr.inflight_latest) = (900.0, 80.0);
    bbr.update_congestion_signals(0.0, false);
    assert_eq!(bbr.bw_shortterm, 900.0);
    assert_eq!(bbr.inflight_shortterm, 0.7 * 200.0);
    assert_eq!(bbr.bw(), 900.0);
    bbr.start_refill(&ack(0.0, 1));
    assert_eq!(bbr.bw(), 1000.0);
}

#[test]
fn the_bound_grows_by_one_two_four_packets_a_round() {
    let mut bbr = in_probe_bw();
    bbr.inflight_longterm = 100.0;
    bbr.cwnd = 100.0;
    bbr.start_up(&ack(0.0, 1), 1000.0);
    let mut grown = Vec::new();
    for _ in 0..3 {
        let before = bbr.inflight_longterm;
        for i in 0..100 {
            bbr.round_starts = i == 99;
            bbr.cwnd = bbr.inflight_longterm;
            bbr.probe_inflight_upward(&ack(0.1, 1));
        }
        grown.push(bbr.inflight_longterm - before);
    }
    assert!((grown[0] - 1.0).abs() <= 1.0, "{grown:?}");
    assert!((grown[1] - 2.0).abs() <= 1.0, "{grown:?}");
    assert!((grown[2] - 4.0).abs() <= 1.0, "{grown:?}");
}

#[test]
fn idle_ends_probe_rtt_once_its_time_is_over() {
    let mut bbr = in_probe_bw();
    (bbr.prior_cwnd, bbr.cwnd, bbr.state) = (200.0, 50.0, State::ProbeRtt);
    let at = |s| Time::ZERO + Span::from_secs(s);
    bbr.probe_rtt_done_at = Some(at(1.0));
    bbr.on_idle_restart(at(0.9), Span::from_millis(300));
    assert_eq!((bbr.state, bbr.cwnd), (State::ProbeRtt, 50.0));
    bbr.on_idle_restart(at(1.1), Span::from_millis(300));
    assert_eq!((bbr.state, bbr.cwnd), (State::Cruise, 200.0));
}

#[test]
fn startup_forgets_what_came_at_once_a_round_trip_ago() {
    let extra_after_two_rounds = |full_pipe| {
        let mut bbr = in_probe_bw();
        bbr.full_pipe = full_pipe;
        bbr.update_extra_acked(&ack(0.0, 40)); // far more than 1000 packets a second
        (bbr.round, bbr.round_starts) = (1, true);
        bbr.update_extra_acked(&ack(10.0, 1));
        bbr.extra_acked.max()
    };
    assert_eq!(extra_after_two_rounds(true), 40.0);
    assert_eq!(extra_after_two_rounds(false), 1.0);
}

#[test]
fn probes_come_after_two_to_three_seconds_or_63_rounds() {
    let mut bbr = in_probe_bw();
    bbr.start_down(Time::ZERO + Span::from_secs(1.0));
    let wait_s = bbr.probe_wait.as_secs();
    assert!((2.0..3.0).contains(&wait_s));
    let at = |s| Time::ZERO + Span::from_secs(s);
    assert!(!bbr.is_time_to_probe(at(1.0 + wait_s)));
    assert!(bbr.is_time_to_probe(at(1.01 + wait_s)));
    bbr.rounds_since_probe = 63;
    assert!(bbr.is_time_to_probe(at(1.0)));
}

#[test]
fn heavy_loss_ends_startup_before_the_rate_stops_growing() {
    let left_s = |buffer_packets| {
        let path = Bottleneck {
            buffer_packets,
            ..Bottleneck::of_12mbps_60ms(1.0)
        };
        let mut left = None;
        run_and_look(&mut Bbr3::new(1), path, 5.0, 0.0, |ack, controller| {
            if !controller.in_slow_start() {
                left.get_or_insert(ack.now.as_secs());
            }
        });
        left.unwrap()
    };
    let (shallow, deep) = (left_s(5.0), left_s(500.0));
    assert!(shallow < deep, "{shallow} {deep}");
}

#[test]
fn half_the_bdp_for_200_ms_every_five_seconds() {
    let path = Bottleneck::of_12mbps_60ms(4.0);
    let mut bbr = Bbr3::new(1);
    let mut small: Vec<(f64, f64)> = Vec::new();
    run_and_look(&mut bbr, path, 22.0, 0.0, |ack, controller| {
        if ack.now.as_secs() > 2.0 && controller.cwnd() < 50.0 {
            small.push((ack.now.as_secs(), controller.cwnd()));
        }
    });
    let began: Vec<f64> = std::iter::once(small[0].0)
        .chain(
            small
                .windows(2)
                .filter(|w| w[1].0 - w[0].0 > 1.0)
                .map(|w| w[1].0),
        )
        .collect();
    assert!((3..=4).contains(&began.len()), "{began:?}");
    for gap in began.windows(2) {
        assert!((5.0..5.7).contains(&(gap[1] - gap[0])), "{began:?}");
    }
    let least = small.iter().map(|s| s.1).fold(f64::INFINITY, f64::min);
    assert!((least - 30.0).abs() < 3.0, "{least}");
}

#[test]
fn the_link_is_full_with_about_one_bdp_in_flight() {
    let path = Bottleneck::of_12mbps_60ms(4.0);
    let outcome = run(&mut Bbr3::new(1), path, 60.0, 10.0);
    assert!(outcome.utilization > 0.96, "{outcome:?}");
    assert!((55.0..75.0).contains(&outcome.in_flight), "{outcome:?}");
    assert_eq!(outcome.loss, 0.0);
}

#[test]
fn a_shallow_buffer_loses_less_than_with_version_1() {
    let path = Bottleneck::of_12mbps_60ms(0.1);
    let v1 = run(&mut crate::Bbr::new(1), path, 60.0, 10.0);
    let v3 = run(&mut Bbr3::new(1), path, 60.0, 10.0);
    assert!(v3.loss < v1.loss / 2.0, "{v1:?} {v3:?}");
    assert!(v3.utilization > 0.85, "{v3:?}");
}

#[test]
fn one_percent_of_loss_is_tolerated() {
    let path = Bottleneck {
        loss: 0.01,
        ..Bottleneck::of_12mbps_60ms(1.0)
    };
    let outcome = run(&mut Bbr3::new(1), path, 60.0, 10.0);
    assert!(outcome.utilization > 0.8, "{outcome:?}");
}
