//! Samples from the records of flows: four a second of each flow. They come from a trace, or from a watch of this host.

use std::collections::BTreeMap;
use std::io::Write;

use pathcast_analysis::online_curve::{CurveFeed, FlowRecord, OnlineCurve};
use pathcast_decide::{Client, Report, SampleError};
use pathcast_trace::{Record, Trace, read_parquet};
use pathcast_window_law::Cc;

/// Seconds of a sample.
const STEP_S: f64 = 0.25;
/// A flow that never has this share of its window in flight is limited by its application: the kernel lets a window grow
/// to twice what was in flight.
const FILLED: f64 = 1.0 / 3.0;
/// Records that are so far apart, with nothing in flight at the later one, have a pause between them.
const PAUSE_ROUND_TRIPS: f64 = 1.5;
/// What is sent between two pauses in fewer round trips says nothing of the path's rate.
const SHORT_ROUND_TRIPS: f64 = 2.0;
/// Payload of a packet where the trace does not say it, bytes.
const MSS_BYTES: u32 = 1448;

/// Reads the file.
///
/// # Errors
/// What is wrong with it.
pub fn read(body: &[u8]) -> Result<Trace, String> {
    let failed =
        |error: std::io::Error| format!("the trace cannot be kept while it is read: {error}");
    let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
    file.write_all(body).map_err(failed)?;
    read_parquet(file.path()).map_err(|error| {
        // nobody knows the temporary name
        let text = error.to_string();
        text.replace(&file.path().display().to_string(), "the trace")
    })
}

/// The samples of all flows, in order of time.
pub fn samples(
    trace: &Trace,
    client: Option<Client>,
    begun_s: Option<f64>,
    now_s: f64,
) -> Vec<Result<Report<'static>, SampleError>> {
    let environment = &trace.metadata.environment;
    let said_s = environment
        .get("began_unix_s")
        .and_then(|text| text.parse::<f64>().ok());
    let last_s = trace.records.last().map_or(0.0, |record| record.time_s);
    let begun_s = begun_s.or(said_s).unwrap_or(now_s - last_s);
    let mut flows: BTreeMap<u32, Flow> = BTreeMap::new();
    let mut made = Vec::new();
    for record in &trace.records {
        let flow = flows
            .entry(record.flow)
            .or_insert_with(|| of_trace(trace, record.flow, client));
        if let Some(report) = flow.take(record, begun_s) {
            made.push(report);
        }
    }
    made
}

/// A flow of a trace.
fn of_trace(trace: &Trace, number: u32, client: Option<Client>) -> Flow {
    let named = || {
        let name = trace.metadata.environment.get(&format!("flow {number}"));
        far_end(name.map_or("", String::as_str))
    };
    let client = match client {
        Some(client) => Ok(client.prefix.to_string()),
        None => named(),
    };
    let scheme = trace.metadata.schemes.get(number as usize);
    let scheme = scheme.map_or("", String::as_str);
    Flow::new(client, scheme, trace.metadata.mss_bytes)
}

/// A flow, since its last sample.
pub struct Flow {
    client: Result<String, SampleError>,
    mss_bytes: f64,
    feed: CurveFeed,
    curve: Option<OnlineCurve>,
    last: Option<Record>,
    /// What was sent since the last pause, until that is long enough to say something: time and bytes.
    begun: Option<(f64, u64)>,
    /// Time in which the flow had data to send, seconds.
    busy_s: f64,
    acked_bytes: u64,
    /// The largest share of the window that was in flight.
    filled: f64,
    /// The shortest round-trip time of all records, seconds: a smoothed one, where the sender does not say its shortest.
    least_rtt_s: f64,
    packets: f64,
    losses: f64,
    /// Packets times their window.
    windows: f64,
}

impl Flow {
    /// One to this client, by a congestion control with this name.
    pub fn new(client: Result<String, SampleError>, scheme: &str, mss_bytes: Option<u32>) -> Self {
        let cc = Cc::of(scheme);
        Self {
            client,
            mss_bytes: mss_bytes.unwrap_or(MSS_BYTES).max(1).into(),
            feed: CurveFeed::new(cc, None),
            curve: OnlineCurve::new(100.0).ok(),
            last: None,
            begun: None,
            busy_s: 0.0,
            acked_bytes: 0,
            filled: 0.0,
            least_rtt_s: f64::INFINITY,
            packets: 0.0,
            losses: 0.0,
            windows: 0.0,
        }
    }

    /// The part of the window that is in flight: of the congestion window, or of the receiver's if that is smaller;
    /// 1 where nobody knows.
    fn fills(&self, record: &Record) -> f64 {
        let Some((next, acked)) = record.snd_nxt_bytes.zip(record.snd_una_bytes) else {
            return 1.0;
        };
        let window = record.cwnd_packets * self.mss_bytes;
        let window = record
            .rwnd_bytes
            .map_or(window, |rwnd| window.min(rwnd as f64));
        next.saturating_sub(acked) as f64 / window.max(1.0)
    }

    /// Takes a record; a sample once a quarter of a second has passed. `begun_s` is when its times began.
    pub fn take(
        &mut self,
        record: &Record,
        begun_s: f64,
    ) -> Option<Result<Report<'static>, SampleError>> {
        if let Some(curve) = &mut self.curve {
            if let Some(count) = record.retransmits {
                #[allow(clippy::cast_precision_loss)]
                self.feed.count(record.time_s, count as f64);
            }
            let sent = record
                .snd_nxt_bytes
                .map(|bytes| bytes as f64 / self.mss_bytes);
            let fed = self.feed.observe(
                &FlowRecord {
                    time_s: record.time_s,
                    cwnd_packets: record.cwnd_packets,
                    snd_nxt_packets: sent,
                    srtt_s: record.srtt_s,
                    npc: 1,
                },
                curve,
            );
            self.packets += fed.packets;
            self.losses += f64::from(fed.losses);
            self.windows += fed.packets * record.cwnd_packets;
        }
        for rtt_s in [record.srtt_s, record.min_rtt_s].into_iter().flatten() {
            if rtt_s > 0.0 {
                self.least_rtt_s = self.least_rtt_s.min(rtt_s);
            }
        }
        self.pass(record);
        if self.busy_s < STEP_S {
            return None;
        }
        let client = match &self.client {
            Ok(client) => client.clone().into(),
            Err(error) => return Some(Err(error.clone())),
        };
        let has_bytes = acked(record).is_some();
        let has_packets = self.packets > 0.0;
        let report = Report {
            client,
            time_s: Some(begun_s + record.time_s),
            rate_bps: has_bytes.then_some(8.0 * self.acked_bytes as f64 / self.busy_s),
            duration_s: has_bytes.then_some(self.busy_s),
            rtt_s: record.srtt_s.filter(|srtt_s| *srtt_s > 0.0),
            min_rtt_s: self.least_rtt_s.is_finite().then_some(self.least_rtt_s),
            cwnd_packets: has_packets.then(|| self.windows / self.packets),
            packets: has_packets.then_some(self.packets),
            losses: has_packets.then_some(self.losses.max(0.0)),
            npc: Some(1),
            app_limited: self.filled < FILLED,
        };
        (self.packets, self.losses, self.windows) = (0.0, 0.0, 0.0);
        (self.busy_s, self.acked_bytes, self.filled) = (0.0, 0, 0.0);
        self.least_rtt_s = f64::INFINITY;
        Some(Ok(report))
    }

    /// Adds the time since the last record, and what was acknowledged in it. While nothing is in flight the application
    /// has nothing to send: of such a pause the last round trip counts, in which what follows was sent. What ends within
    /// two round trips counts not at all: a window carries it, whatever the path's rate.
    fn pass(&mut self, record: &Record) {
        let last = self.last.replace(*record);
        let is_idle = |record: &Record| {
            let sent = record.snd_nxt_bytes.zip(record.snd_una_bytes);
            // a receiver that takes no more is no pause of the application
            let may_send =
                (record.rwnd_bytes).is_none_or(|rwnd| rwnd as f64 >= 2.0 * self.mss_bytes);
            may_send && sent.is_some_and(|(next, acked)| next == acked)
        };
        self.filled = self.filled.max(self.fills(record));
        let Some(last) = last else { return };
        let bytes = acked(record).zip(acked(&last));
        let bytes = bytes.map_or(0, |(b, a)| b.saturating_sub(a));
        let mut seconds = (record.time_s - last.time_s).max(0.0);
        let round_trip_s = record.srtt_s.or(last.srtt_s).unwrap_or(0.0);
        if is_idle(record) && seconds > PAUSE_ROUND_TRIPS * round_trip_s {
            // records of tcp_probe are older than what they report: the last of them had come before the pause
            seconds = 0.0;
        }
        if is_idle(&last) {
            seconds = seconds.min(if bytes > 0 { round_trip_s } else { 0.0 });
            self.begun = Some((0.0, 0));
        }
        let Some((begun_s, begun_bytes)) = self.begun else {
            self.busy_s += seconds;
            self.acked_bytes += bytes;
            return;
        };
        let (begun_s, begun_bytes) = (begun_s + seconds, begun_bytes + bytes);
        self.begun = Some((begun_s, begun_bytes));
        if begun_s > SHORT_ROUND_TRIPS * round_trip_s {
            self.busy_s += begun_s;
            self.acked_bytes += begun_bytes;
            self.begun = None;
        }
    }
}

/// Payload bytes that arrived, as far as the trace says.
fn acked(record: &Record) -> Option<u64> {
    record.snd_una_bytes.or(record.snd_nxt_bytes)
}

/// The address of the far end in a flow's name, such as `192.0.2.7:443 > 198.51.100.23:5001`.
fn far_end(name: &str) -> Result<String, SampleError> {
    let far = name.rsplit_once("> ").map_or("", |(_, far)| far);
    let far = far.split(' ').next().unwrap_or("");
    let address = far.rsplit_once(':').map_or(far, |(address, _)| address);
    let address = address.trim_start_matches('[').trim_end_matches(']');
    Client::parse(address).map(|_| address.to_string())
}

#[cfg(test)]
mod tests {
    use pathcast_trace::{Metadata, Source, write_parquet};

    use super::*;

    fn trace() -> Trace {
        let mut metadata = Metadata::new(Source::Watch);
        metadata.schemes = vec!["cubic".into()];
        metadata
            .environment
            .insert("flow 0".into(), "192.0.2.7:443 > [2001:db8::1]:5001".into());
        let records = (0..100_u32).map(|number| Record {
            time_s: f64::from(number) * 0.1,
            cwnd_packets: f64::from(10 + number % 20),
            srtt_s: Some(0.05),
            snd_nxt_bytes: Some(u64::from(number) * 125_000 + 28_960),
            snd_una_bytes: Some(u64::from(number) * 125_000),
            ..Record::default()
        });
        Trace {
            metadata,
            records: records.collect(),
        }
    }

    #[test]
    fn a_trace_gives_the_samples_of_its_flows() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_parquet(file.path(), &trace()).unwrap();
        let read = read(&std::fs::read(file.path()).unwrap()).unwrap();
        let made = samples(&read, None, None, 1000.0);
        assert!((30..=40).contains(&made.len()), "{}", made.len());
        let last = made.last().unwrap().as_ref().unwrap();
        let sample = last.sample(1000.0, 60.0).unwrap();
        assert_eq!(sample.client.prefix.to_string(), "2001:db8::/48");
        assert!((sample.rate_bps.unwrap() - 1e7).abs() < 1e5);
        assert!(sample.sent.unwrap().packets > 100.0);
    }

    #[test]
    fn the_shortest_round_trip_between_samples_is_not_lost() {
        let mut trace = trace();
        // the queue is empty before the first sample alone
        for (number, record) in trace.records.iter_mut().enumerate() {
            record.srtt_s = Some(if number < 2 { 0.02 } else { 0.05 });
        }
        let made: Vec<_> = samples(&trace, None, None, 1000.0)
            .into_iter()
            .flatten()
            .collect();
        assert_eq!((made[0].rtt_s, made[0].min_rtt_s), (Some(0.05), Some(0.02)));
        assert_eq!(made[1].min_rtt_s, Some(0.05));
        // what the sender says counts too
        trace.records[1].min_rtt_s = Some(0.01);
        let made = samples(&trace, None, None, 1000.0);
        assert_eq!(made[0].as_ref().unwrap().min_rtt_s, Some(0.01));
    }

    /// 100 kB each 2 s, acknowledged within 0.5 s, and nothing in flight until the next.
    fn segments(cwnd_packets: f64) -> Trace {
        let mut trace = trace();
        trace.records.clear();
        for segment in 0..20_u32 {
            for step in 0..=5_u32 {
                let sent = u64::from(segment) * 100_000;
                let acked = sent + u64::from(step) * 20_000;
                trace.records.push(Record {
                    time_s: f64::from(segment) * 2.0 + f64::from(step) * 0.1,
                    cwnd_packets,
                    srtt_s: Some(0.1),
                    snd_nxt_bytes: Some(if step == 0 { sent } else { sent + 100_000 }),
                    snd_una_bytes: Some(acked),
                    ..Record::default()
                });
            }
        }
        trace
    }

    #[test]
    fn pauses_of_the_application_do_not_lower_the_rate() {
        let rates = |trace: &Trace| -> Vec<f64> {
            let made = samples(trace, None, None, 1000.0);
            let made = made.into_iter().flatten();
            made.filter(|one| !one.app_limited)
                .filter_map(|one| one.rate_bps)
                .collect()
        };
        let mut found = rates(&segments(70.0));
        assert!(found.len() > 20, "{}", found.len());
        found.sort_unstable_by(f64::total_cmp);
        // 100 kB in half a second
        let middle = found[found.len() / 2];
        assert!((1.5e6..=1.7e6).contains(&middle), "{middle}");
        assert!(found[0] > 1.3e6, "{}", found[0]);
        // a window that is never half full says nothing of the path
        assert_eq!(rates(&segments(500.0)), Vec::<f64>::new());
        // and they count as long as they lasted: 20 times half a second
        let made = samples(&segments(70.0), None, None, 1000.0);
        let measured_s: f64 = made
            .into_iter()
            .flatten()
            .filter_map(|one| one.duration_s)
            .sum();
        assert!((9.0..=10.5).contains(&measured_s), "{measured_s}");
    }

    #[test]
    fn a_pause_is_known_by_its_end_too() {
        let mut late = segments(70.0);
        // as tcp_probe has it: the state before the acknowledgment that comes
        late.records
            .retain(|record| record.snd_nxt_bytes != record.snd_una_bytes);
        for segment in 1..20_u32 {
            late.records.push(Record {
                time_s: f64::from(segment) * 2.0,
                cwnd_packets: 70.0,
                srtt_s: Some(0.1),
                snd_nxt_bytes: Some(u64::from(segment) * 100_000),
                snd_una_bytes: Some(u64::from(segment) * 100_000),
                ..Record::default()
            });
        }
        late.records.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        let made = samples(&late, None, None, 1000.0);
        let rates: Vec<f64> = made
            .into_iter()
            .flatten()
            .filter_map(|one| one.rate_bps)
            .collect();
        assert!(
            rates.len() > 10 && rates.iter().all(|rate| *rate > 1.3e6),
            "{rates:?}"
        );
    }

    #[test]
    fn what_one_window_carries_says_nothing_of_the_rate() {
        let mut short = segments(10.0);
        // all of it is acknowledged a round trip later
        for record in &mut short.records {
            record.snd_una_bytes = match record.snd_una_bytes {
                Some(bytes) if bytes % 100_000 == 0 => Some(bytes),
                _ => record.snd_nxt_bytes,
            };
        }
        assert!(samples(&short, None, None, 1000.0).is_empty());
    }

    #[test]
    fn a_flow_that_waits_for_its_application_has_no_rate() {
        let mut idle = trace();
        for record in &mut idle.records {
            record.snd_nxt_bytes = record.snd_una_bytes.map(|bytes| bytes + 1448);
        }
        for made in samples(&idle, None, None, 1000.0) {
            let sample = made.unwrap().sample(1000.0, 60.0).unwrap();
            assert_eq!(sample.rate_bps, None);
            assert!(sample.rtt_s.is_some());
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_without_the_name_of_a_temporary_file() {
        let error = super::read(b"PAR1").unwrap_err();
        assert!(error.starts_with("the trace"), "{error}");
    }

    #[test]
    fn a_flow_without_an_address_needs_the_client() {
        let mut unnamed = trace();
        unnamed.metadata.environment.clear();
        assert!(samples(&unnamed, None, None, 0.0)[0].is_err());
        let client = Client::parse("192.0.2.9").unwrap();
        assert!(samples(&unnamed, Some(client), None, 0.0)[0].is_ok());
    }
}
