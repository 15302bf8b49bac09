//! The system calls that no library wraps safely.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread into a new network namespace, for good.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: only unsharing the table of descriptors (CLONE_FILES) can break other threads' view
    // of descriptors; this unshares the network alone.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// `struct ifreq`: an interface's name and 24 bytes whose meaning depends on the request.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InterfaceRequest {
    name: [u8; 16],
    pub(crate) value: [u8; 24],
}

impl InterfaceRequest {
    pub(crate) fn new(name: &str) -> Self {
        let mut bytes = [0; 16];
        assert!(
            name.len() < bytes.len(),
            "interface names have at most 15 bytes"
        );
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Self {
            name: bytes,
            value: [0; 24],
        }
    }

    /// The interface's name; the kernel may have completed it.
    pub(crate) fn name(&self) -> String {
        let end = self.name.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&self.name[..end.unwrap_or(self.name.len())]).into_owned()
    }

    /// The request with `value` in place of its first bytes.
    pub(crate) fn with(mut self, value: &[u8]) -> Self {
        self.value[..value.len()].copy_from_slice(value);
        self
    }
}

/// An ioctl that reads a `struct ifreq` and may write it.
pub(crate) fn interface_ioctl(
    fd: BorrowedFd<'_>,
    ioctl: libc::c_ulong,
    request: &mut InterfaceRequest,
) -> io::Result<()> {
    // SAFETY: `request` has the layout and the size of the kernel's `struct ifreq` (40 bytes on
    // 64-bit machines, checked below), which is all that these requests read and write.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), ioctl as _, &raw mut *request) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// Gives the interface with this index an IPv6 address; `socket` is of IPv6.
pub(crate) fn add_ipv6_address(
    socket: BorrowedFd<'_>,
    index: i32,
    address: Ipv6Addr,
    prefix: u32,
) -> io::Result<()> {
    let mut request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr {
            s6_addr: address.octets(),
        },
        ifr6_prefixlen: prefix,
        ifr6_ifindex: index,
    };
    // SAFETY: for a socket of IPv6, SIOCSIFADDR reads a `struct in6_ifreq`, and keeps nothing of it.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &raw mut request) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sets an option of TCP that is an `int`.
///
/// # Errors
/// What the kernel says: there is no such option or value.
pub fn set_tcp_option(socket: BorrowedFd<'_>, option: libc::c_int, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, whose size it is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
