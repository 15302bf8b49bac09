//! Round-trip time and congestion control, guessed from the window when nobody says.

use crate::epochs::find_epochs;
use crate::series::Series;
use crate::window::Cc;

/// Where a round-trip time came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RttSource {
    /// The caller said so.
    Given,
    /// The median of the trace's own srtt.
    Srtt,
    /// Estimated from the window's steps.
    Estimated,
    /// Nothing in the trace tells it: 0.1 s, a common wide-area value.
    Assumed,
}

/// Round-trip time when nothing tells it, seconds.
pub const ASSUMED_RTT_S: f64 = 0.1;
/// Shortest and longest believable round trip, seconds.
const BELIEVABLE_S: std::ops::RangeInclusive<f64> = 0.0005..=5.0;

/// The round-trip time of a series: its srtt if it has one, else [`estimate_rtt_s`], else [`ASSUMED_RTT_S`].
pub fn rtt_s(series: &Series, cc: Cc) -> (f64, RttSource) {
    if let Some(srtt_s) = series.srtt_s() {
        return (median(srtt_s.to_vec()), RttSource::Srtt);
    }
    match estimate_rtt_s(series, cc) {
        Some(rtt_s) => (rtt_s, RttSource::Estimated),
        None => (ASSUMED_RTT_S, RttSource::Assumed),
    }
}

/// The round-trip time told by the window alone.
///
/// Reno adds one packet per round trip, so the gap between +1 steps is the answer (error below
/// 2 % where the window grows undisturbed). CUBIC's growth does not depend on the round trip, but
/// its first flight and its recovery do: see [`estimate_cubic_rtt_s`].
pub fn estimate_rtt_s(series: &Series, cc: Cc) -> Option<f64> {
    match cc {
        Cc::Reno => estimate_reno_rtt_s(series),
        Cc::Cubic => estimate_cubic_rtt_s(series),
    }
}

fn estimate_reno_rtt_s(series: &Series) -> Option<f64> {
    let (t, w) = (series.time_s(), series.cwnd_packets());
    // gaps between single steps up that follow another step up: the middle of an avoidance epoch.
    // Slow start has them too, but its gaps are short and, on a trace worth fitting, few in time:
    // weigh each gap by its length.
    let mut gaps: Vec<f64> = (2..t.len())
        .filter(|&i| w[i] - w[i - 1] == 1.0 && w[i - 1] - w[i - 2] == 1.0)
        .map(|i| t[i] - t[i - 1])
        .filter(|gap| BELIEVABLE_S.contains(gap))
        .collect();
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

/// CUBIC: the window is silent while the sender waits for the acknowledgements of a flight.
///
/// Linux takes one round trip from the loss to the end of recovery, so the time from the peak of
/// an epoch to the next sustained growth clusters just above the round trip; the densest half of
/// those times (half-sample mode) is taken. Without losses the first doubling of slow start is.
pub fn estimate_cubic_rtt_s(series: &Series) -> Option<f64> {
    let found = find_epochs(series, Cc::Cubic, 0.2);
    let (t, w) = (series.time_s(), series.cwnd_packets());
    let mut recoveries: Vec<f64> = Vec::new();
    for loss in &found.losses {
        let from = t.partition_point(|&x| x <= loss.time_s);
        // lowest record in the second after the loss, before growth
        let mut low = f64::INFINITY;
        let mut steps = 0;
        for i in from..t.len().min(from + 4000) {
            if t[i] - loss.time_s > 2.0 {
                break;
            }
            if w[i] < low {
                low = w[i];
                steps += 1;
            } else if w[i] > low && steps >= 3 {
                recoveries.push(t[i] - loss.time_s);
                break;
            }
        }
    }
    recoveries.retain(|gap| BELIEVABLE_S.contains(gap));
    if recoveries.len() >= 3 {
        return half_sample_mode(recoveries);
    }
    first_doubling_s(t, w)
}

/// Time that the window takes to double in its first slow start.
fn first_doubling_s(t: &[f64], w: &[f64]) -> Option<f64> {
    let from = (1..w.len()).find(|&i| w[i] > w[0])?;
    // from the first growth (the first acknowledgement) to the first after a doubling
    let double = (from..w.len()).find(|&i| w[i] > 2.0 * w[0])?;
    let peak = (1..=double).all(|i| w[i] >= 0.9 * w[i - 1]);
    let gap = t[double] - t[from];
    (peak && BELIEVABLE_S.contains(&gap)).then_some(gap)
}

/// Guesses the congestion control: what is left of the window after a loss, else how it grows.
///
/// Reno keeps 0.5, CUBIC 0.7; the boundary is their geometric mean, 0.59. Without a loss: Reno's
/// steps are evenly spaced, CUBIC's are not. With nothing to go by, CUBIC, the kernel's default.
pub fn guess_cc(series: &Series) -> Cc {
    let found = find_epochs(series, Cc::Cubic, 0.1);
    let (t, w) = (series.time_s(), series.cwnd_packets());
    // where the next epoch begins, if it does so within a believable recovery
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
    let gaps: Vec<f64> = (2..t.len())
        .filter(|&i| w[i] - w[i - 1] == 1.0 && w[i - 1] - w[i - 2] == 1.0)
        .map(|i| t[i] - t[i - 1])
        .collect();
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

/// Median; the input must not be empty.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n % 2 == 1 {
        values[n / 2]
    } else {
        0.5 * (values[n / 2 - 1] + values[n / 2])
    }
}

/// The densest point of a sample: halve to the shortest half, again and again (Bickel 2006).
fn half_sample_mode(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let mut v = &values[..];
    while v.len() > 3 {
        let half = v.len().div_ceil(2);
        let from = (0..=v.len() - half)
            .min_by(|&a, &b| (v[a + half - 1] - v[a]).total_cmp(&(v[b + half - 1] - v[b])))?;
        v = &v[from..from + half];
    }
    (!v.is_empty()).then(|| v.iter().sum::<f64>() / v.len() as f64)
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
    fn the_mode_is_where_samples_crowd() {
        let mode = half_sample_mode(vec![0.1, 0.2, 0.201, 0.202, 0.203, 0.5, 0.9, 1.4]).unwrap();
        assert!((mode - 0.2015).abs() < 0.002);
    }
}
