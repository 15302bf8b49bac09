//! The highest bitrate whose segment arrives within its own duration, with a chosen confidence.

use serde::Serialize;
use thiserror::Error;

use crate::distribution::RateDistribution;

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

/// Chooses for a segment of `segment_s` seconds: the highest bitrate whose segment arrives in time with at least this
/// confidence. `rate` is the distribution of the mean rate over the segment's duration, of which the request takes `request_s`.
pub fn choose(
    rate: &RateDistribution,
    request_s: f64,
    segment_s: f64,
    confidence: f64,
    ladder: &Ladder,
) -> Bitrate {
    let left_s = (segment_s - request_s).max(0.05 * segment_s);
    let part = left_s / segment_s;
    let bitrates = match ladder {
        Ladder::Any => {
            let sure_bps = rate.quantile_bps(1.0 - confidence);
            return Bitrate {
                bitrate_bps: sure_bps * part,
                rung: None,
                is_confident: true,
                ladder: Vec::new(),
                needed_bps: sure_bps,
            };
        }
        Ladder::Bitrates(bitrates) => bitrates.clone(),
        Ladder::Sizes(sizes) => sizes.iter().map(|bytes| 8.0 * bytes / segment_s).collect(),
    };
    let rungs: Vec<Rung> = bitrates
        .iter()
        .map(|&bitrate_bps| Rung {
            bitrate_bps,
            confidence: rate.at_least(bitrate_bps / part),
        })
        .collect();
    let fits = rungs
        .iter()
        .rposition(|rung| rung.confidence >= confidence - 1e-9);
    let chosen = fits.unwrap_or(0);
    // a ladder has a rung
    let bitrate_bps = bitrates.get(chosen).copied().unwrap_or(0.0);
    Bitrate {
        bitrate_bps,
        rung: Some(chosen),
        is_confident: fits.is_some(),
        ladder: rungs,
        needed_bps: bitrate_bps / part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rates;

    fn rate() -> RateDistribution {
        let mut rates = Rates::default();
        for i in 0..200 {
            rates.update(
                f64::from(i) * 0.5,
                1e7 * (1.0 + 0.2 * f64::from(i % 3)),
                None,
            );
        }
        rates.forecast(100.0, 4.0).unwrap()
    }

    fn chosen(ladder: &str) -> Bitrate {
        choose(&rate(), 0.0, 4.0, 0.9, &Ladder::parse(ladder).unwrap())
    }

    #[test]
    fn the_highest_bitrate_that_is_sure_enough_is_chosen() {
        let sizes = chosen("500kB,4500kB,10000kB");
        assert_eq!(sizes.rung, Some(1));
        let chosen = chosen("1000000,3e6,6e6,9e6,20e6");
        assert_eq!((chosen.bitrate_bps, chosen.rung), (9e6, Some(3)));
        assert!(chosen.is_confident);
        assert!(
            chosen
                .ladder
                .windows(2)
                .all(|two| two[0].confidence >= two[1].confidence)
        );
        assert!(chosen.ladder[4].confidence < 0.1);
    }

    #[test]
    fn if_nothing_fits_the_lowest_is_chosen_and_that_is_said() {
        let chosen = chosen("1e8,2e8");
        assert_eq!(chosen.rung, Some(0));
        assert!(!chosen.is_confident);
    }

    #[test]
    fn any_bitrate_is_the_rate_less_the_time_of_the_request() {
        let (near, far) = [0.0, 1.0]
            .map(|request_s| choose(&rate(), request_s, 4.0, 0.9, &Ladder::Any))
            .into();
        assert_eq!(near.bitrate_bps, rate().quantile_bps(0.1));
        assert_eq!(far.bitrate_bps, 0.75 * near.bitrate_bps);
    }

    #[test]
    fn ladders_that_are_none_are_refused() {
        for text in ["", "1,", "2,1", "-1", "nan", "1e99", "1kB,2", "1,x"] {
            assert!(Ladder::parse(text).is_err(), "{text}");
        }
    }
}
