//! Many simulations over all cores.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pathcast_path::Time;
use rayon::prelude::*;

use crate::simulation::{Outcome, SimError, Simulation};

/// How a simulation of a batch ended; none if the batch was stopped before.
pub type Ended = Option<Result<Outcome, SimError>>;

/// Whether all of `simulations` can be run.
///
/// # Errors
/// The error of the first that cannot, with its index.
pub fn check_many(simulations: &[Simulation]) -> Result<(), (usize, SimError)> {
    for (index, simulation) in simulations.iter().enumerate() {
        simulation.check().map_err(|error| (index, error))?;
    }
    Ok(())
}

/// Runs all of `simulations` on rayon's current pool and returns their outcomes in the same order:
/// the same specs give the same results whatever the number of threads.
///
/// `stop` ends the batch early: runs that had not ended are `None`. `done` counts the runs that have ended.
/// A run that can make no progress has its error in its place.
///
/// # Errors
/// The error of the first simulation that cannot be run, with its index; nothing is run then.
pub fn run_many(
    simulations: &[Simulation],
    done: &AtomicUsize,
    stop: &AtomicBool,
) -> Result<Vec<Ended>, (usize, SimError)> {
    many(simulations, Simulation::run, done, stop)
}

/// As [`run_many`], with runs that are over when their pages have come, whatever else still runs.
///
/// # Errors
/// As [`run_many`].
pub fn load_many(
    simulations: &[Simulation],
    done: &AtomicUsize,
    stop: &AtomicBool,
) -> Result<Vec<Ended>, (usize, SimError)> {
    many(simulations, Simulation::load, done, stop)
}

type Run = fn(&Simulation, &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<Outcome, SimError>;

fn many(
    simulations: &[Simulation],
    run: Run,
    done: &AtomicUsize,
    stop: &AtomicBool,
) -> Result<Vec<Ended>, (usize, SimError)> {
    check_many(simulations)?;
    let stopped = || stop.load(Ordering::Relaxed);
    let run = |simulation: &Simulation| {
        if stopped() {
            return None;
        }
        let outcome = run(simulation, &mut |_| match stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        done.fetch_add(1, Ordering::Relaxed);
        (!stopped()).then_some(outcome)
    };
    // long and short runs come mixed: hand them out one by one
    Ok(simulations.par_iter().with_max_len(1).map(run).collect())
}

#[cfg(test)]
mod tests {
    use pathcast_congestion::Scheme;
    use pathcast_path::{Path, Span};

    use super::*;

    fn specs() -> Vec<Simulation> {
        let text = "rate = '20 Mbit/s'\ndelay = '10 ms'\nloss = 0.001\n";
        let path = Path::parse(text, "test.toml").unwrap();
        (0..12)
            .map(|seed| {
                let schemes = [Scheme::named("cubic"), Scheme::named("reno")];
                let duration = Span::from_secs(2.0 + seed as f64);
                Simulation::bulk(path.clone(), &schemes, duration, seed)
            })
            .collect()
    }

    fn run_on(threads: usize) -> String {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let outcomes = pool.install(|| run_many(&specs(), &done, &stop)).unwrap();
        assert_eq!(done.into_inner(), outcomes.len());
        let reports: Vec<_> = outcomes
            .iter()
            .flatten()
            .map(|outcome| outcome.as_ref().unwrap().report(0.0, 0.0))
            .collect();
        assert_eq!(reports.len(), 12);
        format!("{reports:?}")
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let one = run_on(1);
        assert_eq!(one, run_on(2));
        assert_eq!(one, run_on(7));
    }

    #[test]
    fn a_batch_that_is_stopped_returns_at_once() {
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(true));
        let outcomes = run_many(&specs(), &done, &stop).unwrap();
        assert!(outcomes.iter().all(Option::is_none));
    }

    #[test]
    fn a_run_without_progress_does_not_end_the_batch() {
        let mut specs = specs();
        let dead = "delay = '1 ms'\nloss = { kind = 'bursts', times = [['0 s', '99 s']] }\n";
        specs[3].scenario.links[0].path = Path::parse(dead, "dead.toml").unwrap();
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let outcomes = run_many(&specs, &done, &stop).unwrap();
        assert_eq!(done.into_inner(), outcomes.len());
        for (index, outcome) in outcomes.iter().enumerate() {
            assert_eq!(outcome.as_ref().unwrap().is_err(), index == 3);
        }
    }

    #[test]
    fn a_wrong_simulation_is_named_before_any_is_run() {
        let mut specs = specs();
        specs[7].scenario.flows.clear();
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let error = run_many(&specs, &done, &stop).unwrap_err();
        assert_eq!(error, (7, SimError::NoFlow));
        assert_eq!(done.into_inner(), 0);
    }
}
