//! Steps of the loss rate.
//!
//! The number of packets between loss events is exponential, with a constant rate on each stretch
//! between changes. The current stretch is followed as in Adams and MacKay (Bayesian online
//! changepoint detection, 2007). Each hypothesis "it began at that loss" keeps the gamma posterior
//! of its rate and is weighted by its predictions since then. Only the sixteen likeliest are kept,
//! so a record takes O(1). The absence of losses is evidence too.

use super::{CHANGES_EVERY_S, Change, ChangeKind, SURE};

/// Hypotheses kept.
const HYPOTHESES: usize = 16;
/// The newest of these are always kept, because they had no time to prove themselves.
const NEWEST: usize = 4;
/// Pseudo-losses of a new stretch's prior: its spread covers two powers of ten.
const PRIOR_LOSSES: f64 = 0.5;
/// Prior loss rate.
const PRIOR_RATE: f64 = 1e-3;
/// Smaller changes of the rate are not reported: a factor of 1.5.
const LEAST_STEP: f64 = 0.405;
/// Shorter stretches are bursts of losses, seconds.
const LEAST_AGE_S: f64 = 10.0;
/// Packets are pooled over this time, seconds.
const PIECE_S: f64 = 0.5;
/// Gaps over which the share of short ones is averaged.
const GAPS: f64 = 40.0;
/// A gap is short below this part of the mean gap.
const SHORT: f64 = 0.2;
/// Probability of a short gap between independent losses, 1 - exp(-SHORT), and the slack for
/// chance.
const SHORT_CHANCE: f64 = 0.181;
const SHORT_SLACK: f64 = 0.1;
/// The largest burst size assumed, losses.
const BUNCH_MAX: f64 = 8.0;

/// A stretch of time that began at a loss.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start_s: f64,
    /// Posterior of its loss rate: losses and packets, the prior's included.
    losses: f64,
    packets: f64,
    ln_weight: f64,
    /// The loss rate before it.
    before: f64,
}

#[derive(Debug, Clone)]
pub(super) struct LossSteps {
    stretches: Vec<Stretch>,
    /// Packets not yet used as evidence, and since when they are collected.
    packets: f64,
    since_s: f64,
    /// When the last stretch was started, for the prior of the next.
    begun_s: f64,
    /// Packets since the last loss.
    gap: f64,
    /// Share of short gaps.
    short: f64,
}

impl Default for LossSteps {
    fn default() -> Self {
        Self {
            stretches: Vec::with_capacity(HYPOTHESES + 1),
            packets: 0.0,
            since_s: 0.0,
            begun_s: 0.0,
            gap: 0.0,
            short: SHORT_CHANCE,
        }
    }
}

impl LossSteps {
    pub(super) fn observe(&mut self, time_s: f64, packets: f64, losses: u32) -> Option<Change> {
        if self.stretches.is_empty() {
            self.stretches.push(Stretch {
                start_s: time_s,
                losses: PRIOR_LOSSES,
                packets: PRIOR_LOSSES / PRIOR_RATE,
                ln_weight: 0.0,
                before: PRIOR_RATE,
            });
            (self.since_s, self.begun_s) = (time_s, time_s);
        }
        self.packets += packets;
        self.gap += packets;
        if losses == 0 && time_s - self.since_s < PIECE_S {
            return None;
        }
        self.weigh(losses);
        self.since_s = time_s;
        let found = self.decide(time_s);
        if losses > 0 && found.is_none() {
            self.begin(time_s);
        }
        found
    }

    /// Updates the weights of all stretches by their predictions of the collected packets, which
    /// end in `losses` losses.
    fn weigh(&mut self, losses: u32) {
        let regime = self.stretches[0];
        if losses > 0 {
            let short = self.gap * regime.losses < SHORT * regime.packets * f64::from(losses);
            self.short += (f64::from(u8::from(short)) - self.short) / GAPS;
            self.gap = 0.0;
        }
        // in bursts of mean length m, a short gap follows a short one with probability 1 - 1/m;
        // counts then spread 2 m - 1 times as much as independent losses, so each counts less
        let excess = (self.short - SHORT_CHANCE) / (1.0 - SHORT_CHANCE) - SHORT_SLACK;
        let bunch = 1.0 / (1.0 - excess.max(0.0)).max(1.0 / BUNCH_MAX);
        let worth = 1.0 / (2.0 * bunch - 1.0);
        let (packets, lost) = (worth * self.packets, worth * f64::from(losses));
        self.packets = 0.0;
        let mut top = f64::NEG_INFINITY;
        for stretch in &mut self.stretches {
            // probability of no loss in these packets under the posterior: (b / (b + n))^a; then
            // the rate
            let after = stretch.packets + packets;
            stretch.ln_weight += stretch.losses * (stretch.packets / after).ln();
            if lost > 0.0 {
                stretch.ln_weight += lost * (stretch.losses / after).ln();
            }
            stretch.packets = after;
            stretch.losses += lost;
            top = top.max(stretch.ln_weight);
        }
        for stretch in &mut self.stretches {
            stretch.ln_weight -= top;
        }
    }

    /// Adds the hypothesis that a stretch begins with this loss.
    fn begin(&mut self, time_s: f64) {
        let all: f64 = self.stretches.iter().map(|s| s.ln_weight.exp()).sum();
        let due = ((time_s - self.begun_s) / CHANGES_EVERY_S).clamp(1e-6, 0.5);
        let before = self.stretches[0].losses / self.stretches[0].packets;
        self.begun_s = time_s;
        if self.stretches.len() == HYPOTHESES {
            let old = 1..HYPOTHESES - NEWEST;
            let weakest = old.min_by(|&a, &b| {
                (self.stretches[a].ln_weight).total_cmp(&self.stretches[b].ln_weight)
            });
            self.stretches.remove(weakest.unwrap_or(1));
        }
        self.stretches.push(Stretch {
            start_s: time_s,
            losses: PRIOR_LOSSES,
            packets: PRIOR_LOSSES / before,
            ln_weight: (all * due).ln(),
            before,
        });
    }

    /// Returns a change if the first stretch has ended, given all evidence.
    fn decide(&mut self, now_s: f64) -> Option<Change> {
        let (regime, later) = self.stretches.split_first()?;
        let mass: f64 = later.iter().map(|stretch| stretch.ln_weight.exp()).sum();
        let sure = mass / (mass + regime.ln_weight.exp());
        if sure < SURE {
            return None;
        }
        let likeliest = *later
            .iter()
            .max_by(|a, b| a.ln_weight.total_cmp(&b.ln_weight))?;
        if now_s - likeliest.start_s < LEAST_AGE_S {
            return None;
        }
        let after = likeliest.losses / likeliest.packets;
        let step = (after / likeliest.before).ln().abs();
        self.stretches.clear();
        self.stretches.push(Stretch {
            ln_weight: 0.0,
            ..likeliest
        });
        self.begun_s = now_s;
        (step >= LEAST_STEP).then_some(Change {
            kind: ChangeKind::LossRate,
            at_s: likeliest.start_s,
            detected_s: now_s,
            before: likeliest.before,
            after,
            probability: sure,
        })
    }
}
