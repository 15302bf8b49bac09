//! The send buffers that the servers of pages begin with.
//!
//! A server writes until its socket is full. What the socket holds leaves before what becomes more urgent, so a page
//! depends on how much that is.

use pathcast_netns::Host;

use crate::error::EmulatorError;
use crate::receive_buffers::set;

/// Lets the sockets of `host` begin with the kernel's default send buffer (`tcp_init`), as those of a web server do, and
/// grow to `most_bytes`. Hosts without pages begin with a larger one.
pub(crate) fn begin_as_servers(host: &mut Host, most_bytes: u64) -> Result<(), EmulatorError> {
    const DEFAULT_BYTES: u64 = 16_384;
    set(
        host,
        "net/ipv4/tcp_wmem",
        &format!("4096 {DEFAULT_BYTES} {most_bytes}"),
    )
}
