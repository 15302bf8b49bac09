//! Trains of probes through the simulator and through window flow control alone.

use std::ops::ControlFlow;

use numpy::{IntoPyArray, PyReadonlyArray1};
use pathcast_sim::Sampler;
use pathcast_sim::window_loop::{self, FluidProbe, LoopError, Marks, Probe, Samples, Window};
use pathcast_trace::MessageRecord;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::runs::{run_timed, tell};
use crate::specs::What;

/// Window flow control alone.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct WindowLoop(window_loop::WindowLoop);

fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Sends a train without the GIL, and reports the finished share to Python; an exception there ends it.
fn send<'py>(
    py: Python<'py>,
    progress: Option<&Py<PyAny>>,
    train: impl FnOnce(&mut dyn FnMut(f64) -> ControlFlow<()>) -> Result<Samples, LoopError> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let mut raised = None;
    let samples = py.detach(|| {
        train(&mut |share| match tell(progress, share, &mut raised) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    });
    match raised {
        Some(error) => Err(error),
        None => as_dict(py, samples.map_err(value_error)?),
    }
}

fn as_dict(py: Python<'_>, samples: Samples) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("written_s", samples.written_s.into_pyarray(py))?;
    found.set_item("delay_s", samples.delay_s.into_pyarray(py))?;
    found.set_item("sender_s", samples.sender_s.into_pyarray(py))?;
    found.set_item("window_packets", samples.window_packets.into_pyarray(py))?;
    found.set_item("buffered", samples.buffered)?;
    found.set_item("packets", samples.packets)?;
    found.set_item("arriving_s", samples.arriving_s)?;
    Ok(found)
}

#[pymethods]
impl WindowLoop {
    /// One of a static window, a probability of marks and packets from mark to mark must be given.
    #[new]
    #[pyo3(signature = (rate_pps, latency_s, acknowledgment_s, window, probability, every))]
    fn new(
        rate_pps: f64,
        latency_s: f64,
        acknowledgment_s: f64,
        window: Option<u64>,
        probability: Option<f64>,
        every: Option<u64>,
    ) -> PyResult<Self> {
        let window = match (window, probability, every) {
            (Some(packets), None, None) => Window::Static { packets },
            (None, Some(p), None) => Window::Adaptive {
                marks: Marks::Random(p),
            },
            (None, None, Some(every)) => Window::Adaptive {
                marks: Marks::Periodic(every),
            },
            _ => return Err(value_error("a loop has one kind of window")),
        };
        window_loop::WindowLoop::new(window, rate_pps, latency_s, acknowledgment_s)
            .map(Self)
            .map_err(value_error)
    }

    /// Sends a train; arrays of the packets sampled, and counts of all.
    #[pyo3(signature = (rate_pps, warm_up, packets, per_sample, seed, progress=None))]
    #[allow(clippy::too_many_arguments)] // Python calls it by name
    fn probe<'py>(
        &self,
        py: Python<'py>,
        rate_pps: f64,
        warm_up: u64,
        packets: u64,
        per_sample: u64,
        seed: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let probe = Probe {
            rate_pps,
            warm_up_packets: warm_up,
            packets,
            packets_per_sample: per_sample,
        };
        let all = (warm_up + packets) as f64;
        send(py, progress.as_ref(), |tell| {
            self.0
                .probe(&probe, seed, &mut |sent| tell(sent as f64 / all))
        })
    }

    /// The same as a fluid, in steps of a fraction of a round trip.
    #[pyo3(signature = (rate_pps, warm_up_s, duration_s, every_s, steps, seed, progress=None))]
    #[allow(clippy::too_many_arguments)] // Python calls it by name
    fn probe_fluid<'py>(
        &self,
        py: Python<'py>,
        rate_pps: f64,
        warm_up_s: f64,
        duration_s: f64,
        every_s: f64,
        steps: u32,
        seed: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let probe = FluidProbe {
            rate_pps,
            warm_up_s,
            duration_s,
            every_s,
            steps,
        };
        let all_s = warm_up_s + duration_s;
        send(py, progress.as_ref(), |tell| {
            self.0
                .probe_fluid(&probe, seed, &mut |now_s| tell(now_s / all_s))
        })
    }

    /// What a greedy source gets, in packets a second.
    fn greedy_rate(&self, py: Python<'_>, duration_s: f64, steps: u32, seed: u64) -> PyResult<f64> {
        py.detach(|| self.0.greedy_rate(duration_s, steps, seed))
            .map_err(value_error)
    }

    /// When each packet arrives that is written at these moments, in seconds.
    fn carry<'py>(
        &self,
        py: Python<'py>,
        written_s: PyReadonlyArray1<'py, f64>,
        warm_up: u64,
        seed: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let written_s = written_s.as_slice()?;
        let ascending = written_s.is_sorted() && written_s.iter().all(|at| at.is_finite());
        if !ascending {
            return Err(value_error(
                "packets must be written at finite times, in order",
            ));
        }
        let arrived: Vec<f64> = py.detach(|| {
            let passages = self.0.carry(written_s, warm_up, seed);
            passages.map(|passage| passage.delivered_s).collect()
        });
        Ok(arrived.into_pyarray(py).into_any())
    }
}

/// Runs a scenario in the simulator and samples the messages of one of its flows; the run report as JSON,
/// arrays of the messages, of the window, and counts.
#[pyfunction]
#[pyo3(signature = (
    what, duration_s, seed, flow, from_s, per_sample, window_every_s, progress=None
))]
#[allow(clippy::too_many_arguments)] // Python calls it by name
pub fn simulate_probe<'py>(
    py: Python<'py>,
    what: What<'_>,
    duration_s: f64,
    seed: u64,
    flow: u32,
    from_s: f64,
    per_sample: u64,
    window_every_s: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Bound<'py, PyDict>)> {
    let spec = what.checked_simulation(None, duration_s, seed)?;
    let mut raised = None;
    let (outcome, sampler) = py.detach(|| {
        let mut sampler = Sampler::new(flow, from_s, per_sample, window_every_s, seed);
        let outcome = run_timed(&spec, progress.as_ref(), &mut raised, &mut sampler);
        (outcome, sampler)
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let report = outcome.map_err(value_error)?;
    let rows = &sampler.messages;
    let column = |of: fn(&MessageRecord) -> f64| -> Bound<'py, PyAny> {
        let values: Vec<f64> = rows.iter().map(of).collect();
        values.into_pyarray(py).into_any()
    };
    let found = PyDict::new(py);
    found.set_item("written_s", column(|m| m.written_s))?;
    found.set_item("entered_s", column(|m| m.entered_s))?;
    found.set_item("sent_s", column(|m| m.sent_s))?;
    found.set_item("left_s", column(|m| m.left_s))?;
    found.set_item("read_s", column(|m| m.read_s))?;
    found.set_item("window_packets", sampler.windows.into_pyarray(py))?;
    found.set_item("packets", sampler.arrived)?;
    found.set_item("buffered", sampler.buffered)?;
    Ok((serde_json::to_string(&report).expect("plain data"), found))
}
