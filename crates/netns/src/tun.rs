//! A TUN device: an interface whose packets we read and write.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};

use crate::error::NetnsError;
use crate::sys::{InterfaceRequest, interface_ioctl};

/// A TUN device. Reading and writing never wait.
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Creates a device in the calling thread's network namespace, which goes when it is dropped. In
    /// `pattern`, `%d` becomes the least number that no device has. Gives the name, too.
    ///
    /// # Errors
    /// The process lacks privileges, or the machine TUN devices.
    pub fn create_named(pattern: &str) -> Result<(Self, String), NetnsError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => NetnsError::NoTun {
                source: errno.into(),
            },
            _ => NetnsError::from_io("opening /dev/net/tun", errno),
        })?;
        let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as u16;
        let mut request = InterfaceRequest::new(pattern).with(&flags.to_ne_bytes());
        interface_ioctl(fd.as_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request).map_err(
            |error| NetnsError::from_io(format!("creating the TUN device {pattern}"), error),
        )?;
        Ok((Self { fd }, request.name()))
    }

    /// The next packet that the kernel sent into the device, if there is one.
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
    /// What the kernel says: this is no packet, or the device is not up.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        loop {
            match write(&self.fd, packet) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
