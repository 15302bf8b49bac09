//! A veth pair: an interface whose packets we read and write at its other end.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::error::NetnsError;
use crate::interface::{index, switch_off_offloads, switch_on};
use crate::link::{LinkEnd, add_pair};
use crate::namespace::Namespace;
use crate::statistics::Statistics;
use crate::sys::packet::{LinkAddress, Ring, ignore_own, take_drops};

/// The other end's name; its namespace has nothing else.
const OTHER_END: &str = "pump0";

/// Locally administered hardware addresses (by the second bit of the first byte). Only the two ends see
/// them.
const HARDWARE: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
const OTHER_HARDWARE: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// Packets that may wait until we read them: 0.1 s at 1 Gbit/s, 16 MiB.
const FRAMES: usize = 8192;

/// What may be queued into the kernel, in bytes as the kernel counts them.
const SEND_BUFFER_BYTES: usize = 8 << 20;

/// A veth pair, one end of which is the interface; at the other, in a namespace that has nothing else,
/// a packet socket takes and gives packets. Reading and writing never wait.
pub struct Veth {
    ring: Ring,
    v4: LinkAddress,
    v6: LinkAddress,
    statistics: Statistics,
}

impl Veth {
    /// Creates the interface `name`, for packets of up to `mtu` bytes, in the calling thread's network
    /// namespace. It goes when it is dropped.
    ///
    /// # Errors
    /// The process lacks privileges, the kernel veth pairs, or there is such an interface already.
    pub fn create(name: &str, mtu: u32) -> Result<Self, NetnsError> {
        let kernel = |doing: &str, error: io::Error| NetnsError::from_io(doing, error);
        let elsewhere =
            Namespace::create().map_err(|error| kernel("creating a network namespace", error))?;
        let end = |name, hardware| LinkEnd {
            name,
            hardware,
            mtu,
        };
        add_pair(
            &end(name, HARDWARE),
            &end(OTHER_END, OTHER_HARDWARE),
            &elsewhere,
        )
        .map_err(|error| kernel(&format!("creating the veth pair {name}"), error))?;
        let other_end = || -> io::Result<Self> {
            // keep the other end from sending its own packets; a kernel without IPv6 sends none
            let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            switch_off_offloads(OTHER_END)?;
            let (packet, datagram) = (AddressFamily::PACKET, SocketType::DGRAM);
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            // protocol 0: nothing comes before the socket is bound
            let socket = socket_with(packet, datagram, flags, None)?;
            ignore_own(socket.as_fd())?;
            // more than net.core.wmem_max is for root alone
            let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
            let ring = Ring::of(socket, mtu as usize, FRAMES)?;
            let index = index(OTHER_END)?;
            let to = |protocol| LinkAddress::new(index, protocol, HARDWARE);
            // before binding: a socket that is bound to an interface that is off first reports an error
            switch_on(OTHER_END)?;
            to(libc::ETH_P_ALL).bind(ring.as_fd())?;
            Ok(Self {
                ring,
                v4: to(libc::ETH_P_IP),
                v6: to(libc::ETH_P_IPV6),
                statistics: Statistics::of(OTHER_END)?,
            })
        };
        let made = elsewhere
            .run(other_end)
            .and_then(|made| made)
            .map_err(|error| kernel("opening a packet socket on a veth pair", error))?;
        // checksums and packets as they would be on a wire
        switch_off_offloads(name)
            .map_err(|error| kernel("switching off the offloads of a veth pair", error))?;
        Ok(made)
    }

    /// The next packet that the kernel sent into the interface, if there is one.
    ///
    /// # Errors
    /// It is larger than the interface takes, or has no checksum: an offload was switched on.
    #[inline]
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        self.ring.read(packet)
    }

    /// Gives the kernel a packet that came out of the interface.
    ///
    /// # Errors
    /// The kernel refuses: the interface is not up, or the send buffer is full.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        let to = match packet.first().map(|byte| byte >> 4) {
            Some(6) => &self.v6,
            _ => &self.v4,
        };
        loop {
            match to.send(self.ring.as_fd(), packet) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Packets that the socket and the other end dropped since this was last asked, and since the
    /// beginning.
    pub(crate) fn drops(&self) -> io::Result<u64> {
        Ok(take_drops(self.ring.as_fd())? + self.statistics.drops()?)
    }
}

impl AsFd for Veth {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
