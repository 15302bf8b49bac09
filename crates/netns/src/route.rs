//! Routes of a namespace, by rtnetlink (rtnetlink(7)).

use std::io;
use std::net::Ipv4Addr;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;

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
    let mut attribute = |name: u16, value: [u8; 4]| {
        body.extend(8u16.to_ne_bytes());
        body.extend(name.to_ne_bytes());
        body.extend(value);
    };
    attribute(RTA_DST, address.octets());
    if let Some(interface) = interface {
        attribute(RTA_OIF, interface.to_ne_bytes());
    }
    request(RTM_NEWROUTE, NLM_F_CREATE, &body)
}

/// Sends a request and waits for the kernel's answer.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let (netlink, raw) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(netlink, raw, SocketFlags::CLOEXEC, None)?; // protocol 0: rtnetlink
    // struct nlmsghdr: length, kind, flags, number, port
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 4096];
    let (_, size) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let unexpected = || io::Error::other("got no acknowledgment from rtnetlink");
    let answer = answer.get(..size).ok_or_else(unexpected)?;
    let is_error = answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes());
    let code = answer.get(16..20).filter(|_| is_error);
    let code = code.and_then(|bytes| bytes.try_into().ok());
    match code.map(i32::from_ne_bytes).ok_or_else(unexpected)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
