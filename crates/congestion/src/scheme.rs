//! Schemes by name, as users and the kernel call them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::bbr::Bbr;
use crate::bbr3::Bbr3;
use crate::controller::Controller;
use crate::copa::Copa;
use crate::cubic::{Cubic, CubicConfig};
use crate::fixed::FixedWindow;
use crate::ledbat::{Ledbat, LedbatConfig};
use crate::reno::Reno;
use crate::scalable::Scalable;
use crate::vegas::Vegas;
use crate::vivace::Vivace;

/// A congestion controller that the simulator can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `cubic`: CUBIC as Linux has it.
    Cubic,
    /// `cubic-rfc9438`: CUBIC as RFC 9438 has it.
    CubicRfc9438,
    /// `cubic-hystart++`: CUBIC as Linux has it, but for HyStart++ (RFC 9406) in slow start.
    CubicHyStartPlusPlus,
    /// `reno`.
    Reno,
    /// `bbr`: BBR version 1, as Linux has it.
    Bbr,
    /// `bbr3`: BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr3,
    /// `vegas`, as Linux has it.
    Vegas,
    /// `scalable`: Scalable TCP, as Linux has it.
    Scalable,
    /// `copa` (Arun and Balakrishnan 2018).
    Copa,
    /// `vivace`: PCC Vivace-latency (Dong et al. 2018).
    Vivace,
    /// `ledbat`: RFC 6817.
    Ledbat,
    /// `ledbat++`: draft-irtf-iccrg-ledbat-plus-plus.
    LedbatPlusPlus,
    /// `fixed:N`: a window of N packets whatever happens.
    Fixed(u32),
}

/// A name that is no scheme.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is no scheme of the simulator, expected one of {names}, fixed:N with N packets from 1 on",
    names = Scheme::names()
)]
pub struct SchemeError(pub String);

impl Scheme {
    /// All schemes but [`Scheme::Fixed`], of which there is one for each window.
    pub const ALL: [Self; 12] = [
        Self::Cubic,
        Self::CubicRfc9438,
        Self::CubicHyStartPlusPlus,
        Self::Reno,
        Self::Bbr,
        Self::Bbr3,
        Self::Vegas,
        Self::Scalable,
        Self::Copa,
        Self::Vivace,
        Self::Ledbat,
        Self::LedbatPlusPlus,
    ];

    /// The scheme's name; that of a fixed window is without its size, which `to_string` has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::CubicHyStartPlusPlus => "cubic-hystart++",
            Self::Reno => "reno",
            Self::Bbr => "bbr",
            Self::Bbr3 => "bbr3",
            Self::Vegas => "vegas",
            Self::Scalable => "scalable",
            Self::Copa => "copa",
            Self::Vivace => "vivace",
            Self::Ledbat => "ledbat",
            Self::LedbatPlusPlus => "ledbat++",
            Self::Fixed(_) => "fixed",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The controller of a new connection; `seed` is that of what it draws, so that flows of one scheme
    /// do not all draw alike.
    pub fn controller(self, seed: u64) -> Box<dyn Controller> {
        match self {
            Self::Cubic => Box::new(Cubic::new(CubicConfig::linux())),
            Self::CubicRfc9438 => Box::new(Cubic::new(CubicConfig::rfc9438())),
            Self::CubicHyStartPlusPlus => Box::new(Cubic::new(CubicConfig::hystart_plus_plus())),
            Self::Reno => Box::new(Reno::default()),
            Self::Bbr => Box::new(Bbr::new(seed)),
            Self::Bbr3 => Box::new(Bbr3::new(seed)),
            Self::Vegas => Box::new(Vegas::default()),
            Self::Scalable => Box::new(Scalable::default()),
            Self::Copa => Box::new(Copa::default()),
            Self::Vivace => Box::new(Vivace::new(seed)),
            Self::Ledbat => Box::new(Ledbat::new(LedbatConfig::rfc6817())),
            Self::LedbatPlusPlus => Box::new(Ledbat::new(LedbatConfig::plus_plus())),
            Self::Fixed(packets) => Box::new(FixedWindow::new(packets)),
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;
    fn from_str(name: &str) -> Result<Self, SchemeError> {
        let fixed = name
            .strip_prefix("fixed:")
            .and_then(|packets| packets.parse().ok())
            .filter(|&packets| packets > 0)
            .map(Self::Fixed);
        Self::ALL
            .into_iter()
            .find(|scheme| scheme.name() == name)
            .or(fixed)
            .ok_or_else(|| SchemeError(name.to_string()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(packets) => write!(f, "fixed:{packets}"),
            _ => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::Span;

    use super::*;
    use crate::bottleneck::{Bottleneck, run_and_look};

    /// Bottlenecks from easy to hopeless.
    fn paths() -> [Bottleneck; 4] {
        let easy = Bottleneck::of_12mbps_60ms(1.0);
        [
            easy,
            Bottleneck { loss: 0.3, ..easy },
            Bottleneck {
                packets_per_s: 20.0,
                buffer_packets: 2.0,
                ..easy
            },
            Bottleneck {
                packets_per_s: 1e4,
                base_rtt: Span::from_millis(1),
                ..easy
            },
        ]
    }

    #[test]
    fn windows_and_rates_stay_in_bounds_and_runs_repeat() {
        for scheme in Scheme::ALL.into_iter().chain([Scheme::Fixed(64)]) {
            for path in paths() {
                let run = || {
                    let mut controller = scheme.controller(0);
                    run_and_look(controller.as_mut(), path, 12.0, 0.0, |_, controller| {
                        let (cwnd, rate) = (controller.cwnd(), controller.pacing_rate());
                        assert!((1.0..1e6).contains(&cwnd), "{scheme}: {cwnd}");
                        let sane = rate.is_none_or(|rate| (1e-3..1e8).contains(&rate));
                        assert!(sane, "{scheme}: {rate:?}");
                    })
                };
                let outcome = run();
                assert!(outcome.utilisation > 0.0, "{scheme} {path:?}");
                assert_eq!(outcome, run(), "{scheme} {path:?}");
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for scheme in Scheme::ALL.into_iter().chain([Scheme::Fixed(64)]) {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        assert_eq!("fixed:64".parse(), Ok(Scheme::Fixed(64)));
    }

    #[test]
    fn other_names_are_refused_with_those_there_are() {
        for name in [
            "", "fixed", "fixed:0", "fixed:-1", "fixed:x", "Cubic", "cubic ",
        ] {
            let error = name.parse::<Scheme>().unwrap_err().to_string();
            assert!(error.contains("ledbat++, "), "{error}");
            assert!(error.contains("fixed:N"), "{error}");
        }
    }
}
