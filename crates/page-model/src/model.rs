//! What the model knows of a path and of senders.

use pathcast_path::Span;
use pathcast_window_law::Cc;

/// Payload of a full packet of TCP, and its size with headers, in bytes.
pub const MSS_BYTES: f64 = 1448.0;
pub const PACKET_BYTES: f64 = 1500.0;

/// How a window goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// By CUBIC's or Reno's law; of others as CUBIC's.
    Window(Cc),
    /// It holds what the link carries, and losses do not reduce it: BBR.
    Bandwidth,
}

impl Law {
    /// That of a congestion control by its name.
    pub fn of(scheme: &str) -> Self {
        match scheme.starts_with("bbr") {
            true => Self::Bandwidth,
            false => match Cc::of(scheme) {
                Cc::Other => Self::Window(Cc::Cubic),
                cc => Self::Window(cc),
            },
        }
    }
}

/// The probability that a packet is lost, by the window in packets: p(cwnd).
#[derive(Clone, Debug, PartialEq)]
pub struct LossCurve {
    /// Windows, ascending, each with the probability from there on.
    points: Vec<(f64, f64)>,
}

impl LossCurve {
    /// The same for all windows.
    pub fn constant(probability: f64) -> Self {
        Self {
            points: vec![(0.0, probability)],
        }
    }

    /// By points of a window in packets and a probability; between two of them on a line, outside as the nearest. None
    /// if there are no points, or they are not in order or no probabilities.
    pub fn of_points(points: Vec<(f64, f64)>) -> Option<Self> {
        let ordered = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let valid = |&(window, p): &(f64, f64)| window >= 0.0 && (0.0..=1.0).contains(&p);
        (!points.is_empty() && ordered && points.iter().all(valid)).then_some(Self { points })
    }

    /// At a window in packets.
    #[inline]
    pub fn at(&self, window: f64) -> f64 {
        let next = self.points.partition_point(|&(one, _)| one <= window);
        match (next.checked_sub(1), self.points.get(next)) {
            (None, _) => self.points[0].1,
            (Some(last), None) => self.points[last].1,
            (Some(before), Some(&(b, p_b))) => {
                let (a, p_a) = self.points[before];
                p_a + (p_b - p_a) * (window - a) / (b - a)
            }
        }
    }
}

/// A path and its senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Round-trip time of the empty path.
    pub rtt: Span,
    /// Rate of the link in bits of whole packets a second; none: no limit.
    pub rate_bps: Option<f64>,
    /// What may wait before the link, in bytes.
    pub queue_bytes: f64,
    /// Losses that no full queue causes: p(cwnd, npc) by the number of connections that send, at least one.
    pub curves: Vec<(usize, LossCurve)>,
    /// Of the servers.
    pub law: Law,
    /// First window in packets.
    pub initial_window: f64,
}

impl Model {
    /// A path with a queue of one bandwidth-delay product, and servers with this congestion control and an initial window
    /// of ten packets.
    pub fn new(scheme: &str, rtt: Span, rate_bps: Option<f64>, curve: LossCurve) -> Self {
        Self {
            rtt,
            rate_bps,
            queue_bytes: rate_bps.map_or(f64::INFINITY, |rate| rate * rtt.as_secs() / 8.0),
            curves: vec![(1, curve)],
            law: Law::of(scheme),
            initial_window: 10.0,
        }
    }

    /// The curve of the nearest number of connections, of the smaller one of two.
    pub(crate) fn curve(&self, connections: usize) -> &LossCurve {
        let distance = |(number, _): &&(usize, LossCurve)| (number.abs_diff(connections), *number);
        let nearest = self.curves.iter().min_by_key(distance);
        &nearest.expect("there is at least one").1
    }

    /// Packets that the empty path holds; infinite without a link.
    pub(crate) fn bdp_packets(&self) -> f64 {
        let rate = self.rate_bps.unwrap_or(f64::INFINITY);
        (rate * self.rtt.as_secs() / 8.0 / PACKET_BYTES).max(1.0)
    }
}
