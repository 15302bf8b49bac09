//! The highest bitrate whose segment arrives within its own duration, with a chosen confidence.

use serde::Serialize;
use thiserror::Error;

use crate::path_state::{LEVELS, PathState};

/// Most rungs of a ladder.
pub const RUNGS: usize = 64;

/// What a player can choose from.
#[derive(Debug, Clone, PartialEq)]
pub enum Ladder {
    /// Any bitrate.
    Any,
    /// Bitrates, bit/s, ascending.
    Bitrates(Vec<f64>),
    /// Sizes of the next segment in bytes, ascending.
    Sizes(Vec<f64>),
}

/// Why a ladder was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("ladder has {got}, expected 1 to {RUNGS} positive numbers, ascending, separated by commas")]
pub struct LadderError {
    got: String,
}

impl Ladder {
    /// Reads a list; `B` or `kB` after each number makes it a size in bytes.
    ///
    /// # Errors
    /// [`LadderError`] if it has no positive numbers, or they do not ascend, or sizes and bitrates are mixed.
    pub fn parse(text: &str) -> Result<Self, LadderError> {
        let wrong = |got: String| LadderError { got };
        let (mut values, mut sizes) = (Vec::new(), 0);
        for item in text.split(',') {
            let (number, factor) = match item.strip_suffix("kB") {
                Some(number) => (number, 1e3),
                None => (item.strip_suffix('B').unwrap_or(item), 1.0),
            };
            sizes += usize::from(number.len() < item.len());
            let value: f64 = (number.trim().parse())
                .map_err(|_| wrong(format!("{:?}", item.chars().take(20).collect::<String>())))?;
            let least = values.last().copied().unwrap_or(0.0);
            if !(value.is_finite() && value * factor > least && value < 1e13) {
                return Err(wrong(format!("{value}")));
            }
            values.push(value * factor);
            if values.len() > RUNGS {
                return Err(wrong("too many numbers".into()));
            }
        }
        match sizes {
            0 => Ok(Self::Bitrates(values)),
            all if all == values.len() => Ok(Self::Sizes(values)),
            _ => Err(wrong("sizes beside bitrates".into())),
        }
    }
}

/// A rung of a ladder, and how likely its segment arrives in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rung {
    /// Bit/s of its segment.
    pub bitrate_bps: f64,
    /// Chance that the segment arrives within its duration.
    pub confidence: f64,
}

/// A bitrate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bitrate {
    /// The choice, bit/s.
    pub bitrate_bps: f64,
    /// Its number in the ladder, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<usize>,
    /// Whether the segment arrives in time with the chosen confidence. If none of the ladder does, the lowest is chosen.
    pub is_confident: bool,
    /// All rungs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<Rung>,
    /// The mean rate that the choice needs.
    #[serde(skip)]
    pub needed_bps: f64,
}

/// Chooses for a segment of `segment_s` seconds. The state's horizon is the segment's duration, and its asked level one
/// minus the confidence. None if no rate is known.
pub fn choose(state: &PathState, segment_s: f64, ladder: &Ladder) -> Option<Bitrate> {
    let (sure_bps, rates) = (state.asked_bps?, state.rates_bps?);
    // the request takes a round trip
    let left_s = (segment_s - state.rtt_s.unwrap_or(0.0)).max(0.05 * segment_s);
    let part = left_s / segment_s;
    let bitrates = match ladder {
        Ladder::Any => {
            return Some(Bitrate {
                bitrate_bps: sure_bps * part,
                rung: None,
                is_confident: true,
                ladder: Vec::new(),
                needed_bps: sure_bps,
            });
        }
        Ladder::Bitrates(bitrates) => bitrates.clone(),
        Ladder::Sizes(sizes) => sizes.iter().map(|bytes| 8.0 * bytes / segment_s).collect(),
    };
    let fits = bitrates.iter().rposition(|rate| *rate <= sure_bps * part);
    let chosen = fits.unwrap_or(0);
    let rungs = bitrates.iter().map(|&bitrate_bps| Rung {
        bitrate_bps,
        confidence: above(&rates.values(), bitrate_bps / part),
    });
    Some(Bitrate {
        bitrate_bps: *bitrates.get(chosen)?,
        rung: Some(chosen),
        is_confident: fits.is_some(),
        ladder: rungs.collect(),
        needed_bps: bitrates[chosen] / part,
    })
}

/// The chance that a rate is at least `rate`, by its quantiles: on a line between two of them, in logarithms.
fn above(quantiles: &[f64; 5], rate: f64) -> f64 {
    let ln = |value: f64| value.max(1.0).ln();
    if rate <= quantiles[0] {
        // beyond the outermost quantile: halfway to certainty
        return 1.0 - LEVELS[0] * (rate / quantiles[0].max(1.0)).clamp(0.0, 1.0);
    }
    for (values, levels) in quantiles.windows(2).zip(LEVELS.windows(2)) {
        if rate <= values[1] {
            let part = (ln(rate) - ln(values[0])) / (ln(values[1]) - ln(values[0])).max(1e-9);
            return 1.0 - levels[0] - part.clamp(0.0, 1.0) * (levels[1] - levels[0]);
        }
    }
    (1.0 - LEVELS[4]) * (quantiles[4] / rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::path_state::Asked;

    fn state() -> PathState {
        let asked = Asked {
            now_s: 100.0,
            window_s: 600.0,
            horizon_s: 4.0,
            level: 0.1,
        };
        let mut entry = Entry::default();
        entry.newest_s = 100.0;
        for i in 0..200 {
            entry
                .rates
                .update(f64::from(i) * 0.5, 1e7 * (1.0 + 0.2 * f64::from(i % 3)));
        }
        PathState::own(&entry, &asked).unwrap()
    }

    #[test]
    fn the_highest_bitrate_that_is_sure_enough_is_chosen() {
        let ladder = Ladder::parse("1000000,3e6,6e6,9e6,20e6").unwrap();
        let chosen = choose(&state(), 4.0, &ladder).unwrap();
        assert_eq!((chosen.bitrate_bps, chosen.rung), (9e6, Some(3)));
        assert!(chosen.is_confident);
        assert!(
            chosen
                .ladder
                .windows(2)
                .all(|two| two[0].confidence >= two[1].confidence)
        );
        assert!(chosen.ladder[4].confidence < 0.1);
        let sizes = Ladder::parse("500kB,4500kB,10000kB").unwrap();
        assert_eq!(choose(&state(), 4.0, &sizes).unwrap().rung, Some(1));
    }

    #[test]
    fn if_nothing_fits_the_lowest_is_chosen_and_that_is_said() {
        let chosen = choose(&state(), 4.0, &Ladder::Bitrates(vec![1e8, 2e8])).unwrap();
        assert_eq!(chosen.rung, Some(0));
        assert!(!chosen.is_confident);
    }

    #[test]
    fn ladders_that_are_none_are_refused() {
        for text in ["", "1,", "2,1", "-1", "nan", "1e99", "1kB,2", "1,x"] {
            assert!(Ladder::parse(text).is_err(), "{text}");
        }
    }
}
