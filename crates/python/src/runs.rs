//! Runs in the simulator and the emulator, with progress and Ctrl-C.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use numpy::IntoPyArray;
use pathcast_base::clock::thread_cpu_s;
use pathcast_congestion::Scheme;
use pathcast_path::Span;
use pathcast_sim::{CaptureLog, NoRecorder, QueueLog, Recorder, Simulation};
use pathcast_trace::{
    Metadata, PacketRecord, Record, RunReport, TableWriter, TraceError as TraceFileError,
    write_beside,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{SimulationError, TraceError, of_simulation};
use crate::specs::What;
use crate::trace::Trace;

/// The schemes that the simulator has.
#[pyfunction]
pub fn simulator_schemes() -> Vec<String> {
    let all = Scheme::all().into_iter();
    all.map(|scheme| scheme.to_string()).collect()
}

/// Reports the run's progress to Python; an exception there (such as Ctrl-C) is kept and ends the run.
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

/// Runs `spec` with `recorder`; returns the outcome, and the processor and wall time it took.
pub fn run_timed(
    spec: &Simulation,
    progress: Option<&Py<PyAny>>,
    raised: &mut Option<PyErr>,
    recorder: &mut impl Recorder,
) -> Result<RunReport, String> {
    let (wall, cpu_s) = (Instant::now(), thread_cpu_s());
    let outcome = spec.run_recorded(
        &mut |now| match tell(progress, now.as_secs(), raised) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        },
        recorder,
    );
    match outcome {
        Ok(outcome) => Ok(outcome.report(thread_cpu_s() - cpu_s, wall.elapsed().as_secs_f64())),
        Err(error) => {
            // a run that was stopped before anything arrived has not failed
            raised.get_or_insert_with(|| of_simulation("", &error));
            Err(error.to_string())
        }
    }
}

fn metadata(spec: &Simulation) -> Metadata {
    let mut metadata = spec.metadata();
    let version = env!("CARGO_PKG_VERSION").to_string();
    metadata.environment.insert("pathcast".to_string(), version);
    metadata
}

/// Runs the simulator over a path, or, without schemes, a scenario: a run report as JSON, and the trace
/// if `record`. `trace_file` and
/// `packets_file` are written during the run, in bounded memory, and so is `queues_file`: what waits in
/// each queue, each `queues_every_s`, and `capture_file`: the packets at the senders' side, as pcapng.
#[pyfunction]
#[pyo3(signature = (
    what, schemes, duration_s, seed, record, progress=None, trace_file=None, packets_file=None,
    queues_file=None, queues_every_s=0.01, capture_file=None,
))]
#[allow(clippy::too_many_arguments)] // Python calls it by name
pub fn simulate(
    py: Python<'_>,
    what: What<'_>,
    schemes: Option<Vec<String>>,
    duration_s: f64,
    seed: u64,
    record: bool,
    progress: Option<Py<PyAny>>,
    trace_file: Option<PathBuf>,
    packets_file: Option<PathBuf>,
    queues_file: Option<PathBuf>,
    queues_every_s: f64,
    capture_file: Option<PathBuf>,
) -> PyResult<(String, Option<Trace>)> {
    let spec = what.checked_simulation(schemes, duration_s, seed)?;
    let metadata = metadata(&spec);
    let mut raised = None;
    let (progress, told) = (progress.as_ref(), &mut raised);
    let files = (&trace_file, &packets_file);
    let mut with_queues = |capture: Option<&mut CaptureLog<'_>>| match &queues_file {
        None => run_into(
            &spec,
            &metadata,
            files,
            record,
            (None, capture),
            progress,
            told,
        ),
        Some(queues_file) => write_beside(queues_file, |file| {
            let mut queues = QueueLog::new(file, Span::from_secs(queues_every_s))?;
            let logs = (Some(&mut queues), capture);
            let outcome = run_into(&spec, &metadata, files, record, logs, progress, told)
                .map_err(|error| error.to_string())?;
            queues.finish(&metadata)?;
            Ok(outcome)
        }),
    };
    let outcome = py.detach(|| match &capture_file {
        None => with_queues(None),
        Some(capture_file) => write_beside(capture_file, |file| {
            let mut capture = CaptureLog::new(&spec.scenario, file);
            let outcome = with_queues(Some(&mut capture)).map_err(|error| error.to_string())?;
            capture.finish()?;
            Ok(outcome)
        }),
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let (report, records) = outcome.map_err(|error| TraceError::new_err(error.to_string()))?;
    let trace = records.map(|records| Trace(pathcast_trace::Trace { metadata, records }));
    Ok((serde_json::to_string(&report).expect("plain data"), trace))
}

/// What one sender records, a column each; NaN for what is not known.
#[derive(Default)]
struct SenderColumns {
    flow: u32,
    time_s: Vec<f64>,
    snd_una_bytes: Vec<f64>,
    srtt_s: Vec<f64>,
    cwnd_packets: Vec<f64>,
    retransmits: Vec<f64>,
    rwnd_bytes: Vec<f64>,
    min_rtt_s: Vec<f64>,
}

impl Recorder for SenderColumns {
    const ACKS: bool = true;
    const PACKETS: bool = false;

    fn ack(&mut self, record: Record) {
        if record.flow != self.flow {
            return;
        }
        let count = |value: Option<u64>| value.map_or(f64::NAN, |value| value as f64);
        self.time_s.push(record.time_s);
        self.snd_una_bytes.push(count(record.snd_una_bytes));
        self.srtt_s.push(record.srtt_s.unwrap_or(f64::NAN));
        self.cwnd_packets.push(record.cwnd_packets);
        self.retransmits.push(count(record.retransmits));
        self.rwnd_bytes.push(count(record.rwnd_bytes));
        self.min_rtt_s.push(record.min_rtt_s.unwrap_or(f64::NAN));
    }

    fn packet(&mut self, _: PacketRecord) {}
}

/// Runs the simulator; returns what one sender recorded, as arrays of float64 by the names of a trace's columns, and the
/// payload of its full packets in bytes.
#[pyfunction]
pub fn simulate_sender<'py>(
    py: Python<'py>,
    what: What<'_>,
    schemes: Option<Vec<String>>,
    duration_s: f64,
    seed: u64,
    flow: u32,
) -> PyResult<(Bound<'py, PyDict>, Option<u32>)> {
    let spec = what.checked_simulation(schemes, duration_s, seed)?;
    let mut into = SenderColumns {
        flow,
        ..Default::default()
    };
    let mut raised = None;
    let outcome = py.detach(|| run_timed(&spec, None, &mut raised, &mut into));
    if let Some(error) = raised {
        return Err(error);
    }
    outcome.map_err(SimulationError::new_err)?;
    let columns = PyDict::new(py);
    for (name, values) in [
        ("time_s", into.time_s),
        ("snd_una_bytes", into.snd_una_bytes),
        ("srtt_s", into.srtt_s),
        ("cwnd_packets", into.cwnd_packets),
        ("retransmits", into.retransmits),
        ("rwnd_bytes", into.rwnd_bytes),
        ("min_rtt_s", into.min_rtt_s),
    ] {
        columns.set_item(name, values.into_pyarray(py))?;
    }
    Ok((columns, spec.payload_bytes(flow as usize)))
}

/// As [`run_timed`], but a run that was stopped is an error, so that writers take back what they began.
fn run_whole(
    spec: &Simulation,
    progress: Option<&Py<PyAny>>,
    raised: &mut Option<PyErr>,
    recorder: &mut impl Recorder,
) -> Result<RunReport, String> {
    let report = run_timed(spec, progress, raised, recorder)?;
    match raised {
        None => Ok(report),
        Some(_) => Err("the run was stopped".to_string()),
    }
}

/// What a run may write in addition to the files of the senders and of packets.
type Logs<'a, 'q, 'c> = (Option<&'a mut QueueLog<'q>>, Option<&'a mut CaptureLog<'c>>);

/// Runs into the files of the senders and of packets, or without both into memory if `record`, and into
/// `logs`.
fn run_into(
    spec: &Simulation,
    metadata: &Metadata,
    files: (&Option<PathBuf>, &Option<PathBuf>),
    record: bool,
    mut logs: Logs<'_, '_, '_>,
    progress: Option<&Py<PyAny>>,
    raised: &mut Option<PyErr>,
) -> Result<(RunReport, Option<Vec<Record>>), TraceFileError> {
    match files {
        (None, None) if record => {
            let mut into = (Vec::new(), logs);
            let report = run_whole(spec, progress, raised, &mut into).map_err(named)?;
            Ok((report, Some(into.0)))
        }
        (None, None) if logs.0.is_some() || logs.1.is_some() => {
            let report = run_whole(spec, progress, raised, &mut logs).map_err(named)?;
            Ok((report, None))
        }
        (None, None) => {
            let report = run_whole(spec, progress, raised, &mut NoRecorder).map_err(named)?;
            Ok((report, None))
        }
        (Some(trace_file), None) => write_beside(trace_file, |file| {
            let mut into = (TableWriter::<Record>::new(file)?, logs);
            let report = run_whole(spec, progress, raised, &mut into)?;
            into.0.finish(metadata)?;
            Ok((report, None))
        }),
        (None, Some(packets_file)) => write_beside(packets_file, |file| {
            let mut into = (TableWriter::<PacketRecord>::new(file)?, logs);
            let report = run_whole(spec, progress, raised, &mut into)?;
            into.0.finish(metadata)?;
            Ok((report, None))
        }),
        (Some(trace_file), Some(packets_file)) => write_beside(trace_file, |file| {
            write_beside(packets_file, |packets| {
                let packets = TableWriter::<PacketRecord>::new(packets)?;
                let rows = (TableWriter::<Record>::new(file)?, packets);
                let mut into = (rows, logs);
                let report = run_whole(spec, progress, raised, &mut into)?;
                let (trace, packets) = into.0;
                trace.finish(metadata)?;
                packets.finish(metadata)?;
                Ok((report, None))
            })
            .map_err(|error| error.to_string())
        }),
    }
}

/// The error of a run that has no file to be named after.
fn named(message: String) -> TraceFileError {
    TraceFileError {
        file: "simulation".to_string(),
        place: None,
        message,
    }
}

/// What is there, schemes, and why what is missing is missing.
type Found = (
    (bool, bool, bool, bool, bool),
    Vec<String>,
    Vec<String>,
    Vec<String>,
);

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pathcast_emulator::{Ip, Options};

    use super::*;
    use crate::errors::EmulatorError;
    use crate::namespaces::device_kind;

    /// A sender's time in seconds, flow, cwnd in packets, bytes sent, srtt in seconds and packets sent again.
    type State = (f64, u32, f64, Option<u64>, Option<f64>, Option<u64>);

    /// Calls `senders` with the states; false if it raised.
    fn show(senders: Option<&Py<PyAny>>, states: &[Record], raised: &mut Option<PyErr>) -> bool {
        let Some(senders) = senders.filter(|_| !states.is_empty()) else {
            return true;
        };
        let row = |state: &Record| -> State {
            let (cwnd, sent) = (state.cwnd_packets, state.snd_nxt_bytes);
            (
                state.time_s,
                state.flow,
                cwnd,
                sent,
                state.srtt_s,
                state.retransmits,
            )
        };
        let rows: Vec<State> = states.iter().map(row).collect();
        let told = Python::attach(|py| senders.call1(py, (rows,)).map(|_| ()));
        *raised = told.err();
        raised.is_none()
    }

    /// Runs the emulator over a path, or, without schemes, a scenario: a run report as JSON, and the
    /// trace. Files are written during the run.
    #[pyfunction]
    #[pyo3(signature = (
        what, schemes, duration_s, seed, ipv6=false, device=None,
        super_packets=None, packets_file=None, messages_file=None,
        progress=None, senders=None
    ))]
    #[allow(clippy::too_many_arguments)] // Python calls it by name
    pub fn emulate(
        py: Python<'_>,
        what: What<'_>,
        schemes: Option<Vec<String>>,
        duration_s: f64,
        seed: u64,
        ipv6: bool,
        device: Option<&str>,
        super_packets: Option<bool>,
        packets_file: Option<PathBuf>,
        messages_file: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
        senders: Option<Py<PyAny>>,
    ) -> PyResult<(String, Option<Trace>)> {
        let duration = Span::from_secs(duration_s);
        let options = match &what {
            What::Path(spec) => {
                let path = (*spec.path).clone();
                Options::new(path, schemes.unwrap_or_default(), duration, seed)
            }
            What::Scenario(spec) => Options::of_scenario((*spec.scenario).clone(), duration, seed),
        };
        let options = Options {
            ip: if ipv6 { Ip::V6 } else { Ip::V4 },
            device: device_kind(device)?,
            super_packets,
            packets_file: packets_file.clone(),
            messages_file: messages_file.clone(),
            ..options
        };
        let (stop, raised) = (AtomicBool::new(false), Mutex::new(None));
        let outcome = py.detach(|| {
            let watch = |elapsed_s: f64, states: &[Record]| {
                let mut raised = raised.lock().expect("no panic holds it");
                if raised.is_none()
                    && !(tell(progress.as_ref(), elapsed_s, &mut raised)
                        && show(senders.as_ref(), states, &mut raised))
                {
                    stop.store(true, Ordering::Relaxed);
                }
            };
            pathcast_emulator::emulate_watched(&options, &watch, &stop)
        });
        if let Some(error) = raised.into_inner().expect("no panic holds it") {
            // an interrupted run leaves no files
            for file in [packets_file, messages_file].into_iter().flatten() {
                pathcast_trace::remove_written(&file);
            }
            return Err(error);
        }
        let (report, trace) = outcome.map_err(|error| EmulatorError::new_err(error.to_string()))?;
        Ok((
            serde_json::to_string(&report).expect("plain data"),
            Some(Trace(trace)),
        ))
    }

    /// What the emulator can do here: root, TUN, veth, real-time priority, tcp_probe; schemes, reasons
    /// for what is missing, and the schemes that BPF can add.
    #[pyfunction]
    pub fn capabilities(py: Python<'_>) -> Found {
        let found = py.detach(pathcast_emulator::capabilities);
        let there = (
            found.root,
            found.tun,
            found.veth,
            found.fifo,
            found.tcp_probe,
        );
        (there, found.schemes, found.reasons, found.bpf_schemes)
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
    pub fn capabilities() -> Found {
        (
            Default::default(),
            Vec::new(),
            vec![WHY.to_string()],
            Vec::new(),
        )
    }
}

pub use linux::{capabilities, emulate};
