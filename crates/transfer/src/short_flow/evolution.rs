//! How the sender's window continues: by the published algorithms, and as Pathcast expects it.

use serde::Serialize;

use super::ahead::{self, Gaps, Now};
use super::flow::{Flow, Link};
use super::outcome::{quantile, weighted};
use super::scenarios::Scenario;
use super::{
    Explained, LEVELS, MOST_SCENARIOS, Measured, ShortFlowError, estimate, explained, published,
    published_flow,
};

/// The number of moments at which Pathcast's windows are returned, and about that of the published ones.
const POINTS: u32 = 200;

/// A window of the published algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WindowAt {
    /// Seconds since the first byte.
    pub time_s: f64,
    /// Packets.
    pub window_packets: f64,
}

/// What Pathcast expects of the window at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WindowQuantiles {
    /// Seconds since the first byte.
    pub time_s: f64,
    /// Packets that may be in flight, at [`LEVELS`], never falling.
    pub window_quantiles_packets: [f64; LEVELS.len()],
}

/// The window over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Windows {
    /// By Algorithm 2 from the window that Algorithm 1 finds (De Silva et al. 2016, figure 9).
    pub published: Vec<WindowAt>,
    /// Over all explanations of what was seen, and from its end on over what may come.
    pub pathcast: Vec<WindowQuantiles>,
}

/// How the window of a transfer of `size_bytes`, at least what was measured, has grown and continues.
///
/// Of the published algorithms a point each round trip until all is sent; of Pathcast's model evenly spaced
/// moments, until the time that [`estimate`](super::estimate()) expects. What the receiver's window does not
/// let out is not counted.
///
/// # Errors
/// [`ShortFlowError`] as of [`estimate`](super::estimate()).
pub fn windows(measured: &Measured, size_bytes: f64) -> Result<Windows, ShortFlowError> {
    let explained = explained(measured, &[size_bytes])?;
    let (constants, rtt_s, end) = published_flow(measured);
    let published = published::evolution(size_bytes, rtt_s, end.window_packets, &constants, POINTS);
    let whole = estimate(measured, &[size_bytes])?;
    let end_s = (whole.sizes[0].time_s - measured.before_s).max(measured.time_s);
    Ok(Windows {
        published: (published.into_iter())
            .map(|(time_s, window_packets)| WindowAt {
                time_s,
                window_packets,
            })
            .collect(),
        pathcast: expected(&explained, end_s),
    })
}

/// Quantiles of the windows of all explanations and their futures at evenly spaced moments until `end_s`.
fn expected(explained: &Explained, end_s: f64) -> Vec<WindowQuantiles> {
    let Explained {
        seen,
        scenarios,
        now,
    } = explained;
    let moments: Vec<f64> = (0..=POINTS)
        .map(|i| end_s * f64::from(i) / f64::from(POINTS))
        .collect();
    let (past, future) = moments.split_at(moments.partition_point(|&at_s| at_s <= now.time_s));
    // (window, weight) of every explanation or future at each moment
    let mut found: Vec<Vec<(f64, f64)>> = vec![Vec::new(); moments.len()];
    for (number, scenario) in (0..).zip(scenarios.iter().take(MOST_SCENARIOS)) {
        let losses = &seen.losses[seen.losses.len() - scenario.losses as usize..];
        let windows = replayed(scenario, seen.initial_window, losses, past);
        for (found, window) in found.iter_mut().zip(windows) {
            found.push((window, scenario.weight));
        }
        ahead::each_future(scenario, number, now, |weight, link, gaps| {
            let windows = going_on(scenario.flow, link, now, gaps, future);
            for (found, window) in found[past.len()..].iter_mut().zip(windows) {
                found.push((window, weight));
            }
        });
    }
    (moments.into_iter().zip(found))
        .map(|(time_s, found)| {
            let cumulative = weighted(found.into_iter());
            WindowQuantiles {
                time_s,
                window_quantiles_packets: LEVELS.map(|level| quantile(&cumulative, level)),
            }
        })
        .collect()
}

/// The windows of an explanation at moments of what was seen.
fn replayed(scenario: &Scenario, initial_window: f64, losses: &[f64], at_s: &[f64]) -> Vec<f64> {
    let mut losses = losses.iter().copied().peekable();
    let next = move |arrived: f64| {
        while losses.next_if(|&lost| lost <= arrived).is_some() {}
        losses.peek().copied().unwrap_or(f64::INFINITY)
    };
    let flow = scenario.flow.at_the_start(initial_window);
    stepped(flow, &scenario.link, next, at_s)
}

/// The windows of a future at moments after what was seen.
fn going_on(mut flow: Flow, link: &Link, now: &Now, mut gaps: Gaps, at_s: &[f64]) -> Vec<f64> {
    flow.at_s = now.round_began_s(&flow, link);
    let mut next_loss = now.packets + gaps.next();
    let next = move |arrived: f64| {
        if next_loss <= arrived {
            next_loss = arrived + gaps.next();
        }
        next_loss
    };
    stepped(flow, link, next, at_s)
}

/// The window that is in force at each of these moments, which never fall, packets in flight.
fn stepped(
    mut flow: Flow,
    link: &Link,
    mut next_loss: impl FnMut(f64) -> f64,
    at_s: &[f64],
) -> Vec<f64> {
    let mut in_force = flow.in_flight(link);
    (at_s.iter())
        .map(|&at_s| {
            while flow.at_s <= at_s {
                in_force = flow.in_flight(link);
                let lost = next_loss(flow.arrived);
                flow.round(link, lost);
            }
            in_force
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short_flow::flow::Exit;

    /// What a receiver sees of a flow of the model over `link` until `bytes`, and its windows: (s, packets).
    fn of_model(exit: Exit, link: &Link, bytes: f64) -> (Measured, Vec<(f64, f64)>) {
        let mut flow = Flow::new(10.0, exit);
        let (mut timeline, mut windows) = (Vec::new(), Vec::new());
        while flow.arrived * 1448.0 < 30e6 {
            windows.push((flow.at_s, flow.in_flight(link)));
            let round = flow.round(link, f64::INFINITY);
            let last = (round.before + round.packets) as u32;
            timeline.extend((round.before as u32 + 1..=last).map(|packet| {
                let packet = f64::from(packet);
                (round.arrival_s(packet), packet * 1448.0)
            }));
        }
        timeline.retain(|one: &(f64, f64)| one.1 <= bytes);
        let &(time_s, bytes) = timeline.last().unwrap();
        let measured = Measured {
            timeline,
            receive_window_bytes: (link.window_limit.is_finite())
                .then_some(link.window_limit * 1448.0),
            ..Measured::new(bytes, time_s, link.rtt_s)
        };
        (measured, windows)
    }

    fn link(rate: f64, rtt_s: f64, window_limit: f64) -> Link {
        Link {
            rate,
            rtt_s,
            room: f64::INFINITY,
            window_limit,
        }
    }

    #[test]
    fn windows_of_the_model_s_own_flow_are_found_again() {
        let held = link(4000.0, 0.1, 150.0);
        let filling = link(1000.0, 0.08, f64::INFINITY);
        for (exit, link) in [(Exit::At(f64::INFINITY), held), (Exit::HyStart, filling)] {
            let (measured, truth) = of_model(exit, &link, 1e6);
            let found = windows(&measured, 2e6).unwrap();
            assert_eq!(found.pathcast.len(), POINTS as usize + 1);
            // a full path delivers at its rate, whatever the window
            let full = (truth.iter()).find(|one| one.1 >= link.rate * link.rtt_s);
            let until_s = full.map_or(measured.time_s, |one| one.0.min(measured.time_s));
            let mut checked = 0;
            for point in &found.pathcast {
                // at a round's edge half of the explanations are a step further
                let near = |one: &&(f64, f64)| (one.0 - point.time_s).abs() < 0.1 * link.rtt_s;
                if point.time_s > until_s || truth.iter().any(|one| near(&one)) {
                    continue;
                }
                let at = truth.partition_point(|one| one.0 <= point.time_s);
                let median = point.window_quantiles_packets[2];
                assert!(
                    (median / truth[at - 1].1 - 1.0).abs() < 0.15,
                    "{point:?}, truth {:?}",
                    truth[at - 1]
                );
                checked += 1;
            }
            assert!(checked > 10, "{checked}");
            let sorted = |point: &WindowQuantiles| point.window_quantiles_packets.is_sorted();
            assert!(found.pathcast.iter().all(sorted));
        }
    }

    #[test]
    fn a_receive_window_bounds_all_that_is_expected() {
        let (measured, _) = of_model(Exit::At(f64::INFINITY), &link(4000.0, 0.1, 150.0), 1e6);
        let found = windows(&measured, 20e6).unwrap();
        for point in &found.pathcast {
            assert!(
                point.window_quantiles_packets[4] <= 150.0 + 1e-9,
                "{point:?}"
            );
        }
        let last = found.published.last().unwrap();
        assert!((last.window_packets - 150.0).abs() < 1e-9, "{last:?}");
    }

    #[test]
    fn windows_end_with_the_estimate_and_sizes_below_what_was_seen_are_refused() {
        let (measured, _) = of_model(Exit::HyStart, &link(1000.0, 0.08, f64::INFINITY), 1e6);
        let found = windows(&measured, 5e6).unwrap();
        let whole = estimate(&measured, &[5e6]).unwrap();
        let end_s = found.pathcast.last().unwrap().time_s;
        assert!((end_s - whole.sizes[0].time_s).abs() < 1e-9);
        assert_eq!(found.pathcast[0].window_quantiles_packets[2], 10.0);
        assert!(windows(&measured, 0.5e6).is_err());
    }
}
