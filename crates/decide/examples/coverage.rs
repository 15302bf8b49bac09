//! How often bands of the mean rate over the next seconds hold, on series of rates.
//!
//! Reads lines of `seconds rate` (seconds since the line before, bit/s) from standard input; an empty line ends a
//! series. Prints for each horizon: forecasts, the part within 5 to 95 %, the part of rates at or above the 10 %
//! quantile, and the median absolute error of the median beside that of the last rate.

use std::io::Read;

use pathcast_decide::rate::Rates;

const HORIZONS_S: [f64; 3] = [1.0, 4.0, 10.0];

fn main() {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .expect("the input is text");
    let series: Vec<Vec<(f64, f64)>> = (text.split("\n\n"))
        .map(|one| {
            let lines = one.lines().filter_map(|line| {
                let (seconds, rate) = line.split_once(' ')?;
                Some((seconds.parse().ok()?, rate.parse().ok()?))
            });
            lines.collect()
        })
        .collect();
    for horizon_s in HORIZONS_S {
        let (mut count, mut held, mut above) = (0.0, 0.0, 0.0);
        let (mut errors, mut naive) = (Vec::new(), Vec::new());
        for one in &series {
            let (mut rates, mut now_s) = (Rates::default(), 0.0);
            for (at, &(seconds, rate)) in one.iter().enumerate() {
                now_s += seconds;
                rates.update(now_s, rate);
                let (mut bits, mut ahead_s) = (0.0, 0.0);
                for &(seconds, rate) in &one[at + 1..] {
                    let part = seconds.min(horizon_s - ahead_s);
                    bits += part * rate;
                    ahead_s += part;
                    if ahead_s >= horizon_s {
                        break;
                    }
                }
                if ahead_s < horizon_s || now_s < 20.0 {
                    continue;
                }
                let truth = bits / horizon_s;
                let levels = [0.05, 0.1, 0.5, 0.95];
                let Some([low, tenth, median, high]) = rates.quantiles(now_s, horizon_s, &levels)
                else {
                    continue;
                };
                count += 1.0;
                held += f64::from(u8::from((low..=high).contains(&truth)));
                above += f64::from(u8::from(truth >= tenth));
                if truth > 1e4 {
                    errors.push((median / truth - 1.0).abs());
                    naive.push((rate / truth - 1.0).abs());
                }
            }
        }
        let median = |all: &mut Vec<f64>| {
            all.sort_unstable_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        };
        println!(
            "{horizon_s} s: {count} forecasts, {:.1} % in the band, {:.1} % above the tenth, \
             median error {:.1} % (last rate: {:.1} %)",
            100.0 * held / count,
            100.0 * above / count,
            100.0 * median(&mut errors),
            100.0 * median(&mut naive)
        );
    }
}
