//! A TUN device: an interface whose packets we read and write.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write, writev};

use crate::error::NetnsError;
use crate::super_packet::{HEADER_BYTES, Join, MOST_JOINED, VirtioHeader, unsummed_header};
use crate::sys::{InterfaceRequest, interface_ioctl, set_tun_offloads};

/// A TUN device. Reading and writing never wait.
pub struct Tun {
    fd: OwnedFd,
    /// Whether a virtio header stands before each packet, either way.
    super_packets: bool,
}

impl Tun {
    /// Creates a device in the calling thread's network namespace, which goes when it is dropped. In
    /// `pattern`, `%d` becomes the least number that no device has. Gives the name, too.
    ///
    /// With `super_packets`, the kernel leaves it to the device to split TCP and UDP into packets and to
    /// compute checksums.
    ///
    /// # Errors
    /// The process lacks privileges, or the machine TUN devices.
    pub fn create_named(pattern: &str, super_packets: bool) -> Result<(Self, String), NetnsError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => NetnsError::NoTun {
                source: errno.into(),
            },
            _ => NetnsError::from_io("opening /dev/net/tun", errno),
        })?;
        let header = if super_packets { libc::IFF_VNET_HDR } else { 0 };
        let flags = (libc::IFF_TUN | libc::IFF_NO_PI | header) as u16;
        let mut request = InterfaceRequest::new(pattern).with(&flags.to_ne_bytes());
        interface_ioctl(fd.as_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request).map_err(
            |error| NetnsError::from_io(format!("creating the TUN device {pattern}"), error),
        )?;
        if super_packets {
            set_tun_offloads(fd.as_fd(), HEADER_BYTES).map_err(|error| {
                NetnsError::from_io(format!("switching on the offloads of {pattern}"), error)
            })?;
        }
        Ok((Self { fd, super_packets }, request.name()))
    }

    /// Whether it carries super-packets.
    pub const fn super_packets(&self) -> bool {
        self.super_packets
    }

    /// The next packet that the kernel sent into the device, if there is one; with super-packets, a virtio
    /// header stands before it.
    ///
    /// # Errors
    /// What the kernel says: the device is not up.
    #[inline]
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match read(&self.fd, packet) {
            Ok(size) => Ok(Some(size)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the kernel a packet that came out of the device.
    ///
    /// # Errors
    /// The kernel refuses: this is not a packet, or the device is not up.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        if self.super_packets {
            return self.write_after(VirtioHeader::default(), packet);
        }
        persist(|| write(&self.fd, packet))
    }

    /// The same for a packet whose checksum is the sum of its pseudo header.
    ///
    /// # Errors
    /// As [`Tun::write`], or this is not a packet of TCP or UDP, or the device accepts no such packets.
    #[inline]
    pub fn write_unsummed(&self, packet: &[u8]) -> io::Result<()> {
        match unsummed_header(packet) {
            Some(header) if self.super_packets => self.write_after(header, packet),
            _ => Err(Errno::INVAL.into()),
        }
    }

    #[inline]
    fn write_after(&self, header: VirtioHeader, packet: &[u8]) -> io::Result<()> {
        let header = header.to_bytes();
        persist(|| writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(packet)]))
    }

    /// Gives the kernel the packets that were joined, in their order, as one.
    ///
    /// # Errors
    /// As [`Tun::write`]; the device takes no super-packets.
    pub fn write_joined<'p>(
        &self,
        join: &mut Join,
        packets: impl Iterator<Item = &'p [u8]>,
    ) -> io::Result<()> {
        if !self.super_packets {
            return Err(Errno::INVAL.into());
        }
        let header_bytes = join.header_bytes();
        let (header, headers) = join.headers();
        let header = header.to_bytes();
        let mut parts = [IoSlice::new(&[]); 2 + MOST_JOINED];
        (parts[0], parts[1]) = (IoSlice::new(&header), IoSlice::new(headers));
        let mut count = 2;
        for (part, packet) in parts[2..].iter_mut().zip(packets) {
            *part = IoSlice::new(packet.get(header_bytes..).unwrap_or_default());
            count += 1;
        }
        persist(|| writev(&self.fd, &parts[..count]))
    }
}

/// Does it again when it was interrupted.
#[inline]
fn persist(write: impl Fn() -> Result<usize, Errno>) -> io::Result<()> {
    loop {
        match write() {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
