//! What one end of a connection knows about the packets that it sent, recorded as it happens: from the seal
//! of each packet, and from the calls to the congestion controller.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use pathcast_trace::Record;

use crate::ranges::Frontier;

/// A packet with bytes of the stream, or with none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The packet's seal, which identifies it in transit.
    pub seal: u64,
    /// The bytes of the stream in it, if any.
    pub bytes: Range<u64>,
}

/// What a sender knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sender {
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// Below it, the window grows as in slow start; none of controllers that have none, or before the
    /// first loss.
    pub slow_start_threshold_bytes: Option<u64>,
    /// Bytes in flight when acknowledgments last came.
    pub in_flight_bytes: u64,
    /// The controller's pacing rate in bytes a second; none if the controller only has a window.
    pub pacing_bytes_per_s: Option<u64>,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Bytes of streams that were sent at least once.
    pub sent_bytes: u64,
    /// Bytes of streams acknowledged from their beginnings on.
    pub acknowledged_bytes: u64,
    /// Packets with bytes of a stream that had been sent before.
    pub resent_packets: u64,
    /// Packets that were given up for lost.
    pub lost_packets: u64,
    /// Times that acknowledgments came.
    pub acknowledgments: u64,
    /// The most bytes of streams in one packet.
    pub largest_payload_bytes: u64,
    /// Packets whose content could not be read: what is said of bytes is then too little.
    pub unreadable_packets: u64,
}

impl Sender {
    /// A row of the trace of flow `flow`, `at_s` after the run began. Windows are in datagrams of
    /// `datagram_bytes`.
    pub fn record(&self, flow: u32, at_s: f64, datagram_bytes: u16) -> Record {
        let packets = |bytes: u64| bytes as f64 / f64::from(datagram_bytes);
        Record {
            time_s: at_s,
            flow,
            cwnd_packets: packets(self.window_bytes),
            ssthresh_packets: self.slow_start_threshold_bytes.map(packets),
            srtt_s: Some(self.rtt.as_secs_f64()),
            snd_nxt_bytes: Some(self.sent_bytes),
            snd_una_bytes: Some(self.acknowledged_bytes),
            retransmits: Some(self.resent_packets),
            ..Record::default()
        }
    }
}

/// Bytes of one stream, by its number.
type Piece = (u64, Range<u64>);

/// What became of a stream.
#[derive(Debug, Default)]
struct Sent {
    /// Bytes before this one were sent.
    end: u64,
    acknowledged: Frontier,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sender: Sender,
    streams: BTreeMap<u64, Sent>,
    /// What packets in flight hold, by the packets' numbers.
    under_way: BTreeMap<u64, Vec<Piece>>,
    /// Whether packets are kept until they are taken, and those.
    keep: bool,
    packets: Vec<Packet>,
    /// The packet that is being sealed.
    number: u64,
    open: Vec<Piece>,
}

impl Ledger {
    pub(crate) const fn sender(&self) -> Sender {
        self.sender
    }

    pub(crate) const fn keep(&mut self) {
        self.keep = true;
    }

    pub(crate) fn take_packets(&mut self, into: &mut Vec<Packet>) {
        into.append(&mut self.packets);
    }

    /// What was sent so far does not count: it was the handshake.
    pub(crate) fn begin(&mut self) {
        self.sender = Sender::default();
        self.packets.clear();
    }

    pub(crate) fn begin_packet(&mut self, number: u64) {
        self.number = number;
        self.open.clear();
    }

    pub(crate) fn stream_bytes(&mut self, stream: u64, bytes: Range<u64>) {
        self.open.push((stream, bytes));
    }

    pub(crate) const fn unreadable(&mut self) {
        self.sender.unreadable_packets += 1;
    }

    pub(crate) fn end_packet(&mut self, seal: u64) {
        let sender = &mut self.sender;
        let payload = self.open.iter().map(|(_, bytes)| bytes.end - bytes.start);
        sender.largest_payload_bytes = sender.largest_payload_bytes.max(payload.sum());
        let mut again = false;
        for (stream, bytes) in &self.open {
            let sent = self.streams.entry(*stream).or_default();
            again |= bytes.start < sent.end && !bytes.is_empty();
            sender.sent_bytes += bytes.end.saturating_sub(sent.end);
            sent.end = sent.end.max(bytes.end);
        }
        sender.resent_packets += u64::from(again);
        if self.keep {
            // retransmitted bytes need not be contiguous: report each piece
            let pieces = self.open.iter().map(|(_, bytes)| bytes.clone());
            let none = self.open.is_empty().then_some(0..0);
            let packets = pieces.chain(none).map(|bytes| Packet { seal, bytes });
            self.packets.extend(packets);
        }
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            self.under_way.insert(self.number, open);
        }
    }

    fn acknowledged(&mut self, number: u64) {
        for (stream, bytes) in self.under_way.remove(&number).unwrap_or_default() {
            let acknowledged = &mut self.streams.entry(stream).or_default().acknowledged;
            let before = acknowledged.whole();
            acknowledged.add(bytes);
            self.sender.acknowledged_bytes += acknowledged.whole() - before;
        }
    }

    fn lost(&mut self, number: u64) {
        self.under_way.remove(&number);
        self.sender.lost_packets += 1;
    }
}

/// A ledger that the parts of one endpoint share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes controllers that record the calls that they receive.
pub(crate) struct Watched<F: ?Sized> {
    pub(crate) ledger: SharedLedger,
    pub(crate) inner: Arc<F>,
}

impl ControllerFactory for Watched<dyn ControllerFactory + Send + Sync> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(WatchedController {
            inner: Arc::clone(&self.inner).build(now, current_mtu),
            ledger: self.ledger.clone(),
        })
    }
}

#[derive(Debug)]
struct WatchedController {
    inner: Box<dyn Controller>,
    ledger: SharedLedger,
}

impl Controller for WatchedController {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.ledger.lock().acknowledged(pn);
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let mut ledger = self.ledger.lock();
        ledger.sender.acknowledgments += 1;
        ledger.sender.in_flight_bytes = in_flight;
        drop(ledger);
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.inner.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.ledger.lock().lost(pn);
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn on_ack_frequency_update(
        &mut self,
        ack_eliciting_threshold: u64,
        requested_max_ack_delay: Duration,
    ) {
        self.inner
            .on_ack_frequency_update(ack_eliciting_threshold, requested_max_ack_delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            ledger: self.ledger.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}
