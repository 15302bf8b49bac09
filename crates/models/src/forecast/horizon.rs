//! What is learned for one horizon.

use std::collections::VecDeque;

use super::forecaster::{SAMPLE_S, VALUE_FLOOR};
use crate::bands::Residuals;
use crate::experts::{ByExpert, Pool};
use crate::renewal::{Piece, Renewal};

/// All that is learned for one horizon.
#[derive(Debug, Clone)]
pub(super) struct Horizon {
    pub(super) horizon_s: f64,
    pub(super) table: Option<Renewal>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) resolved: u32,
    pub(super) pool: Pool,
    pub(super) residuals: Residuals,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) time_s: f64,
    pub(super) ln_value: ByExpert,
    pub(super) ln_point: f64,
    pub(super) spread: f64,
}

impl Horizon {
    pub(super) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            table: None,
            pending: VecDeque::new(),
            resolved: 0,
            pool: Pool::new(horizon_s),
            residuals: Residuals::new(horizon_s),
        }
    }

    pub(super) fn learn(&mut self, forecast: &Pending, ln_truth: f64, now_s: f64) {
        (self.pool).learn(&forecast.ln_value, forecast.ln_point, ln_truth, SAMPLE_S);
        let residual = (ln_truth - forecast.ln_point) / forecast.spread;
        self.residuals.push(now_s, residual);
        self.resolved += 1;
    }
}

/// Median, and standard deviation in ln, of a mixture. Each piece stands as three points that have
/// its mean and variance (Gauss-Hermite).
pub(super) fn median_and_spread(pieces: &[Piece]) -> (f64, f64) {
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
    // a normal law has 3.29 standard deviations between its 5 % and 95 % quantiles
    (at(0.5), (at(0.95) / at(0.05)).ln() / 3.29)
}
