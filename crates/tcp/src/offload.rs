//! Segmentation offload: Linux's TCP hands several packets to the network card as one load, which the card or
//! the host cuts up (TSO, GSO). It waits for a whole load while it expects an acknowledgment soon that makes more
//! room (tcp_tso_should_defer), and sets PSH in the last packet of each load.

use pathcast_base::{Span, Time};

/// Least packets in one load (Linux's `tcp_min_tso_segs`), and most bytes: 64 KiB less headers.
const LEAST: u64 = 2;
const MOST_BYTES: u64 = 65_536 - 1 - 320;
/// A load is what the pace sends in a 1024th of a second (Linux's `sk_pacing_shift` of 10),
const PACE_SHIFT: u32 = 10;
/// and more on short paths: 64 KiB halved for each half a millisecond of the smallest round-trip time
/// (net.ipv4.tcp_tso_rtt_log).
const RTT_SHIFT: u32 = 9;
/// A sender that last sent longer ago does not wait for a whole load.
const RECENT: Span = Span::from_millis(1);
/// Nor does it wait for an acknowledgment that is further away than this, or than half a round trip (Linux since 6.18, and
/// the long-term kernels of its time: earlier ones waited half a round trip on every path).
const NEAR: Span = Span::from_millis(1);
/// The sender does not wait once this part of its window may leave (net.ipv4.tcp_tso_win_divisor).
const WINDOW_DIVISOR: u64 = 3;

/// Packets of `mss_bytes` in a load at `rate` packets a second (tcp_tso_autosize).
#[inline]
pub fn load_packets(rate: u64, min_rtt: Option<Span>, mss_bytes: u32) -> u64 {
    let mss = u64::from(mss_bytes);
    let mut bytes = rate.saturating_mul(mss) >> PACE_SHIFT;
    if let Some(min_rtt) = min_rtt {
        let halvings = (min_rtt.as_nanos() / 1000) >> RTT_SHIFT;
        if halvings < 32 {
            bytes += MOST_BYTES >> halvings;
        }
    }
    (bytes.min(MOST_BYTES) / mss).max(LEAST)
}

/// What a sender knows when it may begin a load.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Now.
    pub now: Time,
    /// When it last sent anything.
    pub last_sent_at: Option<Time>,
    /// When the first packet that is not acknowledged was sent.
    pub head_sent_at: Option<Time>,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// The congestion window, and what the windows leave room for.
    pub cwnd: u64,
    pub room: u64,
    /// Packets that the application has given and were not sent.
    pub given: u64,
    /// Packets in a whole load.
    pub load: u64,
}

impl Moment {
    /// Whether to wait for more room, outside recovery (tcp_tso_should_defer).
    #[inline]
    pub fn should_wait(&self) -> bool {
        let whole = self.room >= self.load || self.room * WINDOW_DIVISOR >= self.cwnd;
        if whole || self.given < 2 {
            return false;
        }
        let (Some(last), Some(head), Some(srtt)) =
            (self.last_sent_at, self.head_sent_at, self.srtt)
        else {
            return false;
        };
        let near = NEAR.as_nanos().min(srtt.as_nanos() / 2);
        let is_near = self.now.since(head).as_nanos() + near >= srtt.as_nanos();
        self.now.since(last) <= RECENT && is_near
    }
}

/// The load that is leaving: new packets, or a row of packets sent again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Since when, how many more packets, and whether it has more than one.
    at: Option<Time>,
    left: u64,
    several: bool,
    /// The next of a row that is sent again.
    again: Option<u64>,
}

impl Load {
    /// Whether it has new packets that leave at `now`.
    #[inline]
    pub fn is_leaving(&self, now: Time) -> bool {
        self.left > 0 && self.at == Some(now) && self.again.is_none()
    }

    /// Whether packet `seq`, sent again at `now`, is the next of its row.
    #[inline]
    pub fn continues_with(&self, now: Time, seq: u64) -> bool {
        self.left > 0 && self.at == Some(now) && self.again == Some(seq)
    }

    /// Packet `seq` is sent again, the first of a row of at most `packets` unless it continues one.
    #[inline]
    pub fn send_again(&mut self, now: Time, seq: u64, packets: u64) {
        if !self.continues_with(now, seq) {
            self.begin(now, packets);
        }
        self.left -= 1;
        self.again = Some(seq + 1);
    }

    /// Begins with `packets`.
    #[inline]
    pub const fn begin(&mut self, now: Time, packets: u64) {
        *self = Self {
            at: Some(now),
            left: packets,
            several: packets > 1,
            again: None,
        };
    }

    /// One of its packets leaves; returns whether that ends a load of several, which is pushed.
    #[inline]
    pub const fn on_send(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0 && self.several
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    const WAITING: Moment = Moment {
        now: Time::from_nanos(30_000_000),
        last_sent_at: Some(Time::from_nanos(29_500_000)),
        head_sent_at: Some(Time::from_nanos(10_000_000)),
        srtt: Some(Span::from_millis(20)),
        cwnd: 20,
        room: 2,
        given: 100,
        load: 5,
    };

    #[test]
    fn a_load_is_a_millisecond_of_the_pace_and_larger_on_short_paths() {
        // 60 Mbit/s: 7.3 kB in a 1024th of a second
        assert_eq!(load_packets(5180, None, 1448), 5);
        assert_eq!(load_packets(5180, Some(Span::from_millis(20)), 1448), 5);
        // 1.1 ms: a quarter of 64 KiB more
        assert_eq!(
            load_packets(5180, Some(Span::from_nanos(1_100_000)), 1448),
            16
        );
        assert_eq!(load_packets(100, None, 1448), 2);
        assert_eq!(load_packets(u64::MAX, None, 1448), 45);
        assert_eq!(load_packets(u64::MAX, None, 536), 121);
    }

    #[test]
    fn a_sender_waits_for_a_whole_load_while_an_acknowledgment_is_near() {
        assert!(WAITING.should_wait());
        let ends = [
            Moment { room: 5, ..WAITING },
            Moment { cwnd: 6, ..WAITING },
            Moment {
                given: 1,
                ..WAITING
            },
            Moment {
                last_sent_at: Some(at(28_900)),
                ..WAITING
            },
            // its acknowledgment comes in 1.1 ms
            Moment {
                head_sent_at: Some(at(11_100)),
                ..WAITING
            },
            Moment {
                head_sent_at: None,
                ..WAITING
            },
            Moment {
                srtt: None,
                ..WAITING
            },
        ];
        for moment in ends {
            assert!(!moment.should_wait(), "{moment:?}");
        }
    }

    #[test]
    fn on_a_short_path_half_a_round_trip_is_near() {
        let short = |sent_us| Moment {
            head_sent_at: Some(at(sent_us)),
            srtt: Some(Span::from_millis(1)),
            ..WAITING
        };
        assert!(short(29_500).should_wait());
        assert!(!short(29_501).should_wait());
    }

    #[test]
    fn the_last_packet_of_several_is_pushed() {
        let mut load = Load::default();
        assert!(!load.is_leaving(at(1)));
        load.begin(at(1), 3);
        assert!(load.is_leaving(at(1)) && !load.is_leaving(at(2)));
        assert_eq!(
            [load.on_send(), load.on_send(), load.on_send()],
            [false, false, true]
        );
        assert!(!load.is_leaving(at(1)));
        load.begin(at(2), 1);
        assert!(!load.on_send());
    }
}
