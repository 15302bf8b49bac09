//! How much of a long message a server has written into its socket, which is what it cannot take back.
//!
//! Linux accounts a socket more than the payload: it lets it hold two windows of 4352 bytes for each packet
//! (`tcp_sndbuf_expand`), never less than it did before, and it lets the application write again when a third is free. With
//! `TCP_NOTSENT_LOWAT`, it does so when half of that waits unsent, and what is written comes in chunks of 64 KiB at most.

/// Bytes of a socket that holds one packet of 1448 bytes for each of the window, twice.
const FOR_EACH_PACKET: u64 = 2 * 4352;
/// What a socket begins with, in the emulator's namespaces.
const BEGINS_BYTES: u64 = 131_072;
/// The largest chunk that the kernel makes of what is written.
const CHUNK_BYTES: u64 = 45 * 1448;

/// The socket of one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SendBuffer {
    /// Its `TCP_NOTSENT_LOWAT`.
    unsent_bytes: Option<u64>,
    held_bytes: u64,
}

impl SendBuffer {
    /// A socket that wakes its application when half of `unsent_bytes` waits unsent, or when a third of it is free.
    pub const fn new(unsent_bytes: Option<u64>) -> Self {
        Self {
            unsent_bytes,
            held_bytes: BEGINS_BYTES,
        }
    }

    /// The window is `cwnd` packets now.
    pub fn note_window(&mut self, cwnd: u64) {
        self.held_bytes = self.held_bytes.max(FOR_EACH_PACKET * cwnd);
    }

    /// The packet after those that were written of a message that begins with packet `first` and is longer, when `una` is the
    /// first packet that was not acknowledged, and `next` the first that was never sent.
    pub fn written(&self, first: u64, una: u64, next: u64, mss_bytes: u64) -> u64 {
        // what it writes at first, when it writes again, and how much: by bytes acknowledged, or by bytes sent
        let (from, full_bytes, low_bytes, step_bytes) = match self.unsent_bytes {
            None => {
                let third = self.held_bytes / 3;
                (una, self.held_bytes, self.held_bytes - third, third)
            }
            Some(unsent) => {
                let chunks = |bytes: u64| CHUNK_BYTES * bytes.div_ceil(CHUNK_BYTES);
                (next, chunks(unsent), unsent / 2, chunks(unsent / 2))
            }
        };
        let gone_bytes = from.saturating_sub(first) * mss_bytes;
        let again = (gone_bytes + low_bytes)
            .saturating_sub(full_bytes)
            .div_ceil(step_bytes);
        next.max(first + (full_bytes + again * step_bytes) / mss_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_holds_six_windows_and_is_filled_when_a_third_is_free() {
        let mut socket = SendBuffer::new(None);
        socket.note_window(10);
        // 131072 bytes are 90 packets
        assert_eq!(socket.written(5, 0, 5, 1448), 5 + 90);
        socket.note_window(45);
        socket.note_window(20);
        // 391680 bytes: 270 packets, and 180 of them just before it is filled again
        assert_eq!(socket.written(100, 100, 145, 1448), 370);
        assert_eq!(socket.written(100, 190, 235, 1448), 190 + 180);
        assert_eq!(socket.written(100, 191, 236, 1448), 370 + 90);
    }

    #[test]
    fn little_waits_where_the_server_says_so() {
        // one chunk is 45 packets, and 5 of them just before the next one
        let socket = SendBuffer::new(Some(16_384));
        let written = |next: u64| socket.written(100, 100, next, 1448);
        assert_eq!((written(100), written(139), written(140)), (145, 145, 190));
        // five chunks, and three more when half of it waits
        let socket = SendBuffer::new(Some(262_144));
        let written = |next: u64| socket.written(100, 100, next, 1448);
        assert_eq!((written(100), written(234), written(235)), (325, 325, 460));
    }
}
