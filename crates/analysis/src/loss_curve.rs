//! The empirical loss curve p(cwnd, npc) (paper, section 3.2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::epochs::Detection;
use crate::series::Series;

/// How the packets sent at a window (the paper's hash map A) are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counting {
    /// One window of packets each time an epoch grows through it, as in the authors' curves
    /// (recovered from their data: `p = losses / (cwnd * passages)`).
    #[default]
    Passages,
    /// Window over RTT, for the time spent at the window, including recoveries.
    Time,
    /// Growth of snd_nxt while the window was there, as the paper's text says, for traces with
    /// sequence numbers. Other traces count as [`Counting::Time`].
    Sent,
}

impl Counting {
    /// The best counting for this series: packets actually sent, else the authors' method.
    pub fn of(series: &Series) -> Self {
        if series.snd_nxt_packets().is_some() {
            Self::Sent
        } else {
            Self::Passages
        }
    }
}

/// One window size at which the flow was seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Window, packets.
    pub cwnd_packets: u32,
    /// Packets sent at it (A).
    pub packets: f64,
    /// Losses at it (B).
    pub losses: u32,
    /// B/A, or B/A of the nearest window with a loss.
    pub loss_probability: f64,
}

/// p(cwnd) for one number of parallel connections.
///
/// A window without losses takes the value of the nearest window with one (the lower of two equally
/// near). For a flow without losses, see [`LossCurve::upper_bound`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Plain")]
pub struct LossCurve {
    /// Parallel connections for which the curve holds.
    pub npc: u32,
    /// How packets were counted.
    pub counting: Counting,
    /// All packets counted.
    pub packets: f64,
    /// All losses counted.
    pub losses: u32,
    /// Windows seen, ascending.
    pub points: Vec<CurvePoint>,
    #[serde(skip)]
    with_loss: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Plain {
    npc: u32,
    counting: Counting,
    packets: f64,
    losses: u32,
    points: Vec<CurvePoint>,
}

impl From<Plain> for LossCurve {
    fn from(plain: Plain) -> Self {
        let Plain {
            npc,
            counting,
            packets,
            losses,
            points,
        } = plain;
        let with_loss = with_loss(&points);
        Self {
            npc,
            counting,
            packets,
            losses,
            points,
            with_loss,
        }
    }
}

impl LossCurve {
    /// Fits the curve of one flow, which was one of `npc` parallel connections.
    ///
    /// ```
    /// use pathcast_analysis::{Counting, LossCurve, Series, find_epochs};
    /// use pathcast_window_law::Cc;
    /// let time: Vec<f64> = (0..110).map(|i| f64::from(i) * 0.1).collect();
    /// let cwnd = (0..110).map(|i| f64::from(10 + i % 11)).collect();
    /// let series = Series::new(time, cwnd)?;
    /// let found = find_epochs(&series, Cc::Reno, 0.1);
    /// let curve = LossCurve::fit(&series, &found, 0.1, 1, Counting::Passages);
    /// // ten passages through window 20 (the last still running), nine losses there
    /// assert!((curve.loss_probability(20.0) - 9.0 / 200.0).abs() < 1e-12);
    /// # Ok::<(), pathcast_analysis::SeriesError>(())
    /// ```
    pub fn fit(
        series: &Series,
        found: &Detection,
        rtt_s: f64,
        npc: u32,
        counting: Counting,
    ) -> Self {
        let mut builder = LossCurveBuilder::new(npc, counting);
        builder.add(series, found, rtt_s);
        builder.build()
    }

    /// Loss probability of a packet sent at this window.
    ///
    /// Without any loss, returns the value for which "no loss in all packets seen" has a
    /// probability of one half: `ln 2 / packets`.
    pub fn loss_probability(&self, cwnd_packets: f64) -> f64 {
        let seen = &self.with_loss;
        if seen.is_empty() {
            return (std::f64::consts::LN_2 / self.packets.max(1.0)).min(1.0);
        }
        let after = seen.partition_point(|&(cwnd, _)| cwnd < cwnd_packets);
        let nearest = if after == 0 {
            0
        } else if after == seen.len()
            || cwnd_packets - seen[after - 1].0 <= seen[after].0 - cwnd_packets
        {
            after - 1
        } else {
            after
        };
        seen[nearest].1
    }

    /// If there were no losses, the probability that is exceeded with 5 % chance: 3 / packets (rule
    /// of three). `None` if there were losses, because the curve then rests on them.
    pub fn upper_bound(&self) -> Option<f64> {
        (self.losses == 0).then(|| (3.0 / self.packets.max(1.0)).min(1.0))
    }
}

/// Combines flows into one curve: A and B over the whole monitoring period.
#[derive(Debug, Clone)]
pub struct LossCurveBuilder {
    npc: u32,
    counting: Counting,
    counts: BTreeMap<u32, (f64, u32)>,
}

impl LossCurveBuilder {
    /// An empty curve for `npc` parallel connections.
    pub fn new(npc: u32, counting: Counting) -> Self {
        Self {
            npc,
            counting,
            counts: BTreeMap::new(),
        }
    }

    /// Adds one flow.
    pub fn add(&mut self, series: &Series, found: &Detection, rtt_s: f64) {
        match self.counting {
            Counting::Passages => {
                let mut passages: BTreeMap<u32, f64> = BTreeMap::new();
                let running = running_epoch(series, found);
                let ended = found
                    .epochs
                    .iter()
                    .map(|epoch| (epoch.start_cwnd, epoch.end_cwnd));
                for (from, to) in ended.chain(running) {
                    // +1 where a growth begins, -1 after its end: prefix sums are passages
                    *passages.entry(whole(from)).or_default() += 1.0;
                    *passages.entry(whole(to).max(whole(from)) + 1).or_default() -= 1.0;
                }
                let mut through = 0.0;
                let mut steps = passages.into_iter().peekable();
                while let Some((from, change)) = steps.next() {
                    through += change;
                    if let Some(&(to, _)) = steps.peek()
                        && through > 0.0
                    {
                        for cwnd in from..to {
                            self.counts.entry(cwnd).or_default().0 += through * f64::from(cwnd);
                        }
                    }
                }
            }
            Counting::Sent if series.snd_nxt_packets().is_some() => {
                let w = series.cwnd_packets();
                let sent = series.snd_nxt_filled().unwrap_or_default();
                for i in 1..w.len() {
                    // a record is written when an acknowledgment arrives, before the sender reacts
                    // to it
                    self.counts.entry(whole(w[i])).or_default().0 += sent[i] - sent[i - 1];
                }
            }
            Counting::Time | Counting::Sent => {
                let (t, w) = (series.time_s(), series.cwnd_packets());
                for i in 1..t.len() {
                    let packets = w[i - 1] * (t[i] - t[i - 1]) / rtt_s;
                    self.counts.entry(whole(w[i - 1])).or_default().0 += packets;
                }
            }
        }
        match self.counting {
            Counting::Passages => found
                .epochs
                .iter()
                .for_each(|epoch| self.lose(epoch.end_cwnd)),
            Counting::Time | Counting::Sent => found
                .losses
                .iter()
                .for_each(|loss| self.lose(loss.cwnd_packets)),
        }
    }

    fn lose(&mut self, cwnd_packets: f64) {
        let entry = self.counts.entry(whole(cwnd_packets)).or_default();
        entry.1 += 1;
        // a loss at a window implies packets sent at it, however they are counted
        entry.0 = entry.0.max(f64::from(entry.1));
    }

    /// The curve of all flows added.
    pub fn build(self) -> LossCurve {
        let packets = self.counts.values().map(|count| count.0).sum();
        let losses = self.counts.values().map(|count| count.1).sum();
        let points = self
            .counts
            .into_iter()
            .map(|(cwnd_packets, (packets, losses))| CurvePoint {
                cwnd_packets,
                packets,
                losses,
                loss_probability: if losses > 0 {
                    f64::from(losses) / packets
                } else {
                    0.0
                },
            })
            .collect();
        let mut curve = LossCurve::from(Plain {
            npc: self.npc,
            counting: self.counting,
            packets,
            losses,
            points,
        });
        for i in 0..curve.points.len() {
            let p = curve.loss_probability(f64::from(curve.points[i].cwnd_packets));
            curve.points[i].loss_probability = p;
        }
        curve
    }
}

/// Curves for several numbers of parallel connections: the paper's p(cwnd, npc).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LossCurves {
    /// One curve for each npc.
    pub curves: Vec<LossCurve>,
}

impl LossCurves {
    /// Loss probability at this window, from the curve with the nearest npc. `None` without curves.
    pub fn loss_probability(&self, cwnd_packets: f64, npc: u32) -> Option<f64> {
        let curve = self
            .curves
            .iter()
            .min_by_key(|curve| curve.npc.abs_diff(npc))?;
        Some(curve.loss_probability(cwnd_packets))
    }
}

/// The growth that has not ended: windows passed since the last epoch's fall.
fn running_epoch(series: &Series, found: &Detection) -> Option<(f64, f64)> {
    let from = found.epochs.last().map_or(0, |epoch| {
        series.time_s().partition_point(|&t| t <= epoch.end_s)
    });
    let w = &series.cwnd_packets()[from..];
    let low = (0..w.len()).min_by(|&a, &b| w[a].total_cmp(&w[b]))?;
    Some((w[low], w[w.len() - 1]))
}

fn with_loss(points: &[CurvePoint]) -> Vec<(f64, f64)> {
    points
        .iter()
        .filter(|point| point.losses > 0)
        .map(|point| {
            (
                f64::from(point.cwnd_packets),
                f64::from(point.losses) / point.packets,
            )
        })
        .collect()
}

/// Rounds a window down to whole packets, as a sender would send.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked > 0, saturates
fn whole(cwnd_packets: f64) -> u32 {
    cwnd_packets.max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::{Epoch, Loss};

    #[test]
    fn with_sequence_numbers_the_packets_really_sent_are_counted() {
        let (series, found) = sawtooth();
        let sent: Vec<f64> = (0..series.len()).map(|i| 7.0 * i as f64).collect();
        let total = sent[sent.len() - 1];
        let series = series.with_snd_nxt(sent).unwrap();
        assert_eq!(Counting::of(&series), Counting::Sent);
        let curve = LossCurve::fit(&series, &found, 0.1, 1, Counting::Sent);
        assert_eq!(curve.packets, total);
        assert_eq!(curve.losses as usize, found.losses.len());
    }

    fn sawtooth() -> (Series, Detection) {
        let time = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let series = Series::new(time, vec![10.0, 11.0, 12.0, 6.0, 7.0, 8.0]).unwrap();
        let epoch = Epoch {
            start_s: 0.0,
            start_cwnd: 10.0,
            end_s: 2.0,
            end_cwnd: 12.0,
        };
        let loss = Loss {
            time_s: 2.0,
            cwnd_packets: 12.0,
        };
        (
            series,
            Detection {
                epochs: vec![epoch],
                losses: vec![loss],
            },
        )
    }

    #[test]
    fn a_window_of_packets_is_counted_per_passage() {
        let (series, found) = sawtooth();
        let curve = LossCurve::fit(&series, &found, 0.5, 1, Counting::Passages);
        assert_eq!(curve.losses, 1);
        assert_eq!(curve.packets, 33.0 + 21.0);
        assert!((curve.loss_probability(12.0) - 1.0 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn packets_are_window_over_rtt_for_the_time_there() {
        let (series, found) = sawtooth();
        let curve = LossCurve::fit(&series, &found, 0.5, 1, Counting::Time);
        assert!((curve.packets - 2.0 * (10.0 + 11.0 + 12.0 + 6.0 + 7.0)).abs() < 1e-12);
        assert!((curve.loss_probability(12.0) - 1.0 / 24.0).abs() < 1e-12);
    }

    #[test]
    fn the_nearest_window_with_a_loss_counts() {
        let (series, mut found) = sawtooth();
        found.epochs.push(Epoch {
            start_s: 3.0,
            start_cwnd: 6.0,
            end_s: 5.0,
            end_cwnd: 8.0,
        });
        let curve = LossCurve::fit(&series, &found, 0.5, 1, Counting::Passages);
        // 8 was passed once, in the epoch that ended there
        assert!((curve.loss_probability(1.0) - 1.0 / 8.0).abs() < 1e-12);
        assert!((curve.loss_probability(10.0) - 1.0 / 8.0).abs() < 1e-12);
        assert!((curve.loss_probability(10.5) - 1.0 / 12.0).abs() < 1e-12);
        assert!((curve.loss_probability(1e9) - 1.0 / 12.0).abs() < 1e-12);
        assert_eq!(curve.upper_bound(), None);
    }

    #[test]
    fn without_losses_the_curve_says_what_it_rests_on() {
        let (series, _) = sawtooth();
        let none = Detection {
            epochs: vec![],
            losses: vec![],
        };
        let curve = LossCurve::fit(&series, &none, 0.5, 1, Counting::Time);
        assert_eq!(curve.losses, 0);
        assert!((curve.upper_bound().unwrap() - 3.0 / 92.0).abs() < 1e-12);
        let p = curve.loss_probability(10.0);
        assert!(p > 0.0 && p < curve.upper_bound().unwrap());
    }

    #[test]
    fn a_curve_survives_a_round_trip_through_json() {
        let (series, found) = sawtooth();
        let curve = LossCurve::fit(&series, &found, 0.5, 4, Counting::Passages);
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(serde_json::from_str::<LossCurve>(&text).unwrap(), curve);
    }

    #[test]
    fn the_nearest_npc_counts() {
        let (series, found) = sawtooth();
        let one = LossCurve::fit(&series, &found, 0.5, 1, Counting::Passages);
        let four = LossCurve::fit(&series, &found, 0.5, 4, Counting::Time);
        let curves = LossCurves {
            curves: vec![one, four],
        };
        assert!((curves.loss_probability(12.0, 3).unwrap() - 1.0 / 24.0).abs() < 1e-12);
        assert_eq!(LossCurves::default().loss_probability(12.0, 1), None);
    }
}
