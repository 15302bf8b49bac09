//! Closed forms from the book and from the paper.

use super::*;

fn approx(got: f64, wanted: f64) {
    assert!(
        got == wanted || (got - wanted).abs() <= 1e-9 * wanted.abs().max(1e-3),
        "{got}, expected {wanted}"
    );
}

fn assert_same(got: &Curve, wanted: &Curve) {
    assert!(
        got.is_same_as(wanted).unwrap(),
        "{got:?}\nexpected {wanted:?}"
    );
}

#[test]
fn latency_rate_servers_in_a_row_add_latencies_and_keep_the_least_rate() {
    let a = Curve::latency_rate(7.0, 0.3).unwrap();
    let b = Curve::latency_rate(4.0, 0.2).unwrap();
    assert_same(
        &a.convolve(&b).unwrap(),
        &Curve::latency_rate(4.0, 0.5).unwrap(),
    );
    assert_same(
        &b.convolve(&a).unwrap(),
        &Curve::latency_rate(4.0, 0.5).unwrap(),
    );
    assert_same(
        &a.convolve(&a).unwrap(),
        &Curve::latency_rate(7.0, 0.6).unwrap(),
    );
}

#[test]
fn a_token_bucket_through_a_latency_rate_server_has_the_books_bounds() {
    let (b, r, rate, latency) = (3e5, 2e6, 5e6, 0.04);
    let arrivals = Curve::token_bucket(r, b).unwrap();
    let service = Curve::latency_rate(rate, latency).unwrap();
    approx(
        arrivals.horizontal_deviation(&service).unwrap(),
        latency + b / rate,
    );
    approx(
        arrivals.vertical_deviation(&service).unwrap(),
        b + r * latency,
    );
    let output = arrivals.deconvolve(&service).unwrap();
    assert_same(&output, &Curve::token_bucket(r, b + r * latency).unwrap());
    // just as fast, and faster, than the server
    let equal = Curve::token_bucket(rate, b).unwrap();
    approx(
        equal.horizontal_deviation(&service).unwrap(),
        latency + b / rate,
    );
    approx(
        equal.vertical_deviation(&service).unwrap(),
        b + rate * latency,
    );
    let faster = Curve::token_bucket(rate * 1.01, b).unwrap();
    assert_eq!(
        faster.horizontal_deviation(&service).unwrap(),
        f64::INFINITY
    );
    assert_eq!(faster.vertical_deviation(&service).unwrap(), f64::INFINITY);
    assert_eq!(
        faster.deconvolve(&service).unwrap(),
        Curve::delay(0.0).unwrap()
    );
}

#[test]
fn a_shaper_with_a_peak_rate_has_the_books_bounds() {
    // Le Boudec & Thiran, proposition 1.4.1: IntServ, min(p t + M, r t + b) through R [t - T]+
    let (m, p, r, b) = (1e4, 8e6, 1e6, 4e5);
    let (rate, latency) = (2e6, 0.1);
    let arrivals = Curve::token_bucket(p, m)
        .unwrap()
        .min(&Curve::token_bucket(r, b).unwrap())
        .unwrap();
    assert!(arrivals.is_concave() && !arrivals.is_convex());
    let service = Curve::latency_rate(rate, latency).unwrap();
    let theta = (b - m) / (p - r);
    approx(
        arrivals.horizontal_deviation(&service).unwrap(),
        (m + theta * (p - rate)) / rate + latency,
    );
    approx(
        arrivals.vertical_deviation(&service).unwrap(),
        // theta < latency: the largest backlog is when service begins
        b + r * latency,
    );
}

#[test]
fn convolution_with_a_delay_is_a_shift() {
    let curve = Curve::window_flow_control(10e6, 0.05, 0.1, 500e3).unwrap();
    let later = curve.convolve(&Curve::delay(0.25).unwrap()).unwrap();
    assert_same(&later, &curve.later(0.25).unwrap());
    assert_same(
        &Curve::delay(0.25).unwrap().convolve(&curve).unwrap(),
        &later,
    );
    assert_same(
        &curve.convolve(&Curve::delay(0.0).unwrap()).unwrap(),
        &curve,
    );
    let sum = Curve::delay(0.1)
        .unwrap()
        .convolve(&Curve::delay(0.3).unwrap())
        .unwrap();
    assert_eq!(sum, Curve::delay(0.4).unwrap());
    assert_same(
        &curve.deconvolve(&Curve::delay(0.05).unwrap()).unwrap(),
        &Curve::window_flow_control(10e6, 0.0, 0.1, 500e3).unwrap(),
    );
}

#[test]
fn half_a_window_gives_the_papers_stepped_curve() {
    // Fig. 4a: 10 Mbit/s, 50 ms, RTT 100 ms, 500 kbit
    let curve = Curve::window_flow_control(10e6, 0.05, 0.1, 500e3).unwrap();
    assert_eq!(curve.rate(), 5e6);
    let wanted = [
        (0.0, 0.0),
        (0.05, 0.0),
        (0.075, 250e3),
        (0.1, 500e3),
        (0.15, 500e3),
        (0.2, 1e6),
        (0.25, 1e6),
        (0.275, 1.25e6),
        (1.05, 5e6),
        (1.025, 5e6),
        (1.075, 5.25e6),
    ];
    for (t, value) in wanted {
        approx(curve.at(t), value);
    }
    // the definition, far out
    for i in 0..4000 {
        let t = f64::from(i) * 0.00317;
        let least = (0..200)
            .map(|n| f64::from(n) * 500e3 + 10e6 * (t - 0.05 - f64::from(n) * 0.1).max(0.0))
            .fold(f64::INFINITY, f64::min);
        assert!((curve.at(t) - least).abs() <= 1e-9 * least.max(1.0), "{t}");
    }
    // Fig. 4b: 1 Mbit
    let whole = Curve::window_flow_control(10e6, 0.05, 0.1, 1e6).unwrap();
    assert_eq!(whole, Curve::latency_rate(10e6, 0.05).unwrap());
}

#[test]
fn the_closure_gives_the_closed_form_of_window_flow_control() {
    for (rate, latency, rtt, window) in [
        (10e6, 0.05, 0.1, 500e3),
        (10e6, 0.05, 0.1, 1e6),
        (10e6, 0.05, 0.1, 2e6),
        (10e6, 0.05, 0.1, 999e3),
        (10e6, 0.05, 0.1, 1001e3),
        (1.0, 0.0, 1.0, 0.3),
        (3.3e6, 0.013, 0.031, 77e3),
        (1e9, 0.03, 0.03, 12e3),
    ] {
        let network = Curve::latency_rate(rate, latency).unwrap();
        let general = Curve::windowed(&network, rtt - latency, window).unwrap();
        let closed = Curve::window_flow_control(rate, latency, rtt, window).unwrap();
        assert_same(&general, &closed);
    }
    let pipe = Curve::windowed(&Curve::delay(0.05).unwrap(), 0.05, 500e3).unwrap();
    assert_same(
        &pipe,
        &Curve::window_flow_control(f64::INFINITY, 0.05, 0.1, 500e3).unwrap(),
    );
    assert_eq!(pipe.rate(), 5e6);
}

#[test]
fn a_window_over_a_window_is_the_smaller_one() {
    // an inner loop over the network, an outer one of more rate: nothing changes except the steps
    let network = Curve::latency_rate(10e6, 0.02).unwrap();
    let inner = Curve::windowed(&network, 0.02, 200e3).unwrap();
    let outer = Curve::windowed(&inner, 0.02, 400e3).unwrap();
    assert_same(&outer, &inner);
    let narrow = Curve::windowed(&inner, 0.02, 100e3).unwrap();
    assert_same(
        &narrow,
        &Curve::window_flow_control(10e6, 0.02, 0.04, 100e3).unwrap(),
    );
}

#[test]
fn a_closure_may_have_another_period_than_the_curve() {
    // cheapest: 2 s for 3; also 5 s for 8
    let curve =
        Curve::from_points(&[(0.0, 3.0), (2.0, 3.0), (2.0, 8.0), (5.0, 8.0)], 100.0).unwrap();
    let closed = curve.closure().unwrap();
    approx(closed.rate(), 1.5);
    // 4 s: 3 + 3, 4.5 s: 8, 5 s: 8, 6 s: 9, 7 s: 3 + 8, 9 s: 14
    for (t, value) in [
        (1.0, 3.0),
        (2.0, 3.0),
        (4.0, 6.0),
        (4.5, 8.0),
        (5.0, 8.0),
        (6.0, 9.0),
        (7.0, 11.0),
        (9.0, 14.0),
    ] {
        approx(closed.at(t), value);
    }
    assert_same(&closed.closure().unwrap(), &closed);
}

#[test]
fn a_closure_of_what_begins_slowly_is_a_line_or_nothing() {
    let late = Curve::latency_rate(5.0, 1.0).unwrap();
    assert_eq!(late.closure().unwrap(), Curve::zero());
    let convex = Curve::from_points(&[(1.0, 2.0)], 9.0).unwrap();
    assert_eq!(
        convex.closure().unwrap(),
        Curve::constant_rate(2.0).unwrap()
    );
    let concave = Curve::from_points(&[(1.0, 9.0)], 2.0).unwrap();
    assert_eq!(concave.closure().unwrap(), concave);
}

#[test]
fn what_a_burst_leaves_of_a_link_is_a_latency_rate_curve() {
    // Le Boudec & Thiran, theorem 6.2.1: C t less b + r t
    let link = Curve::constant_rate(10.0).unwrap();
    let cross = Curve::token_bucket(4.0, 3.0).unwrap();
    assert_same(
        &link.minus(&cross).unwrap(),
        &Curve::latency_rate(6.0, 0.5).unwrap(),
    );
    assert_eq!(
        cross
            .minus(&Curve::token_bucket(5.0, 2.0).unwrap())
            .unwrap()
            .at(9.0),
        1.0
    );
    // steps of packets instead of a fluid: never less than it by a packet, and one more at most
    let packets = Curve::steps(2.0, 4.0, true).unwrap();
    let left = link.minus(&packets).unwrap();
    approx(left.rate(), 6.0);
    for i in 1..100 {
        let t = f64::from(i) * 0.0713;
        let most = (0..=1000)
            .map(|k| t * f64::from(k) / 1000.0)
            .map(|s| link.at(s) - packets.at(s))
            .fold(0.0, f64::max);
        assert!(left.at(t) >= most - 1e-9 && left.at(t) <= most + 10.0 * t / 1000.0 + 1e-9);
    }
}

#[test]
fn inverses_swap_jumps_and_plateaus() {
    let curve = Curve::window_flow_control(10e6, 0.05, 0.1, 500e3).unwrap();
    let inverse = curve.inverse().unwrap();
    for (level, t) in [
        (0.0, 0.0),
        (250e3, 0.075),
        (500e3, 0.1),
        (750e3, 0.175),
        (1e6, 0.2),
        (5e6, 1.0),
    ] {
        approx(inverse.at(level), t);
    }
    approx(inverse.right_limit(500e3), 0.15);
    assert_same(&inverse.inverse().unwrap(), &curve);
    let delay = Curve::delay(0.3).unwrap();
    assert_eq!(
        delay.inverse().unwrap(),
        Curve::token_bucket(0.0, 0.3).unwrap()
    );
    assert_eq!(delay.inverse().unwrap().inverse().unwrap(), delay);
    assert_eq!(Curve::zero().inverse().unwrap(), Curve::delay(0.0).unwrap());
}

#[test]
fn probes_give_the_upper_envelope_of_their_lines() {
    let rates: Vec<f64> = (0..9).map(|i| f64::from(i) * 1e6).collect();
    let delays: Vec<f64> = rates
        .iter()
        .map(|rate| 0.03 / (1.0 - rate / 10e6))
        .collect();
    let curve = Curve::from_probes(&rates, &delays).unwrap();
    assert!(curve.is_convex());
    for i in 0..300 {
        let t = f64::from(i) * 0.001;
        let most = rates
            .iter()
            .zip(&delays)
            .map(|(rate, delay)| rate * (t - delay).max(0.0))
            .fold(0.0, f64::max);
        approx(curve.at(t), most);
    }
    let backlogs: Vec<f64> = rates
        .iter()
        .zip(&delays)
        .map(|(rate, delay)| rate * delay)
        .collect();
    assert_eq!(Curve::from_backlogs(&rates, &backlogs).unwrap(), curve);
    // the static window as probing sees it: the largest convex curve below (Fig. 4a, dashed)
    let window = Curve::window_flow_control(10e6, 0.05, 0.1, 500e3).unwrap();
    let rates: Vec<f64> = (1..=10).map(|i| f64::from(i) * 0.5e6).collect();
    let delays: Vec<f64> = rates
        .iter()
        .map(|&rate| {
            Curve::constant_rate(rate)
                .unwrap()
                .horizontal_deviation(&window)
                .unwrap()
        })
        .collect();
    let seen = Curve::from_probes(&rates, &delays).unwrap();
    assert!(seen.is_at_most(&window).unwrap());
    assert_same(&seen, &Curve::latency_rate(5e6, 0.05).unwrap());
}

#[test]
fn periodic_curves_are_kept_in_their_shortest_form() {
    let twice = Curve::from_segments(
        &[(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)].map(|(start_s, value)| Segment {
            start_s,
            value,
            slope: 0.0,
        }),
        Tail::Periodic {
            from_s: 2.0,
            period_s: 2.0,
            increment: 2.0,
        },
    )
    .unwrap();
    assert_eq!(twice, Curve::steps(1.0, 1.0, true).unwrap());
    let line = Curve::from_segments(
        &[Segment {
            start_s: 0.0,
            value: 0.0,
            slope: 2.0,
        }],
        Tail::Periodic {
            from_s: 0.0,
            period_s: 0.7,
            increment: 1.4,
        },
    )
    .unwrap();
    assert_eq!(line, Curve::constant_rate(2.0).unwrap());
}

#[test]
fn packets_of_two_sizes_share_a_period() {
    let (a, b) = (
        Curve::steps(2.0, 1.0, true).unwrap(),
        Curve::steps(3.0, 1.0, true).unwrap(),
    );
    let sum = a.add(&b).unwrap();
    let Tail::Periodic {
        period_s,
        increment,
        ..
    } = sum.tail()
    else {
        panic!("{sum:?}")
    };
    assert_eq!((period_s, increment), (6.0, 12.0));
    approx(sum.at(6.0), 12.0);
    approx(sum.at(6.5), 17.0);
    let odd = Curve::steps(2.0_f64.sqrt(), 1.0, true).unwrap();
    assert!(matches!(
        a.add(&odd),
        Err(MinPlusError::Incommensurable { .. })
    ));
    // of different rates: no common period needed
    let slow = Curve::steps(2.0_f64.sqrt(), 0.5, true).unwrap();
    for curve in [
        a.min(&slow),
        a.convolve(&slow),
        slow.convolve(&a),
        a.max(&slow),
        slow.deconvolve(&a),
    ] {
        curve.unwrap();
    }
    slow.horizontal_deviation(&a).unwrap();
}

#[test]
fn a_fluid_queue_keeps_the_bounds_of_its_trace() {
    // constant rate and latency: the bound is what happens
    let (times, sizes) = traffic(2000, 7);
    let arrivals = Arrivals::new(&times, &sizes).unwrap();
    let (rate, latency) = (1.3, 0.4);
    let service = Curve::latency_rate(rate, latency).unwrap();
    let delays = arrivals.delay_bounds(&service).unwrap();
    let backlogs = arrivals
        .backlog_bounds(&Curve::constant_rate(rate).unwrap())
        .unwrap();
    let mut free_s = 0.0_f64;
    for (n, (&time, &size)) in times.iter().zip(&sizes).enumerate() {
        free_s = free_s.max(time) + size / rate;
        approx(delays[n], free_s - time + latency);
        approx(backlogs[n], (free_s - time) * rate);
    }
    // the envelope bounds the worst of them
    let envelope = arrivals.envelope().unwrap();
    let worst = delays.iter().copied().fold(0.0, f64::max);
    approx(envelope.horizontal_deviation(&service).unwrap(), worst);
    let most = backlogs.iter().copied().fold(0.0, f64::max);
    approx(
        envelope
            .vertical_deviation(&Curve::constant_rate(rate).unwrap())
            .unwrap(),
        most,
    );
    approx(arrivals.smallest_burst(rate).unwrap(), most);
}

#[test]
fn bounds_are_the_largest_of_all_candidates() {
    let (times, sizes) = traffic(400, 3);
    let arrivals = Arrivals::new(&times, &sizes).unwrap();
    let total = arrivals.total();
    let stepped = Curve::window_flow_control(4.0, 0.3, 1.1, 2.0).unwrap();
    for service in [
        stepped.clone(),
        Curve::window_flow_control(4.0, 0.3, 1.1, 1.0).unwrap(),
        Curve::steps(0.7, 1.2, false).unwrap(),
        Curve::from_probes(&[0.5, 1.0, 1.5], &[0.2, 0.5, 2.0]).unwrap(),
        Curve::delay(0.7).unwrap(),
        Curve::token_bucket(1.1, 4.0).unwrap(),
        stepped
            .min(&Curve::token_bucket(0.0, 0.8 * total).unwrap())
            .unwrap(),
        Curve::zero(),
    ] {
        let inverse = service.inverse().unwrap();
        let delays = arrivals.delay_bounds(&service).unwrap();
        let backlogs = arrivals.backlog_bounds(&service).unwrap();
        let before = |j: usize| sizes[..j].iter().sum::<f64>();
        for n in 0..times.len() {
            let delay = (0..=n)
                .map(|j| times[j] + inverse.at(before(n + 1) - before(j)) - times[n])
                .fold(0.0, f64::max);
            let backlog = (0..=n)
                .map(|j| before(n + 1) - before(j) - service.at(times[n] - times[j]))
                .fold(0.0, f64::max);
            approx(delays[n], delay);
            approx(backlogs[n], backlog.max(0.0));
        }
    }
}

#[test]
fn envelopes_of_windows_bound_the_exact_one_and_meet_it() {
    let (times, sizes) = traffic(300, 11);
    let arrivals = Arrivals::new(&times, &sizes).unwrap();
    let exact = arrivals.envelope().unwrap();
    let windows: Vec<f64> = (1..60).map(|i| f64::from(i) * 0.37).collect();
    let coarse = arrivals.envelope_at(&windows).unwrap();
    assert!(exact.is_at_most(&coarse).unwrap());
    for &window in &windows {
        approx(coarse.at(window), exact.right_limit(window));
    }
    let longer = [1.0, 10.0, arrivals.span_s() + 1.0];
    assert!(
        exact
            .is_at_most(&arrivals.envelope_at(&longer).unwrap())
            .unwrap()
    );
    // by definition
    for i in 0..50 {
        let t = f64::from(i) * 0.613;
        let most = (0..times.len())
            .map(|j| {
                let inside = (j..times.len()).take_while(|&n| times[n] - times[j] < t);
                inside.map(|n| sizes[n]).sum::<f64>()
            })
            .fold(0.0, f64::max);
        approx(exact.at(t), most);
    }
    let total = arrivals.cumulative().unwrap();
    approx(total.at(times[9]), sizes[..9].iter().sum());
    approx(total.rate(), 0.0);
}

/// Packets of a rate of about 1 in bursts.
fn traffic(count: u64, seed: u64) -> (Vec<f64>, Vec<f64>) {
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut time = 0.0;
    (0..count)
        .map(|_| {
            time += if uniform() < 0.6 {
                0.0
            } else {
                -2.5 * uniform().ln()
            };
            (time, 0.5 + uniform())
        })
        .unzip()
}
