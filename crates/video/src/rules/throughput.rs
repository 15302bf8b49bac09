//! Rules that look at the rate.

use pathcast_rates::{Mean, RateForecaster};

use super::Seen;
use crate::ladder::Ladder;

/// The highest bitrate below a rate.
fn below(ladder: &Ladder, rate_bps: f64) -> usize {
    ladder.best(|version| ladder.bitrates_bps()[version] <= rate_bps)
}

/// See [`Rule::LastSample`](super::Rule::LastSample).
#[derive(Clone, Debug, Default)]
pub(crate) struct LastSample {
    rate_bps: f64,
}

impl LastSample {
    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        below(seen.ladder, self.rate_bps)
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        self.rate_bps = bits / seconds;
    }
}

/// The lower of two means: players fear to go up, and are quick to go down.
#[derive(Clone, Debug)]
pub(crate) struct LowerMean {
    means: [Mean; 2],
    samples: usize,
}

impl LowerMean {
    fn new(half_lives_s: [f64; 2]) -> Self {
        Self {
            means: half_lives_s.map(Mean::new),
            samples: 0,
        }
    }

    /// That of hls.js.
    pub(crate) fn hls() -> Self {
        Self::new([3.0, 9.0])
    }

    /// In bits a second; none before the first sample.
    pub(crate) fn get(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.means[0].get().min(self.means[1].get()))
    }

    pub(crate) fn learn(&mut self, seconds: f64, bits: f64) {
        self.samples += 1;
        for mean in &mut self.means {
            mean.push(seconds, bits / seconds);
        }
    }
}

/// See [`Rule::Throughput`](super::Rule::Throughput). Half-lives and factor are those of dash.js 5.
#[derive(Clone, Debug)]
pub(crate) struct Throughput(LowerMean);

/// Part of the rate that dash.js takes for safe.
const SAFE: f64 = 0.9;

impl Default for Throughput {
    fn default() -> Self {
        Self(LowerMean::new([3.0, 8.0]))
    }
}

impl Throughput {
    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        below(seen.ladder, SAFE * self.0.get().unwrap_or(0.0))
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        self.0.learn(seconds, bits);
    }
}

/// See [`Rule::Hls`](super::Rule::Hls). The lower of two means, of which a part is taken: more to stay than to go up. The
/// segment must arrive before the buffer is empty; if none does, in 4 s more. Constants are those of hls.js 1.
#[derive(Clone, Debug)]
pub(crate) struct Hls(LowerMean);

const STAY: f64 = 0.95;
const GO_UP: f64 = 0.7;
const MOST_STARVATION_S: f64 = 4.0;

impl Default for Hls {
    fn default() -> Self {
        Self(LowerMean::hls())
    }
}

impl Hls {
    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        let Some(rate_bps) = self.0.get() else {
            return 0;
        };
        let fits = |version: usize, within_s: f64| {
            let goes_up = seen.last.is_none_or(|last| version > last);
            let rate_bps = rate_bps * if goes_up { GO_UP } else { STAY };
            let took_s = seen.ladder.bits(version, seen.segment) / rate_bps;
            seen.ladder.bitrates_bps()[version] <= rate_bps && took_s < within_s
        };
        let versions = 0..seen.ladder.bitrates_bps().len();
        let best = |within_s: f64| (versions.clone().rev()).find(|one| fits(*one, within_s));
        let waits_s = MOST_STARVATION_S.min(seen.ladder.segment_s());
        best(seen.buffer_s)
            .or_else(|| best(seen.buffer_s + waits_s))
            .unwrap_or(0)
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        self.0.learn(seconds, bits);
    }
}

/// See [`Rule::Confident`](super::Rule::Confident).
#[derive(Clone, Debug)]
pub(crate) struct Confident {
    level: f64,
    rates: RateForecaster,
}

impl Confident {
    pub(super) fn new(level: f64, ladder: &Ladder) -> Self {
        Self {
            level,
            rates: forecaster(ladder),
        }
    }

    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        let Some(rate) = self.rates.forecast() else {
            return 0;
        };
        let bits = seen.ladder.segment_s() * rate.quantile_bps(1.0 - self.level);
        (seen.ladder).best(|version| seen.ladder.bits(version, seen.segment) <= bits)
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        observe(&mut self.rates, seconds, bits);
    }
}

/// Forecasts over the duration of a segment.
pub(super) fn forecaster(ladder: &Ladder) -> RateForecaster {
    RateForecaster::new(ladder.segment_s()).expect("segments last more than 0 and at most an hour")
}

/// A download as a sample. One that took no time says nothing.
pub(super) fn observe(rates: &mut RateForecaster, seconds: f64, bits: f64) {
    let _ = rates.observe(seconds, bits);
}
