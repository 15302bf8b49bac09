//! The system calls that no library wraps safely.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// `SCHED_FIFO` at `priority` for the calling thread.
pub(crate) fn set_fifo(priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, and the parameter outlives the call, which only reads it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) }.into()).map(drop)
}

/// The kernel no longer coalesces timers of the calling thread within 50 us.
pub(crate) fn set_fine_timer_slack() -> io::Result<()> {
    // SAFETY: this option takes a plain number and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) }.into()).map(drop)
}

/// Fills `info` with the socket's `TCP_INFO`; returns how many bytes the kernel knows.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<usize> {
    let mut length = info.len() as libc::socklen_t;
    let value = info.as_mut_ptr().cast();
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the kernel writes at most `length` bytes, the length of the buffer, and then the
    // number that it wrote into `length`; both live through the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length) };
    check(result.into())?;
    Ok(length as usize)
}

/// Another descriptor of what the number `fd` is open as.
pub(crate) fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: this touches no memory of the process, and an unused number is an error.
    let copy = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) }.into())?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy as i32) })
}

/// The socket's `SO_TIMESTAMPING`.
pub(crate) fn timestamping(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut flags = 0u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
    let value = (&raw mut flags).cast();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `flags`, and both live
    // through the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length) };
    check(result.into())?;
    Ok(flags)
}

/// Sets the socket's `SO_TIMESTAMPING`.
pub(crate) fn set_timestamping(socket: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let (level, option) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
    let length = size_of::<u32>() as libc::socklen_t;
    let value = (&raw const flags).cast();
    // SAFETY: the kernel reads `length` bytes, which is the size of `flags`, during the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) };
    check(result.into()).map(drop)
}

/// Takes one message off the socket's error queue, without waiting: its control data, of the size
/// that is returned; one larger than `control` if they did not fit.
pub(crate) fn error_queue(socket: BorrowedFd<'_>, control: &mut [u8]) -> io::Result<usize> {
    // SAFETY: all of it may be zero: no name, no data, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header and the control buffer live through the call, and the buffer has the length
    // that the header says; without vectors, no data are written.
    check(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) } as libc::c_long)?;
    match header.msg_flags & libc::MSG_CTRUNC {
        0 => Ok(header.msg_controllen as usize),
        _ => Ok(control.len() + 1),
    }
}

/// `struct perf_event_attr` of linux/perf_event.h, version 5 (112 bytes).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// Opens the tracepoint `id` on `cpu` for all tasks, disabled; its samples carry the monotonic time
/// and the raw record.
pub(crate) fn perf_tracepoint(id: u64, cpu: u32, count_lost: bool) -> io::Result<OwnedFd> {
    const PERF_TYPE_TRACEPOINT: u32 = 2;
    const PERF_SAMPLE_TIME_AND_RAW: u64 = (1 << 2) | (1 << 10);
    const PERF_FORMAT_LOST: u64 = 1 << 4;
    const DISABLED_WATERMARK_CLOCKID: u64 = (1 << 0) | (1 << 14) | (1 << 25);
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        config: id,
        sample_period: 1,
        sample_type: PERF_SAMPLE_TIME_AND_RAW,
        read_format: if count_lost { PERF_FORMAT_LOST } else { 0 },
        flags: DISABLED_WATERMARK_CLOCKID,
        wakeup_watermark: u32::MAX, // we look by the clock and need no waking
        clockid: libc::CLOCK_MONOTONIC,
        ..PerfEventAttr::default()
    };
    // SAFETY: the attributes outlive the call and give their own size; the other arguments are
    // plain numbers: all tasks (-1), one CPU, no group (-1).
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1 as libc::c_long,
            libc::c_long::from(cpu),
            -1 as libc::c_long,
            PERF_FLAG_FD_CLOEXEC,
        )
    })?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Only events that match `filter` are recorded.
pub(crate) fn perf_set_filter(event: &OwnedFd, filter: &CStr) -> io::Result<()> {
    const PERF_EVENT_IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
    // SAFETY: the kernel reads a string that ends in zero, which a CStr is.
    let result = unsafe {
        libc::ioctl(
            event.as_raw_fd(),
            PERF_EVENT_IOC_SET_FILTER,
            filter.as_ptr(),
        )
    };
    check(result.into()).map(drop)
}

/// Records events from now on, or no longer.
pub(crate) fn perf_enable(event: &OwnedFd, enable: bool) -> io::Result<()> {
    const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
    const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
    let request = if enable {
        PERF_EVENT_IOC_ENABLE
    } else {
        PERF_EVENT_IOC_DISABLE
    };
    // SAFETY: both requests take a plain number.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, 0 as libc::c_ulong) };
    check(result.into()).map(drop)
}

/// The memory that a perf event shares with us: a page of control, then the ring of records.
pub(crate) struct PerfMemory {
    start: NonNull<u8>,
    length: usize,
    page_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and memory may be used from any thread.
unsafe impl Send for PerfMemory {}

impl PerfMemory {
    /// Maps a ring of `pages` pages, a power of two.
    pub(crate) fn map(event: &OwnedFd, pages: usize) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let length = (pages + 1) * page_bytes;
        // SAFETY: a fresh mapping where the kernel likes: no memory of ours is touched.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).expect("mmap never gives null without MAP_FIXED");
        Ok(Self {
            start,
            length,
            page_bytes,
        })
    }

    fn ring_bytes(&self) -> usize {
        self.length - self.page_bytes
    }

    /// `data_head` or `data_tail` of `struct perf_event_mmap_page`.
    fn position(&self, tail: bool) -> &AtomicU64 {
        const DATA_HEAD: usize = 1024;
        // SAFETY: both lie in the first page of the mapping, aligned to eight bytes, and are shared
        // with the kernel, which accesses them atomically, for as long as `self` lives.
        unsafe {
            self.start
                .add(DATA_HEAD + 8 * usize::from(tail))
                .cast()
                .as_ref()
        }
    }

    /// The bytes that the kernel has written so far, since the mapping was made.
    pub(crate) fn head(&self) -> u64 {
        self.position(false).load(Ordering::Acquire)
    }

    /// The bytes that we have read so far.
    pub(crate) fn tail(&self) -> u64 {
        self.position(true).load(Ordering::Relaxed)
    }

    /// Gives the ring's bytes before `tail` back to the kernel.
    pub(crate) fn release(&self, tail: u64) {
        self.position(true).store(tail, Ordering::Release);
    }

    /// Copies out what stands at `position`, which must lie between tail and head.
    pub(crate) fn copy(&self, position: u64, to: &mut [u8]) {
        let ring_bytes = self.ring_bytes();
        assert!(
            to.len() <= ring_bytes,
            "a record is never longer than its ring"
        );
        let offset = (position % ring_bytes as u64) as usize;
        let first = to.len().min(ring_bytes - offset);
        // SAFETY: `offset + first` and the rest stay within the ring, whose memory `self` owns and
        // to which the kernel does not write between tail and head; `to` is no part of it.
        unsafe {
            let ring = self.start.add(self.page_bytes);
            ring.add(offset)
                .copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), first);
            if first < to.len() {
                let rest = NonNull::from(&mut to[first..]).cast();
                ring.copy_to_nonoverlapping(rest, to.len() - first);
            }
        }
    }
}

impl Drop for PerfMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}
