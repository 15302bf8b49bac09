//! The version of HTTP by which a page loads soonest, by the formulas of the crate page-model.

use std::sync::Arc;

use pathcast_page_model::{LossCurve, Model, load};
use pathcast_path::Span;
use pathcast_scenario::{Http, Page, Protocol};
use serde::Serialize;

use super::cell;
use crate::curve::Points;
use crate::path_state::{LEVELS, PathState, Quantiles};

/// Widths of cells, in logarithms, of rates and round-trip times, and of losses.
const WIDTH: f64 = 0.2;
const LOSS_WIDTH: f64 = 0.7;
/// A page that does not load counts as one that takes as long, milliseconds.
const NEVER_MS: f64 = 300_000.0;

/// By how much a time in a browser differs from the formulas', as a standard deviation of the logarithm: how browsers differ
/// from the simulator (`docs/explanation/page-loads.md`), and the formulas from that, a tenth.
const DIFFERS: [(Protocol, f64); 3] = [
    (Protocol::Http1, 0.11),
    (Protocol::Http2, 0.2),
    (Protocol::Http3, 0.2),
];
/// The same for all versions: by how much the path differs from what formulas take of it.
const PATH_DIFFERS: f64 = 0.18;
/// Draws of that difference for each load.
const DRAWS: u64 = 48;

/// What paths must have in common to share an answer for a page.
pub type Key = [u16; 5];

/// The key of a path.
pub fn key(state: &PathState) -> Key {
    [
        state
            .rates_bps
            .map_or(0, |rates| cell(rates.q50.max(1e4), WIDTH)),
        state.rates_bps.map_or(0, |rates| {
            cell(
                (rates.q95.max(1e4) / rates.q05.max(1e4)).max(1.0),
                LOSS_WIDTH,
            )
        }),
        cell(rtt_s(state), WIDTH),
        cell(state.headroom(), LOSS_WIDTH),
        cell(state.base_loss.unwrap_or(0.0).max(1e-5), LOSS_WIDTH),
    ]
}

/// Load times by one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadTimes {
    /// The protocol, as ALPN names it.
    pub protocol: &'static str,
    /// Quantiles of the load time, milliseconds.
    pub quantiles_ms: Quantiles,
}

/// A choice of the version of HTTP.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The protocol by which the median load is soonest.
    pub protocol: &'static str,
    /// Probability that it is soonest, over chance, the rate, and how browsers differ from the formulas.
    pub confidence: f64,
    /// All protocols.
    pub load_times: Vec<LoadTimes>,
}

/// Loads a page `loads` times by each protocol: at each of the quantiles of the rate in turn.
pub fn choose(
    page: &Arc<Page>,
    state: &PathState,
    curves: &Points,
    protocols: &[Protocol],
    scheme: &str,
    loads: usize,
) -> Choice {
    let loads = loads.max(1);
    let models: Vec<Model> = (0..LEVELS.len().min(loads))
        .map(|level| model(state, curves, scheme, level))
        .collect();
    let times: Vec<Vec<f64>> = (protocols.iter())
        .map(|&protocol| {
            (0..loads)
                .map(|number| {
                    // the median first, for a single load
                    let model = &models[number % models.len()];
                    let loaded = load(page, Http::new(protocol), model, number as u64);
                    loaded.load_ms.unwrap_or(NEVER_MS)
                })
                .flat_map(|load_ms| (0..DRAWS).map(move |draw| differing(load_ms, protocol, draw)))
                .collect()
        })
        .collect();
    let summed: Vec<LoadTimes> = (protocols.iter().zip(&times))
        .map(|(protocol, times)| LoadTimes {
            protocol: protocol.name(),
            quantiles_ms: quantiles(times),
        })
        .collect();
    let median = |which: &usize| summed[*which].quantiles_ms.q50;
    let best = (0..summed.len()).min_by(|a, b| median(a).total_cmp(&median(b)));
    let best = best.unwrap_or(0);
    let count = times.first().map_or(0, Vec::len);
    let wins = (0..count)
        .filter(|&number| times.iter().all(|one| times[best][number] <= one[number]))
        .count();
    Choice {
        protocol: protocols.get(best).map_or("", |one| one.name()),
        confidence: wins as f64 / count.max(1) as f64,
        load_times: summed,
    }
}

/// A number from 0 to 1 by the number of a draw (SplitMix64's finish).
fn uniform(number: u64) -> f64 {
    let mut draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((draw ^ (draw >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A load time as a browser may have it: a draw whose logarithm is normal, as the sum of twelve uniform numbers is.
fn differing(load_ms: f64, protocol: Protocol, draw: u64) -> f64 {
    let of = DIFFERS.iter().position(|(one, _)| *one == protocol);
    let of = of.unwrap_or(DIFFERS.len() - 1);
    let normal = |series: usize| {
        let first = (series as u64 * DRAWS + draw) * 12 + 1;
        (first..first + 12).map(uniform).sum::<f64>() - 6.0
    };
    let differs = DIFFERS[of].1 * normal(of) + PATH_DIFFERS * normal(DIFFERS.len());
    load_ms * differs.exp()
}

/// The protocol for a share `explore` of the decisions is drawn among all; the draw is that of the decision's number.
/// Returns the protocol and the chance with which it was chosen.
pub fn explore(choice: &Choice, explore: f64, id: u64) -> (&'static str, f64) {
    let count = choice.load_times.len().max(1) as f64;
    let best = 1.0 - explore + explore / count;
    let uniform = uniform(id);
    if uniform >= explore || choice.load_times.is_empty() {
        return (choice.protocol, best);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below count
    let drawn = (uniform / explore * count) as usize;
    let drawn = &choice.load_times[drawn.min(choice.load_times.len() - 1)];
    match drawn.protocol == choice.protocol {
        true => (choice.protocol, best),
        false => (drawn.protocol, explore / count),
    }
}

/// The round-trip time of a page load in whose way no queue stands.
fn rtt_s(state: &PathState) -> f64 {
    let known = state.least_rtt_s.or(state.rtt_s);
    known.unwrap_or(0.1).clamp(1e-4, 10.0)
}

/// The path at a quantile of its rate.
fn model(state: &PathState, curves: &Points, scheme: &str, number: usize) -> Model {
    // the median, then outward
    const ORDER: [usize; 5] = [2, 1, 3, 0, 4];
    let rtt_s = rtt_s(state);
    let rate_bps = (state.rates_bps).map(|rates| {
        // headers are on the link too
        rates.values()[ORDER[number]].max(1e4) * state.headroom() * 1500.0 / 1448.0
    });
    let none = LossCurve::constant(0.0);
    let mut model = Model::new(scheme, Span::from_secs(rtt_s), rate_bps, none);
    let curves = curves.iter().filter_map(|(connections, points)| {
        Some((*connections, LossCurve::of_points(points.clone())?))
    });
    let curves: Vec<_> = curves.collect();
    if !curves.is_empty() {
        model.curves = curves;
    }
    model
}

fn quantiles(times: &[f64]) -> Quantiles {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let most = (sorted.len() - 1) as f64;
    LEVELS
        .map(|level| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to most
            let at = (level * most) as usize;
            let next = sorted[(at + 1).min(sorted.len() - 1)];
            sorted[at] + (level * most).fract() * (next - sorted[at])
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_state::Basis;

    fn page() -> Arc<Page> {
        let mut text =
            String::from("[[resources]]\nurl = 'https://example.org/'\nsize = '30 kB'\n");
        for number in 0..150 {
            text += &format!(
                "[[resources]]\nurl = 'https://example.org/{number}.png'\nsize = '6 kB'\n\
                 after = {{ of = 'https://example.org/' }}\n"
            );
        }
        Arc::new(Page::parse(&text, "page.toml").unwrap())
    }

    fn state(rate_bps: f64, loss: f64) -> PathState {
        PathState {
            basis: Basis {
                group: None,
                samples: 10,
                age_s: 0.0,
                assumed_rtt: false,
            },
            rates_bps: Some([rate_bps; 5].into()),
            rate: None,
            rtt_s: Some(0.05),
            least_rtt_s: Some(0.05),
            loss: Some(loss),
            base_loss: Some(loss),
        }
    }

    fn chosen(loss: f64) -> Choice {
        let curve = vec![(1, vec![(1.0, loss)])];
        let two = [Protocol::Http1, Protocol::Http2];
        choose(&page(), &state(2e7, loss), &curve, &two, "cubic", 20)
    }

    #[test]
    fn one_connection_is_better_on_a_clean_path_and_six_on_a_lossy_one() {
        let clean = chosen(1e-6);
        assert_eq!(clean.protocol, "h2");
        assert!(clean.confidence > 0.9, "{}", clean.confidence);
        let lossy = chosen(0.03);
        assert_eq!(lossy.protocol, "http/1.1");
        assert!(lossy.load_times[1].quantiles_ms.q95 > lossy.load_times[1].quantiles_ms.q05);
    }

    #[test]
    fn protocols_that_differ_by_less_than_browsers_do_are_not_told_apart() {
        // a document alone: both need the same round trips
        let page = "[[resources]]\nurl = 'https://example.org/'\nsize = '30 kB'\n";
        let page = Arc::new(Page::parse(page, "page.toml").unwrap());
        let two = [Protocol::Http1, Protocol::Http2];
        let found = choose(&page, &state(2e7, 0.0), &Vec::new(), &two, "cubic", 1);
        assert!((0.4..0.7).contains(&found.confidence), "{found:?}");
        let times = found.load_times[0].quantiles_ms;
        assert!(1.8 < times.q95 / times.q05 && times.q95 / times.q05 < 2.2);
    }

    #[test]
    fn what_is_explored_has_its_propensity() {
        let choice = chosen(1e-6);
        let (mut other, mut weight) = (0, 0.0);
        for id in 0..10_000 {
            let (protocol, propensity) = explore(&choice, 0.2, id);
            other += u32::from(protocol != choice.protocol);
            weight += 1.0 / propensity * f64::from(u8::from(protocol == "http/1.1"));
        }
        assert!((900..1100).contains(&other), "{other}");
        assert!((9000.0..11_000.0).contains(&weight), "{weight}");
        assert_eq!(explore(&choice, 0.0, 5), ("h2", 1.0));
    }

    #[test]
    fn the_key_of_a_path_is_coarse() {
        assert_eq!(key(&state(2.001e7, 0.01)), key(&state(2.002e7, 0.0101)));
        assert_ne!(key(&state(2e7, 0.01)), key(&state(4e7, 0.01)));
        // what the model reads is in it
        let nearer = PathState {
            least_rtt_s: Some(0.02),
            ..state(2e7, 0.01)
        };
        assert_ne!(key(&state(2e7, 0.01)), key(&nearer));
    }
}
