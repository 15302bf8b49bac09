//! Pairs of virtual Ethernet devices, and what no ioctl sets or not as we need it, by rtnetlink
//! (rtnetlink(7), veth(4)).

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd};

use crate::namespace::Namespace;
use crate::netlink::{NLM_F_CREATE, NLM_F_EXCL, attribute, request};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

/// One end of a pair.
pub(crate) struct LinkEnd<'a> {
    pub(crate) name: &'a str,
    pub(crate) hardware: [u8; 6],
    pub(crate) mtu: u32,
}

/// Makes a pair of devices without address resolution, both switched off: one end in the calling thread's
/// namespace, the other in `elsewhere`.
pub(crate) fn add_pair(
    here: &LinkEnd<'_>,
    there: &LinkEnd<'_>,
    elsewhere: &Namespace,
) -> io::Result<()> {
    let mut peer = describe(there);
    let descriptor = elsewhere.as_fd().as_raw_fd();
    attribute(&mut peer, IFLA_NET_NS_FD, &descriptor.to_ne_bytes());
    let mut data = Vec::new();
    attribute(&mut data, VETH_INFO_PEER, &peer);
    let mut info = Vec::new();
    attribute(&mut info, IFLA_INFO_KIND, b"veth");
    attribute(&mut info, IFLA_INFO_DATA, &data);
    let mut message = describe(here);
    attribute(&mut message, IFLA_LINKINFO, &info);
    request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Sets how many packets may wait in interface number `index` of the calling thread's namespace.
pub(crate) fn set_queue(index: u32, packets: u32) -> io::Result<()> {
    // struct ifinfomsg: family, padding, kind of hardware; index; flags, and the mask of those to change
    let mut message = vec![0; 4];
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]);
    attribute(&mut message, IFLA_TXQLEN, &packets.to_ne_bytes());
    request(RTM_NEWLINK, 0, &message)
}

/// Gives interface number `index` of the calling thread's namespace an IPv6 address without duplicate
/// address detection, so the address can be used immediately.
pub(crate) fn add_ipv6_address(index: u32, address: Ipv6Addr, prefix: u32) -> io::Result<()> {
    // struct ifaddrmsg: family, length of the prefix, flags, scope; index
    let mut message = vec![libc::AF_INET6 as u8, prefix as u8, IFA_F_NODAD, 0];
    message.extend(index.to_ne_bytes());
    attribute(&mut message, IFA_LOCAL, &address.octets());
    request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// A `struct ifinfomsg`, and what both ends have.
fn describe(end: &LinkEnd<'_>) -> Vec<u8> {
    let no_arp = libc::IFF_NOARP as u32;
    // family, padding, kind of hardware, index; flags, and the mask of those to change
    let mut message = vec![0; 8];
    message.extend(no_arp.to_ne_bytes());
    message.extend(no_arp.to_ne_bytes());
    let name: Vec<u8> = end.name.bytes().chain([0]).collect();
    attribute(&mut message, IFLA_IFNAME, &name);
    attribute(&mut message, IFLA_ADDRESS, &end.hardware);
    attribute(&mut message, IFLA_MTU, &end.mtu.to_ne_bytes());
    message
}
