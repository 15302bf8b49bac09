//! One interval of time: what the records in it say.

use std::collections::VecDeque;

use super::LimitRecord;

/// Shortest interval, in seconds and in round trips.
const INTERVAL_S: f64 = 0.05;
const INTERVAL_RTTS: f64 = 1.0;
/// A gap between records longer than this is a silence, in seconds and in round trips: an acknowledgment may be
/// delayed by 40 ms in Linux, and a window's packets may come back in one group.
const SILENCE_S: f64 = 0.06;
const SILENCE_RTTS: f64 = 1.2;
/// How densely it is remembered when packets were sent, and for how long, in round trips.
const SENT_EVERY_RTTS: f64 = 0.03;
const SENT_FOR_RTTS: f64 = 4.0;

/// What is summed up of one interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    /// Packets sent for the first time and acknowledged within it; NaN if not known.
    pub(super) sent: f64,
    pub(super) acked: f64,
    /// Packets retransmitted within it.
    pub(super) retransmits: f64,
    /// The most packets in flight; NaN if not known.
    pub(super) in_flight: f64,
    /// Windows at its start and end, and the largest.
    pub(super) cwnd: (f64, f64),
    pub(super) largest_cwnd: f64,
    /// The receiver's window, the least; infinite if not known.
    pub(super) rwnd: f64,
    /// Part of the records in which it was smaller than the sender's, and the largest part of it that was used.
    pub(super) rwnd_smaller: f64,
    pub(super) rwnd_used: f64,
    /// Mean, least and largest round-trip time.
    pub(super) srtt_s: f64,
    pub(super) least_srtt_s: f64,
    pub(super) largest_srtt_s: f64,
    /// How long nothing was in flight, of its length.
    pub(super) silent_s: f64,
    /// The first packet found lost in it: when it was sent, and its number.
    pub(super) lost: Option<(f64, f64)>,
    /// Packets sent by its end; NaN if not known.
    pub(super) snd_nxt: f64,
}

impl Interval {
    pub(super) fn length_s(&self) -> f64 {
        self.end_s - self.start_s
    }

    /// Its length without the silence.
    pub(super) fn busy_s(&self) -> f64 {
        (self.length_s() - self.silent_s).max(0.0)
    }

    /// Packets sent a second while it was busy; NaN if not known.
    pub(super) fn sent_per_s(&self) -> f64 {
        self.sent / self.busy_s().max(1e-6)
    }

    /// Packets acknowledged a second while it was busy; NaN if not known.
    pub(super) fn acked_per_s(&self) -> f64 {
        self.acked / self.busy_s().max(1e-6)
    }
}

/// Collects records into intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct Collector {
    part: Part,
    /// Times and next sequence numbers, at least [`SENT_EVERY_RTTS`] apart, of the last round trips.
    sent: VecDeque<(f64, f64)>,
}

/// What was collected of an interval.
#[derive(Debug, Clone, Default)]
struct Part {
    first: Option<LimitRecord>,
    last: LimitRecord,
    in_flight: f64,
    largest_cwnd: f64,
    rwnd: f64,
    records: u32,
    rwnd_smaller: u32,
    rwnd_used: f64,
    srtt_sum: (f64, f64),
    least_srtt_s: f64,
    largest_srtt_s: f64,
    silent_s: f64,
    lost: Option<(f64, f64)>,
}

fn or_nan(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

impl Collector {
    /// Takes a record; columns that it lacks hold their last value. Returns the interval that it ends, if it ends one.
    pub(super) fn take(&mut self, record: &LimitRecord) -> Option<Interval> {
        let Some(first) = self.part.first else {
            self.part = Part::new(*record);
            return None;
        };
        let last = self.part.last;
        let record = LimitRecord {
            srtt_s: record.srtt_s.or(last.srtt_s),
            min_rtt_s: record.min_rtt_s.or(last.min_rtt_s),
            snd_nxt_packets: record.snd_nxt_packets.or(last.snd_nxt_packets),
            snd_una_packets: record.snd_una_packets.or(last.snd_una_packets),
            rwnd_packets: record.rwnd_packets.or(last.rwnd_packets),
            retransmits: record.retransmits.or(last.retransmits),
            ..*record
        };
        let rtt_s = record.srtt_s.unwrap_or(0.0);
        self.remember_sent(&record, rtt_s);
        let lost = or_nan(record.retransmits) > or_nan(last.retransmits);
        if lost && self.part.lost.is_none() {
            self.part.lost = record
                .snd_una_packets
                .and_then(|una| Some((self.sent_at(una)?, una)));
        }
        let gap_s = record.time_s - last.time_s;
        let timed_out = lost || record.cwnd_packets < 3.0;
        // a source that takes samples says nothing for long while many windows pass
        let sent = or_nan(record.snd_nxt_packets) - or_nan(last.snd_nxt_packets);
        let is_silence = sent <= record.cwnd_packets.max(last.cwnd_packets) && !timed_out;
        if gap_s > SILENCE_S.max(SILENCE_RTTS * rtt_s) && is_silence {
            // what ended the silence was sent a round trip before it was acknowledged
            self.part.silent_s += gap_s - rtt_s.min(gap_s);
        }
        self.part.include(&record);
        self.part.last = record;
        if record.time_s - first.time_s < INTERVAL_S.max(INTERVAL_RTTS * rtt_s) {
            return None;
        }
        let ended = self.part.end(&first);
        self.part = Part::new(record);
        Some(ended)
    }

    /// The interval so far, if it has a length.
    pub(super) fn rest(&self) -> Option<Interval> {
        let first = self.part.first?;
        (self.part.last.time_s > first.time_s).then(|| self.part.end(&first))
    }

    fn remember_sent(&mut self, record: &LimitRecord, rtt_s: f64) {
        let Some(snd_nxt) = record.snd_nxt_packets else {
            return;
        };
        let due_s =
            self.sent.back().map_or(f64::NEG_INFINITY, |last| last.0) + SENT_EVERY_RTTS * rtt_s;
        if record.time_s >= due_s {
            self.sent.push_back((record.time_s, snd_nxt));
        }
        while (self.sent.front())
            .is_some_and(|first| first.0 < record.time_s - SENT_FOR_RTTS * rtt_s)
        {
            self.sent.pop_front();
        }
    }

    /// When a packet was sent, if that is remembered.
    fn sent_at(&self, packet: f64) -> Option<f64> {
        let after = self.sent.partition_point(|sent| sent.1 <= packet);
        let before = self.sent.get(after.checked_sub(1)?)?;
        Some(before.0)
    }
}

impl Part {
    fn new(record: LimitRecord) -> Self {
        let mut part = Self {
            first: Some(record),
            last: record,
            in_flight: f64::NAN,
            rwnd: f64::INFINITY,
            least_srtt_s: f64::INFINITY,
            ..Self::default()
        };
        part.include(&record);
        part
    }

    fn include(&mut self, record: &LimitRecord) {
        let in_flight = or_nan(record.snd_nxt_packets) - or_nan(record.snd_una_packets);
        self.in_flight = self.in_flight.max(in_flight);
        self.largest_cwnd = self.largest_cwnd.max(record.cwnd_packets);
        self.records += 1;
        if let Some(rwnd) = record.rwnd_packets {
            self.rwnd = self.rwnd.min(rwnd);
            self.rwnd_smaller += u32::from(rwnd < record.cwnd_packets + 1.0);
            self.rwnd_used = self.rwnd_used.max(in_flight / rwnd.max(1.0));
        }
        if let Some(srtt_s) = record.srtt_s {
            self.srtt_sum.0 += srtt_s;
            self.srtt_sum.1 += 1.0;
            self.least_srtt_s = self.least_srtt_s.min(srtt_s);
            self.largest_srtt_s = self.largest_srtt_s.max(srtt_s);
        }
    }

    fn end(&self, first: &LimitRecord) -> Interval {
        let last = &self.last;
        let grown =
            |value: fn(&LimitRecord) -> Option<f64>| or_nan(value(last)) - or_nan(value(first));
        let retransmits = grown(|r| r.retransmits);
        Interval {
            start_s: first.time_s,
            end_s: last.time_s,
            sent: grown(|r| r.snd_nxt_packets),
            acked: grown(|r| r.snd_una_packets),
            retransmits: if retransmits.is_nan() {
                0.0
            } else {
                retransmits
            },
            in_flight: self.in_flight,
            cwnd: (first.cwnd_packets, last.cwnd_packets),
            largest_cwnd: self.largest_cwnd,
            rwnd: self.rwnd,
            rwnd_smaller: f64::from(self.rwnd_smaller) / f64::from(self.records),
            rwnd_used: self.rwnd_used,
            srtt_s: self.srtt_sum.0 / self.srtt_sum.1,
            least_srtt_s: self.least_srtt_s,
            largest_srtt_s: self.largest_srtt_s,
            silent_s: self.silent_s,
            lost: self.lost,
            snd_nxt: or_nan(last.snd_nxt_packets),
        }
    }
}
