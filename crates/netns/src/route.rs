//! Routes of a namespace, by rtnetlink (rtnetlink(7)).

use std::io;
use std::net::Ipv4Addr;

use crate::netlink::{NLM_F_CREATE, attribute, request};

const RTM_NEWROUTE: u16 = 24;

const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTN_UNREACHABLE: u8 = 7;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;

/// Adds a route of the calling thread's namespace: packets to the network of `prefix` bits that
/// `address` is in leave by the interface number `interface`, or, without one, are answered that
/// nobody can be reached there.
///
/// # Errors
/// What the kernel says.
pub fn add(address: Ipv4Addr, prefix: u8, interface: Option<u32>) -> io::Result<()> {
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
    request(RTM_NEWROUTE, NLM_F_CREATE, &body)
}
