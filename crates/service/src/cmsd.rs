//! CMSD-Dynamic: what a media server tells a player about its network (CTA-5006), as a header of HTTP.

use serde::Deserialize;

use crate::answers::{AnswerError, BitrateQuestion, Over};

/// Longest name of a server.
const NAME_BYTES: usize = 64;

/// Parameters of `/v1/cmsd`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CmsdQuestion {
    client: String,
    #[serde(default = "four")]
    segment_s: f64,
    #[serde(default = "nine_tenths")]
    confidence: f64,
    ladder: Option<String>,
    #[serde(default)]
    over: Over,
    #[serde(default = "name")]
    server: String,
}

fn four() -> f64 {
    4.0
}

fn nine_tenths() -> f64 {
    0.9
}

fn name() -> String {
    "pathcast".into()
}

impl CmsdQuestion {
    /// The name of the server that adds the header, and the question about the bitrate.
    ///
    /// # Errors
    /// [`AnswerError::Server`] if a header cannot hold the name.
    pub fn parts(self) -> Result<(String, BitrateQuestion), AnswerError> {
        // a string of structured fields: RFC 8941, section 3.3.3, here without escapes
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        let is_name = !self.server.is_empty() && self.server.len() <= NAME_BYTES;
        if !(is_name && self.server.bytes().all(is_plain)) {
            let got = self.server.chars().take(NAME_BYTES).collect();
            return Err(AnswerError::Server(got));
        }
        let question = BitrateQuestion {
            client: self.client,
            segment_s: self.segment_s,
            confidence: self.confidence,
            ladder: self.ladder,
            over: self.over,
        };
        Ok((self.server, question))
    }
}

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advice {
    /// Estimated throughput: the median rate, bit/s.
    pub rate_bps: f64,
    /// The highest bitrate that a player should take, bit/s.
    pub most_bps: f64,
    /// Round-trip time, seconds.
    pub rtt_s: Option<f64>,
}

impl Advice {
    /// The value of the header: kilobits a second and milliseconds, whole numbers.
    pub fn header(&self, server: &str) -> String {
        let (etp, mb) = (kbps(self.rate_bps), kbps(self.most_bps));
        let rtt = self
            .rtt_s
            .map(|rtt_s| format!(";rtt={:.0}", (1e3 * rtt_s).max(1.0)))
            .unwrap_or_default();
        format!("\"{server}\";etp={etp};mb={mb}{rtt}")
    }
}

/// Whole kilobits a second, rounded down so that a player stays below, and at least 1.
fn kbps(rate_bps: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, at most 1e10
    let whole = (rate_bps / 1e3) as u64;
    whole.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(server: &str) -> CmsdQuestion {
        CmsdQuestion {
            client: "192.0.2.7".into(),
            segment_s: 4.0,
            confidence: 0.9,
            ladder: None,
            over: Over::Segment,
            server: server.into(),
        }
    }

    #[test]
    fn the_header_has_whole_kilobits_and_milliseconds() {
        let advice = Advice {
            rate_bps: 8_234_567.0,
            most_bps: 2_999_999.0,
            rtt_s: Some(0.0504),
        };
        assert_eq!(
            advice.header("edge-1"),
            "\"edge-1\";etp=8234;mb=2999;rtt=50"
        );
        let slow = Advice {
            rate_bps: 10.0,
            most_bps: 0.0,
            rtt_s: None,
        };
        assert_eq!(slow.header("a"), "\"a\";etp=1;mb=1");
    }

    #[test]
    fn a_name_that_would_end_the_string_is_refused() {
        for bad in ["", "a\"b", "a\\b", "a\r\nSet-Cookie: x", "\u{e4}"] {
            assert!(question(bad).parts().is_err(), "{bad:?}");
        }
        assert!(question(&"a".repeat(65)).parts().is_err());
        assert_eq!(question("edge 1").parts().unwrap().0, "edge 1");
    }
}
