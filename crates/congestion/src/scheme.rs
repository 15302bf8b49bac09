//! Schemes by name, as users and the kernel call them.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;

use crate::KINDS;
use crate::controller::Controller;

/// Makes the controller of a new connection out of the seed of what it draws. It may hold what all
/// connections share.
pub type Factory = Arc<dyn Fn(u64) -> Box<dyn Controller> + Send + Sync>;

/// A congestion controller that the simulator can run, by its name.
#[derive(Clone)]
pub struct Scheme {
    name: Arc<str>,
    factory: Factory,
}

/// The argument as it is shown, and what is made with it; none if it is wrong.
type WithArgument = fn(&str) -> Option<(String, Factory)>;

/// A name of the registry, and what it stands for.
pub(crate) struct Kind {
    name: &'static str,
    make: Make,
}

enum Make {
    Plain(fn(u64) -> Box<dyn Controller>),
    /// For `NAME:ARGUMENT`: how errors show that, and how it is made unless the argument is wrong.
    WithArgument(&'static str, WithArgument),
}

impl Kind {
    /// One scheme.
    pub(crate) const fn plain(name: &'static str, make: fn(u64) -> Box<dyn Controller>) -> Self {
        let make = Make::Plain(make);
        Self { name, make }
    }

    /// A scheme for each argument, which stands behind a colon; `usage` says in errors what it may be.
    pub(crate) const fn with_argument(
        name: &'static str,
        usage: &'static str,
        make: WithArgument,
    ) -> Self {
        let make = Make::WithArgument(usage, make);
        Self { name, make }
    }

    /// The scheme called `name`, if it is of this kind.
    fn scheme(&self, name: &str) -> Option<Scheme> {
        let (name, factory) = match self.make {
            Make::Plain(make) => (name == self.name).then(|| (name.into(), Arc::new(make) as _))?,
            Make::WithArgument(_, make) => {
                let argument = name.strip_prefix(self.name)?.strip_prefix(':')?;
                let (argument, factory) = make(argument)?;
                (format!("{}:{argument}", self.name).into(), factory)
            }
        };
        Some(Scheme { name, factory })
    }
}

/// Schemes that the program has added.
static REGISTERED: RwLock<Vec<Scheme>> = RwLock::new(Vec::new());

/// A name that no scheme has.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is no scheme of the simulator, expected one of {expected}",
    expected = expected()
)]
pub struct SchemeError(pub String);

/// A name by which there is a scheme.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is a scheme already, expected another name")]
pub struct NameTaken(pub String);

fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().flatten()
}

fn expected() -> String {
    let with_argument = kinds().filter_map(|kind| match kind.make {
        Make::Plain(_) => None,
        Make::WithArgument(usage, _) => Some(usage.to_string()),
    });
    let names = Scheme::all().into_iter().map(|scheme| scheme.to_string());
    names.chain(with_argument).collect::<Vec<_>>().join(", ")
}

impl Scheme {
    /// All schemes, those of the program too; but of those with an argument, `fixed:N`, none.
    pub fn all() -> Vec<Self> {
        let ours = kinds().filter(|kind| matches!(kind.make, Make::Plain(_)));
        let mut all: Vec<_> = ours.map(|kind| Self::named(kind.name)).collect();
        all.extend_from_slice(&REGISTERED.read().unwrap_or_else(PoisonError::into_inner));
        all
    }

    /// The scheme called `name`.
    ///
    /// # Panics
    /// There is no such scheme. Parse names that come from outside instead.
    pub fn named(name: &str) -> Self {
        name.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Adds a scheme to those that names stand for, until the process ends: so that a name means one
    /// thing in all runs, none is replaced or taken away.
    ///
    /// # Errors
    /// There is a scheme of that name.
    pub fn register(name: &str, factory: Factory) -> Result<Self, NameTaken> {
        let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
        let is_ours = kinds().any(|kind| kind.name == name || kind.scheme(name).is_some());
        if is_ours || registered.iter().any(|scheme| &*scheme.name == name) {
            return Err(NameTaken(name.to_string()));
        }
        let name = name.into();
        let scheme = Self { name, factory };
        registered.push(scheme.clone());
        Ok(scheme)
    }

    /// The controller of a new connection; `seed` is that of what it draws, so that flows of one scheme
    /// do not all draw alike.
    pub fn controller(&self, seed: u64) -> Box<dyn Controller> {
        (self.factory)(seed)
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;
    fn from_str(name: &str) -> Result<Self, SchemeError> {
        let of_the_program = || {
            let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
            let found = registered.iter().find(|scheme| &*scheme.name == name);
            found.cloned()
        };
        let ours = kinds().find_map(|kind| kind.scheme(name));
        ours.or_else(of_the_program)
            .ok_or_else(|| SchemeError(name.to_string()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scheme({})", self.name)
    }
}

/// A name stands for one scheme.
impl PartialEq for Scheme {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Scheme {}

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
        for scheme in Scheme::all().into_iter().chain([Scheme::named("fixed:64")]) {
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
                assert!(outcome.utilization > 0.0, "{scheme} {path:?}");
                assert_eq!(outcome, run(), "{scheme} {path:?}");
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for scheme in Scheme::all().into_iter().chain([Scheme::named("fixed:64")]) {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        assert_eq!(Scheme::named("fixed:064").to_string(), "fixed:64");
    }

    #[test]
    fn a_program_adds_schemes_that_share_what_it_holds() {
        let weights = Arc::new(vec![7, 9]);
        let shared = Arc::clone(&weights);
        let factory: Factory =
            Arc::new(move |seed| Box::new(crate::FixedWindow::new(shared[seed as usize % 2])));
        let scheme = Scheme::register("learned", Arc::clone(&factory)).unwrap();
        assert_eq!("learned".parse(), Ok(scheme.clone()));
        assert!(Scheme::all().contains(&scheme));
        assert_eq!(scheme.controller(1).cwnd(), 9.0);
        for taken in ["learned", "cubic", "fixed", "fixed:3"] {
            let again = Scheme::register(taken, Arc::clone(&factory));
            assert_eq!(again, Err(NameTaken(taken.to_string())));
        }
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
