//! A wire between a sender and a receiver, in virtual time, and a controller that takes notes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use pathcast_base::{Span, Time};
use pathcast_congestion::{Ack, Congestion, Controller, Repair, Scheme};

use crate::receiver::Receiver;
use crate::segment::{AckSegment, DataSegment};
use crate::sender::{Sender, SenderConfig};

/// One way.
const DELAY: Span = Span::from_millis(50);

/// A wire of 50 ms each way on which `lost(seq, copy)` decides what arrives.
pub struct Wire<F> {
    pub sender: Sender,
    pub receiver: Receiver,
    lost: F,
    copies: BTreeMap<u64, u32>,
    data: VecDeque<(Time, DataSegment)>,
    acks: VecDeque<(Time, AckSegment)>,
    /// Copies of packets that take longer than others, arrive twice, or are marked.
    pub late: BTreeMap<(u64, u32), Span>,
    pub twice: BTreeSet<(u64, u32)>,
    pub marked: BTreeSet<u64>,
    /// When each packet was sent.
    pub sent: Vec<(Time, u64)>,
    pub now: Time,
}

impl<F: FnMut(u64, u32) -> bool> Wire<F> {
    /// `packets` to send by Reno.
    pub fn new(packets: u64, lost: F) -> Self {
        Self::with(packets, Scheme::named("reno").controller(0), lost)
    }

    /// `packets` to send by `controller`.
    pub fn with(packets: u64, controller: Box<dyn Controller>, lost: F) -> Self {
        let config = SenderConfig {
            packets: Some(packets),
            ..SenderConfig::default()
        };
        Self::configured(config, controller, lost)
    }

    /// What `config` says, by `controller`.
    pub fn configured(config: SenderConfig, controller: Box<dyn Controller>, lost: F) -> Self {
        Self {
            sender: Sender::new(config, controller),
            receiver: Receiver::default(),
            lost,
            copies: BTreeMap::new(),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            late: BTreeMap::new(),
            twice: BTreeSet::new(),
            marked: BTreeSet::new(),
            sent: Vec::new(),
            now: Time::ZERO,
        }
    }

    fn send(&mut self, mut segment: DataSegment) {
        let seq = segment.seq;
        self.sent.push((self.now, seq));
        let count = self.copies.entry(seq).or_default();
        let copy = *count;
        *count += 1;
        if (self.lost)(seq, copy) {
            return;
        }
        if self.marked.contains(&seq) {
            segment.mark();
        }
        let late = self.late.get(&(seq, copy)).copied();
        let due = self.now + DELAY + late.unwrap_or(Span::ZERO);
        for _ in 0..1 + usize::from(self.twice.contains(&(seq, copy))) {
            let at = self.data.partition_point(|(other, _)| *other <= due);
            self.data.insert(at, (due, segment));
        }
    }

    /// Runs until all is acknowledged; returns the seconds it took.
    pub fn run(&mut self) -> f64 {
        while !self.sender.is_done() {
            while let Some(segment) = self.sender.poll_transmit(self.now) {
                self.send(segment);
            }
            let times = [
                self.data.front().map(|d| d.0),
                self.acks.front().map(|a| a.0),
                self.receiver.next_timer(),
                self.sender.next_timer(),
            ];
            self.now = times
                .into_iter()
                .flatten()
                .min()
                .expect("something is under way");
            assert!(self.now.as_secs() < 1000.0, "no progress");
            if let Some((_, segment)) = self.data.pop_front_if(|d| d.0 <= self.now) {
                if let Some(ack) = self.receiver.on_data(self.now, &segment) {
                    self.acks.push_back((self.now + DELAY, ack));
                }
            } else if let Some((_, ack)) = self.acks.pop_front_if(|a| a.0 <= self.now) {
                self.sender.on_ack(self.now, &ack);
            } else if let Some(ack) = self.receiver.on_timer(self.now) {
                self.acks.push_back((self.now + DELAY, ack));
            } else {
                self.sender.on_timer(self.now);
            }
        }
        assert_eq!(self.sender.in_flight(), 0);
        assert_eq!(self.receiver.delivered(), self.sender.una_and_next().0);
        self.now.as_secs()
    }
}

/// What a [`Spy`] has received.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub acks: Vec<Ack>,
    pub congestion: Vec<Congestion>,
    pub timeouts: usize,
    /// Window and threshold, each time the transport set them.
    pub windows: Vec<(f64, f64)>,
}

/// A controller with a fixed window and pace that records what it receives.
#[derive(Clone, Debug, Default)]
pub struct Spy {
    pub cwnd: f64,
    pub manages_recovery: bool,
    pub pacing_rate: Option<f64>,
    pub repair: Repair,
    pub report: Arc<Mutex<Report>>,
}

impl Spy {
    /// What it has received so far.
    pub fn read(&self) -> Report {
        self.report.lock().expect("not poisoned").clone()
    }

    fn note(&self, what: impl FnOnce(&mut Report)) {
        what(&mut self.report.lock().expect("not poisoned"));
    }
}

impl Controller for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.cwnd / 2.0
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.note(|report| report.acks.push(*ack));
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.note(|report| report.congestion.push(*event));
    }

    fn on_timeout(&mut self, _now: Time) {
        self.note(|report| report.timeouts += 1);
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        self.note(|report| report.windows.push((cwnd, ssthresh)));
    }

    fn manages_recovery(&self) -> bool {
        self.manages_recovery
    }

    fn pacing_rate(&self) -> Option<f64> {
        self.pacing_rate
    }

    fn repair(&self) -> Repair {
        self.repair
    }
}
