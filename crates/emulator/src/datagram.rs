//! Datagrams, which carry their number.

use std::os::fd::BorrowedFd;

use pathcast_scenario::{DATAGRAM_BYTES, Datagrams};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Number of a datagram, before its payload.
const NUMBER_BYTES: usize = 8;

/// Sends the datagrams of a message; one that the kernel does not take is lost, as it would be for
/// any application that does not wait.
pub(crate) fn send_datagrams(
    socket: BorrowedFd<'_>,
    chunk: &mut [u8],
    numbers: std::ops::Range<u64>,
    bytes: u64,
) {
    let last = numbers.end - 1;
    for number in numbers {
        let size = match number == last {
            true => Datagrams::last_bytes(bytes),
            false => DATAGRAM_BYTES,
        };
        let size = (size as usize).max(NUMBER_BYTES);
        chunk[..NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
        let _ = send(socket, &chunk[..size], SendFlags::NOSIGNAL);
    }
}

/// The number and the size of the next datagram, if one waits.
pub(crate) fn receive_datagram(
    socket: BorrowedFd<'_>,
    chunk: &mut [u8],
) -> Result<Option<(u64, u32)>, Errno> {
    loop {
        match recv(socket, &mut *chunk, RecvFlags::empty()) {
            Ok((_, size)) if size >= NUMBER_BYTES => {
                let number = chunk[..NUMBER_BYTES].try_into().expect("eight bytes");
                return Ok(Some((u64::from_be_bytes(number), size as u32)));
            }
            Ok(_) => {} // too short to have a number
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
}
