//! The service's log: a line of JSON for each event, on standard error.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// Writes an event with its level (`info`, `warning`, `error`) and further keys.
pub fn log(level: &str, event: &str, more: &[(&str, Value)]) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut line = Map::new();
    line.insert(
        "time_s".into(),
        since.map_or(0.0, |since| since.as_secs_f64()).into(),
    );
    line.insert("level".into(), level.into());
    line.insert("event".into(), event.into());
    for (key, value) in more {
        line.insert((*key).into(), value.clone());
    }
    // a log that cannot be written must not end the service
    let _ = writeln!(std::io::stderr().lock(), "{}", Value::Object(line));
}
