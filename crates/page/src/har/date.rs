//! Dates of archives.

use chrono::DateTime;

use super::raw::Text;

/// Nanoseconds of a date of RFC 3339 since 1970; none if it is no date, or one of another century.
pub fn nanos(date: &str) -> Option<i64> {
    let date = date.trim();
    let read = DateTime::parse_from_rfc3339(date)
        // some write the offset without its colon
        .or_else(|_| DateTime::parse_from_str(date, "%Y-%m-%dT%H:%M:%S%.f%z"))
        .ok()?;
    read.timestamp_nanos_opt()
}

/// A date for seconds of a clock that counts from anywhere.
pub fn date(at_s: f64) -> Text {
    let nanos = (at_s * 1e9).clamp(0.0, 9e18) as i64;
    Text::of(Some(&DateTime::from_timestamp_nanos(nanos).to_rfc3339()))
}
