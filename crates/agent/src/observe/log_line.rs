//! One line of a server's log: a request, or a page load that the browser timed.

use std::net::IpAddr;

use serde::Deserialize;

use crate::settings::Completion;

/// Longest time that is believed.
const LONGEST_MS: f64 = 600_000.0;
/// What a time of zero stands for, in logs of whole milliseconds.
const SHORTEST_MS: f64 = 0.5;

/// A completion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) client: IpAddr,
    /// How long it took.
    pub(crate) ms: f64,
    /// How long ago its connection began, or at least it itself.
    pub(crate) since_ms: f64,
}

/// A number, or its text: nginx writes both, and nothing for a variable that is empty.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(f64),
    Text(String),
}

impl Number {
    fn value(&self) -> Result<Option<f64>, String> {
        let value = match self {
            Self::Number(value) => *value,
            Self::Text(text) if text.is_empty() || text == "-" => return Ok(None),
            Self::Text(text) => {
                let start: String = text.chars().take(40).collect();
                text.parse()
                    .map_err(|_| format!("got {start:?}, expected a number"))?
            }
        };
        match value.is_finite() && value >= 0.0 {
            true => Ok(Some(value)),
            false => Err(format!("got {value}, expected a number from 0")),
        }
    }
}

/// A line as it is written; servers may add other keys.
#[derive(Deserialize)]
struct Written {
    client: IpAddr,
    request_s: Option<Number>,
    connection_s: Option<Number>,
    status: Option<Number>,
    load_ms: Option<Number>,
}

impl Line {
    /// Reads a line; none if it is of another kind than is counted, or of a failed request.
    pub(crate) fn read(text: &str, counted: Completion) -> Result<Option<Self>, String> {
        let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let value = |number: &Option<Number>| number.as_ref().map_or(Ok(None), Number::value);
        let status = value(&written.status)?;
        if status.is_some_and(|status| !(200.0..400.0).contains(&status)) {
            return Ok(None);
        }
        let (load_ms, request_s) = (value(&written.load_ms)?, value(&written.request_s)?);
        let ms = match counted {
            Completion::Loads => load_ms,
            // a beacon is a request too, and says nothing of the server's
            Completion::Requests if load_ms.is_some() => None,
            Completion::Requests => request_s.map(|request| request * 1000.0),
        };
        let Some(ms) = ms.filter(|ms| *ms <= LONGEST_MS) else {
            return Ok(None);
        };
        let connection_ms = value(&written.connection_s)?.map(|connection| connection * 1000.0);
        let since_ms = connection_ms.unwrap_or(ms).max(ms);
        Ok(Some(Self {
            client: written.client,
            ms: ms.max(SHORTEST_MS),
            since_ms: since_ms.min(1e12),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_loads_are_told_apart() {
        let request = r#"{"client":"10.1.2.3","request_s":"0.250","connection_s":"1.5","status":"200","load_ms":""}"#;
        let read = Line::read(request, Completion::Requests).unwrap().unwrap();
        assert_eq!((read.ms, read.since_ms), (250.0, 1500.0));
        assert_eq!(Line::read(request, Completion::Loads).unwrap(), None);
        let load = r#"{"client":"2001:db8::1","request_s":0.001,"status":204,"load_ms":"812.5","more":[1]}"#;
        let read = Line::read(load, Completion::Loads).unwrap().unwrap();
        assert_eq!((read.ms, read.since_ms), (812.5, 812.5));
        assert_eq!(Line::read(load, Completion::Requests).unwrap(), None);
        let zero = r#"{"client":"10.1.2.3","request_s":0}"#;
        assert_eq!(
            Line::read(zero, Completion::Requests).unwrap().unwrap().ms,
            0.5
        );
    }

    #[test]
    fn what_a_client_may_write_into_a_log_is_refused_or_passed_over() {
        let counted = |text: &str| Line::read(text, Completion::Loads);
        for load in ["-1", "NaN", "inf", "1e999", "; rm", "0x10"] {
            let text = format!(r#"{{"client":"10.1.2.3","load_ms":"{load}"}}"#);
            assert!(counted(&text).is_err(), "{load}");
        }
        assert_eq!(
            counted(r#"{"client":"10.1.2.3","load_ms":"1e9"}"#),
            Ok(None)
        );
        assert_eq!(
            counted(r#"{"client":"10.1.2.3","load_ms":5,"status":500}"#),
            Ok(None)
        );
        assert!(counted(r#"{"client":"me","load_ms":5}"#).is_err());
        assert!(counted("GET / HTTP/1.1").is_err());
    }
}
