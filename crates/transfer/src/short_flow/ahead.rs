//! From what explains a transfer to the times of larger ones.

use super::flow::{Flow, Link};
use super::scenarios::{Scenario, USUAL_RATE};

/// Chances that a packet is lost that are thought of, and their share before anything is seen: one
/// path in two loses nothing that a download notices, and few lose more than one packet in 1000.
const LOSSES: [(f64, f64); 8] = [
    (0.0, 0.55),
    (3e-5, 0.073),
    (1e-4, 0.08),
    (3e-4, 0.08),
    (1e-3, 0.13),
    (3e-3, 0.055),
    (1e-2, 0.022),
    (3e-2, 0.01),
];
/// Share of paths whose queue holds a bandwidth-delay product rather than all that comes.
const SHALLOW: f64 = 0.15;
/// Where losses were seen: the chance that the queue was full rather than the wire bad.
const OVERFLOWED: f64 = 0.15;
/// What is less likely than this is left out.
const NEGLIGIBLE: f64 = 5e-4;
/// Futures tried for each chance of loss: at these quantiles of the rate to come, in standard
/// deviations (means of the fifths of a normal law).
const RATES: [f64; 5] = [-1.3998, -0.5319, 0.0, 0.5319, 1.3998];

/// One possible future.
#[derive(Debug, Clone)]
pub(super) struct Future {
    pub weight: f64,
    /// Seconds to each size.
    pub times_s: Vec<f64>,
}

/// What is known at the start of the forecast.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub time_s: f64,
    pub packets: f64,
    /// Share of the path's rate that is as uncertain as that of a link whose rate wanders.
    pub wandering: f64,
    /// What arrivals before the first loss are off by at best, over the time seen.
    pub misfit: f64,
    /// Packets a second at the end.
    pub last_rate: f64,
}

/// Standard deviation of the logarithm of a rate that stays as it is: what the model is off by.
const STEADY_SPREAD: f64 = 0.005;
/// What nothing explains is this uncertain at most.
const MOST_MISFIT: f64 = 0.5;
/// The same of a rate that wanders, as over mahimahi's recordings of LTE some seconds later.
const WANDERING_SPREAD: f64 = 0.55;
/// A rate that wanders comes back by this share of the way to the usual, in logarithms.
const BACK_TO_USUAL: f64 = 0.3;

impl Now {
    /// When the present round began, so that the rest of it arrives at the link's rate, seconds.
    pub fn round_began_s(&self, flow: &Flow, link: &Link) -> f64 {
        self.time_s - (self.packets - flow.arrived - 1.0).max(0.0) / link.rate
    }

    /// Mean and standard deviation of the logarithm of the rate to come.
    fn rate_to_come(&self, scenario: &Scenario) -> (f64, f64) {
        let seen = scenario.link.rate.ln();
        let spread =
            STEADY_SPREAD + self.misfit.min(MOST_MISFIT) + WANDERING_SPREAD * self.wandering.sqrt();
        if !scenario.flow.is_full(&scenario.link) {
            return (seen, spread);
        }
        let last = self.last_rate.ln();
        let later = last + BACK_TO_USUAL * (USUAL_RATE.ln() - last);
        (seen + self.wandering * (later - seen), spread)
    }
}

/// Chance that k losses are seen in n packets, each lost with p, up to a factor that does not depend on p.
fn likelihood(p: f64, losses: f64, packets: f64) -> f64 {
    if p == 0.0 {
        return if losses == 0.0 { 1.0 } else { 0.0 };
    }
    // per packet, so that figures stay near 1
    (losses * (p * packets).ln() + packets * (-p).ln_1p()).exp()
}

/// The i-th of a sequence that fills (0, 1) evenly (van der Corput, base 2, turned by `shift`).
fn evenly(i: u32, shift: f64) -> f64 {
    let inverse = f64::from(i.reverse_bits()) / 4_294_967_296.0;
    let u = (inverse + shift).fract();
    u.clamp(1e-9, 1.0 - 1e-9)
}

/// All futures of one explanation, for `sizes`, packets, rising, above what has arrived.
pub(super) fn futures(scenario: &Scenario, number: u32, now: &Now, sizes: &[f64]) -> Vec<Future> {
    let mut all = Vec::new();
    each_future(scenario, number, now, |weight, link, gaps| {
        all.push(Future {
            weight,
            times_s: times(scenario.flow, link, now, sizes, gaps),
        });
    });
    all
}

/// Calls back with the weight, the link and the losses of each future of explanation `number`.
pub(super) fn each_future(
    scenario: &Scenario,
    number: u32,
    now: &Now,
    mut tell: impl FnMut(f64, &Link, Gaps),
) {
    let chances = LOSSES.map(|(p, share)| share * likelihood(p, scenario.losses, now.packets));
    let random: f64 = chances.iter().sum();
    let overflowed = if scenario.losses > 0.0 {
        OVERFLOWED
    } else {
        0.0
    };
    let (log_rate, spread) = now.rate_to_come(scenario);
    let bdp = scenario.link.rate * scenario.link.rtt_s;
    for (quantile, &deviation) in RATES.iter().enumerate() {
        let rate = (log_rate + spread * deviation).exp();
        let mut add = |p: f64, room: f64, weight: f64| {
            if weight * scenario.weight < NEGLIGIBLE {
                return;
            }
            let link = Link {
                rate,
                room,
                ..scenario.link
            };
            let turn = f64::from(number)
                .mul_add(0.381_966, quantile as f64 / 5.0)
                .fract();
            let weight = weight * scenario.weight / RATES.len() as f64;
            tell(weight, &link, Gaps::new(p, turn));
        };
        for (&(p, _), &chance) in LOSSES.iter().zip(&chances) {
            let weight = (1.0 - overflowed) * chance / random;
            if p == 0.0 {
                add(p, 2.0 * bdp, SHALLOW * weight);
                add(p, f64::INFINITY, (1.0 - SHALLOW) * weight);
            } else {
                add(p, f64::INFINITY, weight);
            }
        }
        if overflowed > 0.0 {
            add(0.0, (2.0 * bdp).max(scenario.flow.window.cwnd), overflowed);
        }
    }
}

/// Packets from one loss to the next.
pub(super) struct Gaps {
    p: f64,
    turn: f64,
    drawn: u32,
}

impl Gaps {
    fn new(p: f64, turn: f64) -> Self {
        Self { p, turn, drawn: 0 }
    }

    pub fn next(&mut self) -> f64 {
        if self.p == 0.0 {
            return f64::INFINITY;
        }
        self.drawn += 1;
        // geometric, by its inverse
        evenly(self.drawn, self.turn).ln() / (-self.p).ln_1p()
    }
}

fn times(mut flow: Flow, link: &Link, now: &Now, sizes: &[f64], mut gaps: Gaps) -> Vec<f64> {
    flow.at_s = now.round_began_s(&flow, link);
    let mut next_loss = now.packets + gaps.next();
    let mut times_s = Vec::with_capacity(sizes.len());
    let mut sizes = sizes.iter().copied().peekable();
    while let Some(&size) = sizes.peek() {
        if flow.is_full(link) && next_loss >= size && link.room.is_infinite() {
            // a full path stays full
            times_s.push(flow.at_s + (size - flow.arrived - 1.0) / link.rate);
            sizes.next();
            continue;
        }
        let round = flow.round(link, next_loss);
        while let Some(size) = sizes.next_if(|&size| size <= flow.arrived) {
            times_s.push(round.arrival_s(size));
        }
        if next_loss <= flow.arrived {
            next_loss = flow.arrived + gaps.next();
        }
    }
    times_s
}
