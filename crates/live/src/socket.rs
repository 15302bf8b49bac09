//! The UDP socket that a tunnel goes through.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use pathcast_netns::set_receive_buffer;
use rustix::fs::fstat;
use rustix::net::sockopt;

use crate::error::LiveError;

/// What may wait in the socket: a burst is dropped by the path, or not at all.
const BUFFER_BYTES: usize = 16 << 20;

/// A UDP socket at `address`.
pub(crate) fn open(address: SocketAddr) -> Result<UdpSocket, LiveError> {
    let opening = |error| LiveError::from_io(format!("opening UDP socket {address}"), error);
    let socket = UdpSocket::bind(address).map_err(opening)?;
    let _ = set_receive_buffer(socket.as_fd(), BUFFER_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
    Ok(socket)
}

/// Datagrams dropped because the socket had no room, since it was opened; none if the kernel does not
/// report them.
pub(crate) fn drops(socket: &UdpSocket) -> Option<u64> {
    let inode = fstat(socket).ok()?.st_ino;
    ["udp", "udp6"].into_iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()?;
        parse_drops(&text, inode)
    })
}

/// Of the socket with this inode: the last column of `/proc/net/udp`.
fn parse_drops(table: &str, inode: u64) -> Option<u64> {
    let inode = inode.to_string();
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        // sl local remote st queues timer retransmits uid timeout inode ref pointer drops
        match columns.get(9) {
            Some(column) if *column == inode => columns.get(12)?.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_found_no_room_is_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&receiver, 1).unwrap(); // the kernel takes its least
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        assert_eq!(drops(&receiver), Some(0));
        for _ in 0..100 {
            sender.send_to(&[0; 1000], to).unwrap();
        }
        assert!(drops(&receiver).unwrap() > 50);
    }

    #[test]
    fn a_table_without_the_socket_tells_nothing() {
        assert_eq!(parse_drops("sl local\n 1: 2 3\n", 7), None);
        assert_eq!(parse_drops("", 7), None);
    }
}
