//! Samples from the records of flows: four a second of each flow. They come from a trace, or from a watch of this host.

use std::collections::BTreeMap;
use std::io::Write;

use pathcast_analysis::online_curve::{CurveFeed, FlowRecord, OnlineCurve};
use pathcast_decide::{Client, Report, SampleError};
use pathcast_trace::{Record, Trace, read_parquet};
use pathcast_window_law::Cc;

/// Seconds of a sample.
const STEP_S: f64 = 0.25;
/// A flow that fills less of its window is limited by its application.
const FILLED: f64 = 0.5;
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
    first: Option<Record>,
    packets: f64,
    losses: f64,
    /// Packets times their window.
    windows: f64,
    /// The largest part of the window that was in flight.
    filled: f64,
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
            first: None,
            packets: 0.0,
            losses: 0.0,
            windows: 0.0,
            filled: 0.0,
        }
    }

    /// The part of the window that is in flight: of the congestion window, or of the receiver's if that is smaller.
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
        self.filled = self.filled.max(self.fills(record));
        let first = *self.first.get_or_insert(*record);
        let seconds = record.time_s - first.time_s;
        if seconds < STEP_S {
            return None;
        }
        self.first = Some(*record);
        let client = match &self.client {
            Ok(client) => client.clone().into(),
            Err(error) => return Some(Err(error.clone())),
        };
        let acked = |record: &Record| record.snd_una_bytes.or(record.snd_nxt_bytes);
        let bytes = acked(record)
            .zip(acked(&first))
            .map(|(b, a)| b.saturating_sub(a));
        let has_packets = self.packets > 0.0;
        let report = Report {
            client,
            time_s: Some(begun_s + record.time_s),
            rate_bps: bytes.map(|bytes| 8.0 * bytes as f64 / seconds),
            rtt_s: record.srtt_s.filter(|srtt_s| *srtt_s > 0.0),
            min_rtt_s: record.min_rtt_s.filter(|rtt_s| *rtt_s > 0.0),
            cwnd_packets: has_packets.then(|| self.windows / self.packets),
            packets: has_packets.then_some(self.packets),
            losses: has_packets.then_some(self.losses.max(0.0)),
            npc: Some(1),
            // a window that is never half full is not what limits the rate
            app_limited: self.filled < FILLED,
        };
        (self.packets, self.losses, self.windows) = (0.0, 0.0, 0.0);
        self.filled = self.fills(record);
        Some(Ok(report))
    }
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
            snd_nxt_bytes: Some(u64::from(number) * 125_000 + 1448 * u64::from(10 + number % 20)),
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
