//! From what the kernel said to the rows of a trace.

use pathcast_trace::Record;

use crate::sequence::Unwrapped;
use crate::tcp_info::TcpInfo;

/// One record of tcp_probe: the sender's state as a segment arrives, before it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) time_ns: u64,
    pub(crate) flow: u32,
    pub(crate) snd_nxt: u32,
    pub(crate) snd_una: u32,
    pub(crate) snd_cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) srtt_us: u32,
    pub(crate) snd_wnd: u32,
}

/// One look at a flow's `TCP_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) time_ns: u64,
    pub(crate) flow: u32,
    pub(crate) info: TcpInfo,
}

/// Packets sent again by one flow since it was first watched: a step function of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retransmits {
    /// Time and new count, at each change that was seen.
    steps: Vec<(u64, u64)>,
}

impl Retransmits {
    pub(crate) fn note(&mut self, time_ns: u64, count: u64) {
        if self.steps.last().map_or(0, |(_, last)| *last) != count {
            self.steps.push((time_ns, count));
        }
    }

    /// The count that was known at `time_ns`.
    pub(crate) fn at(&self, time_ns: u64) -> u64 {
        match self
            .steps
            .partition_point(|(step_ns, _)| *step_ns <= time_ns)
        {
            0 => 0,
            after => self.steps[after - 1].1,
        }
    }
}

/// "No threshold yet" in the kernel's words.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

fn ssthresh_packets(ssthresh: u32) -> Option<f64> {
    (ssthresh < INFINITE_SSTHRESH).then_some(f64::from(ssthresh))
}

fn srtt_s(srtt_us: u32) -> Option<f64> {
    (srtt_us > 0).then_some(f64::from(srtt_us) * 1e-6)
}

/// What the kernel counts in bytes a second; all ones stand for no limit.
fn rate_bps(bytes_per_s: Option<u64>) -> Option<f64> {
    bytes_per_s
        .filter(|rate| (1..u64::from(u32::MAX) << 16).contains(rate))
        .map(|rate| rate as f64 * 8.0)
}

pub(crate) fn seconds_since(time_ns: u64, origin_ns: u64) -> f64 {
    time_ns.saturating_sub(origin_ns) as f64 * 1e-9
}

/// The rows of `events`, which may come in any order; time 0 is `origin_ns`.
///
/// The first event of a flow comes before anything is acknowledged, so what it calls snd_una is
/// where the flow's bytes begin.
pub(crate) fn records_of_events(
    mut events: Vec<Event>,
    retransmits: &[Retransmits],
    origin_ns: u64,
) -> Vec<Record> {
    // each processor's ring is in order; across rings, the clock gives the order
    events.sort_by_key(|event| event.time_ns);
    let mut numbers: Vec<Option<Numbers>> = vec![None; retransmits.len()];
    let row = |event: &Event| {
        let flow = event.flow as usize;
        let numbers = numbers[flow].get_or_insert_with(|| Numbers::from(event));
        let retransmits = retransmits[flow].at(event.time_ns);
        record_of_event(event, numbers, Some(retransmits), origin_ns)
    };
    events.iter().map(row).collect()
}

/// Where a flow's sequence numbers stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    snd_nxt: Unwrapped,
    snd_una: Unwrapped,
}

impl Numbers {
    /// Counts from what the event calls snd_una.
    pub(crate) const fn from(event: &Event) -> Self {
        let base = Unwrapped::from_base(event.snd_una);
        Self {
            snd_nxt: base,
            snd_una: base,
        }
    }
}

/// The row of an event, the next one of its flow.
pub(crate) fn record_of_event(
    event: &Event,
    numbers: &mut Numbers,
    retransmits: Option<u64>,
    origin_ns: u64,
) -> Record {
    Record {
        time_s: seconds_since(event.time_ns, origin_ns),
        flow: event.flow,
        cwnd_packets: f64::from(event.snd_cwnd),
        ssthresh_packets: ssthresh_packets(event.ssthresh),
        srtt_s: srtt_s(event.srtt_us),
        snd_nxt_bytes: Some(numbers.snd_nxt.advance(event.snd_nxt)),
        snd_una_bytes: Some(numbers.snd_una.advance(event.snd_una)),
        rwnd_bytes: Some(u64::from(event.snd_wnd)),
        retransmits,
        ..Record::default()
    }
}

/// The rows of `looks`, in order of time; `first` is each flow's state when it was first watched.
pub(crate) fn records_of_looks(looks: &[Look], first: &[TcpInfo], origin_ns: u64) -> Vec<Record> {
    let row = |look: &Look| record_of_look(look, &first[look.flow as usize], origin_ns);
    looks.iter().map(row).collect()
}

/// The row of a look at a flow whose state was `first` when it was first watched.
pub(crate) fn record_of_look(look: &Look, first: &TcpInfo, origin_ns: u64) -> Record {
    let info = &look.info;
    let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
    let snd_nxt_bytes = since(info.new_bytes(), first.new_bytes());
    let acked = since(info.bytes_acked, first.bytes_acked);
    Record {
        time_s: seconds_since(look.time_ns, origin_ns),
        flow: look.flow,
        cwnd_packets: f64::from(info.snd_cwnd),
        ssthresh_packets: ssthresh_packets(info.snd_ssthresh),
        srtt_s: srtt_s(info.rtt_us),
        snd_nxt_bytes,
        // the kernel counts the acknowledgment of SYN and FIN as that of a byte
        snd_una_bytes: acked.map(|acked| acked.min(snd_nxt_bytes.unwrap_or(u64::MAX))),
        rwnd_bytes: info.snd_wnd.map(u64::from),
        retransmits: Some(u64::from(
            info.total_retrans.wrapping_sub(first.total_retrans),
        )),
        min_rtt_s: (info.min_rtt_us)
            .filter(|us| (1..u32::MAX).contains(us))
            .map(|us| f64::from(us) * 1e-6),
        pacing_bps: rate_bps(info.pacing_rate),
        delivery_bps: rate_bps(info.delivery_rate),
        ..Record::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Event = Event {
        time_ns: 0,
        flow: 0,
        snd_nxt: 0,
        snd_una: 0,
        snd_cwnd: 10,
        ssthresh: INFINITE_SSTHRESH,
        srtt_us: 20_000,
        snd_wnd: 65_536,
    };

    #[test]
    fn events_of_two_processors_are_merged_by_time_and_counted_from_the_flow_s_start() {
        let base = u32::MAX - 1000;
        let first = Event {
            time_ns: 1_000,
            snd_una: base,
            snd_nxt: base.wrapping_add(14_480),
            ..EVENT
        };
        let second = Event {
            time_ns: 2_000_001_000,
            snd_una: base.wrapping_add(1448),
            snd_nxt: base.wrapping_add(28_960),
            ssthresh: 7,
            ..EVENT
        };
        let mut retransmits = Retransmits::default();
        retransmits.note(1_500, 3);
        let records = records_of_events(vec![second, first], &[retransmits], 1_000);
        let row = |at: usize| {
            let Record {
                time_s,
                snd_nxt_bytes,
                snd_una_bytes,
                retransmits,
                ..
            } = records[at];
            (
                time_s,
                snd_nxt_bytes.unwrap(),
                snd_una_bytes.unwrap(),
                retransmits.unwrap(),
            )
        };
        assert_eq!(row(0), (0.0, 14_480, 0, 0));
        assert_eq!(row(1), (2.0, 28_960, 1448, 3));
        assert_eq!(
            (records[0].ssthresh_packets, records[1].ssthresh_packets),
            (None, Some(7.0))
        );
    }

    #[test]
    fn retransmissions_are_those_known_at_the_time() {
        let mut retransmits = Retransmits::default();
        for (time_ns, count) in [(10, 0), (20, 2), (30, 2), (40, 5)] {
            retransmits.note(time_ns, count);
        }
        assert_eq!(
            [5, 19, 20, 39, 40, 99].map(|at| retransmits.at(at)),
            [0, 0, 2, 2, 5, 5]
        );
        assert_eq!(retransmits.steps.len(), 2);
    }

    #[test]
    fn looks_count_from_the_first_one() {
        let first = TcpInfo {
            bytes_acked: Some(1),
            bytes_sent: Some(0),
            bytes_retrans: Some(0),
            total_retrans: 1,
            ..TcpInfo::default()
        };
        let info = TcpInfo {
            bytes_acked: Some(1449),
            bytes_sent: Some(4344),
            bytes_retrans: Some(1448),
            total_retrans: 2,
            snd_cwnd: 12,
            ..TcpInfo::default()
        };
        let record = records_of_looks(
            &[Look {
                time_ns: 5,
                flow: 0,
                info,
            }],
            &[first],
            5,
        )[0];
        assert_eq!(
            (record.snd_nxt_bytes, record.snd_una_bytes),
            (Some(2896), Some(1448))
        );
        assert_eq!(
            (record.retransmits, record.rwnd_bytes, record.srtt_s),
            (Some(1), None, None)
        );
    }
}
