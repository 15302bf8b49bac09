//! Which paths and which ends of slow start explain what was seen, and how well.

use super::flow::{Exit, Flow, Link};
use super::timeline::Timeline;

/// Windows at which slow start may have ended, evenly spaced in logarithms.
const EXITS: usize = 28;
/// Windows at which the receiver may hold the flow.
const HELD: usize = 8;
/// Rates tried for each.
const RATES: usize = 18;
/// Steps in which the best rate is then narrowed down (golden section).
const NARROWING: usize = 9;
/// Rates of access links before anything is seen: median 13 Mbit/s (LTE downlinks,
/// Huang et al., MobiSys 2012) in packets of 1448 bytes, packets/s.
pub(super) const USUAL_RATE: f64 = 1120.0;
/// Spread of its logarithm.
const USUAL_RATE_SPREAD: f64 = 1.5;
/// The largest rate that is thought of, times the mean seen.
const RATES_ABOVE: f64 = 200.0;
/// Degrees of freedom of the residuals (Student): single ones may be far off.
const DEGREES: f64 = 3.0;
/// The least number of milestones before the first loss that shows whether the path's rate varies.
const ENOUGH: usize = 4;
/// Residuals of milestones are correlated: one of this many is independent.
const OF_SO_MANY: f64 = 3.0;

/// What is thought before anything is seen of how slow start ends.
mod prior {
    /// HyStart, undisturbed.
    pub const HYSTART: f64 = 0.5;
    /// At some other window, by jitter mostly.
    pub const EARLY: f64 = 0.4;
    /// Not before a loss: no HyStart.
    pub const NEVER: f64 = 0.07;
    /// The receiver, unasked, holds the window at some size.
    pub const HELD: f64 = 0.03;
}

/// What was seen of a transfer.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub timeline: Timeline,
    pub rtt_s: f64,
    pub initial_window: f64,
    /// Packets; infinite if the receiver sets no limit.
    pub window_limit: f64,
    /// Numbers of the packets that were lost, rising.
    pub losses: Vec<f64>,
    /// Whether they were found in the timeline, so that they may be none.
    pub losses_are_guessed: bool,
}

/// One explanation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scenario {
    pub link: Link,
    /// The flow at the beginning of the round in which what was seen ends.
    pub flow: Flow,
    /// Share of all explanations.
    pub weight: f64,
    /// Packets lost in what was seen.
    pub losses: f64,
    /// Root mean square of what arrivals before the first loss are off by, over the whole time.
    pub misfit: f64,
}

/// How well one rate explains what was seen.
struct Fitted {
    log_likelihood: f64,
    flow: Flow,
    misfit: f64,
}

/// Within the first three rounds, (1 + 2 + 4) W0, jitter may look like a loss,
const EARLY_ROUNDS: f64 = 7.0;
/// in this share of cases.
const NO_LOSS: f64 = 0.1;
/// Logarithm of the weight below the best's at which an explanation is given up.
const HOPELESS: f64 = 25.0;

struct Explainer<'a> {
    seen: &'a Seen,
    milestones: &'a [(f64, f64)],
    /// Of a round on the empty path, jitter included, seconds.
    rtt_s: f64,
    losses: &'a [f64],
    prior: f64,
    most_rate: f64,
}

/// All explanations that carry weight, the likeliest first; weights sum to 1.
pub(super) fn explain(seen: &Seen) -> Vec<Scenario> {
    let (end_s, packets) = seen.timeline.end();
    let mean = packets / end_s;
    let mut most_rate = RATES_ABOVE * mean;
    if seen.timeline.is_detailed {
        most_rate = most_rate.min(1.5 * seen.timeline.peak_rate());
    }
    let milestones = seen.timeline.milestones();
    // rounds last longer than probes where there is jitter; a still stream may have other reasons than loss
    let mut rtts = vec![seen.rtt_s];
    rtts.extend(seen.timeline.round_s(seen.initial_window, seen.rtt_s));
    let mut losses: Vec<(&[f64], f64)> = vec![(&seen.losses, 1.0)];
    let early = seen
        .losses
        .partition_point(|&packet| packet < EARLY_ROUNDS * seen.initial_window);
    if seen.losses_are_guessed && early > 0 {
        losses[0].1 = 1.0 - NO_LOSS;
        losses.push((&seen.losses[early..], NO_LOSS));
    }
    let mut found = Vec::new();
    let mut best = f64::NEG_INFINITY;
    for &rtt_s in &rtts {
        for &(losses, share) in &losses {
            let explainer = Explainer {
                seen,
                milestones: &milestones,
                rtt_s,
                losses,
                prior: share / rtts.len() as f64,
                most_rate,
            };
            explainer.exits(packets, &mut found, &mut best);
        }
    }
    normalized(found)
}

/// From logarithms of weights to weights; what carries next to none is left out.
fn normalized(mut found: Vec<Scenario>) -> Vec<Scenario> {
    let most = found
        .iter()
        .fold(f64::NEG_INFINITY, |most, one| most.max(one.weight));
    for one in &mut found {
        one.weight = (one.weight - most).exp();
    }
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let all: f64 = found.iter().map(|one| one.weight).sum();
    let mut sum = 0.0;
    let kept = found
        .iter()
        .take_while(|one| {
            let wanted = sum < 0.995 * all;
            sum += one.weight;
            wanted
        })
        .count();
    found.truncate(kept);
    let all: f64 = found.iter().map(|one| one.weight).sum();
    for one in &mut found {
        one.weight /= all;
    }
    found
}

impl Explainer<'_> {
    /// Tries all ends of slow start.
    fn exits(&self, packets: f64, found: &mut Vec<Scenario>, best: &mut f64) {
        let no_limit = f64::INFINITY;
        let mut add = |exit, window_limit: f64, prior: f64| {
            let limit = window_limit.min(self.seen.window_limit);
            self.rates(exit, limit, prior, found, best);
        };
        add(Exit::HyStart, no_limit, prior::HYSTART);
        add(Exit::At(f64::INFINITY), no_limit, prior::NEVER);
        let least = self.seen.initial_window;
        for (windows, prior, held) in [(EXITS, prior::EARLY, false), (HELD, prior::HELD, true)] {
            let ratio = (packets / least).max(2.0).powf(1.0 / windows as f64);
            for i in 0..windows {
                let window = least * ratio.powf(i as f64 + 0.5);
                let (exit, limit) = if held {
                    (f64::INFINITY, window)
                } else {
                    (window, no_limit)
                };
                add(Exit::At(exit), limit, prior / windows as f64);
            }
        }
    }

    /// Standard deviation of the arrival at `time_s`, seconds.
    fn noise_s(&self, time_s: f64) -> f64 {
        0.5e-3 + 0.02 * self.rtt_s + 0.01 * time_s
    }

    /// Milestones that show how steady the path is: those before the first loss, since the effect of a
    /// recovery on arrivals is known less well than that of a rate; all, if those are too few.
    fn steady(&self) -> usize {
        let before = |&first: &f64| self.milestones.partition_point(|one| one.0 <= first);
        let all = self.milestones.len();
        self.losses
            .first()
            .map(before)
            .filter(|&before| before >= ENOUGH)
            .unwrap_or(all)
    }

    /// Compares arrivals; `None` if the likelihood is below the logarithm `least`.
    fn fit(&self, exit: Exit, link: &Link, least: f64) -> Option<Fitted> {
        let mut flow = Flow::new(self.seen.initial_window, exit);
        let mut losses = self.losses.iter().copied().peekable();
        let mut milestones = self.milestones.iter().peekable();
        let n = self.milestones.len() as f64;
        let steady = self.steady();
        let mut compared = 0;
        let scale = (DEGREES + 1.0) / 2.0 / OF_SO_MANY.min(n);
        let (mut log, mut product, mut squares) = (0.0, 1.0, 0.0);
        loop {
            let before = flow;
            let next_loss = losses.peek().copied().unwrap_or(f64::INFINITY);
            let round = flow.round(link, next_loss);
            while losses.next_if(|&lost| lost <= flow.arrived).is_some() {}
            while let Some(&(packets, seen_s)) = milestones.next_if(|one| one.0 <= flow.arrived) {
                let off_s = seen_s - round.arrival_s(packets);
                let in_noise = off_s / self.noise_s(seen_s);
                // one logarithm for several milestones
                product *= 1.0 + in_noise * in_noise / DEGREES;
                compared += 1;
                if compared <= steady {
                    squares += off_s * off_s;
                }
            }
            if product > 1e3 || milestones.peek().is_none() {
                log -= scale * product.ln();
                product = 1.0;
                if log < least {
                    return None;
                }
            }
            if let (None, Some(&(_, end_s))) = (milestones.peek(), self.milestones.last()) {
                return Some(Fitted {
                    log_likelihood: log,
                    flow: before,
                    misfit: (squares / steady as f64).sqrt() / end_s,
                });
            }
        }
    }

    /// Tries all rates with one end of slow start; adds them with the logarithm of their weight, of
    /// which `best` is the highest so far.
    fn rates(
        &self,
        exit: Exit,
        window_limit: f64,
        prior: f64,
        found: &mut Vec<Scenario>,
        best: &mut f64,
    ) {
        let (end_s, packets) = self.seen.timeline.end();
        let least = (0.9 * packets / end_s).ln();
        let step = (self.most_rate.ln() - least).max(0.5) / (RATES - 1) as f64;
        let link = |log_rate: f64| Link {
            rate: log_rate.exp(),
            rtt_s: self.rtt_s,
            room: f64::INFINITY,
            window_limit,
        };
        let log_prior = |log_rate: f64| {
            let from_usual = (log_rate - USUAL_RATE.ln()) / USUAL_RATE_SPREAD;
            (self.prior * prior).ln() - from_usual * from_usual / 2.0
        };
        let hopeless = *best - HOPELESS - (self.prior * prior * step).ln();
        let fit = |log_rate: f64| self.fit(exit, &link(log_rate), hopeless);
        let likelihood = |fitted: &Option<Fitted>| {
            fitted
                .as_ref()
                .map_or(f64::NEG_INFINITY, |fitted| fitted.log_likelihood)
        };
        let mut add = |log_rate: f64, fitted: Option<Fitted>, width: f64| {
            let Some(fitted) = fitted else { return };
            let weight = fitted.log_likelihood + log_prior(log_rate) + width.ln();
            *best = best.max(weight);
            found.push(Scenario {
                link: link(log_rate),
                flow: fitted.flow,
                weight,
                losses: self.losses.len() as f64,
                misfit: fitted.misfit,
            });
        };
        let mut fits: Vec<(f64, Option<Fitted>)> = (0..RATES)
            .map(|i| least + step * i as f64)
            .map(|log_rate| (log_rate, fit(log_rate)))
            .collect();
        let Some(at) = (0..RATES)
            .filter(|&i| fits[i].1.is_some())
            .max_by(|&a, &b| likelihood(&fits[a].1).total_cmp(&likelihood(&fits[b].1)))
        else {
            return;
        };
        let mut peak = fits.swap_remove(at);
        for (log_rate, fitted) in fits {
            add(log_rate, fitted, step);
        }
        // between the neighbors of the best a narrow peak may stand
        let (mut low, mut high) = (peak.0 - step, peak.0 + step);
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        let mut inner = [high - golden * (high - low), low + golden * (high - low)];
        let mut inner_fits = inner.map(fit);
        for _ in 0..NARROWING {
            if likelihood(&inner_fits[0]) >= likelihood(&inner_fits[1]) {
                high = inner[1];
                inner[1] = inner[0];
                inner[0] = high - golden * (high - low);
                inner_fits.swap(0, 1);
                inner_fits[0] = fit(inner[0]);
            } else {
                low = inner[0];
                inner[0] = inner[1];
                inner[1] = low + golden * (high - low);
                inner_fits.swap(0, 1);
                inner_fits[1] = fit(inner[1]);
            }
        }
        for one in inner.into_iter().zip(inner_fits) {
            if likelihood(&one.1) > likelihood(&peak.1) {
                peak = one;
            }
        }
        // its width from the slope next to it, as for the peak of a normal distribution
        let beside = 0.2 * step;
        let top = likelihood(&peak.1);
        let fall: f64 = [-beside, beside]
            .map(|by| (top - likelihood(&fit(peak.0 + by))).min(HOPELESS))
            .iter()
            .sum::<f64>()
            / 2.0;
        let width = (std::f64::consts::PI / fall.max(1e-9)).sqrt() * beside;
        add(peak.0, peak.1, width.min(step));
    }
}
