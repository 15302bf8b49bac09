//! What is learned for one horizon.

use crate::types::SAMPLE_S;
use std::collections::VecDeque;

use super::regression::Regression;
use crate::bands::{Banded, Bands, Said, VALUE_FLOOR};
use crate::cold_start::Contest;
use crate::experts::{ByExpert, Expert, Pool};
use crate::renewal::{Piece, Renewal};

/// Standard deviations between the 5 % and 95 % quantiles of a normal law.
pub(super) const NORMAL_90: f64 = 3.29;

/// All that is learned for one horizon.
#[derive(Debug, Clone)]
pub(super) struct Horizon {
    pub(super) horizon_s: f64,
    pub(super) table: Option<Renewal>,
    /// Forecasts whose truth is not known yet, with their bands; oldest first.
    pub(super) pending: VecDeque<(Pending, Banded)>,
    pub(super) resolved: u32,
    pub(super) pool: Pool,
    pub(super) regression: Regression,
    pub(super) bands: Bands,
    pub(super) contest: Contest,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) time_s: f64,
    pub(super) ln_value: ByExpert,
    /// ln of what the window is worth by the newest round-trip time, over what it usually is.
    pub(super) ln_queue: f64,
    /// ln of the pooled experts' value, and of what other flows' beginnings say if they have a part.
    pub(super) ln_own: f64,
    pub(super) ln_early: Option<f64>,
    pub(super) ln_point: f64,
    pub(super) spread: f64,
}

impl Horizon {
    pub(super) fn new(horizon_s: f64, has_law: bool) -> Self {
        let mut pool = Pool::new(horizon_s);
        pool.suit(has_law);
        Self {
            horizon_s,
            table: None,
            pending: VecDeque::new(),
            resolved: 0,
            pool,
            regression: Regression::new(horizon_s),
            bands: Bands::new(horizon_s),
            contest: Contest::default(),
        }
    }

    /// The window law knows the link's rate from now on: what it said before, and is to be judged yet, counts no more.
    pub(super) fn renew_law(&mut self) {
        self.pool.renew(&Expert::OF_STATE);
        self.regression = Regression::new(self.horizon_s);
        for (forecast, _) in &mut self.pending {
            for expert in Expert::OF_STATE {
                forecast.ln_value[expert as usize] = f64::NAN;
            }
        }
    }

    /// Keeps a forecast until its truth is known.
    pub(super) fn keep(&mut self, forecast: Pending, believable: (f64, f64)) {
        let banded = self.bands.around(&self.said(&forecast, believable));
        self.pending.push_back((forecast, banded));
    }

    /// What the bands of a forecast are put around.
    pub(super) fn said(&self, forecast: &Pending, believable: (f64, f64)) -> Said {
        Said {
            point: forecast.ln_point.exp(),
            center: forecast.ln_value[Expert::WindowMean as usize].exp(),
            spread: forecast.spread,
            usual: self.pool.usual_error(),
            believable,
        }
    }

    pub(super) fn learn(&mut self, forecast: &Pending, banded: &Banded, truth: f64, now_s: f64) {
        let ln_truth = truth.max(VALUE_FLOOR).ln();
        (self.pool).learn(&forecast.ln_value, forecast.ln_point, ln_truth, SAMPLE_S);
        if !forecast.ln_value[Expert::State as usize].is_nan() {
            (self.regression).learn(&forecast.ln_value, forecast.ln_queue, ln_truth, SAMPLE_S);
        }
        if let Some(ln_early) = forecast.ln_early {
            (self.contest).learn(ln_early, forecast.ln_own, ln_truth, SAMPLE_S);
        }
        (self.bands).learn(banded, truth, now_s, SAMPLE_S);
        self.resolved += 1;
    }
}

/// What a mixture says in a few numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// The middle of the narrowest range, by ratio, that holds [`LIKELY_PART`].
    pub(super) likely: f64,
    /// Standard deviation in ln.
    pub(super) spread: f64,
}

/// The part of the mass whose narrowest range is taken as likely. A flow without a loss follows the law
/// exactly, and most of the mass may be there. The median, shifted by possible losses, would then match
/// none of the outcomes. From 0.3 to 0.5 the errors differ little.
const LIKELY_PART: f64 = 0.4;

/// Summarizes a mixture. Each piece stands as three points that have its mean and variance
/// (Gauss-Hermite).
pub(super) fn summarize(pieces: &[Piece]) -> Summary {
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(3 * pieces.len());
    for piece in pieces {
        let away = 3.0_f64.sqrt() * piece.sd;
        points.push((piece.mean - away, piece.weight / 6.0));
        points.push((piece.mean, piece.weight * 2.0 / 3.0));
        points.push((piece.mean + away, piece.weight / 6.0));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |level: f64| {
        let mut sum = 0.0;
        let found = points.iter().find(|point| {
            sum += point.1;
            sum >= level
        });
        found
            .or(points.last())
            .map_or(VALUE_FLOOR, |point| point.0.max(VALUE_FLOOR))
    };
    Summary {
        median: at(0.5),
        likely: likely(&points).unwrap_or(at(0.5)),
        spread: (at(0.95) / at(0.05)).ln() / NORMAL_90,
    }
}

/// The middle of the narrowest range that holds [`LIKELY_PART`] of sorted points' weights: the value from
/// which both ends are off by the same part of themselves.
fn likely(points: &[(f64, f64)]) -> Option<f64> {
    let (mut upto, mut mass) = (0, 0.0);
    let mut narrowest: Option<(f64, f64)> = None;
    for from in 0..points.len() {
        while upto < points.len() && mass < LIKELY_PART {
            mass += points[upto].1;
            upto += 1;
        }
        if mass < LIKELY_PART {
            break;
        }
        let (low, high) = (
            points[from].0.max(VALUE_FLOOR),
            points[upto - 1].0.max(VALUE_FLOOR),
        );
        if narrowest.is_none_or(|(ratio, _)| high / low < ratio) {
            narrowest = Some((high / low, 2.0 * low * high / (low + high)));
        }
        mass -= points[from].1;
    }
    narrowest.map(|(_, middle)| middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(weight: f64, mean: f64, sd: f64) -> Piece {
        Piece { weight, mean, sd }
    }

    #[test]
    fn the_likely_is_where_the_mass_is_narrowest() {
        // no loss: 100 for sure; else something from 60 to 95
        let mut pieces = vec![piece(0.45, 100.0, 0.0)];
        pieces.extend((0..11).map(|i| piece(0.05, 60.0 + 3.5 * f64::from(i), 1.0)));
        let summary = summarize(&pieces);
        assert!((summary.likely - 100.0).abs() < 1e-9, "{summary:?}");
        assert!(summary.median < 97.0, "{summary:?}");
    }

    #[test]
    fn one_certain_piece_is_all_there_is() {
        let summary = summarize(&[piece(1.0, 50.0, 0.0)]);
        assert_eq!(
            (summary.median, summary.likely, summary.spread),
            (50.0, 50.0, 0.0)
        );
    }
}
