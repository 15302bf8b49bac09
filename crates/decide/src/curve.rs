//! Packets and losses by window and number of parallel connections, over a sliding window, in little memory: some
//! hundred bytes where [`OnlineCurve`] has kilobytes. An answer is [`OnlineCurve`]'s.

use pathcast_analysis::online_curve::{CurveEstimate, OnlineCurve};
use serde::{Deserialize, Serialize};

use crate::halves;
use crate::sample::Sent;

/// Bins of the window's logarithm, wide as those of clusters.
const BIN: f64 = 0.1;
/// Most cells kept; the one with fewest packets makes room.
const CELLS: usize = 48;
/// Losses at one window that an answer takes at most.
const LOSSES: f64 = 200.0;
/// As many losses are assumed beside those at small windows, so that none is not never.
const RARE: f64 = 0.05;
/// Windows for which a model gets a probability, for each number of connections.
const POINTS: usize = 8;

/// Packets and losses at one window, in the current half of the sliding window and in the half before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cell {
    npc: u8,
    bin: u8,
    packets: [f32; 2],
    losses: [f32; 2],
}

/// Counts by window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    cells: Vec<Cell>,
    half: i64,
}

/// A loss curve for models: by number of connections, windows with probabilities.
pub type Points = Vec<(usize, Vec<(f64, f64)>)>;

impl Counts {
    /// Takes packets and losses; half the sliding window is `half_s` long.
    pub fn update(&mut self, now_s: f64, half_s: f64, sent: &Sent) {
        let place = self.go_on(now_s, half_s);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 161
        let bin = (sent.cwnd_packets.max(1.0).ln() / BIN) as u8;
        let at = self
            .cells
            .iter()
            .position(|one| one.npc == sent.npc && one.bin == bin);
        let at = at.unwrap_or_else(|| self.add(sent.npc, bin));
        #[allow(clippy::cast_possible_truncation)] // half a part in ten million is lost
        let (packets, losses) = (sent.packets as f32, sent.losses as f32);
        self.cells[at].packets[place] += packets;
        self.cells[at].losses[place] += losses;
    }

    fn add(&mut self, npc: u8, bin: u8) -> usize {
        if self.cells.len() == CELLS {
            let packets = |cell: &Cell| cell.packets[0] + cell.packets[1];
            let least = (0..CELLS)
                .min_by(|&a, &b| packets(&self.cells[a]).total_cmp(&packets(&self.cells[b])));
            self.cells.swap_remove(least.unwrap_or(0));
        }
        self.cells.push(Cell {
            npc,
            bin,
            packets: [0.0; 2],
            losses: [0.0; 2],
        });
        self.cells.len() - 1
    }

    /// Forgets what is older than the sliding window; the half in which the moment lies.
    fn go_on(&mut self, now_s: f64, half_s: f64) -> usize {
        let (ahead, place) = halves::go_on(&mut self.half, now_s, half_s);
        if ahead == 0 {
            return place;
        }
        self.cells.retain_mut(|cell| {
            let pass = |of: [f32; 2]| [0.0, if ahead == 1 { of[0] } else { 0.0 }];
            (cell.packets, cell.losses) = (pass(cell.packets), pass(cell.losses));
            cell.packets[1] > 0.0
        });
        place
    }

    /// Bytes of memory beyond its own size.
    pub fn heap_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }

    /// Connections, window, packets and losses of each cell.
    pub fn rows(&self) -> impl Iterator<Item = (u8, f64, f64, f64)> {
        self.cells.iter().map(|cell| {
            let of = |of: [f32; 2]| f64::from(of[0] + of[1]);
            (
                cell.npc,
                window(cell.bin),
                of(cell.packets),
                of(cell.losses),
            )
        })
    }

    /// Packets and losses in all.
    pub fn totals(&self) -> (f64, f64) {
        (self.cells.iter()).fold((0.0, 0.0), |sum, cell| {
            let of = |of: [f32; 2]| f64::from(of[0] + of[1]);
            (sum.0 + of(cell.packets), sum.1 + of(cell.losses))
        })
    }

    /// The loss rate in all: a loss event more than half of one, so that none is not never; none without packets.
    pub fn loss(&self) -> Option<f64> {
        let (packets, losses) = self.totals();
        (packets > 0.0).then(|| ((losses + 0.5) / (packets + 1.0)).min(1.0))
    }

    /// The loss rate at the smaller windows, up to half of all packets: there, losses are the path's own. At the larger ones
    /// a flow fills the queue until it drops, which a new transfer does not see. None without packets.
    pub fn base_loss(&self) -> Option<f64> {
        let mut cells: Vec<(u8, f64, f64)> = (self.cells.iter())
            .map(|cell| {
                let of = |of: [f32; 2]| f64::from(of[0] + of[1]);
                (cell.bin, of(cell.packets), of(cell.losses))
            })
            .collect();
        cells.sort_unstable_by_key(|cell| cell.0);
        let half = 0.5 * self.totals().0;
        let (mut packets, mut losses) = (0.0, 0.0);
        for (_, of_packets, of_losses) in cells {
            // the first one counts even if it has more than half
            if packets > 0.0 && packets + of_packets > half {
                break;
            }
            packets += of_packets;
            losses += of_losses;
        }
        (packets > 0.0).then(|| ((losses + RARE) / (packets + 1.0)).min(1.0))
    }

    /// Windows with their packets and losses, of the number of connections by which most packets were sent.
    pub fn busiest(&self) -> Vec<(f64, f64, f64)> {
        let packets = |npc: u8| -> f64 {
            let of_npc = self.rows().filter(|row| row.0 == npc);
            of_npc.map(|row| row.2).sum()
        };
        let busiest = (self.cells.iter().map(|cell| cell.npc))
            .max_by(|&a, &b| packets(a).total_cmp(&packets(b)));
        self.rows()
            .filter(|row| Some(row.0) == busiest)
            .map(|(_, cwnd, packets, losses)| (cwnd, packets, losses))
            .collect()
    }

    /// The curve of the crate analysis with these counts.
    fn curve(&self) -> Option<OnlineCurve> {
        let mut curve = OnlineCurve::new(1.0).ok()?;
        for cell in &self.cells {
            let cwnd = window(cell.bin);
            let npc = u32::from(cell.npc);
            let (packets, losses) = enough(
                f64::from(cell.packets[0] + cell.packets[1]),
                f64::from(cell.losses[0] + cell.losses[1]),
            );
            curve.sent(0.0, cwnd, npc, packets);
            for _ in 0..losses {
                curve.lost(0.0, cwnd, npc);
            }
        }
        Some(curve)
    }

    /// p(cwnd, npc) with its bounds.
    pub fn at(&self, cwnd_packets: f64, npc: u32) -> Option<CurveEstimate> {
        self.curve()?.at(cwnd_packets, npc)
    }

    /// The curve at some windows over the range that was seen, for each number of connections; none without packets.
    pub fn points(&self) -> Option<Points> {
        let curve = self.curve()?;
        let mut all = Points::new();
        for basis in curve.bases() {
            let seen = |least: bool| {
                let bins = self
                    .cells
                    .iter()
                    .filter(|cell| u32::from(cell.npc) == basis.npc);
                let bins = bins.map(|cell| cell.bin);
                if least { bins.min() } else { bins.max() }
            };
            let (Some(first), Some(last)) = (seen(true), seen(false)) else {
                continue;
            };
            let (first, last) = (window(first).ln(), window(last).ln());
            let steps = if last - first < BIN { 1 } else { POINTS };
            let points = (0..steps).filter_map(|step| {
                let part = step as f64 / (steps - 1).max(1) as f64;
                let cwnd = (first + part * (last - first)).exp();
                Some((cwnd, curve.at(cwnd, basis.npc)?.loss_probability))
            });
            all.push((basis.npc as usize, points.collect()));
        }
        (!all.is_empty()).then_some(all)
    }
}

/// Packets and losses in the same proportion, with whole losses: more than [`LOSSES`] say no more.
pub(crate) fn enough(packets: f64, losses: f64) -> (f64, u32) {
    let part = (LOSSES / losses.max(1.0)).min(1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // limited
    (part * packets, (part * losses).round() as u32)
}

/// The middle of a bin.
fn window(bin: u8) -> f64 {
    ((f64::from(bin) + 0.5) * BIN).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cwnd_packets: f64, npc: u8, packets: f64, losses: f64) -> Sent {
        Sent {
            cwnd_packets,
            npc,
            packets,
            losses,
        }
    }

    #[test]
    fn losses_are_those_of_their_window_and_number_of_connections() {
        let mut counts = Counts::default();
        for second in 0..50 {
            let now_s = f64::from(second);
            counts.update(now_s, 300.0, &sent(20.0, 1, 1000.0, 0.0));
            counts.update(now_s, 300.0, &sent(80.0, 1, 1000.0, 10.0));
            counts.update(now_s, 300.0, &sent(80.0, 6, 1000.0, 50.0));
        }
        let p = |cwnd: f64, npc: u32| counts.at(cwnd, npc).unwrap().loss_probability;
        assert!(p(20.0, 1) < 1e-3);
        assert!((0.008..0.012).contains(&p(80.0, 1)), "{}", p(80.0, 1));
        assert!((0.04..0.06).contains(&p(80.0, 6)), "{}", p(80.0, 6));
        let points = counts.points().unwrap();
        assert_eq!(points.len(), 2);
    }

    #[test]
    fn hosts_whose_samples_come_late_lose_nothing_where_a_half_begins() {
        let mut counts = Counts::default();
        for second in 0..40 {
            let now_s = 280.0 + f64::from(second);
            counts.update(now_s, 300.0, &sent(20.0, 1, 100.0, 1.0));
            counts.update(now_s - 15.0, 300.0, &sent(20.0, 1, 100.0, 1.0));
        }
        assert_eq!(counts.totals(), (8000.0, 80.0));
    }

    #[test]
    fn what_is_older_than_the_sliding_window_is_forgotten() {
        let mut counts = Counts::default();
        counts.update(0.0, 300.0, &sent(20.0, 1, 1000.0, 1.0));
        counts.update(301.0, 300.0, &sent(20.0, 1, 10.0, 0.0));
        assert_eq!(counts.totals(), (1010.0, 1.0));
        counts.update(601.0, 300.0, &sent(20.0, 1, 10.0, 0.0));
        assert_eq!(counts.totals(), (20.0, 0.0));
        counts.update(10.0, 300.0, &sent(20.0, 1, 10.0, 0.0));
        assert_eq!(counts.totals(), (30.0, 0.0), "the clock was set back");
    }

    #[test]
    fn drops_of_the_flows_own_queue_are_not_the_paths_losses() {
        let mut counts = Counts::default();
        for window in 20..60 {
            let losses = if window > 55 { 1.0 } else { 0.0 };
            counts.update(0.0, 300.0, &sent(f64::from(window), 1, 100.0, losses));
        }
        assert!(counts.loss().unwrap() > 9e-4);
        assert!(counts.base_loss().unwrap() < 5e-5);
        // random losses are the same at all windows
        let mut counts = Counts::default();
        for window in 20..60 {
            counts.update(0.0, 300.0, &sent(f64::from(window), 1, 1000.0, 5.0));
        }
        let base = counts.base_loss().unwrap();
        assert!((base / 0.005 - 1.0).abs() < 0.05, "{base}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut counts = Counts::default();
        for npc in 1..=200 {
            for window in [1.0, 10.0, 100.0, 1e4, 1e7] {
                counts.update(0.0, 300.0, &sent(window, npc, f64::from(npc), 0.0));
            }
        }
        assert!(counts.cells.len() <= CELLS);
        assert!(counts.at(10.0, 200).is_some());
    }
}
