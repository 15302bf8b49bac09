//! Addresses, sizes and flags of an interface.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::sys::{InterfaceRequest, interface_ioctl};

/// The largest packet, headers included: an Ethernet payload. Without offloads on a TUN device,
/// every packet on the path is at most this big.
pub(crate) const MTU: u32 = 1500;

/// Packets that may wait in the device until we read them. At the default of 500 to 1000, the device
/// itself drops packets when the sender has a burst, and nobody is told.
const DEVICE_QUEUE_PACKETS: i32 = 30_000;

/// Gives interface `name` in the calling thread's namespace an address in a network of 24 bits, and
/// switches it on.
pub(crate) fn configure(name: &str, address: Ipv4Addr) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let request = InterfaceRequest::new(name);
    let set =
        |ioctl, value: &[u8]| interface_ioctl(control.as_fd(), ioctl, &mut request.with(value));
    set(libc::SIOCSIFMTU, &(MTU as i32).to_ne_bytes())?;
    set(libc::SIOCSIFTXQLEN, &DEVICE_QUEUE_PACKETS.to_ne_bytes())?;
    set(libc::SIOCSIFADDR, &socket_address(address))?;
    set(
        libc::SIOCSIFNETMASK,
        &socket_address(Ipv4Addr::new(255, 255, 255, 0)),
    )?;
    let mut flags = request;
    interface_ioctl(control.as_fd(), libc::SIOCGIFFLAGS, &mut flags)?;
    let up = u16::from_ne_bytes([flags.value[0], flags.value[1]]) | libc::IFF_UP as u16;
    set(libc::SIOCSIFFLAGS, &up.to_ne_bytes())
}

/// `struct sockaddr_in` without a port.
fn socket_address(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}
