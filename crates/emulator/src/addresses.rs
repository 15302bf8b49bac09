//! Which addresses the ends of flows have, and whose a packet is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pathcast_netns::Shape;
use pathcast_path::End;

/// Most groups of flows: each has an address at either end.
pub(crate) const MAX_GROUPS: usize = 1000;

/// The largest packet, headers included: an Ethernet payload.
pub(crate) const MTU: u32 = 1500;

/// What the hosts' interfaces are like: all are in one network.
pub(crate) const SHAPE: Shape = Shape {
    mtu: MTU,
    super_packets: false,
    prefix_v4: 16,
    prefix_v6: 64,
};

/// Set in the number of a host at the far end.
const FAR: u16 = 0x8000;

/// Which version of IP the flows use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Ip {
    /// The address of group number `group` at `end`: 10.77.x.y or fd77::x, the far end's with the
    /// highest of 16 bits set.
    pub(crate) fn address(self, group: usize, end: End) -> IpAddr {
        let number = (group as u16 + 1) | if end == End::Far { FAR } else { 0 };
        let [high, low] = number.to_be_bytes();
        match self {
            Self::V4 => Ipv4Addr::new(10, 77, high, low).into(),
            Self::V6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number).into(),
        }
    }

    /// The address that listens to all.
    pub(crate) const fn any(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

/// The group and the end of a host, by the last two bytes of its address; none if no host has this address.
#[inline]
pub(crate) fn host(last_bytes: [u8; 2]) -> Option<(usize, End)> {
    let number = u16::from_be_bytes(last_bytes);
    let end = if number & FAR == 0 {
        End::Near
    } else {
        End::Far
    };
    let group = (number & !FAR).checked_sub(1)?;
    Some((usize::from(group), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_known_by_its_address() {
        for ip in [Ip::V4, Ip::V6] {
            for group in [0, 1, 255, 256, MAX_GROUPS - 1] {
                for end in [End::Near, End::Far] {
                    let last = match ip.address(group, end) {
                        IpAddr::V4(address) => address.octets()[2..].try_into().unwrap(),
                        IpAddr::V6(address) => address.octets()[14..].try_into().unwrap(),
                    };
                    assert_eq!(host(last), Some((group, end)));
                }
            }
        }
        assert_eq!(host([0, 0]), None);
    }
}
