//! Runs in the simulator and the emulator, with progress and Ctrl-C.

use std::ops::ControlFlow;
use std::time::Instant;

use pathcast_congestion::Scheme;
use pathcast_path::Span;
use pathcast_sim::Simulation;
use pyo3::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use crate::errors::SchemeError;
use crate::path::parse;
use crate::trace::Trace;

/// The schemes that the simulator has.
#[pyfunction]
pub fn simulator_schemes() -> Vec<&'static str> {
    Scheme::ALL.map(Scheme::name).to_vec()
}

fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Tells Python how far the run is; an exception there (Ctrl-C among them) is kept and ends the run.
pub fn tell(progress: Option<&Py<PyAny>>, elapsed_s: f64, raised: &mut Option<PyErr>) -> bool {
    let told = Python::attach(|py| {
        py.check_signals()?;
        progress.map_or(Ok(()), |progress| {
            progress.call1(py, (elapsed_s,)).map(|_| ())
        })
    });
    if let Err(error) = told {
        *raised = Some(error);
    }
    raised.is_none()
}

/// Runs the simulator: a run report as JSON, and the trace if `record`.
#[pyfunction]
#[pyo3(signature = (path_text, file, schemes, duration_s, seed, record, progress=None))]
#[allow(clippy::too_many_arguments)] // Python calls it by name
pub fn simulate(
    py: Python<'_>,
    path_text: &str,
    file: &str,
    schemes: Vec<String>,
    duration_s: f64,
    seed: u64,
    record: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Option<Trace>)> {
    let path = parse(path_text, file)?;
    let schemes = schemes
        .iter()
        .map(|name| {
            name.parse()
                .map_err(|error| SchemeError::new_err(format!("{error}")))
        })
        .collect::<PyResult<Vec<Scheme>>>()?;
    let spec = Simulation {
        path,
        schemes,
        duration: Span::from_secs(duration_s),
        seed,
        record,
    };
    let mut raised = None;
    let (outcome, cpu_s, wall_s) = py.detach(|| {
        let (wall, cpu_s) = (Instant::now(), thread_cpu_s());
        let outcome = spec.run(
            &mut |now| match tell(progress.as_ref(), now.as_secs(), &mut raised) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            },
        );
        (
            outcome,
            thread_cpu_s() - cpu_s,
            wall.elapsed().as_secs_f64(),
        )
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let outcome = outcome.map_err(|error| SchemeError::new_err(error.to_string()))?;
    let report = serde_json::to_string(&outcome.report(cpu_s, wall_s)).expect("plain data");
    let trace = outcome.trace.map(|mut trace| {
        let version = env!("CARGO_PKG_VERSION").to_string();
        trace
            .metadata
            .environment
            .insert("pathcast".to_string(), version);
        Trace(trace)
    });
    Ok((report, trace))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pathcast_emulator::Options;

    use super::*;
    use crate::errors::EmulatorError;

    /// Runs the emulator: a run report as JSON, and the trace.
    #[pyfunction]
    #[pyo3(signature = (path_text, file, schemes, duration_s, seed, progress=None))]
    pub fn emulate(
        py: Python<'_>,
        path_text: &str,
        file: &str,
        schemes: Vec<String>,
        duration_s: f64,
        seed: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, Option<Trace>)> {
        let path = parse(path_text, file)?;
        let options = Options::new(path, schemes, Span::from_secs(duration_s), seed);
        let (stop, raised) = (AtomicBool::new(false), Mutex::new(None));
        let outcome = py.detach(|| {
            let watch = |elapsed_s: f64| {
                let mut raised = raised.lock().expect("no panic holds it");
                if raised.is_none() && !tell(progress.as_ref(), elapsed_s, &mut raised) {
                    stop.store(true, Ordering::Relaxed);
                }
            };
            pathcast_emulator::emulate(&options, &watch, &stop)
        });
        if let Some(error) = raised.into_inner().expect("no panic holds it") {
            return Err(error);
        }
        let (report, trace) = outcome.map_err(|error| EmulatorError::new_err(error.to_string()))?;
        Ok((
            serde_json::to_string(&report).expect("plain data"),
            Some(Trace(trace)),
        ))
    }

    /// What the emulator can do here: root, TUN, real-time priority, tcp_probe, schemes, and reasons
    /// for what is missing.
    #[pyfunction]
    pub fn capabilities(py: Python<'_>) -> (bool, bool, bool, bool, Vec<String>, Vec<String>) {
        let found = py.detach(pathcast_emulator::capabilities);
        (
            found.root,
            found.tun,
            found.fifo,
            found.tcp_probe,
            found.schemes,
            found.reasons,
        )
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::*;
    use crate::errors::EmulatorError;

    const WHY: &str = "the emulator needs Linux; the simulator runs everywhere";

    /// Refuses: there is no emulator here.
    #[pyfunction]
    #[pyo3(signature = (*_args, **_kwargs))]
    pub fn emulate(
        _args: &Bound<'_, pyo3::types::PyTuple>,
        _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<()> {
        Err(EmulatorError::new_err(WHY))
    }

    /// Nothing can be emulated here.
    #[pyfunction]
    pub fn capabilities() -> (bool, bool, bool, bool, Vec<String>, Vec<String>) {
        (
            false,
            false,
            false,
            false,
            Vec::new(),
            vec![WHY.to_string()],
        )
    }
}

pub use linux::{capabilities, emulate};
