//! Times, rates, sizes and shares as tc(8) has them, "PARAMETERS".

use pathcast_base::{Bandwidth, Probability, Span};

/// Number and unit, such as 1.5 and `mbit`.
fn split(text: &str) -> Option<(f64, String)> {
    let end = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit.to_ascii_lowercase()))
}

/// A time; a bare number is microseconds.
pub(super) fn time(text: &str) -> Result<Span, String> {
    let wrong = || format!("got {text:?}, expected a time up to an hour such as 20ms");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let nanos = match unit.as_str() {
        "s" | "sec" | "secs" => 1e9,
        "ms" | "msec" | "msecs" => 1e6,
        "" | "us" | "usec" | "usecs" => 1e3,
        "ns" | "nsec" | "nsecs" => 1.0,
        _ => return Err(wrong()),
    };
    let nanos = (number * nanos).round();
    match nanos <= 3600e9 {
        true => Ok(Span::from_nanos(nanos as u64)),
        false => Err(wrong()),
    }
}

/// A rate; a bare number is bits a second, and `bps` are bytes a second.
pub(super) fn rate(text: &str) -> Result<Bandwidth, String> {
    let wrong = || format!("got {text:?}, expected a rate such as 10mbit");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let (unit, bits) = match unit.strip_suffix("bps") {
        Some(prefix) => (prefix.to_string(), 8.0),
        None => (unit.strip_suffix("bit").unwrap_or(&unit).to_string(), 1.0),
    };
    let factor = match unit.as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "ki" => 1024.0,
        "mi" => 1024.0 * 1024.0,
        "gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    Bandwidth::from_bps(number * factor * bits).ok_or_else(wrong)
}

/// A number of bytes; `k` are 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("got {text:?}, expected a number of bytes such as 32kb");
    // a burst may have the size of its cell behind it
    let (number, unit) = split(text.split('/').next().unwrap_or(text)).ok_or_else(wrong)?;
    let factor = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1024.0,
        "m" | "mb" => 1024.0 * 1024.0,
        "g" | "gb" => 1024.0 * 1024.0 * 1024.0,
        "kbit" => 1024.0 / 8.0,
        "mbit" => 1024.0 * 1024.0 / 8.0,
        _ => return Err(wrong()),
    };
    let bytes = (number * factor).round();
    match (1.0..=1e15).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// A share: percent, with or without its sign.
pub(super) fn share(text: &str) -> Result<Probability, String> {
    let wrong = || format!("got {text:?}, expected 0% to 100%");
    let number = text.strip_suffix('%').unwrap_or(text);
    // parsed with its exponent, because small values are written with one
    let percent: f64 = number.parse().map_err(|_| wrong())?;
    Probability::new(percent / 100.0).ok_or_else(wrong)
}

/// A whole number.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("got {text:?}, expected a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_tc() {
        for (text, nanos) in [
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("100", 100_000),
            ("7ns", 7),
        ] {
            assert_eq!(time(text), Ok(Span::from_nanos(nanos)), "{text}");
        }
        for (text, bps) in [
            ("10mbit", 10e6),
            ("10Mbit", 10e6),
            ("1gbit", 1e9),
            ("9600", 9600.0),
            ("1mbps", 8e6),
            ("500kbps", 4e6),
            ("1kibit", 1024.0),
        ] {
            assert_eq!(rate(text).unwrap().as_bps(), bps, "{text}");
        }
        for (text, bytes) in [
            ("1540", 1540),
            ("32kb", 32_768),
            ("32kbit", 4096),
            ("10k", 10_240),
            ("15k/8", 15_360),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(share("0.5%").unwrap().value(), 0.005);
        assert_eq!(share("1").unwrap().value(), 0.01);
        for wrong in ["", "x", "-1", "1e400", "NaN", "inf", "5 ms"] {
            assert!(
                time(wrong).is_err() && rate(wrong).is_err() && size(wrong).is_err(),
                "{wrong}"
            );
        }
        assert!(rate("50%").is_err() && rate("0").is_err() && time("2h").is_err());
        assert!(share("101%").is_err() && share("nan").is_err() && share("-1%").is_err());
    }
}
