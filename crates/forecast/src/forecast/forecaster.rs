//! The forecaster: takes records, learns each second, forecasts when asked.

use std::collections::VecDeque;
use std::sync::Arc;

use super::analogs::Analogs;
use super::breaks::OnBreak;
use super::bursts::Bursts;
use super::cycle::Cycle;
use super::horizon::Horizon;
use super::notes::Notes;
use super::types::{Ablation, ForecasterOptions, Observation};
use crate::baselines::{Ewma, EwmaTuned, HoltWinters};
use crate::cold_start::{Sibling, Siblings};
use crate::experts::Expert;
use crate::renewal::Reward;
use crate::types::{ForecastError, Quantity, SAMPLE_S};
use pathcast_analysis::change::ChangeDetector;
use pathcast_analysis::counter::Steps;
use pathcast_analysis::epochs::{EpochDetector, FlowState};
use pathcast_analysis::hazard::Hazard;
use pathcast_analysis::rtt::{ASSUMED_RTT_S, RttSource};
use pathcast_analysis::series::{Integral, Interleaving};
use pathcast_window_law::Cc;

/// Seconds between refits (paper, section 5.1); each second while the flow is younger than this.
pub(super) const REFIT_S: f64 = 10.0;
/// Seconds without a record after which history is dropped.
pub(super) const SILENCE_S: f64 = 3600.0;

/// Forecasts one flow, record by record. Holds no clock: time comes with the records.
///
/// Memory is bounded: some hundred seconds of records and of forecasts.
///
/// ```
/// use pathcast_forecast::{Forecaster, ForecasterOptions, Observation};
/// use pathcast_window_law::Cc;
/// let mut forecaster = Forecaster::new(&ForecasterOptions {
///     cc: Cc::Reno,
///     rtt_s: Some(0.1),
///     horizons_s: vec![1.0, 5.0],
/// })?;
/// for i in 0..300 {
///     forecaster.observe(&Observation {
///         time_s: f64::from(i) * 0.1,
///         cwnd_packets: f64::from(100 + i),
///         snd_nxt_packets: None,
///         srtt_s: None,
///     })?;
/// }
/// let forecast = forecaster.forecast(29.9, 5.0)?;
/// assert!((forecast.point - 424.5).abs() < 1.0); // 399 now, one packet more each 0.1 s
/// # Ok::<(), pathcast_forecast::ForecastError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Forecaster {
    pub(super) cc: Cc,
    pub(super) ablation: Ablation,
    pub(super) rtt_s: f64,
    pub(super) rtt_source: RttSource,
    pub(super) detector: EpochDetector,
    pub(super) hazard: Hazard,
    pub(super) changes_of_path: ChangeDetector,
    /// With the newest sequence number and round-trip time that are known.
    pub(super) last: Option<Observation>,
    /// The shortest round-trip time that records carried since the path last changed, seconds.
    pub(super) least_srtt_s: f64,
    /// When the round-trip time was last known, seconds.
    pub(super) srtt_at_s: f64,
    pub(super) last_level: f64,
    pub(super) records: usize,
    pub(super) quantity: Quantity,
    /// Of the window, and of the quantity forecast when that is a rate.
    pub(super) cwnd: Integral,
    pub(super) snd_nxt: Steps,
    /// Recent changes of the window, to estimate the round-trip time from.
    pub(super) changes: VecDeque<(f64, f64)>,
    pub(super) rtt_estimates_s: VecDeque<f64>,
    /// Losses in the hazard that may still be withdrawn: time, window, age of the epoch.
    pub(super) counted: VecDeque<(f64, f64, f64)>,
    pub(super) losses: u32,
    /// Of these, those that ended no slow start.
    pub(super) avoidance_losses: u32,
    pub(super) on_break: OnBreak,
    pub(super) notes: Notes,
    pub(super) interleaving: Interleaving,
    pub(super) range: (f64, f64),
    pub(super) start_s: f64,
    /// Seconds that were known before `start_s`.
    pub(super) known_s: f64,
    pub(super) ticks: u32,
    pub(super) samples: VecDeque<f64>,
    /// Of each sample's second: the mean window, and by how much it grew.
    pub(super) sample_windows: VecDeque<(f64, f64)>,
    /// The window at the end of the last second.
    pub(super) window_at_tick: f64,
    /// Of the samples since the path last changed, and how many they are.
    pub(super) sum_of_all: (f64, u32),
    /// Until this second everything is fitted anew each second.
    pub(super) refit_until: u32,
    /// Least and greatest sample so far.
    pub(super) sample_range: (f64, f64),
    pub(super) ewma: Ewma,
    pub(super) ewma_tuned: EwmaTuned,
    pub(super) holt_winters: HoltWinters,
    pub(super) reward: Reward,
    /// Whether the link's rate was ever known.
    pub(super) knew_limit: bool,
    pub(super) ceiling_packets: f64,
    /// Of flows without a window law.
    pub(super) cycle: Cycle,
    pub(super) analogs: Analogs,
    pub(super) bursts: Bursts,
    pub(super) horizons: Vec<Horizon>,
    pub(super) siblings: Option<Arc<Siblings>>,
    /// What this flow is to later ones; none without sequence numbers.
    pub(super) as_sibling: Option<Sibling>,
}

impl Forecaster {
    /// A forecaster that has seen nothing yet.
    ///
    /// # Errors
    /// [`ForecastError::BadHorizon`] and [`ForecastError::BadRtt`] for times that are not positive.
    pub fn new(options: &ForecasterOptions) -> Result<Self, ForecastError> {
        let bad = |time: f64| !(time.is_finite() && time > 0.0);
        if let Some(&got) = options.horizons_s.iter().find(|&&horizon| bad(horizon)) {
            return Err(ForecastError::BadHorizon { got });
        }
        if let Some(got) = options.rtt_s.filter(|&rtt| bad(rtt)) {
            return Err(ForecastError::BadRtt { got });
        }
        // ascending: each learns from the one before
        let mut horizons_s = options.horizons_s.clone();
        horizons_s.sort_by(f64::total_cmp);
        let rtt_s = options.rtt_s.unwrap_or(ASSUMED_RTT_S);
        let rtt_source = if options.rtt_s.is_some() {
            RttSource::Given
        } else {
            RttSource::Assumed
        };
        Ok(Self {
            cc: options.cc,
            ablation: Ablation::None,
            rtt_s,
            rtt_source,
            detector: EpochDetector::new(options.cc, rtt_s),
            hazard: Hazard::default(),
            changes_of_path: ChangeDetector::default(),
            last: None,
            least_srtt_s: f64::INFINITY,
            srtt_at_s: f64::NEG_INFINITY,
            last_level: 0.0,
            records: 0,
            quantity: Quantity::MeanCwndPackets,
            cwnd: Integral::default(),
            snd_nxt: Steps::default(),
            changes: VecDeque::new(),
            rtt_estimates_s: VecDeque::new(),
            counted: VecDeque::new(),
            losses: 0,
            avoidance_losses: 0,
            on_break: OnBreak::default(),
            notes: Notes::default(),
            interleaving: Interleaving::default(),
            range: (f64::INFINITY, 0.0),
            start_s: 0.0,
            known_s: 0.0,
            ticks: 0,
            samples: VecDeque::new(),
            sample_windows: VecDeque::new(),
            window_at_tick: f64::NAN,
            sum_of_all: (0.0, 0),
            refit_until: (REFIT_S / SAMPLE_S) as u32,
            sample_range: (f64::INFINITY, 0.0),
            ewma: Ewma::default(),
            ewma_tuned: EwmaTuned::new(&options.horizons_s, SAMPLE_S),
            holt_winters: HoltWinters::default(),
            reward: Reward {
                per_packet: 1.0,
                limit: f64::INFINITY,
                queues: true,
            },
            knew_limit: false,
            ceiling_packets: f64::INFINITY,
            cycle: Cycle::default(),
            analogs: Analogs::default(),
            bursts: Bursts::default(),
            horizons: horizons_s
                .iter()
                .map(|&horizon_s| Horizon::new(horizon_s, options.cc.has_law()))
                .collect(),
            siblings: None,
            as_sibling: None,
        })
    }

    /// The round-trip time used now, seconds.
    pub fn rtt_s(&self) -> f64 {
        self.rtt_s
    }

    /// The losses learned so far.
    pub fn hazard(&self) -> &Hazard {
        &self.hazard
    }

    /// Loss events seen so far.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// What a window is worth on this path.
    pub fn reward(&self) -> Reward {
        self.reward
    }

    /// The flow's state at `now_s`, at or after the last record.
    pub fn state(&self, now_s: f64) -> FlowState {
        self.detector.state(now_s)
    }

    /// The largest window seen, packets.
    pub fn largest_window_packets(&self) -> f64 {
        self.range.1
    }

    /// The largest mean of a second so far, in the unit of [`Forecaster::quantity`]; `None` before the first.
    pub fn largest_sample(&self) -> Option<f64> {
        Some(self.sample_range.1).filter(|&largest| largest > 0.0)
    }

    /// Whether anything was observed yet.
    pub fn has_records(&self) -> bool {
        self.last.is_some()
    }

    /// What is forecast: a rate once records carry sequence numbers, else the mean window.
    pub fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// Takes what earlier flows of the same path did, for the first seconds of this one; before the first record.
    pub fn take_siblings(&mut self, siblings: Siblings) {
        self.siblings = (!siblings.is_empty()).then(|| Arc::new(siblings));
    }

    /// What this flow has sent so far, for flows of the same path that begin later; `None` without sequence numbers.
    pub fn as_sibling(&self) -> Option<&Sibling> {
        self.as_sibling.as_ref()
    }

    /// Leaves a part out; before the first record.
    #[must_use]
    pub fn without(mut self, ablation: Ablation) -> Self {
        self.ablation = ablation;
        if ablation == Ablation::Curve {
            self.hazard = Hazard::flat();
        }
        for horizon in &mut self.horizons {
            if ablation.has_no_window() {
                horizon.pool.without(&Expert::OF_WINDOW);
            }
            if ablation.has_no_analogs() {
                horizon.pool.without(&Expert::OF_ANALOGS);
            }
        }
        self
    }

    /// Forecasts this quantity from the first record on, whether or not that record has a sequence number.
    /// For a flow whose records are known to have numbers, or to have none.
    #[must_use]
    pub fn of_quantity(mut self, quantity: Quantity) -> Self {
        self.quantity = quantity;
        self
    }
}
