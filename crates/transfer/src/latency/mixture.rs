//! Mixtures of times, and their quantiles.

use pathcast_forecast::types::QUANTILES;

/// Where standard normal variates of equal chance lie, scaled to variance 1.
const NORMAL: [f64; 11] = [
    -1.791_7, -1.162_4, -0.792_6, -0.501_1, -0.243_6, 0.0, 0.243_6, 0.501_1, 0.792_6, 1.162_4,
    1.791_7,
];
/// The same, fewer, for pieces that are less likely than [`MINOR`].
const NORMAL_MINOR: [f64; 5] = [-1.469_5, -0.601_3, 0.0, 0.601_3, 1.469_5];
const MINOR: f64 = 0.01;
/// Pieces less likely are left out.
const NEGLIGIBLE: f64 = 1e-7;
/// Neighboring points are put together up to this weight.
const TOGETHER: f64 = 0.004;
/// A point that has this weight stands for itself: quantiles are not interpolated across it.
const ATOM: f64 = 0.02;

/// One way that a transfer may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) weight: f64,
    pub(super) mean_s: f64,
    pub(super) variance: f64,
    /// What it takes at least, seconds.
    pub(super) least_s: f64,
}

impl Piece {
    /// A time without spread.
    pub(super) fn certain(weight: f64, s: f64) -> Self {
        Self {
            weight,
            mean_s: s,
            variance: 0.0,
            least_s: s,
        }
    }
}

/// A distribution over times: points with weights that sum to 1, ascending.
#[derive(Debug, Clone)]
pub(super) struct Mixture {
    points: Vec<(f64, f64)>,
    /// How likely it is that nothing is lost by chance.
    pub(super) no_loss: f64,
}

impl Mixture {
    /// Each piece with a spread is a lognormal above what it takes at least.
    pub(super) fn new(pieces: &[Piece], no_loss: f64) -> Self {
        let mut points = Vec::with_capacity(NORMAL.len() * pieces.len());
        let total: f64 = pieces.iter().map(|piece| piece.weight).sum();
        for piece in pieces {
            let weight = piece.weight / total;
            if weight < NEGLIGIBLE {
                continue;
            }
            let above = piece.mean_s - piece.least_s;
            if above <= 0.0 || piece.variance < 1e-8 * piece.mean_s * piece.mean_s {
                points.push((piece.mean_s.max(piece.least_s), weight));
                continue;
            }
            let sigma = (piece.variance / (above * above)).ln_1p().min(4.0).sqrt();
            // few points cut a lognormal's tail: keep its mean
            let variates: &[f64] = if weight < MINOR {
                &NORMAL_MINOR
            } else {
                &NORMAL
            };
            let from = points.len();
            let each = weight / variates.len() as f64;
            points.extend(variates.iter().map(|z| ((sigma * z).exp(), each)));
            let sum: f64 = points[from..].iter().map(|point| point.0).sum();
            let scale = above * variates.len() as f64 / sum;
            for point in &mut points[from..] {
                point.0 = piece.least_s + scale * point.0;
            }
        }
        Self {
            points: gathered(points),
            no_loss,
        }
    }

    /// The same, later by each of these times with its probability, independent of one another: what
    /// losses of single packets cost.
    pub(super) fn delayed(&self, delays: &[(f64, f64)]) -> Self {
        let (mut points, mut no_loss) = (self.points.clone(), self.no_loss);
        for &(probability, s) in delays {
            if probability < NEGLIGIBLE {
                continue;
            }
            let late: Vec<(f64, f64)> = (points.iter())
                .map(|&(t, weight)| (t + s, weight * probability))
                .collect();
            points
                .iter_mut()
                .for_each(|point| point.1 *= 1.0 - probability);
            points.extend(late);
            points = gathered(points);
            no_loss *= 1.0 - probability;
        }
        Self { points, no_loss }
    }

    /// Mean and quantiles of the largest of `n` independent times, seconds.
    pub(super) fn summary(&self, n: f64) -> (f64, [f64; QUANTILES.len()]) {
        let (mut mean, mut before, mut sum) = (0.0, 0.0, 0.0);
        for &(t, weight) in &self.points {
            sum += weight;
            let now = sum.min(1.0_f64).powf(n);
            mean += t * (now - before);
            before = now;
        }
        if before > 0.0 {
            mean /= before;
        }
        (
            mean,
            QUANTILES.map(|level| self.quantile(level.powf(1.0 / n))),
        )
    }

    fn quantile(&self, level: f64) -> f64 {
        // each point's weight lies around it, an atom's on it
        let mut sum = 0.0;
        let mut last: Option<(f64, f64)> = None;
        for &(t, weight) in &self.points {
            let (from, to) = if weight >= ATOM {
                (sum, sum + weight)
            } else {
                (sum + 0.5 * weight, sum + 0.5 * weight)
            };
            if level <= from {
                return match last {
                    Some((before, at)) if from > at => {
                        before + (t - before) * ((level - at) / (from - at)).clamp(0.0, 1.0)
                    }
                    _ => t,
                };
            }
            if level <= to {
                return t;
            }
            last = Some((t, to));
            sum += weight;
        }
        last.map_or(0.0, |(t, _)| t)
    }
}

/// Ascending, with light neighbors put together at their mean.
fn gathered(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(300);
    for (t, weight) in points {
        match kept.last_mut() {
            Some(last) if last.1 + weight <= TOGETHER || t - last.0 <= 1e-9 * t => {
                let sum = last.1 + weight;
                last.0 += (t - last.0) * weight / sum;
                last.1 = sum;
            }
            _ => kept.push((t, weight)),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_of_a_normal_law_have_variance_one() {
        let square: f64 = NORMAL.iter().map(|z| z * z).sum();
        assert!(
            (square / NORMAL.len() as f64 - 1.0).abs() < 0.01,
            "{square}"
        );
    }

    #[test]
    fn quantiles_of_one_spread_are_a_lognormals() {
        let piece = Piece {
            weight: 1.0,
            mean_s: 10.0,
            variance: 1.0,
            least_s: 0.0,
        };
        let (mean, quantiles) = Mixture::new(&[piece], 0.0).summary(1.0);
        assert!((mean - 10.0).abs() < 1e-9);
        // sigma^2 = ln(1.01); 10 / sqrt(1.01) * exp(+-1.645 sigma)
        for (got, wanted) in quantiles.iter().zip([8.446, 9.304, 9.950, 10.641, 11.722]) {
            assert!((got / wanted - 1.0).abs() < 0.02, "{quantiles:?}");
        }
    }

    #[test]
    fn an_atom_is_not_smeared() {
        let pieces = [Piece::certain(0.9, 1.0), Piece::certain(0.1, 5.0)];
        let mixture = Mixture::new(&pieces, 0.9);
        assert_eq!(mixture.summary(1.0).1, [1.0, 1.0, 1.0, 1.0, 5.0]);
        // of ten, one at least is late with 1 - 0.9^10 = 65 %
        assert_eq!(mixture.summary(10.0).1, [1.0, 1.0, 5.0, 5.0, 5.0]);
        assert!((mixture.summary(10.0).0 - (5.0 - 4.0 * 0.9_f64.powi(10))).abs() < 1e-9);
    }

    #[test]
    fn delays_are_independent() {
        let mixture = Mixture::new(&[Piece::certain(1.0, 1.0)], 1.0);
        let later = mixture.delayed(&[(0.5, 1.0), (0.5, 2.0)]);
        let expected = [(1.0, 0.25), (2.0, 0.25), (3.0, 0.25), (4.0, 0.25)];
        assert_eq!(later.points, expected);
    }
}
