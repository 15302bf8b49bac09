//! Routes of a namespace, by rtnetlink (rtnetlink(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use crate::netlink::{NLM_F_CREATE, NLM_F_REPLACE, attribute, request};

const RTM_NEWROUTE: u16 = 24;

const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTN_UNREACHABLE: u8 = 7;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTAX_INITCWND: u16 = 11;
const RTAX_FEATURES: u16 = 12;
const RTAX_CC_ALGO: u16 = 16;
const RTAX_FEATURE_ECN: u32 = 1;

/// What connections over a route begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// The first congestion window in packets; none: the kernel's.
    pub initial_window_packets: Option<u32>,
    /// Whether connections that begin here ask for ECN.
    pub ecn: bool,
}

/// Adds a route of the calling thread's namespace: connections with `address`, which is reached by the
/// interface number `interface`, begin so.
///
/// # Errors
/// What the kernel says.
pub fn add_beginning(address: IpAddr, interface: u32, beginning: Beginning) -> io::Result<()> {
    let (family, octets, scope) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec(), RT_SCOPE_LINK),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec(), RT_SCOPE_UNIVERSE),
    };
    let mut metrics = Vec::new();
    if let Some(packets) = beginning.initial_window_packets {
        attribute(&mut metrics, RTAX_INITCWND, &packets.to_ne_bytes());
    }
    if beginning.ecn {
        attribute(&mut metrics, RTAX_FEATURES, &RTAX_FEATURE_ECN.to_ne_bytes());
    }
    let mut body = vec![family as u8, 8 * octets.len() as u8, 0, 0];
    body.extend([RT_TABLE_MAIN, RTPROT_STATIC, scope, RTN_UNICAST]);
    body.extend(0u32.to_ne_bytes());
    attribute(&mut body, RTA_DST, &octets);
    attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
    attribute(&mut body, RTA_METRICS, &metrics);
    request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body)
}

/// Adds a route to the calling thread's namespace. Packets to the network of `prefix` bits that contains
/// `address` leave by the interface number `interface`; without an interface, senders get the error that
/// the network is unreachable. Connections over the route have the congestion control `scheme`, if given.
/// It may be one that the kernel restricts to root, which cannot be the namespace's default.
///
/// # Errors
/// What the kernel says.
pub fn add(
    address: Ipv4Addr,
    prefix: u8,
    interface: Option<u32>,
    scheme: Option<&str>,
) -> io::Result<()> {
    let (kind, scope) = match interface {
        Some(_) => (RTN_UNICAST, RT_SCOPE_LINK),
        None => (RTN_UNREACHABLE, RT_SCOPE_UNIVERSE),
    };
    // struct rtmsg: family, lengths of destination and source, TOS, table, ..., flags
    let mut body = vec![libc::AF_INET as u8, prefix, 0, 0];
    body.extend([RT_TABLE_MAIN, RTPROT_STATIC, scope, kind]);
    body.extend(0u32.to_ne_bytes());
    attribute(&mut body, RTA_DST, &address.octets());
    if let Some(interface) = interface {
        attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
    }
    if let Some(scheme) = scheme {
        let (mut metrics, name) = (Vec::new(), [scheme.as_bytes(), b"\0"].concat());
        attribute(&mut metrics, RTAX_CC_ALGO, &name);
        attribute(&mut body, RTA_METRICS, &metrics);
    }
    request(RTM_NEWROUTE, NLM_F_CREATE, &body)
}
