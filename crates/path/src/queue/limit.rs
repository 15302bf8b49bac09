//! How much may wait in a queue.

use std::fmt;
use std::str::FromStr;

use pathcast_base::{UnitError, parse_in_units, split_unit};

/// How much may wait in a queue, the packet in transmission not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueLimit {
    /// At most this many bytes.
    Bytes(u64),
    /// At most this many packets.
    Packets(u64),
    /// This many times the bandwidth-delay product of the path: rate times both delays.
    Bdp(f64),
    /// No limit.
    Unlimited,
}

impl FromStr for QueueLimit {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const EXAMPLE: &str = "a queue size greater than zero such as \"90 kB\", \"60 packets\", \
                               \"1 BDP\" or \"unlimited\"";
        const UNITS: &[(&str, f64)] = &[
            ("B", 1.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("packets", 1.0),
            ("BDP", 1.0),
        ];
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let (value, factor) = parse_in_units(text, UNITS, EXAMPLE)?;
        let amount = value * factor;
        if amount <= 0.0 {
            return Err(UnitError::new(text, EXAMPLE));
        }
        let (number, _, unit) = split_unit(text).expect("parsed above");
        match (unit, number.parse()) {
            ("B", Ok(bytes)) => return Ok(Self::Bytes(bytes)), // exact beyond 2^53, too
            ("packets", Ok(packets)) => return Ok(Self::Packets(packets)),
            _ => {}
        }
        match unit {
            "BDP" => Ok(Self::Bdp(amount)),
            "packets" if amount.fract() == 0.0 => Ok(Self::Packets(amount as u64)),
            "packets" => Err(UnitError::new(text, "a whole number of packets")),
            _ if amount >= 1.0 => Ok(Self::Bytes(amount.round() as u64)),
            _ => Err(UnitError::new(text, EXAMPLE)),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Bdp(times) => write!(f, "{times} BDP"),
            Self::Unlimited => write!(f, "unlimited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_their_units() {
        assert_eq!(
            "90 kB".parse::<QueueLimit>().unwrap(),
            QueueLimit::Bytes(90_000)
        );
        assert_eq!(
            "60 packets".parse::<QueueLimit>().unwrap(),
            QueueLimit::Packets(60)
        );
        assert_eq!(
            "0.5 BDP".parse::<QueueLimit>().unwrap(),
            QueueLimit::Bdp(0.5)
        );
    }

    #[test]
    fn wrong_limits_are_refused() {
        for text in ["0 B", "0 packets", "1.5 packets", "-1 BDP", "0.2 B", "much"] {
            assert!(text.parse::<QueueLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_displayed_is_read_back() {
        for amount in [1, 90_000, (1 << 53) + 1, u64::MAX - 1, u64::MAX] {
            for limit in [QueueLimit::Bytes(amount), QueueLimit::Packets(amount)] {
                assert_eq!(limit.to_string().parse::<QueueLimit>().unwrap(), limit);
            }
        }
    }
}
