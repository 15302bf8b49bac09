//! Several forecasts of the same thing, weighed by how well each did on this path.
//!
//! They are pooled by a weighted median, in logarithms. A mean would do about as well where all are
//! near; but where the path has changed or the window stands still, some are far off, and a mean
//! follows them as long as they have any weight, a median only if most of the weight is theirs. So
//! every model that Pathcast is judged against is in the pool, and what it costs to carry them is
//! small.

use serde::Serialize;

/// Seconds after which an expert's error counts 1/e.
const ERROR_MEMORY_S: f64 = 500.0;
/// Weight of an expert: (geometric mean of its errors)^-10 at horizon 0; the power is divided by 1 + H/20, for long
/// horizons overlap.
const SHARPNESS: (f64, f64) = (10.0, 20.0);
/// What the power is multiplied by where it is asked how far the experts disagree.
const DOUBT: f64 = 0.4;
/// Smaller errors count as this: one packet in three thousand.
const ERROR_FLOOR: f64 = 3e-4;
/// How many errors the prior counts as at horizon 0, and in addition per second of horizon:
/// forecasts made each second overlap, so each long one carries less information.
const PRIOR_WEIGHT: (f64, f64) = (5.0, 1.0);
/// Seconds after which a part of the state's bias counts 1/e, plus three horizons.
const BIAS_MEMORY_S: f64 = 300.0;
/// How many forecasts without bias are assumed at horizon 0; times 1 + H/5.
const BIAS_PRIOR_WEIGHT: f64 = 4.0;
/// No single forecast counts as further off: a factor of two.
const BIAS_MAX: f64 = 0.7;
/// The spread assumed at first: part of the value, times horizon (in s) to a power.
const SPREAD_PRIOR: (f64, f64) = (0.1, 0.25);
/// A shorter horizon's errors differ from those assumed there. This part of the difference, in logarithms, is expected at
/// the longer horizon: a second without change says less of thirty.
const SPREAD_INHERITED: f64 = 0.5;
/// With a window law this part of the experts' known errors, in logarithms, is expected at the next longer horizon, and
/// nothing of the spread: seconds without a loss do not say when the next comes.
const INHERITED_WITH_LAW: f64 = 0.5;
/// The pooled value is the mean of the middle of the weight: this much to either side of the median.
const MIDDLE: f64 = 0.15;

/// One model whose forecasts are pooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expert {
    /// Median of the renewal recursion from the flow's state.
    State,
    /// The same, less what it was lately off by on average.
    Unbiased,
    /// The middle of the narrowest range that the renewal recursion expects much of: what happens if the
    /// likely happens.
    Likely,
    /// State, last sample and means, with the weights that a regression found.
    Regression,
    /// The newest sample.
    LastSample,
    /// Exponentially weighted samples.
    Ewma,
    /// The weight, of nine, that had the least error so far at this horizon.
    EwmaTuned,
    /// Level plus trend.
    HoltWinters,
    /// Harmonic mean of five samples.
    HarmonicMean,
    /// Mean of 30 samples.
    ShortMean,
    /// Mean of the training window.
    WindowMean,
    /// Mean of all samples.
    MeanOfAll,
    /// The rate of the last round trip, of 0.1 s at least; the newest sample where windows are forecast.
    RateNow,
    /// What the window is worth now. The paper's model amounts to it: its loss curve, made from a
    /// few losses, says that the next one is near.
    Now,
    /// The usual rate less what the next dips of the window cost, if these come at a regular interval: of flows
    /// without a window law.
    Cycle,
    /// Median of what followed the three moments of this flow's past that were most like now.
    Analog,
    /// Of the seven most like it.
    Analogs,
    /// The same by growth: what followed over the rate there, times the rate now.
    AnalogGrowth,
    /// What followed when earlier bursts or pauses of the sender were as old as this one.
    Bursts,
}

/// The experts, in the order of all lists of theirs.
pub const EXPERTS: [Expert; 19] = [
    Expert::State,
    Expert::Unbiased,
    Expert::Likely,
    Expert::Regression,
    Expert::LastSample,
    Expert::Ewma,
    Expert::EwmaTuned,
    Expert::HoltWinters,
    Expert::HarmonicMean,
    Expert::ShortMean,
    Expert::WindowMean,
    Expert::MeanOfAll,
    Expert::RateNow,
    Expert::Now,
    Expert::Cycle,
    Expert::Analog,
    Expert::Analogs,
    Expert::AnalogGrowth,
    Expert::Bursts,
];

/// One value for each expert.
pub(crate) type ByExpert = [f64; EXPERTS.len()];

impl Expert {
    /// Those that look at the window.
    pub(crate) const OF_WINDOW: [Self; 5] = [
        Self::State,
        Self::Unbiased,
        Self::Likely,
        Self::Now,
        Self::Cycle,
    ];

    /// Those that compare the present with this flow's past.
    pub(crate) const OF_ANALOGS: [Self; 4] = [
        Self::Analog,
        Self::Analogs,
        Self::AnalogGrowth,
        Self::Bursts,
    ];

    /// Those that the window law says something to.
    pub(crate) const OF_STATE: [Self; 4] =
        [Self::State, Self::Unbiased, Self::Likely, Self::Regression];

    /// Those that say the same as [`Expert::State`] where no window law is known.
    const OF_LAW: [Self; 2] = [Self::Likely, Self::Now];

    /// The relative error assumed before any is known: rounded from real and synthetic flows. Those
    /// of few samples grow with the horizon, means hardly do.
    fn error_prior(self, horizon_s: f64) -> f64 {
        match self {
            Self::State | Self::Likely => 0.03 * horizon_s.sqrt(),
            Self::Unbiased | Self::Regression => 0.035 * horizon_s.sqrt(),
            Self::Now | Self::RateNow | Self::LastSample | Self::Ewma | Self::HoltWinters => {
                0.05 * horizon_s.sqrt()
            }
            Self::Analog | Self::Analogs | Self::AnalogGrowth | Self::Bursts => {
                0.06 * horizon_s.sqrt()
            }
            Self::HarmonicMean | Self::EwmaTuned | Self::Cycle => 0.08 * horizon_s.powf(0.4),
            Self::ShortMean => 0.25,
            Self::WindowMean => 0.3,
            Self::MeanOfAll => 0.33,
        }
    }
}

/// What is known about the experts at one horizon: fading sums of ln error, and of the weights in them.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    horizon_s: f64,
    error: ByExpert,
    weight: f64,
    /// ln error assumed of each, and how many errors that counts as.
    prior: ByExpert,
    prior_weight: f64,
    /// Whether each may have weight.
    used: [bool; EXPERTS.len()],
    pooled_error: f64,
    pooled_prior: f64,
    /// Fading sum of what the state was off by, and of the weights in it.
    bias: (f64, f64),
    bias_memory_s: f64,
}

impl Pool {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            error: [0.0; EXPERTS.len()],
            weight: 0.0,
            prior: assumed(horizon_s),
            prior_weight: PRIOR_WEIGHT.0 + PRIOR_WEIGHT.1 * horizon_s,
            used: [true; EXPERTS.len()],
            pooled_error: 0.0,
            pooled_prior: assumed_spread(horizon_s),
            bias: (0.0, BIAS_PRIOR_WEIGHT * (1.0 + horizon_s / 5.0)),
            bias_memory_s: BIAS_MEMORY_S + 3.0 * horizon_s,
        }
    }

    /// Leaves out the experts that say nothing of their own about a flow with a window law, or without.
    pub(crate) fn suit(&mut self, has_law: bool) {
        self.used[Expert::Cycle as usize] = !has_law;
        for expert in Expert::OF_LAW {
            self.used[expert as usize] = has_law;
        }
    }

    /// Expects errors as they were at a shorter horizon, where truths are known earlier, in proportion to those assumed.
    /// So a flow that has been regular for some seconds is expected to be so for thirty.
    pub(crate) fn expect_as(&mut self, shorter: &Self, has_law: bool) {
        let (here, there) = (assumed(self.horizon_s), assumed(shorter.horizon_s));
        let known = shorter.ln_errors();
        let part = if has_law { INHERITED_WITH_LAW } else { 1.0 };
        self.prior = std::array::from_fn(|e| here[e] + part * (known[e] - there[e]));
        if has_law {
            return;
        }
        let surprise = shorter.usual_error().ln() - assumed_spread(shorter.horizon_s);
        self.pooled_prior = assumed_spread(self.horizon_s) + SPREAD_INHERITED * surprise;
    }

    /// Takes all weight from some experts.
    pub(crate) fn without(&mut self, experts: &[Expert]) {
        for &expert in experts {
            self.used[expert as usize] = false;
        }
    }

    /// Forgets what some experts were off by: they know something now that they did not. What is past counts as if they had
    /// been off as the pool was, and by no less than is assumed of them.
    pub(crate) fn renew(&mut self, experts: &[Expert]) {
        let fresh = Self::new(self.horizon_s);
        for expert in experts.iter().map(|&expert| expert as usize) {
            self.prior[expert] = fresh.prior[expert];
            self.error[expert] = self.pooled_error.max(self.weight * fresh.prior[expert]);
        }
        self.bias = fresh.bias;
    }

    /// A forecast's truth is known, `passed_s` after the one before; all values in logarithms. An expert without a value (NaN)
    /// counts as being off as the pool is, and by no less than is assumed of it.
    pub(crate) fn learn(
        &mut self,
        ln_value: &ByExpert,
        ln_point: f64,
        ln_truth: f64,
        passed_s: f64,
    ) {
        let keep = (-passed_s / ERROR_MEMORY_S).exp();
        let ln_error = |ln_value: f64| ((ln_truth - ln_value).abs() + ERROR_FLOOR).ln();
        let pooled = ln_error(ln_point);
        for ((error, prior), ln_value) in self.error.iter_mut().zip(self.prior).zip(ln_value) {
            let off = if ln_value.is_nan() {
                pooled.max(prior)
            } else {
                ln_error(*ln_value)
            };
            *error = keep * *error + off;
        }
        self.pooled_error = keep * self.pooled_error + pooled;
        self.weight = keep * self.weight + 1.0;
        self.prior_weight *= keep;
        let keep = (-passed_s / self.bias_memory_s).exp();
        if !ln_value[0].is_nan() {
            let off = (ln_truth - ln_value[0]).clamp(-BIAS_MAX, BIAS_MAX);
            self.bias = (keep * self.bias.0 + off, keep * self.bias.1 + 1.0);
        }
    }

    /// The path changed: what was known of the experts counts less.
    pub(crate) fn forget(&mut self, keep: f64) {
        self.error = self.error.map(|sum| keep * sum);
        self.pooled_error *= keep;
        self.weight *= keep;
        self.prior_weight *= keep;
        self.bias.0 *= keep;
    }

    /// What ln of the truth lately was above ln of the state's forecast, on average.
    pub(crate) fn bias(&self) -> f64 {
        self.bias.0 / self.bias.1
    }

    /// Weights from errors, assumed and known; what was assumed fades as errors do.
    pub(crate) fn weights(&self) -> ByExpert {
        self.weights_of(&[], 1.0)
    }

    /// The same among the others than these.
    pub(crate) fn weights_without(&self, left_out: &[Expert]) -> ByExpert {
        self.weights_of(left_out, 1.0)
    }

    /// The same, but more even: how far experts disagree that did nearly as well is what nobody knows.
    pub(crate) fn doubtful_weights(&self) -> ByExpert {
        self.weights_of(&[], DOUBT)
    }

    fn weights_of(&self, left_out: &[Expert], part: f64) -> ByExpert {
        let mut allowed = self.used;
        for &expert in left_out {
            allowed[expert as usize] = false;
        }
        let ln_error = self.ln_errors();
        let used = || ln_error.into_iter().zip(allowed).filter(|(_, used)| *used);
        let best = used().map(|(error, _)| error).fold(f64::INFINITY, f64::min);
        let sharpness = part * SHARPNESS.0 / (1.0 + self.horizon_s / SHARPNESS.1);
        let weights: ByExpert = std::array::from_fn(|e| {
            if allowed[e] {
                (sharpness * (best - ln_error[e])).exp()
            } else {
                0.0
            }
        });
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }

    /// Mean ln error of each expert, assumed and known.
    fn ln_errors(&self) -> ByExpert {
        let total = self.weight + self.prior_weight;
        std::array::from_fn(|e| (self.error[e] + self.prior_weight * self.prior[e]) / total)
    }

    /// Geometric mean of the pooled forecast's errors.
    pub(crate) fn usual_error(&self) -> f64 {
        let sum = self.pooled_error + self.prior_weight * self.pooled_prior;
        (sum / (self.weight + self.prior_weight)).exp()
    }
}

/// ln of the error assumed of each expert.
fn assumed(horizon_s: f64) -> ByExpert {
    EXPERTS.map(|expert| (expert.error_prior(horizon_s) + ERROR_FLOOR).ln())
}

/// ln of the pooled forecast's error assumed at first.
fn assumed_spread(horizon_s: f64) -> f64 {
    (SPREAD_PRIOR.0 * horizon_s.max(1.0).powf(SPREAD_PRIOR.1)).ln()
}

/// Weighted median, smoothed: the mean of what lies in the middle of the weight. Weights sum to 1.
pub(crate) fn middle(value: &ByExpert, weights: &ByExpert) -> f64 {
    let mut order: [usize; EXPERTS.len()] = std::array::from_fn(|e| e);
    order.sort_by(|&a, &b| value[a].total_cmp(&value[b]));
    let (low, high) = (0.5 - MIDDLE, 0.5 + MIDDLE);
    let (mut below, mut sum, mut total) = (0.0_f64, 0.0, 0.0);
    for e in order {
        let upto = below + weights[e];
        let inside = (upto.min(high) - below.max(low)).max(0.0);
        sum += inside * value[e];
        total += inside;
        below = upto;
    }
    sum / total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_follows_the_majority_and_not_the_one_far_off() {
        let mut value = [1.0; EXPERTS.len()];
        value[3] = 1000.0;
        let weights = [1.0 / EXPERTS.len() as f64; EXPERTS.len()];
        assert_eq!(middle(&value, &weights), 1.0);
        let mut weights = [0.1 / (EXPERTS.len() - 1) as f64; EXPERTS.len()];
        weights[3] = 0.9;
        assert_eq!(middle(&value, &weights), 1000.0);
    }

    #[test]
    fn whoever_is_right_takes_over() {
        let mut pool = Pool::new(5.0);
        let mut ln_value = [0.3; EXPERTS.len()];
        ln_value[7] = 0.01;
        for _ in 0..50 {
            pool.learn(&ln_value, 0.1, 0.0, 1.0);
        }
        let weights = pool.weights();
        assert!(weights[7] > 0.9, "{weights:?}");
        assert!((middle(&ln_value, &weights) - 0.01).abs() < 1e-9);
        assert!((pool.usual_error() / 0.1 - 1.0).abs() < 0.1);
    }

    #[test]
    fn who_knows_more_than_before_is_judged_anew() {
        let mut pool = Pool::new(1.0);
        let mut ln_value = [0.01; EXPERTS.len()];
        ln_value[Expert::State as usize] = 0.5;
        for _ in 0..100 {
            pool.learn(&ln_value, 0.01, 0.0, 1.0);
        }
        let is_believed = |pool: &Pool| pool.weights()[Expert::State as usize];
        assert!(is_believed(&pool) < 1e-9);
        pool.renew(&[Expert::State]);
        assert_eq!(pool.bias(), 0.0);
        let assumed = is_believed(&pool);
        // what it said before counts as what the pool was off by, or as what is assumed
        ln_value[Expert::State as usize] = f64::NAN;
        for _ in 0..20 {
            pool.learn(&ln_value, 0.01, 0.0, 1.0);
        }
        assert!(is_believed(&pool) > 0.1 * assumed);
        ln_value[Expert::State as usize] = 1e-4;
        for _ in 0..100 {
            pool.learn(&ln_value, 1e-4, 0.0, 1.0);
        }
        assert!(is_believed(&pool) > 0.99, "{}", is_believed(&pool));
    }

    #[test]
    fn who_is_right_at_a_short_horizon_is_believed_at_a_long_one() {
        let (mut short, mut long) = (Pool::new(1.0), Pool::new(30.0));
        let mut ln_value = [0.3; EXPERTS.len()];
        ln_value[Expert::ShortMean as usize] = 0.001;
        for _ in 0..10 {
            short.learn(&ln_value, 0.001, 0.0, 1.0);
        }
        let is_believed = |pool: &Pool| pool.weights()[Expert::ShortMean as usize];
        assert!(is_believed(&long) < 0.1);
        let before = long.usual_error();
        long.expect_as(&short, false);
        assert!(is_believed(&long) > 0.9, "{:?}", long.weights());
        assert!(long.usual_error() < 0.5 * before);
        let surprise = short.usual_error().ln() - assumed_spread(1.0);
        assert!(surprise < 0.2_f64.ln());
        let inherited = (long.usual_error() / before).ln();
        assert!((inherited / surprise - SPREAD_INHERITED).abs() < 1e-12);
        // what is known at the long horizon outweighs it
        ln_value.swap(Expert::ShortMean as usize, Expert::MeanOfAll as usize);
        for _ in 0..200 {
            long.learn(&ln_value, 0.001, 0.0, 1.0);
            long.expect_as(&short, false);
        }
        assert!(is_believed(&long) < 0.1, "{:?}", long.weights());
    }

    #[test]
    fn without_a_window_law_what_the_window_is_worth_has_one_vote() {
        let mut pool = Pool::new(1.0);
        pool.suit(false);
        let weights = pool.weights();
        assert_eq!(
            [
                weights[Expert::Likely as usize],
                weights[Expert::Now as usize]
            ],
            [0.0; 2]
        );
        assert!(weights[Expert::Cycle as usize] > 0.0);
        pool.suit(true);
        assert_eq!(pool.weights()[Expert::Cycle as usize], 0.0);
    }
}
