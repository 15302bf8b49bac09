//! A table that says to which network and region addresses belong.

use std::collections::HashMap;

use pathcast_analysis::clusters::{NAME_BYTES, Prefix, PrefixError};
use thiserror::Error;

/// Why a table was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NetworksError {
    /// A line with an invalid prefix.
    #[error("line {line}: {source}")]
    Prefix {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        source: PrefixError,
    },
    /// A line with another number of columns, or an invalid name.
    #[error(
        "line {line} is {got:?}, expected prefix,network,region, such as 192.0.2.0/24,AS64500,eu"
    )]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it holds, shortened.
        got: String,
    },
}

/// The network and the region of an address; each is a number of [`Networks::name`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Its network: an autonomous system.
    pub network: Option<u32>,
    /// Its region.
    pub region: Option<u32>,
}

/// Networks and regions by prefix; the longest prefix of an address counts.
#[derive(Debug, Clone, Default)]
pub struct Networks {
    places: HashMap<Prefix, Place>,
    /// Lengths of the prefixes, descending.
    lengths: Vec<u8>,
    names: Vec<String>,
}

impl Networks {
    /// Reads a table: a line for each prefix, with its network and its region; either may be empty. Empty lines and
    /// those that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`NetworksError`] with the line.
    pub fn parse(text: &str) -> Result<Self, NetworksError> {
        let mut read = Self::default();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let wrong = || NetworksError::Line {
                line,
                got: content.chars().take(60).collect(),
            };
            let columns: Vec<&str> = content.split(',').map(str::trim).collect();
            let [prefix, network, region] = columns[..] else {
                return Err(wrong());
            };
            let prefix: Prefix = prefix
                .parse()
                .map_err(|source| NetworksError::Prefix { line, source })?;
            let mut number = |name: &str| {
                if name.len() > NAME_BYTES || name.chars().any(char::is_control) {
                    return Err(wrong());
                }
                if name.is_empty() {
                    return Ok(None);
                }
                if let Some(&number) = numbers.get(name) {
                    return Ok(Some(number));
                }
                let number = u32::try_from(read.names.len()).map_err(|_| wrong())?;
                read.names.push(name.into());
                numbers.insert(name.into(), number);
                Ok(Some(number))
            };
            let (network, region) = (number(network)?, number(region)?);
            read.places.insert(prefix, Place { network, region });
        }
        read.lengths = read.places.keys().map(|prefix| prefix.length()).collect();
        read.lengths.sort_unstable_by(|a, b| b.cmp(a));
        read.lengths.dedup();
        Ok(read)
    }

    /// The place of a prefix: that of the longest one in the table that contains it.
    pub fn place(&self, prefix: Prefix) -> Place {
        let longest = (self.lengths.iter())
            .filter(|&&length| length <= prefix.length())
            .find_map(|&length| self.places.get(&prefix.truncated(length)));
        longest.copied().unwrap_or_default()
    }

    /// The name of a network or region.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Prefixes in the table.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts() {
        let text = "# prefix,network,region\n10.0.0.0/8,AS1,eu\n\n10.1.0.0/16,AS2,\n2001:db8::/32,AS1,us\n";
        let table = Networks::parse(text).unwrap();
        let named = |prefix: &str| {
            let place = table.place(prefix.parse().unwrap());
            let name = |number: Option<u32>| number.map_or("", |number| table.name(number));
            (
                name(place.network).to_owned(),
                name(place.region).to_owned(),
            )
        };
        assert_eq!(named("10.2.3.0/24"), ("AS1".into(), "eu".into()));
        assert_eq!(named("10.1.3.0/24"), ("AS2".into(), String::new()));
        assert_eq!(named("2001:db8:7::/48"), ("AS1".into(), "us".into()));
        assert_eq!(named("192.0.2.0/24"), (String::new(), String::new()));
    }

    #[test]
    fn lines_that_are_not_understood_are_refused_with_their_number() {
        let said = |text: &str| Networks::parse(text).unwrap_err().to_string();
        assert!(said("\n10.0.0.0/8,AS1").starts_with("line 2 is"));
        assert!(said("10.0.0.1/8,AS1,eu").starts_with("line 1: "));
    }
}
