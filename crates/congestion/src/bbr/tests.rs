use super::*;
use crate::bottleneck::{Bottleneck, run, run_and_look};
use crate::controller::tests::ack;

fn bbr_in_probe_bw() -> Bbr {
    let mut bbr = Bbr::new(1);
    bbr.full_pipe = true;
    bbr.seen_rtt = true;
    bbr.min_rtt = Some(Span::from_millis(100));
    bbr.max_bw.update(0, 1000.0);
    bbr.enter_probe_bw(Time::ZERO);
    bbr
}

#[test]
fn startup_finds_the_rate_and_leaves_when_it_stops_growing() {
    let path = Bottleneck::of_12mbps_60ms(10.0);
    let mut left_s = None;
    let mut bbr = Bbr::new(1);
    run_and_look(&mut bbr, path, 3.0, 0.0, |ack, controller| {
        if !controller.in_slow_start() {
            left_s.get_or_insert(ack.now.as_secs());
        }
    });
    // the rate doubles from 10 packets in 60 ms to 60, in three round trips, and then does not
    // for three more, which the queue makes twice as long
    assert!((0.3..0.9).contains(&left_s.unwrap()), "{left_s:?}");
    assert!(
        (bbr.max_bw.max() / 1000.0 - 1.0).abs() < 0.02,
        "{}",
        bbr.max_bw.max()
    );
}

#[test]
fn the_first_phase_is_any_but_the_draining_one() {
    let mut counts = [0u32; CYCLE.len()];
    for seed in 0..700 {
        let mut bbr = Bbr::new(seed);
        bbr.enter_probe_bw(Time::ZERO);
        counts[bbr.phase] += 1;
    }
    assert_eq!(counts[1], 0);
    let others = counts.iter().enumerate().filter(|&(phase, _)| phase != 1);
    assert!(others.clone().all(|(_, &n)| n > 60), "{counts:?}");
}

#[test]
fn a_cycle_is_one_probe_one_drain_and_six_cruises() {
    let path = Bottleneck::of_12mbps_60ms(4.0);
    let mut gains: Vec<f64> = Vec::new();
    let mut bbr = Bbr::new(1);
    let mut last = 0.0;
    run_and_look(&mut bbr, path, 9.0, 0.0, |ack, controller| {
        let gain = controller.pacing_rate().unwrap() / 990.0;
        if ack.now.as_secs() > 5.0 && (gain - last).abs() > 0.1 {
            gains.push(gain);
        }
        last = gain;
    });
    // each cycle shows as three steps: up to 1.25, down to 0.75, back to 1
    assert!(gains.len() > 12, "{gains:?}");
    let up = gains.iter().position(|gain| *gain > 1.2).unwrap();
    for cycle in gains[up..].chunks_exact(3) {
        for (gain, expected) in cycle.iter().zip([1.25, 0.75, 1.0]) {
            assert!((gain - expected).abs() < 0.03, "{cycle:?}");
        }
    }
}

#[test]
fn the_window_is_two_bdp_and_three_quanta() {
    let mut bbr = bbr_in_probe_bw();
    bbr.phase = 3;
    for i in 0..400 {
        let now_s = 0.001 * f64::from(i);
        bbr.on_ack(&Ack {
            in_flight: 150,
            ..ack(now_s, 1)
        });
    }
    // 2 * 1000 a second * 100 ms, and 3 * 2
    assert_eq!(bbr.cwnd(), 206.0);
    assert!((bbr.pacing_rate().unwrap() - 990.0).abs() < 1e-6);
}

#[test]
fn recovery_begins_with_packet_conservation_and_ends_with_the_window_before() {
    let mut bbr = bbr_in_probe_bw();
    bbr.cwnd = 200.0;
    bbr.on_congestion(&crate::controller::tests::loss());
    let mut event = Ack {
        in_flight: 120,
        state: LossState::Recovery,
        lost_packets: 10,
        ..ack(0.01, 1)
    };
    bbr.on_ack(&event);
    assert_eq!(bbr.cwnd(), 121.0);
    event.lost_packets = 0;
    event.in_flight = 110;
    bbr.on_ack(&event);
    assert_eq!(bbr.cwnd(), 121.0);
    // the next recovery begins with the acknowledgment that ends this one, so recovery continues
    bbr.on_congestion(&crate::controller::tests::loss());
    event.in_flight = 90;
    bbr.on_ack(&event);
    assert_eq!(bbr.cwnd(), 121.0);
    event.state = LossState::Open;
    bbr.on_ack(&event);
    assert_eq!(bbr.cwnd(), 201.0); // and one for the packet delivered
}

#[test]
fn four_packets_for_200_ms_every_ten_seconds() {
    let path = Bottleneck::of_12mbps_60ms(4.0);
    let mut bbr = Bbr::new(1);
    let mut small: Vec<f64> = Vec::new();
    run_and_look(&mut bbr, path, 25.0, 0.0, |ack, controller| {
        if ack.now.as_secs() > 1.0 && controller.cwnd() <= MIN_WINDOW {
            small.push(ack.now.as_secs());
        }
    });
    let began: Vec<f64> = std::iter::once(small[0])
        .chain(small.windows(2).filter(|w| w[1] - w[0] > 1.0).map(|w| w[1]))
        .collect();
    assert_eq!(began.len(), 2, "{began:?}");
    assert!((began[1] - began[0] - 10.3).abs() < 0.3, "{began:?}");
    let first_ended = small.iter().rfind(|&&at| at < began[1]).unwrap();
    assert!((0.2..0.5).contains(&(first_ended - began[0])));
}

#[test]
fn the_link_is_full_with_about_one_bdp_in_flight() {
    let path = Bottleneck::of_12mbps_60ms(4.0);
    let outcome = run(&mut Bbr::new(1), path, 60.0, 10.0);
    assert!(outcome.utilization > 0.96, "{outcome:?}");
    // 61 packets fill the path; the probes and the margin for quanta add some
    assert!((55.0..75.0).contains(&outcome.in_flight), "{outcome:?}");
    assert_eq!(outcome.loss, 0.0);
}

#[test]
fn one_percent_of_loss_costs_little() {
    let path = Bottleneck {
        loss: 0.01,
        ..Bottleneck::of_12mbps_60ms(1.0)
    };
    let outcome = run(&mut Bbr::new(1), path, 60.0, 10.0);
    assert!(outcome.utilization > 0.93, "{outcome:?}");
}

#[test]
fn a_sample_that_the_application_limited_counts_only_if_it_is_larger() {
    let mut bbr = bbr_in_probe_bw();
    let sample = |bw: u64| Ack {
        rate: Some(RateSample {
            delivered_packets: bw,
            interval: Span::from_millis(1000),
            prior_delivered: 0,
            sent_in_flight: 10,
            lost_packets: 0,
            app_limited: true,
        }),
        ..ack(0.01, 1)
    };
    bbr.next_round_delivered = 1;
    bbr.on_ack(&sample(500));
    assert_eq!(bbr.max_bw.max(), 1000.0);
    bbr.on_ack(&sample(1500));
    assert_eq!(bbr.max_bw.max(), 1500.0);
}

#[test]
fn what_was_sent_while_it_looked_for_the_shortest_round_trip_time_is_no_measure() {
    let mut bbr = bbr_in_probe_bw();
    bbr.mode = BbrMode::ProbeRtt;
    for delivered in 100..103 {
        bbr.on_ack(&Ack {
            delivered,
            in_flight: 4,
            ..ack(0.01, 1)
        });
    }
    let limits: Vec<u64> = (90..120).filter(|&it| bbr.limits(it)).collect();
    assert_eq!(limits, (100..=106).collect::<Vec<u64>>());
}
