//! Quantities with their units: time on a run's clock, spans of it, bandwidths, sizes and
//! probabilities, with the text forms that files use (`"12 Mbit/s"`, `"30 ms"`, `"500 kB"`).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use thiserror::Error;

/// A moment on a run's clock, in nanoseconds since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than any moment of any run.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the start.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    #[inline]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span from `earlier` to here; zero if `earlier` is in fact later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

/// A length of time in nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// `nanos` nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `millis` milliseconds.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// `secs` seconds, rounded to a nanosecond; negative values and NaN become zero, and values
    /// past 584 years the longest span.
    #[inline]
    pub fn from_secs(secs: f64) -> Self {
        Self((secs * 1e9).round() as u64)
    }

    /// This span in nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This span in seconds.
    #[inline]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self * numerator / denominator` without overflow in between.
    #[inline]
    pub const fn mul_div(self, numerator: u64, denominator: u64) -> Self {
        Self((self.0 as u128 * numerator as u128 / denominator as u128) as u64)
    }
}

impl Add for Span {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// A quantity that could not be read: what was got and what was expected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("got {got}, expected {wanted}")]
pub struct UnitError {
    got: String,
    wanted: String,
}

impl UnitError {
    /// The error for a value `got` where `wanted` was expected.
    pub fn new(got: impl fmt::Debug, wanted: impl Into<String>) -> Self {
        Self {
            got: format!("{got:?}"),
            wanted: wanted.into(),
        }
    }
}

/// Splits `"12.5 Mbit/s"` into `"12.5"`, what that is, and `"Mbit/s"`; the blank between them may
/// be left out. None unless it begins with a finite number.
pub fn split_unit(text: &str) -> Option<(&str, f64, &str)> {
    let text = text.trim();
    // no unit begins with these; "1e3 bit/s" must not stop at "1"
    let in_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    let (number, unit) = text.split_at(text.find(|c| !in_number(c)).unwrap_or(text.len()));
    let value = number
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())?;
    Some((number, value, unit.trim()))
}

/// Reads `text` as a number and one of `units`, each with its factor; returns both.
///
/// # Errors
/// The text is something else. The error gives `example` and names the units.
pub fn parse_in_units(
    text: &str,
    units: &[(&str, f64)],
    example: &str,
) -> Result<(f64, f64), UnitError> {
    let names = || {
        units
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let wanted = || format!("{example} (units: {})", names());
    let (_, value, unit) = split_unit(text).ok_or_else(|| UnitError::new(text, wanted()))?;
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| UnitError::new(text, wanted()))?;
    Ok((value, *factor))
}

/// Bits a second, greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth(f64);

impl Bandwidth {
    /// `bps` bits a second; `None` unless it is finite and greater than zero.
    pub fn from_bps(bps: f64) -> Option<Self> {
        (bps.is_finite() && bps > 0.0).then_some(Self(bps))
    }

    /// Bits a second.
    pub const fn as_bps(self) -> f64 {
        self.0
    }

    /// Reads a rate that may also be zero, for which it returns `None`.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_or_zero(text: &str) -> Result<Option<Self>, UnitError> {
        match text.parse() {
            Ok(rate) => Ok(Some(rate)),
            Err(_)
                if split_unit(text).is_some_and(|(_, value, unit)| {
                    value == 0.0 && Self::UNITS.iter().any(|(name, _)| *name == unit)
                }) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    const UNITS: &'static [(&'static str, f64)] = &[
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("Mbit/s", 1e6),
        ("Gbit/s", 1e9),
    ];
}

impl FromStr for Bandwidth {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (value, factor) = parse_in_units(
            text,
            Self::UNITS,
            "a rate greater than zero such as \"12 Mbit/s\"",
        )?;
        Self::from_bps(value * factor)
            .ok_or_else(|| UnitError::new(text, "a rate greater than zero such as \"12 Mbit/s\""))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the largest unit in which it is read back as the same number
        let units = Self::UNITS.iter().rev();
        for (unit, factor) in units.filter(|(_, factor)| self.0 >= *factor) {
            let value = self.0 / factor;
            if value * factor == self.0 {
                return write!(f, "{value} {unit}");
            }
        }
        write!(f, "{} bit/s", self.0)
    }
}

impl FromStr for Span {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, f64)] = &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        const EXAMPLE: &str = "a time from zero to an hour such as \"30 ms\"";
        let (value, factor) = parse_in_units(text, UNITS, EXAMPLE)?;
        let secs = value * factor;
        if (0.0..=3600.0).contains(&secs) {
            Ok(Self::from_secs(secs))
        } else {
            Err(UnitError::new(text, EXAMPLE))
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos >= 1_000_000_000 => write!(f, "{} s", nanos as f64 / 1e9),
            nanos if nanos >= 1_000_000 || nanos == 0 => write!(f, "{} ms", nanos as f64 / 1e6),
            nanos if nanos >= 1_000 => write!(f, "{} us", nanos as f64 / 1e3),
            nanos => write!(f, "{nanos} ns"),
        }
    }
}

/// An amount of data in bytes, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// `bytes`, if it is more than none.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes > 0 { Some(Self(bytes)) } else { None }
    }

    /// In bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, f64)] = &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)];
        const EXAMPLE: &str = "a size from 1 B to 1000 GB such as \"500 kB\"";
        let (value, factor) = parse_in_units(text, UNITS, EXAMPLE)?;
        let bytes = (value * factor).round();
        if (1.0..=1e12).contains(&bytes) {
            Ok(Self(bytes as u64))
        } else {
            Err(UnitError::new(text, EXAMPLE))
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes % 1_000_000 == 0 => write!(f, "{} MB", bytes / 1_000_000),
            bytes if bytes % 1000 == 0 => write!(f, "{} kB", bytes / 1000),
            bytes => write!(f, "{bytes} B"),
        }
    }
}

/// A probability in `[0, 1]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);

    /// `p`, if it lies in `[0, 1]`.
    pub fn new(p: f64) -> Option<Self> {
        (0.0..=1.0).contains(&p).then_some(Self(p))
    }

    /// The value in `[0, 1]`.
    pub const fn value(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!("12 Mbit/s".parse::<Bandwidth>().unwrap().as_bps(), 12e6);
        assert_eq!("1.5Gbit/s".parse::<Bandwidth>().unwrap().as_bps(), 1.5e9);
        assert_eq!("1e3 kbit/s".parse::<Bandwidth>().unwrap().as_bps(), 1e6);
        assert_eq!("30 ms".parse::<Span>().unwrap(), Span::from_millis(30));
        assert_eq!("250us".parse::<Span>().unwrap().as_nanos(), 250_000);
    }

    #[test]
    fn wrong_quantities_are_refused() {
        for text in [
            "12",
            "12 Mbps",
            "-3 Mbit/s",
            "0 Mbit/s",
            "nan Mbit/s",
            "Mbit/s",
            "",
            "é",
        ] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
        for text in ["-1 ms", "5", "5 min", "2 h", "4000 s", "inf s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["0 B", "0.2 B", "-1 kB", "5", "1e13 B", "3 packets"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_longest_of_texts_is_read_in_no_time() {
        let (digits, letters) = ("1".repeat(500_000), "x".repeat(500_000));
        assert!(format!("{digits}{letters}").parse::<Span>().is_err());
        assert!(format!("0.{digits} ms").parse::<Span>().is_ok());
    }

    #[test]
    fn what_is_displayed_is_read_back() {
        for text in ["12 Mbit/s", "1.5 Gbit/s", "900 bit/s"] {
            let rate: Bandwidth = text.parse().unwrap();
            assert_eq!(rate.to_string().parse::<Bandwidth>().unwrap(), rate);
        }
        for bytes in [1, 999, 1000, 1500, 2_000_000, 1_000_000_000_000] {
            let size = Size::from_bytes(bytes).unwrap();
            assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
        }
        for nanos in [0, 1, 999, 1_000, 1_500_000, 30_000_000, 2_500_000_000] {
            let span = Span::from_nanos(nanos);
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
    }
}
