//! The table of prefixes: exact and longest-prefix match.

use std::net::IpAddr;

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;

use crate::prefix::Prefix;

/// Values by prefix. The longest prefix that holds an address wins.
///
/// ```
/// use pathcast_control::table::Table;
/// let mut table = Table::default();
/// table.insert("10.0.0.0/8".parse()?, "wide");
/// table.insert("10.1.0.0/16".parse()?, "narrow");
/// let (prefix, value) = table.longest("10.1.2.3".parse().unwrap()).unwrap();
/// assert_eq!((prefix.to_string().as_str(), *value), ("10.1.0.0/16", "narrow"));
/// # Ok::<(), pathcast_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Table<T>(JointPrefixMap<IpNet, T>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(JointPrefixMap::default())
    }
}

impl<T> Table<T> {
    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: Prefix) -> Option<&T> {
        self.0.get(&prefix.net())
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, prefix: Prefix) -> Option<&mut T> {
        self.0.get_mut(&prefix.net())
    }

    /// Sets a value, and returns the former one.
    pub fn insert(&mut self, prefix: Prefix, value: T) -> Option<T> {
        self.0.insert(prefix.net(), value)
    }

    /// Removes a prefix, and returns its value.
    pub fn remove(&mut self, prefix: Prefix) -> Option<T> {
        self.0.remove(&prefix.net())
    }

    /// The longest prefix that holds an address, and its value.
    pub fn longest(&self, address: IpAddr) -> Option<(Prefix, &T)> {
        let (net, value) = self.0.get_lpm(&IpNet::from(address.to_canonical()))?;
        Some((Prefix::new(net).ok()?, value))
    }

    /// All prefixes in order, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &T)> {
        self.0
            .iter()
            .filter_map(|(net, value)| Some((Prefix::new(net).ok()?, value)))
    }
}
