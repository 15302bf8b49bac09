//! Addresses, sizes and flags of an interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::link::{add_ipv6_address, set_queue};
use crate::sys::{InterfaceRequest, Offload, interface_ioctl, switch_off_offload};

/// What an interface is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The largest packet, headers included. Without super-packets, every packet is at most this big.
    pub mtu: u32,
    /// Whether the device is to carry super-packets, where it can; see [`Device::create`](crate::Device::create).
    pub super_packets: bool,
    /// Bits of IPv4 addresses that all hosts of its network have in common.
    pub prefix_v4: u32,
    /// The same of IPv6.
    pub prefix_v6: u32,
}

/// Packets that may wait in the device until we read them. With the default of 500 to 1000, the device
/// silently drops packets of a sender's burst.
const DEVICE_QUEUE_PACKETS: u32 = 30_000;

/// Gives interface `name` in the calling thread's namespace its addresses, and switches it on.
///
/// # Errors
/// What the kernel says.
pub fn configure(name: &str, addresses: &[IpAddr], shape: Shape) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let set = |request: InterfaceRequest, ioctl, value: &[u8]| {
        interface_ioctl(control.as_fd(), ioctl, &mut request.with(value))
    };
    let request = InterfaceRequest::new(name);
    set(request, libc::SIOCSIFMTU, &(shape.mtu as i32).to_ne_bytes())?;
    set_queue(index(name)?, DEVICE_QUEUE_PACKETS)?; // its ioctl is for root alone
    let mask = Ipv4Addr::from_bits(u32::MAX << (32 - shape.prefix_v4));
    for (number, address) in addresses.iter().enumerate() {
        if let IpAddr::V4(address) = address {
            // the second and later addresses need their own labels
            let labeled = match number {
                0 => request,
                _ => InterfaceRequest::new(&format!("{name}:{number}")),
            };
            set(labeled, libc::SIOCSIFADDR, &socket_address(*address))?;
            set(labeled, libc::SIOCSIFNETMASK, &socket_address(mask))?;
        }
    }
    switch_on(name)?;
    for address in addresses {
        if let IpAddr::V6(address) = address {
            add_ipv6_address(index(name)?, *address, shape.prefix_v6)?;
        }
    }
    Ok(())
}

/// Switches on what a new namespace has from the beginning.
///
/// # Errors
/// What the kernel says.
pub fn switch_on_loopback() -> io::Result<()> {
    switch_on("lo")
}

/// Switches on interface `name` in the calling thread's namespace.
pub(crate) fn switch_on(name: &str) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = InterfaceRequest::new(name);
    interface_ioctl(control.as_fd(), libc::SIOCGIFFLAGS, &mut request)?;
    let up = u16::from_ne_bytes([request.value[0], request.value[1]]) | libc::IFF_UP as u16;
    let mut request = InterfaceRequest::new(name).with(&up.to_ne_bytes());
    interface_ioctl(control.as_fd(), libc::SIOCSIFFLAGS, &mut request)
}

/// Makes interface `name` in the calling thread's namespace show packets as on a wire: one by one, with
/// their checksums.
pub(crate) fn switch_off_offloads(name: &str) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    for offload in [
        Offload::MergeReceived,
        Offload::SegmentLate,
        Offload::SegmentTcp,
        Offload::SendChecksums,
    ] {
        switch_off_offload(control.as_fd(), name, offload)?;
    }
    Ok(())
}

/// The number of interface `name` in the calling thread's namespace.
///
/// # Errors
/// The kernel finds no such interface.
pub fn index(name: &str) -> io::Result<u32> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = InterfaceRequest::new(name);
    interface_ioctl(control.as_fd(), libc::SIOCGIFINDEX as _, &mut request)?;
    Ok(u32::from_ne_bytes(
        request.value[..4].try_into().expect("four bytes"),
    ))
}

/// The first IPv4 address of interface `name` in the calling thread's namespace; none if there is no
/// such interface, or it has none.
///
/// # Errors
/// What the kernel says.
pub fn ipv4_address(name: &str) -> io::Result<Option<Ipv4Addr>> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = InterfaceRequest::new(name);
    match interface_ioctl(control.as_fd(), libc::SIOCGIFADDR, &mut request) {
        Ok(()) => Ok(Some(Ipv4Addr::new(
            request.value[4],
            request.value[5],
            request.value[6],
            request.value[7],
        ))),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENODEV | libc::EADDRNOTAVAIL)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// `struct sockaddr_in` without a port.
fn socket_address(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}
