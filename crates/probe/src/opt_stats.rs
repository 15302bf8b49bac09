//! What a socket reports with the timestamp of an acknowledgment: `SO_TIMESTAMPING` with
//! `SOF_TIMESTAMPING_OPT_STATS`, read from its error queue (Documentation/networking/timestamping.rst).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use pathcast_base::clock::realtime_offset_ns;

use crate::netlink::{attributes, u32_at, u64_at};
use crate::sys;
use crate::tcp_info::TcpInfo;

/// Time stamps of acknowledgments, by software, without a copy of the packet, with statistics.
const FLAGS: u32 = 1 << 9 | 1 << 4 | 1 << 11 | 1 << 12;

/// `SCM_TIMESTAMPING` and `SCM_TIMESTAMPING_OPT_STATS` of asm-generic/socket.h.
const TIME: i32 = 37;
const STATISTICS: i32 = 54;

/// Room for two control messages and more statistics than any kernel has.
const CONTROL_BYTES: usize = 2048;

/// A socket that reports its state, until this is dropped.
pub(crate) struct OptStats {
    socket: OwnedFd,
    /// Its `SO_TIMESTAMPING` before.
    before: u32,
    control: Vec<u8>,
    /// Messages that did not fit, which is never seen.
    pub(crate) lost: u64,
}

impl OptStats {
    /// Makes `socket` report its state from now on.
    ///
    /// # Errors
    /// The kernel refuses: this needs Linux 4.18.
    pub(crate) fn of(socket: OwnedFd) -> io::Result<Self> {
        let before = sys::timestamping(socket.as_fd())?;
        sys::set_timestamping(socket.as_fd(), FLAGS)?;
        Ok(Self {
            socket,
            before,
            control: vec![0; CONTROL_BYTES],
            lost: 0,
        })
    }

    /// Passes on the reports since the last call, with the time of the monotonic clock.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(u64, TcpInfo)) {
        let offset_ns = realtime_offset_ns();
        // the queue is empty, or the socket is closed
        while let Ok(size) = sys::error_queue(self.socket.as_fd(), &mut self.control) {
            let Some(control) = self.control.get(..size) else {
                self.lost += 1;
                continue;
            };
            if let Some((at_ns, info)) = read(control) {
                take(at_ns.saturating_add_signed(-offset_ns), info);
            }
        }
    }
}

impl Drop for OptStats {
    fn drop(&mut self) {
        let _ = sys::set_timestamping(self.socket.as_fd(), self.before);
        self.drain(|_, _| {}); // discard what is still in the queue
    }
}

/// The time of the real-time clock and the state of the sender in one message's control data.
fn read(control: &[u8]) -> Option<(u64, TcpInfo)> {
    let (mut time, mut info) = (None, None);
    for (level, kind, data) in control_messages(control) {
        match (level, kind) {
            (libc::SOL_SOCKET, TIME) => {
                // struct scm_timestamping: three of struct timespec, of which the first is ours
                let (seconds, nanoseconds) = (u64_at(data, 0)?, u64_at(data, 8)?);
                time = seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds);
            }
            (libc::SOL_SOCKET, STATISTICS) => info = statistics(data),
            _ => {}
        }
    }
    time.filter(|time| *time > 0).zip(info)
}

/// `struct cmsghdr`: a length with the header, level, kind; aligned as a word is.
fn control_messages(bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    const WORD: usize = size_of::<usize>();
    const HEADER_BYTES: usize = WORD + 8;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from_ne_bytes(rest.get(..WORD)?.try_into().ok()?);
        let data = rest.get(HEADER_BYTES..length)?;
        let (level, kind) = (u32_at(rest, WORD)? as i32, u32_at(rest, WORD + 4)? as i32);
        rest = rest
            .get(length.next_multiple_of(WORD)..)
            .unwrap_or_default();
        Some((level, kind, data))
    })
}

/// The attributes `TCP_NLA_...` of linux/tcp.h.
fn statistics(bytes: &[u8]) -> Option<TcpInfo> {
    let mut info = TcpInfo::default();
    let (mut queued, mut unsent) = (None, 0);
    for (name, value) in attributes(bytes) {
        let (word, long) = (u32_at(value, 0), u64_at(value, 0));
        match name {
            1 => info.busy_time_us = long,
            2 => info.rwnd_limited_us = long,
            3 => info.sndbuf_limited_us = long,
            5 => info.total_retrans = long? as u32,
            8 => info.snd_cwnd = word?,
            13 => queued = word,
            15 => info.snd_ssthresh = word?,
            18 => info.bytes_sent = long,
            19 => info.bytes_retrans = long,
            20 => info.dsack_dups = word,
            22 => info.rtt_us = word?,
            24 => unsent = word?,
            _ => {}
        }
    }
    // what is queued is not acknowledged, sent or not
    let in_flight = queued?.saturating_sub(unsent);
    info.bytes_acked = Some(info.new_bytes()?.saturating_sub(in_flight.into()));
    Some(info)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(name: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(name.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn what_is_queued_and_sent_is_not_acknowledged() {
        let mut bytes = attribute(18, &20_000u64.to_ne_bytes());
        bytes.extend(attribute(19, &2000u64.to_ne_bytes()));
        bytes.extend(attribute(13, &9000u32.to_ne_bytes()));
        bytes.extend(attribute(24, &4000u32.to_ne_bytes()));
        bytes.extend(attribute(8, &33u32.to_ne_bytes()));
        bytes.extend(attribute(26, &[64]));
        let info = statistics(&bytes).unwrap();
        assert_eq!((info.snd_cwnd, info.new_bytes()), (33, Some(18_000)));
        assert_eq!(info.bytes_acked, Some(13_000));
        assert_eq!(statistics(&attribute(8, &[1])), None);
        assert_eq!(statistics(&[]), None);
    }

    /// What Linux 6.18 said when 3000 bytes over loopback had been acknowledged.
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    #[test]
    fn a_captured_message_is_read_and_a_cut_one_never_past_its_end() {
        let control = include_bytes!("captured/opt_stats.bin");
        let (at_ns, info) = read(control).unwrap();
        assert!(at_ns > 1_700_000_000_000_000_000, "{at_ns}"); // since 1970
        assert_eq!(
            (info.bytes_acked, info.new_bytes()),
            (Some(3000), Some(3000))
        );
        assert_eq!((info.snd_cwnd, info.total_retrans), (10, 0));
        assert!(info.rtt_us > 0 && info.busy_time_us.is_some());
        for size in 0..control.len() {
            let cut = read(&control[..size]);
            assert!(cut.is_none() || cut == Some((at_ns, info)), "{size}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let _ = statistics(&bytes);
        }
    }
}
