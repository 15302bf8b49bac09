//! The stored form of samples: short, and read back in microseconds.

use pathcast_decide::group::prefix_of;
use pathcast_decide::sample::Sent;
use pathcast_decide::{Client, Sample};
use serde::{Deserialize, Serialize};

/// A batch of samples: its number, the samples, and of each over how long its rate was measured. The last is a list of its
/// own because older logs do not have it.
pub fn batch(number: u64, samples: &[Sample]) -> Vec<u8> {
    let stored: Vec<StoredSample> = samples.iter().map(StoredSample::from).collect();
    #[allow(clippy::cast_possible_truncation)] // seven digits are more than a sample has
    let durations = samples.iter().map(|one| one.duration_s.map(|s| s as f32));
    postcard::to_stdvec(&(number, stored, durations.collect::<Vec<_>>())).unwrap_or_default()
}

/// Reads what [`batch`] made; none if it is something else.
pub fn read_batch(content: &[u8]) -> Option<(u64, Vec<Sample>)> {
    let ((number, stored), rest) =
        postcard::take_from_bytes::<(u64, Vec<StoredSample>)>(content).ok()?;
    let durations: Vec<Option<f32>> = if rest.is_empty() {
        Vec::new()
    } else {
        postcard::from_bytes(rest).ok()?
    };
    let durations = durations.into_iter().chain(std::iter::repeat(None));
    let samples = stored
        .iter()
        .zip(durations)
        .filter_map(|(one, duration_s)| {
            Some(Sample {
                duration_s: duration_s.map(f64::from),
                ..one.sample()?
            })
        });
    Some((number, samples.collect()))
}

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct StoredSample {
    v6: bool,
    length: u8,
    /// The prefix without trailing zeros.
    bits: u64,
    number: u32,
    time_s: f64,
    rate_bps: Option<f32>,
    rtt_s: Option<f32>,
    min_rtt_s: Option<f32>,
    /// Window, connections, packets, losses.
    sent: Option<(f32, u8, f32, f32)>,
}

impl From<&Sample> for StoredSample {
    #[allow(clippy::cast_possible_truncation)] // seven digits are more than a sample has
    fn from(sample: &Sample) -> Self {
        let prefix = sample.client.prefix;
        let part = |value: Option<f64>| value.map(|value| value as f32);
        Self {
            v6: prefix.is_v6(),
            length: prefix.length(),
            bits: (prefix.bits() >> (128 - prefix.length())) as u64,
            number: sample.client.number,
            time_s: sample.time_s,
            rate_bps: part(sample.rate_bps),
            rtt_s: part(sample.rtt_s),
            min_rtt_s: part(sample.min_rtt_s),
            sent: (sample.sent.as_ref()).map(|sent| {
                let (cwnd, packets) = (sent.cwnd_packets as f32, sent.packets as f32);
                (cwnd, sent.npc, packets, sent.losses as f32)
            }),
        }
    }
}

impl StoredSample {
    /// The sample, if its prefix is valid.
    fn sample(&self) -> Option<Sample> {
        let bits = u128::from(self.bits).checked_shl(128_u32.checked_sub(self.length.into())?)?;
        let prefix = prefix_of((self.v6, bits, self.length))?;
        Some(Sample {
            client: Client {
                prefix,
                number: self.number,
            },
            time_s: self.time_s,
            rate_bps: self.rate_bps.map(f64::from),
            duration_s: None,
            rtt_s: self.rtt_s.map(f64::from),
            min_rtt_s: self.min_rtt_s.map(f64::from),
            sent: self.sent.map(|(cwnd, npc, packets, losses)| Sent {
                cwnd_packets: cwnd.into(),
                npc,
                packets: packets.into(),
                losses: losses.into(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back() {
        let samples = ["192.0.2.7", "2001:db8:1::2", "0.0.0.0"].map(|client| {
            let sample = Sample {
                client: Client::parse(client).unwrap(),
                time_s: 1.7e9,
                rate_bps: Some(1e6),
                duration_s: (client != "0.0.0.0").then_some(0.25),
                rtt_s: None,
                min_rtt_s: Some(0.25),
                sent: Some(Sent {
                    cwnd_packets: 10.0,
                    npc: 2,
                    packets: 100.0,
                    losses: 1.0,
                }),
            };
            let bytes = batch(1, &[sample]);
            assert!(bytes.len() < 60, "{}", bytes.len());
            sample
        });
        assert_eq!(read_batch(&batch(7, &samples)), Some((7, samples.to_vec())));
    }

    #[test]
    fn logs_without_durations_are_read() {
        let sample = Sample {
            client: Client::parse("192.0.2.7").unwrap(),
            time_s: 1.7e9,
            rate_bps: Some(1e6),
            duration_s: None,
            rtt_s: None,
            min_rtt_s: None,
            sent: None,
        };
        let older = postcard::to_stdvec(&(7_u64, vec![StoredSample::from(&sample)])).unwrap();
        assert_eq!(read_batch(&older), Some((7, vec![sample])));
        assert_eq!(read_batch(&older[..older.len() - 1]), None);
        let newer = batch(7, &[sample]);
        assert_eq!(read_batch(&newer[..newer.len() - 1]), None);
    }
}
