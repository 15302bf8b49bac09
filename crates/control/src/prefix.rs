//! Client prefixes of configurations and reports.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, invalid, shown};

/// A canonical prefix of IPv4 or IPv6: no bits beyond its length, not IPv4-mapped, not /0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(IpNet);

impl Prefix {
    /// A checked prefix.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] if the prefix is not canonical, IPv4-mapped or /0.
    pub fn new(net: IpNet) -> Result<Self, ControlError> {
        match defect(&net) {
            None => Ok(Self(net)),
            Some(why) => Err(invalid(format!("prefix {net}"), why)),
        }
    }

    /// The prefix as a network.
    pub fn net(self) -> IpNet {
        self.0
    }

    /// Number of bits that its addresses share: 1 to 32, or to 128.
    pub fn length(self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether its addresses are of IPv6.
    pub fn is_v6(self) -> bool {
        matches!(self.0, IpNet::V6(_))
    }

    /// Whether an address is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

/// Why a network is refused.
fn defect(net: &IpNet) -> Option<&'static str> {
    // ::ffff:0:0/96 and below (RFC 4291, section 2.5.5.2)
    let is_mapped = matches!(net, IpNet::V6(v6) if v6.prefix_len() >= 96 && v6.network().to_ipv4_mapped().is_some());
    if is_mapped {
        Some("it is IPv4-mapped, expected the prefix of IPv4, such as 192.0.2.0/24")
    } else if net.prefix_len() == 0 {
        Some("it holds all addresses, expected the key default for those")
    } else if *net != net.trunc() {
        Some("bits beyond the length are set, expected zeros there")
    } else {
        None
    }
}

impl FromStr for Prefix {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        let net: IpNet = text.parse().map_err(|_| {
            invalid(
                "prefix",
                format!(
                    "got {:?}, expected such as 192.0.2.0/24 or 2001:db8::/48",
                    shown(text)
                ),
            )
        })?;
        Self::new(net)
    }
}

impl TryFrom<String> for Prefix {
    type Error = ControlError;

    fn try_from(text: String) -> Result<Self, ControlError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_prefixes_are_written_as_they_are_read() {
        for text in [
            "192.0.2.0/24",
            "192.0.2.7/32",
            "10.0.0.0/8",
            "2001:db8::/48",
            "2001:db8::1/128",
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_prefixes_are_refused_with_the_reason() {
        for (text, said) in [
            ("", "expected such as"),
            ("192.0.2.7", "expected such as"),
            ("192.0.2.0/33", "expected such as"),
            ("192.0.2.0/+4", "expected such as"),
            ("192.0.2.7/24", "bits beyond"),
            ("2001:db8::1/64", "bits beyond"),
            ("0.0.0.0/0", "key default"),
            ("::/0", "key default"),
            ("::ffff:192.0.2.0/120", "IPv4-mapped"),
            ("::ffff:0:0/96", "IPv4-mapped"),
            ("192.0.2.0/24; rm", "expected such as"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
