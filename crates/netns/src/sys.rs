//! The system calls that no library wraps safely.

pub(crate) mod packet;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread into a new network namespace, for good.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: only unsharing the table of descriptors (CLONE_FILES) can break other threads' view
    // of descriptors; this unshares the network alone.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// Moves this process, if it has but one thread, into a new user namespace and a new network namespace
/// that belongs to it, for good.
pub(crate) fn unshare_user_and_network() -> io::Result<()> {
    // SAFETY: as above; the table of descriptors stays as it is.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }.map_err(Into::into)
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

/// Has a TUN device take and give super-packets of TCP and, where the kernel can, of UDP, and packets
/// without checksums, each after a virtio header of `header_bytes`.
pub(crate) fn set_tun_offloads(tun: BorrowedFd<'_>, header_bytes: usize) -> io::Result<()> {
    let size = header_bytes as libc::c_int;
    // SAFETY: the kernel reads the `int` that it is given the address of.
    let result =
        unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6; // since Linux 6.2
    let set = |offloads: libc::c_uint| {
        // SAFETY: this request takes a number, no address.
        let result = unsafe {
            libc::ioctl(
                tun.as_raw_fd(),
                libc::TUNSETOFFLOAD as _,
                libc::c_ulong::from(offloads),
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    set(tcp | udp).or_else(|_| set(tcp))
}

/// What an interface may do in place of the kernel; the numbers are those of ethtool's commands.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Offload {
    SendChecksums = 0x17, // ETHTOOL_STXCSUM
    SegmentTcp = 0x1f,    // ETHTOOL_STSO
    SegmentLate = 0x24,   // ETHTOOL_SGSO
    MergeReceived = 0x2c, // ETHTOOL_SGRO
}

/// Switches off an offload of interface `name`.
pub(crate) fn switch_off_offload(
    control: BorrowedFd<'_>,
    name: &str,
    offload: Offload,
) -> io::Result<()> {
    let mut value = [offload as u32, 0]; // struct ethtool_value: command, number
    let address = (&raw mut value).expose_provenance();
    let mut request = InterfaceRequest::new(name).with(&address.to_ne_bytes());
    // these commands read the 8 bytes of `value`, which outlives the call
    interface_ioctl(control, libc::SIOCETHTOOL as libc::c_ulong, &mut request)
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// Sets an option of TCP that is an `int`.
///
/// # Errors
/// The kernel has no such option or value.
pub fn set_tcp_option(socket: BorrowedFd<'_>, option: libc::c_int, value: i32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, option, value)
}

/// Paces what a socket sends, at this rate at most (`SO_MAX_PACING_RATE`).
///
/// # Errors
/// What the kernel says.
pub fn pace(socket: BorrowedFd<'_>, bytes_per_s: u32) -> io::Result<()> {
    let value = i32::from_ne_bytes(bytes_per_s.to_ne_bytes());
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value)
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, whose size it is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
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
