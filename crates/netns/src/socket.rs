//! Socket options that libraries do not wrap.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;

use crate::sys::set_tcp_option;

/// Lets `bytes` wait in a socket until they are read; without privileges, at most what
/// `net.core.rmem_max` allows.
///
/// # Errors
/// What the kernel says.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))
        .map_err(io::Error::from)
}

/// Limits the window that a TCP socket offers, before anything comes.
///
/// A buffer that the kernel may grow takes the window with it (tcp_rcvbuf_grow); one that was set stays,
/// with room for the window and its packets' overhead.
///
/// # Errors
/// What the kernel says.
pub fn limit_receive_window(socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let buffer_bytes = bytes.saturating_mul(4).clamp(64 << 10, i32::MAX as u64 / 2);
    set_receive_buffer(socket, buffer_bytes as usize)?;
    renew_receive_window(socket, bytes)
}

/// Says the limit of [`limit_receive_window`] again: the kernel forgets it whenever packets of another
/// size change its idea of their overhead (tcp_measure_rcv_mss).
///
/// # Errors
/// What the kernel says.
pub fn renew_receive_window(socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let window = bytes.min(i32::MAX as u64) as i32;
    set_tcp_option(socket, libc::TCP_WINDOW_CLAMP, window)
}
