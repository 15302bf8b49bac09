//! How far forecasts are off on series of rates, and how often their bands hold: a forecaster of each horizon beside
//! [`Horizons`], which has any horizon in little memory.
//!
//! Reads lines of `seconds rate` (seconds since the line before, bit/s) from standard input; an empty line ends a series.
//! Prints a line for each horizon and forecaster: forecasts, the part within 5 to 95 %, the part at or above the 10 %
//! quantile, and the median relative error of the point and of the median, of truths above a twentieth of the series' mean.

use std::io::Read;

use pathcast_rates::{Horizons, RateForecaster};

const SECONDS: [f64; 6] = [1.0, 2.0, 4.0, 6.0, 10.0, 30.0];
const LEVELS: [f64; 4] = [0.05, 0.1, 0.5, 0.95];

#[derive(Default)]
struct Judged {
    count: f64,
    held: f64,
    above: f64,
    errors: [Vec<f64>; 2],
}

impl Judged {
    fn take(&mut self, point: f64, [low, tenth, median, high]: [f64; 4], truth: f64, least: f64) {
        self.count += 1.0;
        self.held += f64::from(u8::from((low..=high).contains(&truth)));
        self.above += f64::from(u8::from(truth >= tenth));
        if truth > least {
            for (errors, said) in self.errors.iter_mut().zip([point, median]) {
                errors.push((said / truth - 1.0).abs());
            }
        }
    }

    fn print(&mut self, horizon_s: f64, name: &str) {
        let [point, median] = &mut self.errors;
        let middle = |all: &mut Vec<f64>| {
            all.sort_unstable_by(f64::total_cmp);
            100.0 * all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        };
        println!(
            "{horizon_s:>4} s, {name:<13} {:>6} forecasts: {:.1} % in the band, {:.1} % above the tenth, error of the \
             point {:.1} %, of the median {:.1} %",
            self.count,
            100.0 * self.held / self.count,
            100.0 * self.above / self.count,
            middle(point),
            middle(median)
        );
    }
}

fn series(text: &str) -> Vec<Vec<(f64, f64)>> {
    let one = |text: &str| {
        let lines = text.lines().filter_map(|line| {
            let (seconds, rate) = line.split_once(' ')?;
            Some((seconds.parse().ok()?, rate.parse().ok()?))
        });
        lines.collect()
    };
    text.split("\n\n").map(one).collect()
}

/// The mean rate of the next seconds, if the series is long enough.
fn truth(next: &[(f64, f64)], horizon_s: f64) -> Option<f64> {
    let (mut bits, mut ahead_s) = (0.0, 0.0);
    for &(seconds, rate) in next {
        let part = seconds.min(horizon_s - ahead_s);
        bits += part * rate;
        ahead_s += part;
        if ahead_s >= horizon_s {
            return Some(bits / horizon_s);
        }
    }
    None
}

fn main() {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .expect("the input is text");
    let all = series(&text);
    for horizon_s in SECONDS {
        let (mut exact, mut compact) = (Judged::default(), Judged::default());
        for one in &all {
            let mut own = RateForecaster::new(horizon_s).expect("the horizon is valid");
            let (mut horizons, mut now_s) = (Horizons::default(), 0.0);
            let seconds: f64 = one.iter().map(|sample| sample.0).sum();
            let bits: f64 = one.iter().map(|sample| sample.0 * sample.1).sum();
            for (at, &(seconds_of, rate)) in one.iter().enumerate() {
                now_s += seconds_of;
                for taken in [
                    own.observe(seconds_of, seconds_of * rate),
                    horizons.observe(seconds_of, seconds_of * rate),
                ] {
                    taken.expect("the sample is valid");
                }
                let Some(truth) = truth(&one[at + 1..], horizon_s).filter(|_| now_s >= 20.0) else {
                    continue;
                };
                let least = 0.05 * bits / seconds;
                if let (Some(a), Some(b)) = (own.forecast(), horizons.forecast(horizon_s)) {
                    exact.take(
                        a.point_bps(),
                        LEVELS.map(|level| a.quantile_bps(level)),
                        truth,
                        least,
                    );
                    compact.take(
                        b.point_bps(),
                        LEVELS.map(|level| b.quantile_bps(level)),
                        truth,
                        least,
                    );
                }
            }
        }
        exact.print(horizon_s, "one horizon");
        compact.print(horizon_s, "any horizon");
    }
}
