//! The words that ss prints about a socket.

use crate::import::input::shown;
use crate::record::{Mode, Record};

/// Single words that ss prints before the name of the congestion control.
const FLAGS: [&str; 10] = [
    "ts",
    "usec_ts",
    "sack",
    "ecn",
    "ecnseen",
    "fastopen",
    "cubic_ecn",
    "app_limited",
    "tcp-ulp-tls",
    "mptcp",
];
/// What directly follows that name.
const AFTER_SCHEME: [&str; 7] = [
    "wscale:", "rto:", "backoff:", "rtt:", "ato:", "mss:", "cwnd:",
];

pub(super) fn value<'a>(info: &[&'a str], key: &str) -> Option<&'a str> {
    info.iter().find_map(|word| word.strip_prefix(key))
}

pub(super) fn record(info: &[&str], time_s: f64, flow: u32) -> Result<Record, String> {
    let number = |key: &str, text: &str| -> Result<f64, String> {
        let parsed = text
            .parse::<f64>()
            .ok()
            .filter(|v| v.is_finite() && *v >= 0.0);
        parsed.ok_or_else(|| format!("{key} got {}, expected a number", shown(text)))
    };
    let optional = |key: &str| value(info, key).map(|text| number(key, text)).transpose();
    let count = |key: &str| -> Result<Option<u64>, String> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| format!("{key} got {}, expected a whole number", shown(text)))
        };
        value(info, key).map(parse).transpose()
    };
    let srtt_ms = value(info, "rtt:")
        .map(|rtt| number("rtt:", rtt.split_once('/').map_or(rtt, |(srtt, _)| srtt)))
        .transpose()?;
    let retransmits = value(info, "retrans:")
        .map(|both| {
            let total = both.split_once('/').map_or(both, |(_, total)| total);
            let parsed = total.parse::<u64>();
            parsed.map_err(|_| format!("retrans: got {}, expected NOW/TOTAL", shown(both)))
        })
        .transpose()?;
    let sent = count("bytes_sent:")?;
    // ss omits zero values
    let resent = count("bytes_retrans:")?.unwrap_or(0);
    let acked = count("bytes_acked:")?;
    let bbr = Bbr::of(info);
    Ok(Record {
        time_s,
        flow,
        cwnd_packets: number("cwnd:", value(info, "cwnd:").unwrap_or(""))?,
        ssthresh_packets: optional("ssthresh:")?,
        srtt_s: srtt_ms.map(|ms| ms / 1e3),
        snd_nxt_bytes: sent.map(|sent| sent.saturating_sub(resent)),
        snd_una_bytes: acked.or(sent.map(|_| 0)),
        rwnd_bytes: count("snd_wnd:")?,
        retransmits: Some(retransmits.unwrap_or(0)),
        min_rtt_s: bbr
            .least("mrtt:")
            .or(optional("minrtt:")?)
            .map(|ms| ms / 1e3),
        bandwidth_bps: bbr.word("bw:").and_then(bps),
        pacing_bps: value_after(info, "pacing_rate").and_then(bps),
        delivery_bps: value_after(info, "delivery_rate").and_then(bps),
        mode: bbr.mode(),
    })
}

/// The word after `key`.
fn value_after<'a>(info: &[&'a str], key: &str) -> Option<&'a str> {
    let at = info.iter().position(|word| *word == key)?;
    info.get(at + 1).copied()
}

/// A rate as ss prints it: `28.9Mbps`.
fn bps(text: &str) -> Option<f64> {
    let text = text.strip_suffix("bps")?;
    let (digits, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1e3),
        'M' => (&text[..text.len() - 1], 1e6),
        'G' => (&text[..text.len() - 1], 1e9),
        'T' => (&text[..text.len() - 1], 1e12),
        _ => (text, 1.0),
    };
    let rate = digits.parse::<f64>().ok()? * unit;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// What ss prints about BBR: `bbr:(bw:28.9Mbps,mrtt:19.6,pacing_gain:1,cwnd_gain:2)`.
struct Bbr<'a>(Option<&'a str>);

impl<'a> Bbr<'a> {
    fn of(info: &[&'a str]) -> Self {
        let inner = value(info, "bbr:(");
        Self(inner.map(|inner| inner.strip_suffix(')').unwrap_or(inner)))
    }

    fn word(&self, key: &str) -> Option<&'a str> {
        self.0?.split(',').find_map(|word| word.strip_prefix(key))
    }

    fn least(&self, key: &str) -> Option<f64> {
        let value = self.word(key)?.parse::<f64>().ok()?;
        (value.is_finite() && value > 0.0).then_some(value)
    }

    /// The mode, inferred from the gains that the kernel reports.
    fn mode(&self) -> Option<Mode> {
        let (pacing, window) = (self.least("pacing_gain:")?, self.least("cwnd_gain:")?);
        let mode = match () {
            () if pacing > 2.0 => Mode::SlowStart,
            () if pacing < 0.5 => Mode::Drain,
            () if pacing < 0.95 => Mode::Down,
            () if pacing > 1.05 => Mode::Up,
            () if window < 1.5 => Mode::ProbeRtt,
            () => Mode::Cruise,
        };
        Some(mode)
    }
}

/// The last bare word before the first number.
pub(super) fn scheme<'a>(info: &[&'a str]) -> Option<&'a str> {
    let number = |word: &&str| AFTER_SCHEME.iter().any(|key| word.starts_with(key));
    let at = info.iter().position(number)?;
    let word = info[..at].last().filter(|word| !FLAGS.contains(word))?;
    let name = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    name.then_some(*word)
}
