//! The window of a receiver whose buffer grows with what arrives: Dynamic Right-Sizing.
//!
//! The idea is of Fisk and Feng, "Dynamic Right-Sizing in TCP" (LACSI 2001): in each round trip the receiver counts the
//! bytes that the application takes, and offers enough for the sender to double them. The rules are those of Linux 6.18:
//!
//! - The buffer counts memory, so a window takes only a share of it: payload over memory of a packet
//!   (`tcp_win_from_space`, `scaling_ratio`).
//! - The window opens by two packets for each that arrives, up to that share (`tcp_grow_window`).
//! - The buffer grows when a round trip brings more than the one before (`tcp_rcv_space_adjust`,
//!   `tcp_rcvbuf_grow`), up to `net.ipv4.tcp_rmem`'s third number.
//! - What was offered is never taken back (`tcp_select_window`).

use pathcast_base::Time;

use crate::segment::DataSegment;

/// What the kernel accounts for a packet of any size, off a device with an MTU of 1500 bytes (`skb->truesize`): a buffer
/// of 2 KiB, and what describes it.
const PACKET_BYTES: u64 = 2304;
/// From this payload on a packet's shortness counts.
const LARGEST_MSS_BYTES: u64 = 1448;
/// Shares of a buffer are counted in these parts (TCP_RMEM_TO_WIN_SCALE is 8).
const PARTS: u64 = 256;
/// The share before the first packet (TCP_DEFAULT_SCALING_RATIO).
const FIRST_SHARE: u64 = PARTS / 2;
/// The buffer that a connection begins with (net.ipv4.tcp_rmem, the second number).
const FIRST_BUFFER_BYTES: u64 = 131_072;
/// The largest window that a handshake can say.
const MOST_FIRST_WINDOW_BYTES: u64 = u16::MAX as u64;
/// Packets of the first window of a sender (TCP_INIT_CWND).
const INITIAL_PACKETS: u64 = 10;
/// The largest buffer that an application may ask for, which the window scale allows for too (net.core.rmem_max).
const MOST_ASKED_BYTES: u64 = 4 << 20;
/// Timestamps count these.
const TICK_NS: u64 = 1_000_000;

/// A receiver's buffer, which grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowingBuffer {
    /// Payload of a full packet.
    pub mss_bytes: u32,
    /// The most that it grows to, packets' overhead included.
    pub largest_bytes: u64,
}

impl GrowingBuffer {
    /// Packets that the receiver takes before it says more.
    pub fn first_window_packets(self) -> u32 {
        GrowingWindow::new(self).first_packets() as u32
    }
}

/// The timestamp of an acknowledgment that leaves at `now`: milliseconds, of which a segment has 16 bits.
#[inline]
pub(crate) const fn stamp(now: Time) -> u16 {
    (now.as_nanos() / TICK_NS) as u16
}

/// The state of the receiver's buffer, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct GrowingWindow {
    mss: u64,
    /// Windows are announced in units of two to this power (RFC 7323, section 2).
    scale: u32,
    /// The part of the buffer that payload may take.
    share: u64,
    buffer: u64,
    largest_buffer: u64,
    /// What the buffer's share allows, and what the window has opened to.
    clamp: u64,
    opened: u64,
    /// One past the last byte offered.
    edge: u64,
    /// The most that a round trip has brought, and since when and from which byte on the next is counted.
    space: u64,
    counted_at: Time,
    counted_from: u64,
    /// Eight times the round-trip time, nanoseconds; none before the first sample.
    rtt_ns_8: Option<u64>,
    /// The timestamp of the last sample.
    echo: u16,
    /// The byte that ends the window which a second kind of sample times, and since when.
    window_ends: Option<(u64, Time)>,
}

impl GrowingWindow {
    /// That of a connection that opens.
    pub(crate) fn new(buffer: GrowingBuffer) -> Self {
        let (mss, largest_buffer) = (u64::from(buffer.mss_bytes), buffer.largest_bytes);
        let buffer = FIRST_BUFFER_BYTES.min(largest_buffer);
        let clamp = buffer * FIRST_SHARE / PARTS;
        let first = clamp.min(MOST_FIRST_WINDOW_BYTES) / mss * mss;
        Self {
            mss,
            scale: largest_buffer.max(MOST_ASKED_BYTES).ilog2() - 15,
            share: FIRST_SHARE,
            buffer,
            largest_buffer,
            clamp,
            opened: first,
            edge: first,
            space: first.min(INITIAL_PACKETS * mss),
            counted_at: Time::ZERO,
            counted_from: 0,
            rtt_ns_8: None,
            echo: 0,
            window_ends: None,
        }
    }

    pub(crate) const fn first_packets(&self) -> u64 {
        self.edge / self.mss
    }

    /// The connection opened at `now`.
    pub(crate) const fn on_open(&mut self, now: Time) {
        self.counted_at = now;
    }

    /// A packet arrived in order at `now` that echoes the timestamp `echo`; before it, all up to packet `next` had.
    pub(crate) fn on_next(&mut self, now: Time, segment: &DataSegment, next: u64) {
        let payload = LARGEST_MSS_BYTES.saturating_sub(u64::from(segment.short_by_bytes()));
        if payload >= self.mss {
            self.measure_by_timestamp(now, segment.echo());
            self.learn_overhead();
        }
        self.measure_by_window(now, next * self.mss);
    }

    /// A packet arrived, in order or past a gap: the window opens if it can; returns whether it did.
    pub(crate) fn open(&mut self) -> bool {
        let room = self.clamp.saturating_sub(self.opened);
        self.opened += room.min(2 * self.mss);
        room > 0
    }

    /// The first full packet shows how much memory packets occupy.
    fn learn_overhead(&mut self) {
        let share = self.mss * PARTS / PACKET_BYTES;
        if share != self.share {
            self.share = share;
            self.clamp = self.buffer * share / PARTS;
            self.opened = self.opened.min(self.clamp);
            self.space = self.space.min(self.clamp);
        }
    }

    fn measure_by_timestamp(&mut self, now: Time, echo: u16) {
        if echo != self.echo {
            self.echo = echo;
            let ticks = stamp(now).wrapping_sub(echo);
            self.on_sample(u64::from(ticks.max(1)) * TICK_NS, true);
        }
    }

    /// A window takes a round trip to arrive, or longer if it is not used up.
    fn measure_by_window(&mut self, now: Time, next: u64) {
        match self.window_ends {
            Some((end, _)) if next < end => return,
            Some((_, since)) => self.on_sample(now.since(since).as_nanos().max(1), false),
            None => {}
        }
        self.window_ends = Some((self.edge.max(next), now));
    }

    /// Samples below the mean replace it; others enter it, those of timestamps only.
    fn on_sample(&mut self, rtt_ns: u64, smooth: bool) {
        self.rtt_ns_8 = Some(match self.rtt_ns_8 {
            Some(before) if 8 * rtt_ns >= before => match smooth {
                true => before - before / 8 + rtt_ns,
                false => before,
            },
            _ => 8 * rtt_ns,
        });
    }

    /// The packet up to which the sender may send once all before packet `next` are acknowledged, while `held` packets
    /// take room in the buffer.
    pub(crate) fn offer(&mut self, next: u64, held: u64) -> u64 {
        let next = next * self.mss;
        let taken = held * PACKET_BYTES;
        let room = self.buffer.saturating_sub(taken) * self.share / PARTS;
        let window = match room < self.mss {
            true => 0,
            false => room.min(self.opened),
        };
        let window = window.max(self.edge.saturating_sub(next));
        let window = window.next_multiple_of(1 << self.scale);
        self.edge = next + window;
        self.edge / self.mss
    }

    /// The application has read all before packet `next` at `now`; those past a gap reach up to packet `last`.
    pub(crate) fn on_read(&mut self, now: Time, next: u64, last: u64) {
        let Some(rtt_ns_8) = self.rtt_ns_8 else {
            return;
        };
        if 8 * now.since(self.counted_at).as_nanos() < rtt_ns_8 {
            return;
        }
        let (next, beyond) = (next * self.mss, (last - next) * self.mss);
        let read = next - self.counted_from;
        if read > self.space {
            self.grow(read, beyond);
        }
        (self.counted_at, self.counted_from) = (now, next);
    }

    /// Makes room for a round trip that brings `read` bytes: twice as many, since the count is a round trip
    /// late, and twice its growth, since the sender may be doubling. Packets past a gap need room in
    /// addition.
    fn grow(&mut self, read: u64, beyond: u64) {
        let twice = 2 * read;
        let before = std::mem::replace(&mut self.space, read).max(1);
        let growth = 2
            * (u128::from(twice) * u128::from(read - before.min(read)) / u128::from(before)) as u64;
        let buffer = (twice + growth + beyond).saturating_mul(PARTS) / self.share;
        let buffer = buffer.min(self.largest_buffer);
        if buffer > self.buffer {
            self.buffer = buffer;
            self.clamp = buffer * self.share / PARTS;
        }
    }

    /// A packet arrived past a gap that begins at packet `next`; those past it reach up to packet `last`.
    pub(crate) fn on_gap(&mut self, next: u64, last: u64) {
        self.grow(self.space, (last - next) * self.mss);
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::Span;

    use super::*;

    const BUFFER: GrowingBuffer = GrowingBuffer {
        mss_bytes: 1448,
        largest_bytes: 1_000_000,
    };
    const RTT: Span = Span::from_millis(200);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Takes in `packets` in order at `now`, which answer acknowledgments of a round trip before; returns the window in
    /// packets.
    fn take(window: &mut GrowingWindow, now: Time, next: &mut u64, packets: u64) -> u64 {
        let echo = stamp(now).wrapping_sub(200);
        let mut edge = 0;
        for _ in 0..packets {
            let segment = DataSegment::new(now, *next).with_echo(echo);
            window.on_next(now, &segment, *next);
            window.open();
            *next += 1;
            edge = window.offer(*next, 1);
            window.on_read(now, *next, *next);
        }
        edge - *next
    }

    #[test]
    fn the_window_begins_and_ends_where_linux_has_it() {
        // read off the kernel: 65,160 B in the SYN/ACK, 80,512 B once packets' overhead is known, 623,616 B at the end
        let mut window = GrowingWindow::new(BUFFER);
        assert_eq!(window.first_packets(), 45);
        let (mut next, mut flight, mut seen) = (0, 10, Vec::new());
        for round in 1..10 {
            seen.push(take(&mut window, at(200 * round), &mut next, flight));
            flight = (2 * flight).min(seen[seen.len() - 1]);
        }
        assert_eq!(window.edge - next * 1448, 623_616);
        // it doubles with the sender, a round trip behind
        assert_eq!(seen[..2], [55, 55]);
        let doubles = |pair: &[u64]| (1.5..3.0).contains(&(pair[1] as f64 / pair[0] as f64));
        assert!(seen[2..5].windows(2).all(doubles), "{seen:?}");
        assert_eq!(seen[6..], [430; 3]);
    }

    #[test]
    fn a_steady_sender_gets_no_more_than_twice_what_it_sends_in_a_round_trip() {
        let mut window = GrowingWindow::new(BUFFER);
        let mut next = 0;
        for round in 1..20 {
            take(&mut window, at(200 * round), &mut next, 100);
        }
        let share = 1448 * PARTS / PACKET_BYTES;
        // the first round trip has ten times as much as the kernel expects, and is paid for
        let most = window.buffer;
        for round in 20..40 {
            take(&mut window, at(200 * round), &mut next, 100);
        }
        assert_eq!(window.buffer, most);
        assert!(window.buffer * share / PARTS >= 2 * 100 * 1448);
    }

    #[test]
    fn what_was_offered_is_never_taken_back() {
        let mut window = GrowingWindow::new(BUFFER);
        let mut next = 0;
        take(&mut window, at(200), &mut next, 10);
        let edge = window.offer(next, 1);
        // a buffer full of packets past a gap
        assert_eq!(window.offer(next, 60), edge);
        assert_eq!(window.offer(next + 1, 60), edge);
    }

    #[test]
    fn packets_past_a_gap_take_room_beside_the_window() {
        let mut window = GrowingWindow::new(BUFFER);
        let mut next = 0;
        take(&mut window, at(200), &mut next, 10);
        let before = window.buffer;
        window.on_gap(next, next + 30);
        assert_eq!(window.buffer, before); // the first buffer is enough for that
        window.on_gap(next, next + 200);
        let share = 1448 * PARTS / PACKET_BYTES;
        let least = (2 * 14_480 + 200 * 1448) * PARTS / share;
        assert_eq!(window.buffer, least);
    }

    #[test]
    fn the_round_trip_is_that_of_timestamps_and_no_longer_than_a_window() {
        let mut window = GrowingWindow::new(BUFFER);
        window.on_sample(RTT.as_nanos(), true);
        window.on_sample(2 * RTT.as_nanos(), true);
        assert_eq!(window.rtt_ns_8, Some(8 * 225_000_000));
        window.on_sample(3 * RTT.as_nanos(), false);
        assert_eq!(window.rtt_ns_8, Some(8 * 225_000_000));
        window.on_sample(RTT.as_nanos() / 2, false);
        assert_eq!(window.rtt_ns_8, Some(8 * 100_000_000));
    }
}
