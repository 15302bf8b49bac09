//! Packet sockets (packet(7)): packets as they cross an interface, without their link's header.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Where a packet that is written goes: an interface, a protocol and a hardware address.
#[derive(Clone, Copy)]
pub(crate) struct LinkAddress(libc::sockaddr_ll);

impl LinkAddress {
    /// The station `hardware` behind interface number `index`, by the protocol number of Ethernet.
    pub(crate) fn new(index: u32, protocol: libc::c_int, hardware: [u8; 6]) -> Self {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&hardware);
        Self(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (protocol as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: address,
        })
    }

    /// From now on, `socket` takes what crosses this interface by this protocol.
    pub(crate) fn bind(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the kernel reads a `struct sockaddr_ll`, whose size it is given.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const self.0).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        checked(result as isize).map(|_| ())
    }

    /// Sends `packet` there, without waiting.
    #[inline]
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, packet: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads `packet` and a `struct sockaddr_ll`, whose sizes it is given.
        let result = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const self.0).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        checked(result).map(|_| ())
    }
}

fn checked(result: isize) -> io::Result<isize> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Sets an option of packet sockets. `T` has the layout that packet(7) gives for it.
fn set_option<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `value`, whose size it is given, and keeps nothing of it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    checked(result as isize).map(|_| ())
}

/// `socket` no longer receives what it sent itself.
pub(crate) fn ignore_own(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::PACKET_IGNORE_OUTGOING, &1i32)
}

/// Packets for which `socket` had no room since this was last asked.
pub(crate) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut size = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, those of a `struct tpacket_stats`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut size,
        )
    };
    checked(result as isize).map(|_| u64::from(statistics.tp_drops))
}

/// What the kernel takes at a time; a multiple of every size of page.
const BLOCK_BYTES: usize = 1 << 16;
/// What comes before the packet in its frame: `struct tpacket2_hdr`, `struct sockaddr_ll`, padding.
const HEADROOM_BYTES: usize = 80;

/// A packet socket whose packets come in frames of memory that it shares with the kernel
/// (`PACKET_RX_RING`, version 2). Unlike `SO_RCVBUF`, that has no limit for users without privileges.
pub(crate) struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    size_bytes: usize,
    frame_bytes: usize,
    /// The frame that the next packet is in. Who holds it is the only one to look at frames.
    next: Mutex<usize>,
}

// SAFETY: the memory belongs to no thread, stays mapped as long as the ring lives, and is accessed by one
// thread at a time: the one that holds `next`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `frames` packets of up to `packet_bytes` for a packet socket that is not bound yet.
    pub(crate) fn of(socket: OwnedFd, packet_bytes: usize, frames: usize) -> io::Result<Self> {
        let frame_bytes = (HEADROOM_BYTES + packet_bytes).next_power_of_two();
        assert!(
            frame_bytes <= BLOCK_BYTES,
            "packets are smaller than blocks"
        );
        let blocks = (frames * frame_bytes).div_ceil(BLOCK_BYTES);
        let size_bytes = blocks * BLOCK_BYTES;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set_option(socket.as_fd(), libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: frame_bytes as u32,
            tp_frame_nr: (size_bytes / frame_bytes) as u32,
        };
        set_option(socket.as_fd(), libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address of the kernel's choice; it replaces no other.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                size_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &socket,
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).expect("nothing is mapped at 0");
        Ok(Self {
            socket,
            memory,
            size_bytes,
            frame_bytes,
            next: Mutex::new(0),
        })
    }

    /// Copies the next packet, if there is one: its size.
    #[inline]
    pub(crate) fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `next` is less than the number of frames, all of which are mapped.
        let frame = unsafe { self.memory.add(*next * self.frame_bytes) };
        // SAFETY: a frame begins with its status, and at a multiple of its size, a power of two. The
        // kernel writes the status as one word, too.
        let status = unsafe { AtomicU32::from_ptr(frame.as_ptr().cast()) };
        let now = status.load(Ordering::Acquire);
        if now & libc::TP_STATUS_USER == 0 {
            return Ok(None);
        }
        // SAFETY: the kernel has filled this frame, as the status said, and does not touch it again
        // before the status says that it may.
        let header = unsafe { frame.cast::<libc::tpacket2_hdr>().read() };
        let (begin, size) = (usize::from(header.tp_net), header.tp_snaplen as usize);
        let fits = begin + size <= self.frame_bytes && header.tp_len == header.tp_snaplen;
        let outcome = match packet.get_mut(..size) {
            _ if now & libc::TP_STATUS_CSUMNOTREADY != 0 => Err("no checksum"),
            Some(packet) if fits => {
                // SAFETY: the packet lies within the frame, as was just checked; see above.
                let bytes = unsafe { std::slice::from_raw_parts(frame.add(begin).as_ptr(), size) };
                packet.copy_from_slice(bytes);
                Ok(Some(size))
            }
            _ => Err("more bytes than the interface takes"),
        };
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        *next = (*next + 1) % (self.size_bytes / self.frame_bytes);
        outcome.map_err(|what| {
            io::Error::other(format!("got a packet of {} with {what}", header.tp_len))
        })
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `Ring::of` with this size, and nothing of it is lent out.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.size_bytes) };
    }
}
