//! What an interface itself dropped.

use std::fs::File;
use std::io::{self, Read, Seek};

/// The statistics of an interface, as its own namespace sees them.
pub(crate) struct Statistics {
    /// `/proc/net/dev` of the namespace in which it was opened.
    file: File,
    name: String,
}

impl Statistics {
    /// Those of interface `name` in the calling thread's namespace.
    pub(crate) fn of(name: &str) -> io::Result<Self> {
        Ok(Self {
            file: File::open("/proc/thread-self/net/dev")?,
            name: name.into(),
        })
    }

    /// Packets that the interface dropped in either direction; none if it is gone.
    pub(crate) fn drops(&self) -> io::Result<u64> {
        let mut text = String::new();
        (&self.file).rewind()?;
        (&self.file).read_to_string(&mut text)?;
        Ok(parse_drops(&text, &self.name).unwrap_or(0))
    }
}

/// The two drop counts of `interface` in `/proc/net/dev`.
fn parse_drops(text: &str, interface: &str) -> Option<u64> {
    let counts = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
    // bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop ...
    let counts: Vec<u64> = counts
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    Some(counts.get(3)? + counts.get(11)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_both_directions_are_read() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n    \
             lo: 3193 29 0 9 0 0 0 0 3193 29 0 9 0 0 0 0\n \
             path0:  100 1 0 2 0 0 0 0 200 2 0 40 0 0 0 0\n";
        assert_eq!(parse_drops(text, "path0"), Some(42));
        assert_eq!(parse_drops(text, "path"), None);
        assert_eq!(parse_drops("", "path0"), None);
    }
}
