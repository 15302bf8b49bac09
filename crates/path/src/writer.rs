//! Writes the values of a TOML file.

use std::fmt::{Display, Write};

/// Writes items one by one, because a trace may have millions.
pub(crate) fn join(items: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for (index, item) in items.enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{item}");
    }
    text
}
