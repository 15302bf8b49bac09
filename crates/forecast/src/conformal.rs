//! Bands of models that have none of their own: conformal prediction from past errors.

use std::collections::VecDeque;

use crate::bands::{ASSUMED_SPREAD, Residuals, VALUE_FLOOR, by_ln, by_unit, or_zero};
use crate::score::interval_score;
use crate::types::{QUANTILES, SAMPLE_S};

/// Seconds after which the interval scores of both kinds of bands count 1/e.
const SCORE_MEMORY_S: f64 = 300.0;
/// Bands in units of the mean are taken if their scores are below this part of those in logarithms.
const CLEARLY: f64 = 0.85;

/// Bands of one horizon, of two kinds: errors in logarithms, in units of the forecast's spread, and errors in units of
/// the mean truth. A band is of the first kind unless the second scored clearly better so far. The first suits rates
/// whose size changes and forecasts whose spread is informative; the second suits rates that stop.
#[derive(Debug, Clone)]
struct Bands {
    in_ln: Residuals,
    in_units: Residuals,
    /// Fading sums of the interval scores of both kinds.
    scores: [f64; 2],
    /// Fading sum of the truths, and of the weights in it.
    truths: (f64, f64),
}

/// What bands need of a forecast once its truth is known.
#[derive(Debug, Clone, Copy)]
struct Banded {
    point: f64,
    /// Of the logarithm.
    spread: f64,
    /// The unit of errors that are not logarithms.
    unit: f64,
    /// 5-95 % of both kinds.
    bands: [[f64; 2]; 2],
}

impl Bands {
    fn new(horizon_s: f64) -> Self {
        Self {
            in_ln: Residuals::cautious(horizon_s),
            in_units: Residuals::cautious(horizon_s),
            scores: [0.0; 2],
            truths: (0.0, 0.0),
        }
    }

    /// Puts both kinds around a forecast, as of the last [`Bands::recut`].
    fn around(&self, point: f64, spread: f64) -> Banded {
        let unit = self.unit(point);
        let band =
            |quantiles: [f64; QUANTILES.len()]| [quantiles[0], quantiles[QUANTILES.len() - 1]];
        Banded {
            point,
            spread,
            unit,
            bands: [
                band((self.in_ln.cut()).map(|cut| or_zero(by_ln(point, spread, cut)))),
                band(self.in_units.cut().map(|cut| by_unit(point, unit, cut))),
            ],
        }
    }

    /// The 5-95 % band of a forecast, of the kind that did better.
    fn band(&self, banded: &Banded) -> [f64; 2] {
        banded.bands[usize::from(self.is_in_units())]
    }

    /// Whether bands in units of the mean truth did better than those in logarithms.
    fn is_in_units(&self) -> bool {
        self.scores[1] < CLEARLY * self.scores[0]
    }

    fn unit(&self, point: f64) -> f64 {
        match self.truths {
            (sum, weight) if sum > 0.0 => ASSUMED_SPREAD * sum / weight,
            _ => ASSUMED_SPREAD * point.max(VALUE_FLOOR),
        }
    }

    /// A forecast's truth is known, `passed_s` after the one before.
    fn learn(&mut self, said: &Banded, truth: f64, now_s: f64, passed_s: f64) {
        let ln = |value: f64| value.max(VALUE_FLOOR).ln();
        (self.in_ln).push(now_s, (ln(truth) - ln(said.point)) / said.spread);
        (self.in_units).push(now_s, (truth - said.point) / said.unit);
        let keep = (-passed_s / SCORE_MEMORY_S).exp();
        for (sum, band) in self.scores.iter_mut().zip(said.bands) {
            *sum = keep * *sum + interval_score(band, truth);
        }
        self.truths = (keep * self.truths.0 + truth, keep * self.truths.1 + 1.0);
    }

    /// Recomputes the quantiles as of `now_s`.
    fn recut(&mut self, now_s: f64) {
        self.in_ln.recut(now_s);
        self.in_units.recut(now_s);
    }
}

/// 5-95 % bands around a model without its own: its recent errors at this horizon (split conformal prediction).
#[derive(Debug, Clone)]
pub(crate) struct Conformal {
    horizon_s: f64,
    pending: VecDeque<(f64, Banded)>,
    bands: Bands,
}

impl Conformal {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            pending: VecDeque::new(),
            bands: Bands::new(horizon_s),
        }
    }

    /// The band around a forecast made now, from what is known now: `truth(from_s, to_s)` may be called for the past.
    /// NaN around NaN.
    pub(crate) fn band(
        &mut self,
        now_s: f64,
        point: f64,
        truth: impl Fn(f64, f64) -> f64,
    ) -> [f64; 2] {
        while let Some((said_s, said)) = self.pending.front().copied()
            && said_s + self.horizon_s <= now_s
        {
            self.pending.pop_front();
            let truth = truth(said_s, said_s + self.horizon_s);
            if !truth.is_nan() {
                self.bands.learn(&said, truth, now_s, SAMPLE_S);
            }
        }
        if !point.is_finite() {
            return [f64::NAN; 2];
        }
        self.bands.recut(now_s);
        let banded = self.bands.around(point, ASSUMED_SPREAD);
        self.pending.push_back((now_s, banded));
        self.bands.band(&banded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::BandScore;

    /// Bands around `said` for what `happens` each second, after the first 200.
    fn judged(happens: impl Fn(u32) -> f64, said: impl Fn(u32) -> f64) -> BandScore {
        let mut conformal = Conformal::new(1.0);
        let second = |time_s: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole and > 0
            let second = time_s.round() as u32;
            second
        };
        let bands = (1..1000_u32).map(|now| {
            let truth = |from_s: f64, _to_s: f64| happens(second(from_s));
            let band = conformal.band(f64::from(now), said(now), truth);
            (now, band)
        });
        let bands: Vec<_> = bands.filter(|(now, _)| *now > 200).collect();
        BandScore::of(bands.into_iter().map(|(now, band)| (band, happens(now)))).unwrap()
    }

    #[test]
    fn bands_hold_what_they_say_for_rates_that_grow_and_for_rates_that_stop() {
        let noise = |i: u32| f64::from((i * 7919 + 13) % 101) / 101.0;
        let grows = |i: u32| 10.0 * (f64::from(i) / 200.0).exp();
        let growing = judged(|i| grows(i) * (0.8 + 0.4 * noise(i)), grows);
        assert!((0.86..0.95).contains(&growing.coverage90), "{growing:?}");
        let stopping = judged(
            |i| if i % 2 == 0 { 0.0 } else { 100.0 * noise(i) },
            |_| 50.0,
        );
        assert!((0.86..=1.0).contains(&stopping.coverage90), "{stopping:?}");
        // the band in logarithms would be e^17 wide
        assert!(stopping.width_pct < 500.0, "{stopping:?}");
    }
}
