//! Runs whose outcome theory knows.

use pathcast_scenario::DATAGRAM_BYTES;
use pathcast_trace::{PacketRecord, Record};

use super::tests::{run, scenario, simulation};
use super::*;
use crate::wire::{MSS_BYTES, MTU_BYTES};

/// Mean goodput over seeds 1 to 5, in bits a second.
fn mean_goodput(path: &str, scheme: &str, duration_s: f64) -> f64 {
    (1..=5)
        .map(|seed| simulation(path, &[Scheme::named(scheme)], duration_s, seed))
        .map(|spec| run(&spec).flows[0].goodput_bps)
        .sum::<f64>()
        / 5.0
}

#[test]
fn a_flow_fills_a_link_with_a_queue_of_one_bdp() {
    for scheme in [Scheme::named("reno"), Scheme::named("cubic")] {
        let path = "rate = '100 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";
        let outcome = run(&simulation(path, std::slice::from_ref(&scheme), 60.0, 1));
        let ideal = 100e6 * f64::from(MSS_BYTES) / f64::from(MTU_BYTES);
        let share = outcome.flows[0].goodput_bps / ideal;
        assert!((0.98..=1.0).contains(&share), "{scheme}: {share}");
        // drops and retransmissions differ by what is found out only later
        let drops = outcome.data.dropped_by_queue;
        assert!(
            drops.abs_diff(outcome.flows[0].retransmits) <= drops / 20 + 2,
            "{scheme}"
        );
    }
}

#[test]
fn reno_under_random_loss_has_the_rate_of_mathis() {
    // 1.31 MSS / (R sqrt(p)) for independent loss and an ACK a packet (Mathis 1997), here with
    // an ACK for two packets but growth by bytes, so the same
    for p in [1e-3, 1e-4] {
        let path = format!("delay = '50 ms'\nloss = {p}\n");
        let goodput = mean_goodput(&path, "reno", 600.0);
        let mathis = 1.31 * f64::from(MSS_BYTES) * 8.0 / (0.1 * f64::sqrt(p));
        assert!(
            (goodput / mathis - 1.0).abs() < 0.1,
            "{p}: {}",
            goodput / mathis
        );
    }
}

#[test]
fn reno_under_periodic_loss_has_the_window_of_the_fluid_model() {
    for every in [10_000, 40_000] {
        let path = format!("delay = '50 ms'\nloss = {{ kind = 'periodic', every = {every} }}\n");
        let sent = |duration_s| {
            let outcome = run(&simulation(&path, &[Scheme::named("reno")], duration_s, 1));
            outcome.data.delivered as f64
        };
        // without the first minutes, which slow start shapes
        let window = (sent(2000.0) - sent(200.0)) / 1800.0 * 0.1;
        let fluid = (1.5 * f64::from(every)).sqrt(); // Mathis 1997
        assert!(
            (window / fluid - 1.0).abs() < 0.05,
            "{every}: {window} {fluid}"
        );
    }
}

/// Keeps the height and time of each peak of the window.
#[derive(Default)]
struct Peaks {
    highest: f64,
    peaks: Vec<(f64, f64)>,
}

impl Recorder for Peaks {
    const ACKS: bool = true;
    const PACKETS: bool = false;
    fn ack(&mut self, record: Record) {
        self.highest = self.highest.max(record.cwnd_packets);
        if record.cwnd_packets < 0.8 * self.highest {
            self.peaks.push((record.time_s, self.highest));
            self.highest = record.cwnd_packets;
        }
    }
    fn packet(&mut self, _: PacketRecord) {}
}

#[test]
fn cubic_under_periodic_loss_follows_the_fluid_model() {
    let (rtt_s, every) = (0.2, 20_000.0);
    let path = format!("delay = '100 ms'\nloss = {{ kind = 'periodic', every = {every} }}\n");
    let spec = simulation(&path, &[Scheme::named("cubic-rfc9438")], 900.0, 1);
    let mut simulated = Peaks::default();
    spec.run_recorded(&mut |_| ControlFlow::Continue(()), &mut simulated)
        .unwrap();
    let peaks = &simulated.peaks[10..];
    // RFC 9438, Eq. 1 and 2: W(t) = C (t - K)^3 + Wmax, from 0.7 Wmax on; a cycle is the time in which
    // 1 / p packets are sent, the first round trip of it in recovery; the window aims at what is due a
    // round trip later (section 4.2). Convergence is slow: near K the window hardly moves.
    let (c, beta) = (0.4, 0.7);
    let (first_s, mut w_max) = peaks[0];
    let (mut now_s, mut least, mut most) = (first_s, f64::MAX, 0.0f64);
    for &(at_s, height) in &peaks[1..] {
        let k = libm::cbrt(w_max * (1.0 - beta) / c);
        let step_s = 0.001;
        let (mut t, mut sent, mut window) = (0.0, beta * w_max, beta * w_max);
        while sent < every {
            window = c * libm::pow(t + rtt_s - k, 3.0) + w_max;
            sent += window * step_s / rtt_s;
            t += step_s;
        }
        now_s += t + rtt_s;
        window = window.floor(); // there are no parts of packets, which slows the convergence
        // on the way down from slow start a packet decides whether fast convergence sets in
        if at_s > first_s + 60.0 {
            let ratio = window / height;
            (least, most) = (least.min(ratio), most.max(ratio));
        }
        // fast convergence, RFC 9438, section 4.7
        w_max = if window < w_max {
            window * (1.0 + beta) / 2.0
        } else {
            window
        };
        if at_s > first_s + 600.0 {
            let took = (now_s - first_s) / (at_s - first_s);
            assert!((took - 1.0).abs() < 0.02, "time: {took}");
            break;
        }
    }
    assert!(least > 0.95 && most < 1.05, "windows: {least} to {most}");
}

#[test]
fn reno_saws_between_one_and_two_bdp_in_a_queue_of_one() {
    // windows from W/2 to W grow by a packet a round trip: 3/8 W^2 packets a cycle and W/2 in the round
    // trip of recovery. The first drop is missed a round trip later. In every second cycle one more is
    // sent until then than fits, as by Linux 6.18: of 24 cycles 11 had one drop, 13 had two. W is twice
    // the BDP B and those, and each window w lasts w / rate, so the queue's mean is the integral of
    // (w - B) w over that of w: 5/9 B
    let path = "rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '60 packets'\n";
    let run_for = |duration_s| run(&simulation(path, &[Scheme::named("reno")], duration_s, 1));
    let (short, long) = (run_for(400.0), run_for(2400.0));
    let drops = (long.data.dropped_by_queue - short.data.dropped_by_queue) as f64;
    let packets = (long.data.delivered - short.data.delivered) as f64;
    let bdp: f64 = 61.0; // 60 on the wire at 1 ms each, one on the link
    let top = 2.0 * bdp + 0.5;
    let ratio = packets / (drops / 1.5) / (0.375 * top * top + top / 2.0);
    assert!((0.95..1.05).contains(&ratio), "drops: {ratio}");
    let queueing_ms = long.report(0.0, 0.0).one_way_delay_ms.mean - 31.0;
    let ratio = queueing_ms / (5.0 / 9.0 * bdp);
    assert!((0.95..1.05).contains(&ratio), "queueing: {ratio}");
}

#[test]
fn poisson_datagrams_wait_as_in_an_m_d_1_queue() {
    for load in [0.5, 0.8, 0.9] {
        let text = format!(
            "[links.core]\nrate = '12 Mbit/s'\ndelay = '5 ms'\nqueue = 'unlimited'\n[[flows]]\n\
             scheme = 'udp'\nworkload = {{ kind = 'constant-rate', rate = '{} bit/s', \
             portion = '{DATAGRAM_BYTES} B', arrivals = 'poisson' }}\n",
            12e6 * load * f64::from(DATAGRAM_BYTES) / f64::from(MTU_BYTES)
        );
        let outcome = run(&scenario(&text, 2000.0, 1));
        // Pollaczek and Khinchine: rho / (2 (1 - rho)) services of 1 ms
        let waits_ms = load / (2.0 * (1.0 - load));
        let waited_ms = outcome.report(0.0, 0.0).one_way_delay_ms.mean - 6.0;
        assert!(
            (waited_ms / waits_ms - 1.0).abs() < 0.03,
            "{load}: {waited_ms}"
        );
        assert_eq!(outcome.data.dropped(), 0);
    }
}

#[test]
fn equal_flows_share_equally() {
    let path = "rate = '50 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n";
    let outcome = run(&simulation(path, &vec![Scheme::named("reno"); 4], 120.0, 3));
    let rates: Vec<f64> = outcome.flows.iter().map(|flow| flow.goodput_bps).collect();
    let jain =
        libm::pow(rates.iter().sum(), 2.0) / (4.0 * rates.iter().map(|r| r * r).sum::<f64>());
    assert!(jain > 0.95, "{jain}: {rates:?}");
    assert!(
        rates.iter().sum::<f64>() > 0.95 * 50e6 * 1448.0 / 1500.0,
        "{rates:?}"
    );
}
