//! What was measured of a client's flow.

use std::borrow::Cow;
use std::net::IpAddr;

use pathcast_analysis::clusters::{Prefix, PrefixError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bits of the prefixes that clients are kept by: networks of this size are announced, and are in one place.
pub const PREFIX_BITS: (u8, u8) = (24, 48);
/// A sample may be this much later than the service's clock, seconds.
pub const FUTURE_S: f64 = 5.0;
/// Most that a rate may be, bit/s: 10 Tbit/s.
const MOST_BPS: f64 = 1e13;
/// Longest time that a rate is measured over, seconds.
const LONGEST_S: f64 = 3600.0;
/// Longest round-trip time, seconds.
const LONGEST_RTT_S: f64 = 120.0;
const MOST_PACKETS: f64 = 1e7;

/// Why a sample, or the address of a client, was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The client is no address, and no prefix.
    #[error(transparent)]
    Client(#[from] PrefixError),
    /// A prefix that holds clients of many networks.
    #[error("client {got} is too wide, expected an address, or a prefix of at least {bits} bits")]
    TooWide {
        /// What was given.
        got: Prefix,
        /// The least length.
        bits: u8,
    },
    /// A number outside its range.
    #[error("{what} is {got}, expected {expected}")]
    OutOfRange {
        /// The key.
        what: &'static str,
        /// What was given.
        got: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// It is from the future.
    #[error(
        "time_s is {ahead_s:.1} s ahead of this machine's clock, expected at most {FUTURE_S} s"
    )]
    Future {
        /// By how much.
        ahead_s: f64,
    },
    /// It is older than anything that is kept.
    #[error("time_s is {age_s:.0} s ago, expected at most {window_s:.0} s, the sliding window")]
    Late {
        /// Its age.
        age_s: f64,
        /// The window.
        window_s: f64,
    },
    /// It has neither of what can be learned.
    #[error("the sample has no rate_bps, no rtt_s and no packets, expected at least one of them")]
    Empty,
}

/// A client, and the prefix that it is kept by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// A /24 of IPv4, a /48 of IPv6.
    pub prefix: Prefix,
    /// A number of its own address, the same for the same address.
    pub number: u32,
}

impl Client {
    /// The client that a text names: an address, or a prefix without bits beyond its length.
    ///
    /// # Errors
    /// [`SampleError::Client`] if it is neither, [`SampleError::TooWide`] if it is a wider prefix than clients are kept by.
    pub fn parse(text: &str) -> Result<Self, SampleError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::of(address.into()));
        }
        let given: Prefix = text.parse()?;
        let bits = bits(given);
        if given.length() < bits {
            return Err(SampleError::TooWide { got: given, bits });
        }
        Ok(Self::of(given))
    }

    fn of(given: Prefix) -> Self {
        let bits = given.bits();
        #[allow(clippy::cast_possible_truncation)] // folded
        let number = (bits ^ (bits >> 32) ^ (bits >> 64) ^ (bits >> 96)) as u32;
        Self {
            prefix: given.truncated(self::bits(given)),
            number,
        }
    }
}

fn bits(prefix: Prefix) -> u8 {
    if prefix.is_v6() {
        PREFIX_BITS.1
    } else {
        PREFIX_BITS.0
    }
}

/// A sample as it is sent: one object of JSON. All but the client is optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report<'a> {
    /// Address of the client, or its prefix.
    #[serde(borrow)]
    pub client: Cow<'a, str>,
    /// When it was measured, seconds since 1970; now if it is not given.
    #[serde(default)]
    pub time_s: Option<f64>,
    /// Payload that was delivered a second, bit/s.
    #[serde(default)]
    pub rate_bps: Option<f64>,
    /// Over how long that was measured, without pauses of the sender, seconds; since the sample before if it is not given.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// Smoothed round-trip time, seconds.
    #[serde(default)]
    pub rtt_s: Option<f64>,
    /// Smallest round-trip time of the connection, seconds.
    #[serde(default)]
    pub min_rtt_s: Option<f64>,
    /// Congestion window, packets.
    #[serde(default)]
    pub cwnd_packets: Option<f64>,
    /// Packets sent since the flow's last sample.
    #[serde(default)]
    pub packets: Option<f64>,
    /// Loss events in them.
    #[serde(default)]
    pub losses: Option<f64>,
    /// Parallel connections of the client, this one among them.
    #[serde(default)]
    pub npc: Option<u32>,
    /// Whether the application, not the network, limited the rate: such a rate says nothing of the path.
    #[serde(default)]
    pub app_limited: bool,
}

/// A sample whose numbers are within their ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The client.
    pub client: Client,
    /// Seconds since 1970.
    pub time_s: f64,
    /// Payload that was delivered a second, bit/s.
    pub rate_bps: Option<f64>,
    /// Over how long that was measured, seconds.
    pub duration_s: Option<f64>,
    /// Smoothed round-trip time, seconds.
    pub rtt_s: Option<f64>,
    /// Smallest round-trip time of the connection, seconds.
    pub min_rtt_s: Option<f64>,
    /// Packets sent at a window, and the loss events in them.
    pub sent: Option<Sent>,
}

/// Packets that were sent at a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sent {
    /// The window, packets.
    pub cwnd_packets: f64,
    /// Parallel connections.
    pub npc: u8,
    /// Packets.
    pub packets: f64,
    /// Loss events.
    pub losses: f64,
}

impl Report<'_> {
    /// The sample, if all is within its range; `now_s` is the service's time, and samples older than `window_s` are
    /// refused.
    ///
    /// # Errors
    /// [`SampleError`] names the value that was refused.
    pub fn sample(&self, now_s: f64, window_s: f64) -> Result<Sample, SampleError> {
        let client = Client::parse(&self.client)?;
        let time_s = self.time_s.unwrap_or(now_s);
        if !time_s.is_finite() {
            return Err(SampleError::OutOfRange {
                what: "time_s",
                got: time_s,
                expected: "seconds since 1970",
            });
        }
        if time_s > now_s + FUTURE_S {
            let ahead_s = time_s - now_s;
            return Err(SampleError::Future { ahead_s });
        }
        if time_s < now_s - window_s {
            let age_s = now_s - time_s;
            return Err(SampleError::Late { age_s, window_s });
        }
        let rate = within("rate_bps", self.rate_bps, 0.0, MOST_BPS, "0 to 1e13")?;
        let rtt = |what, value| within(what, value, 1e-6, LONGEST_RTT_S, "1e-6 to 120");
        let count = |what, value| within(what, value, 0.0, MOST_PACKETS, "0 to 1e7");
        let cwnd = within("cwnd_packets", self.cwnd_packets, 1e-3, MOST_PACKETS, "> 0")?;
        let (packets, losses) = (
            count("packets", self.packets)?,
            count("losses", self.losses)?,
        );
        let npc = within("npc", self.npc.map(f64::from), 1.0, 1e6, "at least 1")?.unwrap_or(1.0);
        let sent = match (cwnd, packets) {
            (Some(cwnd_packets), Some(packets)) if packets > 0.0 => Some(Sent {
                cwnd_packets,
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at least 1
                npc: npc.min(255.0) as u8,
                packets,
                losses: losses.unwrap_or(0.0).min(packets),
            }),
            _ => None,
        };
        let sample = Sample {
            client,
            time_s: time_s.min(now_s),
            rate_bps: rate.filter(|_| !self.app_limited),
            duration_s: within(
                "duration_s",
                self.duration_s,
                1e-3,
                LONGEST_S,
                "0.001 to 3600",
            )?,
            rtt_s: rtt("rtt_s", self.rtt_s)?,
            min_rtt_s: rtt("min_rtt_s", self.min_rtt_s)?,
            sent,
        };
        let has_rtt = sample.rtt_s.is_some() || sample.min_rtt_s.is_some();
        if rate.is_none() && !has_rtt && sample.sent.is_none() {
            return Err(SampleError::Empty);
        }
        Ok(sample)
    }
}

fn within(
    what: &'static str,
    value: Option<f64>,
    least: f64,
    most: f64,
    expected: &'static str,
) -> Result<Option<f64>, SampleError> {
    match value {
        Some(got) if !(least..=most).contains(&got) => Err(SampleError::OutOfRange {
            what,
            got,
            expected,
        }),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(client: &str) -> Report<'_> {
        Report {
            client: client.into(),
            rate_bps: Some(1e6),
            ..Report::default()
        }
    }

    #[test]
    fn clients_are_kept_by_their_prefix() {
        for (text, prefix) in [
            ("192.0.2.7", "192.0.2.0/24"),
            ("::ffff:192.0.2.7", "192.0.2.0/24"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.128/25", "192.0.2.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ] {
            assert_eq!(Client::parse(text).unwrap().prefix.to_string(), prefix);
        }
    }

    #[test]
    fn what_is_no_client_is_refused() {
        for (text, said) in [
            ("", "is no prefix"),
            ("example.org", "is no prefix"),
            ("192.0.2.7/24", "bits beyond the length"),
            ("10.0.0.0/8", "too wide"),
            ("2001:db8::/32", "too wide"),
        ] {
            let error = Client::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let refused = |report: Report<'_>, said: &str| {
            let error = report.sample(1000.0, 600.0).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        let good = report("192.0.2.7");
        assert!(good.sample(1000.0, 600.0).is_ok());
        let with = |change: fn(&mut Report<'_>)| {
            let mut changed = report("192.0.2.7");
            change(&mut changed);
            changed
        };
        refused(with(|r| r.rate_bps = Some(f64::NAN)), "rate_bps is NaN");
        refused(with(|r| r.rate_bps = Some(-1.0)), "rate_bps is -1");
        refused(with(|r| r.duration_s = Some(0.0)), "duration_s is 0");
        refused(with(|r| r.rtt_s = Some(0.0)), "rtt_s is 0");
        refused(with(|r| r.time_s = Some(1006.0)), "ahead");
        refused(with(|r| r.time_s = Some(f64::INFINITY)), "time_s is inf");
        refused(with(|r| r.time_s = Some(1.0)), "ago");
        refused(with(|r| r.npc = Some(0)), "npc is 0");
        refused(with(|r| r.rate_bps = None), "at least one");
    }

    #[test]
    fn a_rate_that_the_application_limits_is_left_out() {
        let mut limited = report("192.0.2.7");
        limited.app_limited = true;
        assert_eq!(limited.sample(0.0, 1.0).unwrap().rate_bps, None);
    }
}
