use proptest::prelude::*;

use super::*;

/// One packet takes 1 ms at the bottleneck; a round trip without queue takes 50 ms.
const PACKET_S: f64 = 0.001;
const RTT_S: f64 = 0.05;
const BDP: f64 = RTT_S / PACKET_S;

/// A flow over an ideal path, a record for each acknowledged packet.
struct Flow {
    tracker: LimitTracker,
    now_s: f64,
    cwnd: f64,
    acked: f64,
    lost: f64,
    rwnd: Option<f64>,
}

impl Flow {
    fn new(is_paced: bool) -> Self {
        Self {
            tracker: LimitTracker::new(LimitOptions { is_paced }),
            now_s: 0.0,
            cwnd: 10.0,
            acked: 0.0,
            lost: 0.0,
            rwnd: None,
        }
    }

    /// A round trip with so many packets in flight; those beyond the path's BDP wait.
    fn round(&mut self, in_flight: f64) {
        let rtt_s = RTT_S.max(in_flight * PACKET_S);
        for _ in 0..in_flight as u32 {
            self.now_s += rtt_s / in_flight;
            self.acked += 1.0;
            self.tracker.observe(&LimitRecord {
                time_s: self.now_s,
                cwnd_packets: self.cwnd,
                srtt_s: Some(rtt_s),
                min_rtt_s: None,
                snd_nxt_packets: Some(self.acked + in_flight),
                snd_una_packets: Some(self.acked),
                rwnd_packets: self.rwnd,
                retransmits: Some(self.lost),
            });
        }
    }

    /// Full windows that grow by a packet a round trip, and are halved where `loses` says so.
    fn sawtooth(&mut self, rounds: u32, mut loses: impl FnMut(&Self, u32) -> bool) {
        for round in 0..rounds {
            self.round(self.cwnd);
            if loses(self, round) {
                self.lost += 1.0;
                self.cwnd /= 2.0;
            } else {
                self.cwnd += 1.0;
            }
        }
    }

    fn limits(&self) -> Limits {
        self.tracker.limits().unwrap()
    }
}

#[test]
fn a_window_that_doubles_is_slow_start() {
    let mut flow = Flow::new(false);
    for _ in 0..2 {
        flow.round(flow.cwnd);
        flow.cwnd *= 2.0;
    }
    let limits = flow.limits();
    assert_eq!(limits.limit, Limit::SlowStart);
    assert!(limits.probability > 0.9, "{limits:?}");
}

#[test]
fn losses_at_any_window_below_the_paths_are_chance() {
    let mut flow = Flow::new(false);
    // after 3, 22, 9, 30, ... round trips
    let gaps = [3, 22, 9, 30, 5, 14, 27, 7];
    let mut next = (0, gaps[0]);
    flow.sawtooth(400, |flow, round| {
        let is_due = round >= next.1 || flow.cwnd > 0.8 * BDP;
        if is_due {
            next = (next.0 + 1, round + gaps[(next.0 + 1) % gaps.len()]);
        }
        is_due
    });
    assert_eq!(flow.limits().limit, Limit::Loss, "{:?}", flow.limits());
}

#[test]
fn a_full_path_is_told_from_a_short_queue_by_the_time_that_packets_wait() {
    let named = |queue_packets: f64| {
        let mut flow = Flow::new(false);
        flow.sawtooth(600, |flow, _| flow.cwnd >= BDP + queue_packets);
        flow.limits()
    };
    let long = named(1.2 * BDP);
    assert_eq!(long.limit, Limit::PathRate);
    assert!(long.shares.of(Limit::PathRate) > 0.9, "{long:?}");
    let short = named(6.0);
    assert_eq!(short.limit, Limit::Queue, "{short:?}");
    // 6 of its 31 rounds wait
    assert!(short.shares.of(Limit::PathRate) < 0.3, "{short:?}");
}

#[test]
fn losses_at_one_window_without_any_wait_are_a_policers() {
    let mut flow = Flow::new(false);
    flow.sawtooth(600, |flow, _| flow.cwnd >= 0.6 * BDP);
    assert_eq!(flow.limits().limit, Limit::Policer, "{:?}", flow.limits());
}

#[test]
fn the_smaller_of_two_windows_is_what_limits() {
    let mut flow = Flow::new(false);
    (flow.cwnd, flow.rwnd) = (60.0, Some(30.0));
    for _ in 0..100 {
        flow.round(30.0);
    }
    assert_eq!(flow.limits().limit, Limit::ReceiveWindow);
    // a window that is larger than what the path holds does not limit
    let mut flow = Flow::new(false);
    (flow.cwnd, flow.rwnd) = (3.0 * BDP, Some(2.0 * BDP));
    flow.round(10.0);
    for _ in 0..100 {
        flow.round(2.0 * BDP);
    }
    assert_eq!(flow.limits().limit, Limit::PathRate);
}

#[test]
fn a_window_that_is_not_used_is_the_applications() {
    for is_paced in [false, true] {
        let mut flow = Flow::new(is_paced);
        flow.cwnd = 80.0;
        flow.round(40.0);
        for _ in 0..100 {
            flow.round(12.0);
        }
        assert_eq!(flow.limits().limit, Limit::Application, "{is_paced}");
    }
}

#[test]
fn pauses_are_idle_and_limits_of_now_are_of_two_seconds() {
    let mut flow = Flow::new(false);
    flow.cwnd = 20.0;
    for _ in 0..10 {
        flow.round(20.0);
        flow.now_s += 1.0;
    }
    let limits = flow.limits();
    assert_eq!(limits.limit, Limit::Idle);
    assert!((limits.shares.of(Limit::Idle) - 1.0 / (1.0 + RTT_S)).abs() < 0.1);
    for _ in 0..50 {
        flow.round(20.0);
    }
    let limits = flow.limits();
    assert_eq!(limits.limit, Limit::Idle);
    assert_eq!(limits.now.largest(), Limit::SlowStart);
    assert!(limits.now.of(Limit::Idle) < 0.05, "{limits:?}");
}

#[test]
fn a_paced_flow_without_losses_gets_the_paths_rate() {
    let mut flow = Flow::new(true);
    for cwnd in [10.0, 20.0, 40.0] {
        flow.cwnd = 2.0 * cwnd;
        flow.round(cwnd);
    }
    flow.cwnd = 2.0 * BDP + 6.0;
    for _ in 0..200 {
        flow.round(BDP);
    }
    assert_eq!(flow.limits().limit, Limit::PathRate, "{:?}", flow.limits());
}

#[test]
fn a_flow_with_one_record_is_not_judged() {
    let mut tracker = LimitTracker::new(LimitOptions::default());
    assert_eq!(tracker.limits(), None);
    tracker.observe(&LimitRecord {
        cwnd_packets: 10.0,
        ..LimitRecord::default()
    });
    assert_eq!(tracker.limits(), None);
}

proptest! {
    #[test]
    fn whatever_comes_shares_sum_to_one(
        rows in prop::collection::vec(
            (0.0..2.0, 1.0..1e4, prop::option::of(1e-6..10.0), prop::option::of(0.0..1e9),
             prop::option::of(0.0..1e9), prop::option::of(0.0..1e6), prop::option::of(0.0..100.0)),
            2..60,
        ),
        is_paced: bool,
    ) {
        let mut tracker = LimitTracker::new(LimitOptions { is_paced });
        let mut now_s = 0.0;
        for (gap_s, cwnd_packets, srtt_s, snd_nxt_packets, snd_una_packets, rwnd_packets, retransmits) in rows {
            now_s += gap_s;
            tracker.observe(&LimitRecord {
                time_s: now_s,
                cwnd_packets,
                srtt_s,
                min_rtt_s: srtt_s,
                snd_nxt_packets,
                snd_una_packets,
                rwnd_packets,
                retransmits,
            });
        }
        if let Some(limits) = tracker.limits() {
            for shares in [limits.shares, limits.now] {
                let sum: f64 = LIMITS.iter().map(|limit| shares.of(*limit)).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "{limits:?}");
                prop_assert!(LIMITS.iter().all(|limit| shares.of(*limit) >= -1e-12), "{limits:?}");
            }
            prop_assert!((0.5..=1.0).contains(&limits.probability), "{limits:?}");
        }
    }
}
