//! Prefixes of IPv4 and IPv6 addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// A text that is neither an address nor a prefix.
#[derive(Debug, Clone, PartialEq, Error)]
#[error(
    "{got:?} is no prefix of addresses, expected one such as 192.0.2.0/24, 2001:db8::/48 or an address{why}"
)]
pub struct PrefixError {
    got: String,
    why: &'static str,
}

/// Addresses that begin with the same bits. An address is the prefix of all its bits. IPv4
/// addresses in IPv6 form (`::ffff:192.0.2.1`) count as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    v6: bool,
    length: u8,
    /// Left-aligned; bits beyond the length are 0.
    bits: u128,
}

impl Prefix {
    /// Number of bits that its addresses share.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether its addresses are of IPv6.
    pub fn is_v6(self) -> bool {
        self.v6
    }

    /// Its bits, left-aligned; those beyond its length are 0.
    pub fn bits(self) -> u128 {
        self.bits
    }

    /// Its first `length` bits, at most as many as it has.
    #[must_use]
    pub fn truncated(self, length: u8) -> Self {
        let length = length.min(self.length);
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Self {
            length,
            bits: self.bits & mask,
            ..self
        }
    }
}

impl From<IpAddr> for Prefix {
    /// The prefix of all bits of an address.
    fn from(address: IpAddr) -> Self {
        let (v6, bits, length) = match address.to_canonical() {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) => (true, v6.to_bits(), 128),
        };
        Self { v6, length, bits }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let wrong = |why| PrefixError {
            got: text.chars().take(60).collect(),
            why,
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong(""))?;
        let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let whole = Self::from(address);
        let most = whole.length;
        let length = match length {
            Some(length) => {
                let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
                let length: u8 = (length.parse().ok().filter(|_| digits))
                    .ok_or_else(|| wrong(": the length is no number"))?;
                let length = if mapped {
                    length.checked_sub(96)
                } else {
                    Some(length)
                };
                (length.filter(|&length| length <= most))
                    .ok_or_else(|| wrong(": the length is out of range"))?
            }
            None => most,
        };
        let prefix = whole.truncated(length);
        if prefix.bits != whole.bits {
            return Err(wrong(": bits beyond the length are set"));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_possible_truncation)] // 32 bits are left
        let address = if self.v6 {
            IpAddr::V6(Ipv6Addr::from_bits(self.bits))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits((self.bits >> 96) as u32))
        };
        write!(f, "{address}/{}", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_as_they_are_written() {
        for (text, written) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/48", "2001:db8::/48"),
            ("::/0", "::/0"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for (text, why) in [
            ("", "no prefix"),
            ("192.0.2", "no prefix"),
            ("192.0.2.0/33", "out of range"),
            ("192.0.2.0/+8", "no number"),
            ("192.0.2.0/", "no number"),
            ("192.0.2.0/-1", "no number"),
            ("192.0.2.7/24", "bits beyond"),
            ("2001:db8::/129", "out of range"),
            ("2001:db8::1/64", "bits beyond"),
            ("::ffff:192.0.2.0/24", "out of range"),
            ("example.org", "no prefix"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_address_is_shortened_bit_by_bit() {
        let address: Prefix = "203.0.113.255".parse().unwrap();
        assert_eq!(address.truncated(25).to_string(), "203.0.113.128/25");
        assert_eq!(address.truncated(0).to_string(), "0.0.0.0/0");
        let six: Prefix = "2001:db8:ffff::1".parse().unwrap();
        assert_eq!(six.truncated(33).to_string(), "2001:db8:8000::/33");
        assert_ne!(six.truncated(0), address.truncated(0));
    }
}
