//! Writes the values of a TOML file.

use std::fmt::{Display, Write};

/// Written one by one, for a trace may have millions.
pub(crate) fn join(items: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for (index, item) in items.enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{item}");
    }
    text
}
