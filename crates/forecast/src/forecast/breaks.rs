//! Records that cannot follow those before: clocks that are set, counters that begin anew.

use super::forecaster::{Forecaster, SILENCE_S};
use super::notes::Note;
use super::types::{ForecasterOptions, Observation};
use crate::bands::Bands;
use crate::cold_start::Sibling;
use pathcast_analysis::rtt::RttSource;
use pathcast_analysis::series::SeriesError;

/// Steps back that two processors' clocks, or an adjusted one, make: the record counts as of the time
/// of the last, seconds.
const STEP_BACK_S: f64 = 0.05;

/// What a forecaster does with a record that cannot follow the one before: time or the sequence number
/// goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBreak {
    /// An error; the record is not taken. Right for files, where it says that the file is wrong.
    #[default]
    Refuse,
    /// The flow continues from there, for a service that must not stop. Steps back of up to 50 ms are
    /// smoothed. After others, the flow's state and samples start again, while losses, experts' errors and
    /// the round-trip time are kept. Forecasts then carry [`Note::ClockStep`] or [`Note::CounterReset`].
    Restart,
}

impl Forecaster {
    /// The same, with another way to deal with breaks.
    #[must_use]
    pub fn on_break(mut self, on_break: OnBreak) -> Self {
        self.on_break = on_break;
        self
    }

    /// The record as it is taken.
    pub(super) fn mended(&mut self, record: &Observation) -> Result<Observation, SeriesError> {
        let mut record = *record;
        if let Some(last) = self.last {
            let leap = record.time_s - last.time_s > SILENCE_S;
            let back_s = last.time_s - record.time_s;
            let counter = |o: &Observation| o.snd_nxt_packets.unwrap_or(f64::NAN);
            let counter_back = counter(&record) < counter(&last);
            if self.on_break == OnBreak::Restart {
                if back_s > 0.0 && back_s <= STEP_BACK_S {
                    record.time_s = last.time_s;
                }
                if record.time_s < last.time_s || leap || counter_back {
                    // a record that is wrong by itself restarts nothing
                    self.last = None;
                    let alone = self.check(&record);
                    self.last = Some(last);
                    alone?;
                    self.restart();
                    self.notes.add(if counter_back {
                        Note::CounterReset
                    } else {
                        Note::ClockStep
                    });
                }
            } else if leap {
                self.notes.add(Note::ClockStep);
            }
        }
        self.check(&record)?;
        Ok(record)
    }

    /// Begins anew with the next record, keeping what was learned of the path.
    fn restart(&mut self) {
        let options = ForecasterOptions {
            cc: self.cc,
            rtt_s: (self.rtt_source == RttSource::Given).then_some(self.rtt_s),
            horizons_s: vec![],
        };
        let Ok(fresh) = Self::new(&options) else {
            return; // the options were valid when this forecaster was made
        };
        let old = std::mem::replace(self, fresh);
        self.ablation = old.ablation;
        self.rtt_s = old.rtt_s;
        self.rtt_source = old.rtt_source;
        self.detector.set_rtt_s(old.rtt_s);
        self.rtt_estimates_s = old.rtt_estimates_s;
        self.hazard = old.hazard;
        self.losses = old.losses;
        self.avoidance_losses = old.avoidance_losses;
        self.range = old.range;
        self.sample_range = old.sample_range;
        self.records = old.records;
        self.known_s = old.known_s + old.last.map_or(0.0, |last| last.time_s - old.start_s);
        self.reward = old.reward;
        self.knew_limit = old.knew_limit;
        self.least_srtt_s = old.least_srtt_s;
        self.on_break = old.on_break;
        self.notes = old.notes;
        self.horizons = old.horizons;
        self.siblings = old.siblings;
        // counter or clock begin anew: what this flow is to others is known up to here
        self.as_sibling = old.as_sibling.map(Sibling::ended);
        self.forget_tuning();
        for horizon in &mut self.horizons {
            horizon.pending.clear();
            // errors carry the times of the old clock
            horizon.bands = Bands::new(horizon.horizon_s);
        }
    }
}
