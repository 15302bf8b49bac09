//! Infers round-trip time and congestion control from the window if they are not given.

use crate::epochs::find_epochs;
use crate::series::Series;
use pathcast_window_law::Cc;

/// The source of a round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RttSource {
    /// Given by the caller.
    Given,
    /// The median of the trace's own srtt.
    Srtt,
    /// Estimated from the window's steps.
    Estimated,
    /// Assumed, because the trace has no evidence: 0.1 s, a common wide-area value.
    Assumed,
}

/// A growth is a ripple if the window falls below its start again within this multiple of the time
/// since the loss.
const RIPPLE_PART: f64 = 1.5;
/// Assumed round-trip time without evidence, seconds.
pub const ASSUMED_RTT_S: f64 = 0.1;
/// Shortest and longest plausible round trip, seconds.
const BELIEVABLE_S: std::ops::RangeInclusive<f64> = 0.0005..=5.0;

/// Returns the round-trip time of a series: its srtt, else [`estimate_rtt_s`], else
/// [`ASSUMED_RTT_S`].
pub fn rtt_s(series: &Series, cc: Cc) -> (f64, RttSource) {
    if let Some(srtt_s) = series.srtt_s() {
        let known = srtt_s.iter().copied().filter(|v| !v.is_nan());
        return (median(known.collect()), RttSource::Srtt);
    }
    match estimate_rtt_s(series, cc) {
        Some(rtt_s) => (rtt_s, RttSource::Estimated),
        None => (ASSUMED_RTT_S, RttSource::Assumed),
    }
}

/// Estimates the round-trip time from the window alone.
///
/// Reno adds one packet per round trip, so the gap between +1 steps is the round-trip time (error
/// below 2 % where the window grows undisturbed). CUBIC's growth does not depend on the round trip,
/// but its first flight and its recovery do: see [`estimate_cubic_rtt_s`].
pub fn estimate_rtt_s(series: &Series, cc: Cc) -> Option<f64> {
    match cc {
        Cc::Reno => estimate_reno_rtt_s(series),
        Cc::Cubic => estimate_cubic_rtt_s(series),
        // doubling each round trip is all that schemes have in common
        Cc::Other => first_doubling_s(series.time_s(), series.cwnd_packets()),
    }
}

fn estimate_reno_rtt_s(series: &Series) -> Option<f64> {
    // slow start has single steps too, but its gaps are short and cover little time in a usable
    // trace: weight each gap by its length
    let mut gaps = gaps_of_single_steps_s(series);
    gaps.retain(|gap| BELIEVABLE_S.contains(gap));
    if gaps.len() < 3 {
        return None;
    }
    gaps.sort_by(f64::total_cmp);
    let half = gaps.iter().sum::<f64>() / 2.0;
    let mut sum = 0.0;
    gaps.into_iter().find(|gap| {
        sum += gap;
        sum >= half
    })
}

/// Times between single steps up that follow another step up, in the middle of an avoidance epoch.
/// This works with a row for each change of the window or for each acknowledgment.
fn gaps_of_single_steps_s(series: &Series) -> Vec<f64> {
    let (t, w) = (series.time_s(), series.cwnd_packets());
    let changes: Vec<usize> = (0..w.len())
        .filter(|&i| i == 0 || w[i] != w[i - 1])
        .collect();
    let up = |from: usize, to: usize| w[to] - w[from] == 1.0;
    (changes.windows(3))
        .filter(|three| up(three[0], three[1]) && up(three[1], three[2]))
        .map(|three| t[three[2]] - t[three[1]])
        .collect()
}

/// Estimates CUBIC's round-trip time: the window is silent while the sender waits for a flight's
/// acknowledgments.
///
/// Linux takes one round trip from the loss to the end of recovery. So the time from the peak of an
/// epoch to the last step down clusters at the round trip. Some last longer (retransmissions lost
/// again), so the estimate is the lower quartile of the densest half. Without losses, it is the
/// first doubling of slow start.
pub fn estimate_cubic_rtt_s(series: &Series) -> Option<f64> {
    let found = find_epochs(series, Cc::Cubic, 0.2);
    let (t, w) = (series.time_s(), series.cwnd_packets());
    let mut recoveries: Vec<f64> = Vec::new();
    for (loss, next) in
        (found.losses.iter()).zip(found.losses.iter().skip(1).map(Some).chain([None]))
    {
        let from = t.partition_point(|&x| x <= loss.time_s);
        let until_s = next
            .map_or(f64::INFINITY, |next| next.time_s)
            .min(loss.time_s + 2.0);
        // the last step down before the window grows; a growth is a ripple if the fall soon
        // continues
        let (mut low, mut low_s, mut steps, mut grown_s) = (f64::INFINITY, 0.0, 0, None);
        for i in from..t.len().min(from + 4000) {
            let since_s = t[i] - loss.time_s;
            if t[i] > until_s || grown_s.is_some_and(|grown_s| since_s > RIPPLE_PART * grown_s) {
                break;
            }
            if w[i] < low {
                (low, low_s) = (w[i], since_s);
                steps += 1;
                grown_s = None;
            } else if w[i] > low && steps >= 3 && grown_s.is_none() {
                grown_s = Some(since_s);
            }
        }
        if grown_s.is_some() {
            recoveries.push(low_s);
        }
    }
    recoveries.retain(|gap| BELIEVABLE_S.contains(gap));
    if recoveries.len() >= 3 {
        return Some(dense_quartile(recoveries));
    }
    first_doubling_s(t, w)
}

/// Time in which the window doubles in its first slow start.
fn first_doubling_s(t: &[f64], w: &[f64]) -> Option<f64> {
    let from = (1..w.len()).find(|&i| w[i] > w[0])?;
    // from the first growth (the first acknowledgment) to the first after a doubling
    let double = (from..w.len()).find(|&i| w[i] > 2.0 * w[0])?;
    let peak = (1..=double).all(|i| w[i] >= 0.9 * w[i - 1]);
    let gap = t[double] - t[from];
    (peak && BELIEVABLE_S.contains(&gap)).then_some(gap)
}

/// Infers the congestion control from the decrease after a loss, or else from the growth.
///
/// Reno keeps 0.5, CUBIC 0.7; the boundary is their geometric mean, 0.59. Without a loss, evenly
/// spaced steps mean Reno, others CUBIC. Without evidence, the result is CUBIC, the kernel's
/// default.
pub fn guess_cc(series: &Series) -> Cc {
    let found = find_epochs(series, Cc::Cubic, 0.1);
    // the start of the next epoch, if it comes within a plausible recovery
    let kept: Vec<f64> = (found.epochs.windows(2))
        .filter(|pair| pair[1].start_s - pair[0].end_s < 1.0)
        .map(|pair| pair[1].start_cwnd / pair[0].end_cwnd)
        .filter(|kept| (0.3..0.95).contains(kept))
        .collect();
    if kept.len() >= 2 {
        return if median(kept) < (0.5_f64 * 0.7).sqrt() {
            Cc::Reno
        } else {
            Cc::Cubic
        };
    }
    let gaps = gaps_of_single_steps_s(series);
    if gaps.len() < 10 {
        return Cc::Cubic;
    }
    let middle = median(gaps.clone());
    let near = gaps
        .iter()
        .filter(|&&gap| (gap - middle).abs() < 0.2 * middle)
        .count();
    if near * 2 > gaps.len() {
        Cc::Reno
    } else {
        Cc::Cubic
    }
}

/// Median of a non-empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    let half = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (below, &mut above, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    if is_odd {
        return above;
    }
    let below = below.iter().copied().max_by(f64::total_cmp);
    0.5 * (below.unwrap_or(above) + above)
}

/// The lower quartile of the shortest interval that holds half of the values, of a non-empty list.
fn dense_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len().div_ceil(2);
    let length = |&from: &usize| values[from + half - 1] - values[from];
    let from = (0..=values.len() - half)
        .min_by(|a, b| length(a).total_cmp(&length(b)))
        .unwrap_or(0);
    values[from + half / 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reno_steps_tell_the_round_trip() {
        let time: Vec<f64> = (0..100).map(|i| f64::from(i) * 0.08).collect();
        let cwnd = (0..100).map(|i| 50.0 + f64::from(i)).collect();
        let series = Series::new(time, cwnd).unwrap();
        assert_eq!(guess_cc(&series), Cc::Reno);
        let (rtt, source) = rtt_s(&series, Cc::Reno);
        assert!((rtt - 0.08).abs() < 1e-9);
        assert_eq!(source, RttSource::Estimated);
    }

    #[test]
    fn a_row_for_each_acknowledgment_tells_the_same() {
        // 50 acknowledgments per round trip of 80 ms, of which the last raises the window
        let time: Vec<f64> = (0..5000).map(|i| f64::from(i) * 0.08 / 50.0).collect();
        let cwnd = (0..5000).map(|i| f64::from(50 + i / 50)).collect();
        let series = Series::new(time, cwnd).unwrap();
        assert_eq!(guess_cc(&series), Cc::Reno);
        let (rtt, source) = rtt_s(&series, Cc::Reno);
        assert!((rtt - 0.08).abs() < 1e-9, "{rtt}");
        assert_eq!(source, RttSource::Estimated);
    }

    #[test]
    fn a_given_srtt_is_preferred() {
        let series = Series::new(vec![0.0, 1.0, 2.0], vec![1.0, 2.0, 3.0]).unwrap();
        let series = series.with_srtt(vec![0.1, 0.3, 0.2]).unwrap();
        assert_eq!(rtt_s(&series, Cc::Cubic), (0.2, RttSource::Srtt));
    }

    #[test]
    fn a_flat_window_tells_nothing() {
        let series = Series::new(vec![0.0, 1.0, 2.0], vec![5.0; 3]).unwrap();
        assert_eq!(
            rtt_s(&series, Cc::Cubic),
            (ASSUMED_RTT_S, RttSource::Assumed)
        );
    }

    #[test]
    fn the_dense_quartile_is_where_samples_begin_to_crowd() {
        let dense = dense_quartile(vec![0.1, 0.2, 0.201, 0.202, 0.203, 0.5, 0.9, 1.4]);
        assert!((dense - 0.201).abs() < 1e-12);
    }
}
