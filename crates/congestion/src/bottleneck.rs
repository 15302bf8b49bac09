//! One bottleneck for the tests: a link of constant rate, a base round-trip time, a droptail buffer,
//! and a transport that is just honest enough to feed a controller. Nothing is sent twice: a lost
//! packet is made up for by a new one.

use std::collections::VecDeque;

use pathcast_path::{Span, Time};

use crate::controller::{Ack, Congestion, Controller, LossState, RateSample, Signal};
use crate::random::SplitMix64;

/// The path.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    pub packets_per_s: f64,
    pub base_rtt: Span,
    pub buffer_packets: f64,
    pub loss: f64,
}

impl Bottleneck {
    /// 12 Mbit/s in packets of 1,500 bytes, 60 ms, a buffer of `bdps` times 60 packets.
    pub fn of_12mbps_60ms(bdps: f64) -> Self {
        Self {
            packets_per_s: 1000.0,
            base_rtt: Span::from_millis(60),
            buffer_packets: 60.0 * bdps,
            loss: 0.0,
        }
    }
}

/// What happened, from `warm_up_s` on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Share of the link that was used.
    pub utilisation: f64,
    /// Mean packets in flight at the acknowledgments.
    pub in_flight: f64,
    /// Mean packets in the buffer.
    pub queue_packets: f64,
    /// Share of packets lost.
    pub loss: f64,
}

#[derive(Clone, Copy)]
struct Sent {
    seq: u64,
    at: Time,
    arrives: Option<Time>,
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    in_flight: u64,
    lost: u64,
}

/// Runs a bulk flow for `duration_s`; `look` sees the controller after each acknowledgment.
pub fn run_and_look(
    controller: &mut dyn Controller,
    path: Bottleneck,
    duration_s: f64,
    warm_up_s: f64,
    mut look: impl FnMut(&Ack, &dyn Controller),
) -> Outcome {
    let service = Span::from_secs(1.0 / path.packets_per_s);
    let (end, warm) = (Span::from_secs(duration_s), Span::from_secs(warm_up_s));
    let mut random = SplitMix64::new(1);
    let mut sent: VecDeque<Sent> = VecDeque::new();
    let (mut now, mut busy_until, mut next_send) = (Time::ZERO, Time::ZERO, Time::ZERO);
    let (mut seq, mut delivered, mut lost) = (0u64, 0u64, 0u64);
    let (mut delivered_at, mut first_sent_at) = (Time::ZERO, Time::ZERO);
    let (mut srtt_ns, mut min_rtt) = (0.0, None::<Span>);
    let (mut round_end, mut recovery_end) = (0u64, None::<u64>);
    let mut limited = (false, false);
    let (mut sum_in_flight, mut sum_queue, mut counted, mut sent_warm, mut lost_warm) =
        (0.0, 0.0, 0u64, 0u64, 0u64);
    while now.since(Time::ZERO) < end {
        let window_open = (sent.len() as u64) < controller.cwnd() as u64;
        limited.0 |= !window_open;
        if window_open && next_send <= now {
            let backlog = busy_until.since(now).as_secs() * path.packets_per_s;
            let dropped = backlog > path.buffer_packets || random.uniform() < path.loss;
            if !dropped {
                busy_until = busy_until.max(now) + service;
            }
            if sent.is_empty() {
                (first_sent_at, delivered_at) = (now, now);
            }
            sent.push_back(Sent {
                seq,
                at: now,
                arrives: (!dropped).then(|| busy_until + path.base_rtt),
                delivered,
                delivered_at,
                first_sent_at,
                in_flight: sent.len() as u64 + 1,
                lost,
            });
            seq += 1;
            sent_warm += u64::from(now.since(Time::ZERO) >= warm);
            if let Some(rate) = controller.pacing_rate() {
                next_send = next_send.max(now) + Span::from_secs(1.0 / rate);
            }
            continue;
        }
        let arrival = sent.iter().find_map(|packet| packet.arrives);
        let wake = window_open.then_some(next_send);
        let next = [arrival, wake].into_iter().flatten().min();
        let Some(next) = next.filter(|&next| Some(next) == arrival || arrival.is_some()) else {
            // all that was in flight is lost: the retransmission timer
            if wake.is_some() && sent.len() < 3 {
                now = next_send;
                continue;
            }
            now += Span::from_secs(1.0);
            lost += sent.len() as u64;
            sent.clear();
            if recovery_end.is_none() {
                controller.on_congestion(&Congestion {
                    now,
                    signal: Signal::Loss,
                    in_flight: 0,
                });
            }
            controller.on_timeout(now);
            recovery_end = None;
            continue;
        };
        now = next;
        if Some(next) != arrival {
            continue;
        }
        let prior_in_flight = sent.len() as u64;
        let mut newly_lost = 0;
        let packet = loop {
            let packet = sent.pop_front().expect("one arrives");
            if packet.arrives.is_some() {
                break packet;
            }
            newly_lost += 1;
        };
        lost += newly_lost;
        delivered += 1;
        let rtt = now.since(packet.at);
        srtt_ns = if min_rtt.is_none() {
            rtt.as_nanos() as f64
        } else {
            srtt_ns + (rtt.as_nanos() as f64 - srtt_ns) / 8.0
        };
        min_rtt = Some(min_rtt.map_or(rtt, |min| min.min(rtt)));
        let send_elapsed = packet.at.since(packet.first_sent_at);
        let ack_elapsed = now.since(packet.delivered_at);
        (first_sent_at, delivered_at) = (packet.at, now);
        let round_ends = packet.seq >= round_end;
        if round_ends {
            round_end = seq;
            limited = (false, limited.0);
        }
        if recovery_end.is_some_and(|end| packet.seq >= end) {
            recovery_end = None;
        }
        if newly_lost > 0 && recovery_end.is_none() {
            recovery_end = Some(seq);
            controller.on_congestion(&Congestion {
                now,
                signal: Signal::Loss,
                in_flight: sent.len() as u64,
            });
        }
        let ack = Ack {
            now,
            acked_packets: 1,
            lost_packets: newly_lost,
            marked_packets: 0,
            rtt: Some(rtt),
            srtt: Span::from_nanos(srtt_ns as u64),
            min_rtt: min_rtt.expect("just set"),
            in_flight: sent.len() as u64,
            prior_in_flight,
            departs_at: next_send,
            delivered,
            lost,
            rate: Some(RateSample {
                delivered_packets: delivered - packet.delivered,
                interval: send_elapsed.max(ack_elapsed),
                prior_delivered: packet.delivered,
                sent_in_flight: packet.in_flight,
                lost_packets: lost - packet.lost,
                app_limited: false,
            }),
            round_ends,
            cwnd_limited: limited.0 || limited.1,
            in_order: true,
            state: match recovery_end {
                Some(_) => LossState::Recovery,
                None => LossState::Open,
            },
        };
        if recovery_end.is_none() || controller.manages_recovery() {
            controller.on_ack(&ack);
        }
        look(&ack, controller);
        if now.since(Time::ZERO) >= warm {
            counted += 1;
            lost_warm += newly_lost;
            sum_in_flight += sent.len() as f64;
            sum_queue += (rtt - path.base_rtt - service).as_secs() * path.packets_per_s;
        }
    }
    let n = counted.max(1) as f64;
    Outcome {
        utilisation: counted as f64 / (path.packets_per_s * (duration_s - warm_up_s)),
        in_flight: sum_in_flight / n,
        queue_packets: sum_queue / n,
        loss: lost_warm as f64 / sent_warm.max(1) as f64,
    }
}

/// Runs a bulk flow for `duration_s` and measures from `warm_up_s` on.
pub fn run(
    controller: &mut dyn Controller,
    path: Bottleneck,
    duration_s: f64,
    warm_up_s: f64,
) -> Outcome {
    run_and_look(controller, path, duration_s, warm_up_s, |_, _| {})
}

mod tests {
    use super::*;
    use crate::{FixedWindow, Reno};

    #[test]
    fn a_window_of_one_bdp_and_a_half_keeps_half_a_bdp_queued() {
        // 60 packets on the wire, 1 on the link, the rest waits
        let path = Bottleneck::of_12mbps_60ms(10.0);
        let outcome = run(&mut FixedWindow::new(91), path, 10.0, 1.0);
        assert!((outcome.utilisation - 1.0).abs() < 1e-3, "{outcome:?}");
        assert!((outcome.queue_packets - 30.0).abs() < 1.0, "{outcome:?}");
        assert_eq!(outcome.loss, 0.0);
    }

    #[test]
    fn half_a_bdp_uses_half_the_link() {
        let path = Bottleneck::of_12mbps_60ms(1.0);
        let outcome = run(&mut FixedWindow::new(30), path, 10.0, 1.0);
        assert!((outcome.utilisation - 0.49).abs() < 0.01, "{outcome:?}");
    }

    #[test]
    fn reno_fills_a_link_with_a_buffer_of_one_bdp() {
        let path = Bottleneck::of_12mbps_60ms(1.0);
        let outcome = run(&mut Reno::default(), path, 60.0, 10.0);
        assert!(outcome.utilisation > 0.97, "{outcome:?}");
        assert!((15.0..45.0).contains(&outcome.queue_packets), "{outcome:?}");
    }
}
