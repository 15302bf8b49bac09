//! One bottleneck for the tests: a link of constant rate, a base round-trip time, a droptail buffer,
//! and a transport that is just honest enough to feed a controller. Nothing is sent twice: a lost
//! packet is made up for by a new one.

use std::collections::VecDeque;

use pathcast_base::{Span, Time};

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

    fn service(&self) -> Span {
        Span::from_secs(1.0 / self.packets_per_s)
    }
}

/// What happened, from `warm_up_s` on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Share of the link that was used.
    pub utilization: f64,
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
    let (end, warm) = (Span::from_secs(duration_s), Span::from_secs(warm_up_s));
    let mut flow = Flow::new(path);
    let mut totals = Totals::default();
    while flow.now.since(Time::ZERO) < end {
        let window_open = (flow.sent.len() as u64) < controller.cwnd() as u64;
        flow.limited.0 |= !window_open;
        if window_open && flow.next_send <= flow.now {
            flow.send();
            totals.sent += u64::from(flow.now.since(Time::ZERO) >= warm);
            if let Some(rate) = controller.pacing_rate() {
                flow.next_send = flow.next_send.max(flow.now) + Span::from_secs(1.0 / rate);
            }
            continue;
        }
        let arrival = flow.sent.iter().find_map(|packet| packet.arrives);
        let wake = window_open.then_some(flow.next_send);
        let next = [arrival, wake].into_iter().flatten().min();
        let Some(next) = next.filter(|&next| Some(next) == arrival || arrival.is_some()) else {
            // all that was in flight is lost
            if wake.is_some() && flow.sent.len() < 3 {
                flow.now = flow.next_send;
            } else {
                flow.time_out(controller);
            }
            continue;
        };
        flow.now = next;
        if Some(next) != arrival {
            continue;
        }
        let ack = flow.receive(controller);
        look(&ack, controller);
        if flow.now.since(Time::ZERO) >= warm {
            totals.add(&ack, path);
        }
    }
    totals.outcome(path.packets_per_s * (duration_s - warm_up_s))
}

/// The transport and the link's queue.
struct Flow {
    path: Bottleneck,
    random: SplitMix64,
    now: Time,
    busy_until: Time,
    next_send: Time,
    sent: VecDeque<Sent>,
    seq: u64,
    delivered: u64,
    lost: u64,
    delivered_at: Time,
    first_sent_at: Time,
    srtt_ns: f64,
    min_rtt: Option<Span>,
    round_end: u64,
    recovery_end: Option<u64>,
    /// Whether the window held the flow back in this round trip, and in the one before.
    limited: (bool, bool),
}

impl Flow {
    fn new(path: Bottleneck) -> Self {
        Self {
            path,
            random: SplitMix64::new(1),
            now: Time::ZERO,
            busy_until: Time::ZERO,
            next_send: Time::ZERO,
            sent: VecDeque::new(),
            seq: 0,
            delivered: 0,
            lost: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            srtt_ns: 0.0,
            min_rtt: None,
            round_end: 0,
            recovery_end: None,
            limited: (false, false),
        }
    }

    fn send(&mut self) {
        let now = self.now;
        let backlog = self.busy_until.since(now).as_secs() * self.path.packets_per_s;
        let dropped = backlog > self.path.buffer_packets || self.random.uniform() < self.path.loss;
        if !dropped {
            self.busy_until = self.busy_until.max(now) + self.path.service();
        }
        if self.sent.is_empty() {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        self.sent.push_back(Sent {
            seq: self.seq,
            at: now,
            arrives: (!dropped).then(|| self.busy_until + self.path.base_rtt),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight: self.sent.len() as u64 + 1,
            lost: self.lost,
        });
        self.seq += 1;
    }

    /// The retransmission timer expires.
    fn time_out(&mut self, controller: &mut dyn Controller) {
        self.now += Span::from_secs(1.0);
        self.lost += self.sent.len() as u64;
        self.sent.clear();
        if self.recovery_end.is_none() {
            self.tell_loss(controller);
        }
        controller.on_timeout(self.now);
        self.recovery_end = None;
    }

    fn tell_loss(&self, controller: &mut dyn Controller) {
        controller.on_congestion(&Congestion {
            now: self.now,
            signal: Signal::Loss,
            in_flight: self.sent.len() as u64,
        });
    }

    /// Takes the next packet that arrives, and the losses before it.
    fn receive(&mut self, controller: &mut dyn Controller) -> Ack {
        let prior_in_flight = self.sent.len() as u64;
        let mut newly_lost = 0;
        let packet = loop {
            let packet = self.sent.pop_front().expect("one arrives");
            if packet.arrives.is_some() {
                break packet;
            }
            newly_lost += 1;
        };
        self.lost += newly_lost;
        self.delivered += 1;
        let rtt = self.now.since(packet.at);
        self.update_rtt(rtt);
        let send_elapsed = packet.at.since(packet.first_sent_at);
        let ack_elapsed = self.now.since(packet.delivered_at);
        (self.first_sent_at, self.delivered_at) = (packet.at, self.now);
        let round_ends = packet.seq >= self.round_end;
        if round_ends {
            self.round_end = self.seq;
            self.limited = (false, self.limited.0);
        }
        if self.recovery_end.is_some_and(|end| packet.seq >= end) {
            self.recovery_end = None;
        }
        if newly_lost > 0 && self.recovery_end.is_none() {
            self.recovery_end = Some(self.seq);
            self.tell_loss(controller);
        }
        let ack = Ack {
            now: self.now,
            acked_packets: 1,
            lost_packets: newly_lost,
            marked_packets: 0,
            rtt: Some(rtt),
            srtt: Span::from_nanos(self.srtt_ns as u64),
            min_rtt: self.min_rtt.expect("just set"),
            in_flight: self.sent.len() as u64,
            prior_in_flight,
            departs_at: self.next_send,
            delivered: self.delivered,
            lost: self.lost,
            rate: Some(RateSample {
                delivered_packets: self.delivered - packet.delivered,
                interval: send_elapsed.max(ack_elapsed),
                prior_delivered: packet.delivered,
                sent_in_flight: packet.in_flight,
                lost_packets: self.lost - packet.lost,
                app_limited: false,
            }),
            round_ends,
            cwnd_limited: self.limited.0 || self.limited.1,
            in_order: true,
            state: match self.recovery_end {
                Some(_) => LossState::Recovery,
                None => LossState::Open,
            },
        };
        if self.recovery_end.is_none() || controller.manages_recovery() {
            controller.on_ack(&ack);
        }
        ack
    }

    fn update_rtt(&mut self, rtt: Span) {
        self.srtt_ns = if self.min_rtt.is_none() {
            rtt.as_nanos() as f64
        } else {
            self.srtt_ns + (rtt.as_nanos() as f64 - self.srtt_ns) / 8.0
        };
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
    }
}

/// Sums since the warm-up.
#[derive(Default)]
struct Totals {
    in_flight: f64,
    queue: f64,
    acked: u64,
    sent: u64,
    lost: u64,
}

impl Totals {
    fn add(&mut self, ack: &Ack, path: Bottleneck) {
        let waited = ack.rtt.expect("always set") - path.base_rtt - path.service();
        self.acked += 1;
        self.lost += ack.lost_packets;
        self.in_flight += ack.in_flight as f64;
        self.queue += waited.as_secs() * path.packets_per_s;
    }

    /// The means over a time in which the link could send `room_packets`.
    fn outcome(&self, room_packets: f64) -> Outcome {
        let n = self.acked.max(1) as f64;
        Outcome {
            utilization: self.acked as f64 / room_packets,
            in_flight: self.in_flight / n,
            queue_packets: self.queue / n,
            loss: self.lost as f64 / self.sent.max(1) as f64,
        }
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
        assert!((outcome.utilization - 1.0).abs() < 1e-3, "{outcome:?}");
        assert!((outcome.queue_packets - 30.0).abs() < 1.0, "{outcome:?}");
        assert_eq!(outcome.loss, 0.0);
    }

    #[test]
    fn half_a_bdp_uses_half_the_link() {
        let path = Bottleneck::of_12mbps_60ms(1.0);
        let outcome = run(&mut FixedWindow::new(30), path, 10.0, 1.0);
        assert!((outcome.utilization - 0.49).abs() < 0.01, "{outcome:?}");
    }

    #[test]
    fn reno_fills_a_link_with_a_buffer_of_one_bdp() {
        let path = Bottleneck::of_12mbps_60ms(1.0);
        let outcome = run(&mut Reno::default(), path, 60.0, 10.0);
        assert!(outcome.utilization > 0.97, "{outcome:?}");
        assert!((15.0..45.0).contains(&outcome.queue_packets), "{outcome:?}");
    }
}
