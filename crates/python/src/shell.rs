//! A command inside a path.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use pathcast_emulator::{Crossed, Schemes, ShellOptions};

    use super::*;
    use crate::errors::EmulatorError;
    use crate::namespaces::device_kind;
    use crate::specs::PathSpec;

    /// Runs a command inside links in a row, from the command outwards: a report as JSON.
    ///
    /// `signals` is called some times a second and may give a signal to send to the command.
    #[pyfunction]
    #[allow(clippy::too_many_arguments)] // Python calls it by name
    pub fn run_shell(
        py: Python<'_>,
        links: Vec<PyRef<'_, PathSpec>>,
        seed: u64,
        command: (OsString, Vec<OsString>),
        scheme: Option<String>,
        environment: Vec<(OsString, OsString)>,
        user: Option<(u32, u32)>,
        outside: Option<(OsString, Vec<OsString>)>,
        device: Option<&str>,
        super_packets: Option<bool>,
        packets_file: Option<PathBuf>,
        mm_logs: (Option<PathBuf>, Option<PathBuf>),
        signals: Py<PyAny>,
    ) -> PyResult<String> {
        const SIGTERM: i32 = 15;
        let options = ShellOptions {
            links: links.iter().map(|spec| (*spec.path).clone()).collect(),
            seed,
            command,
            scheme,
            environment,
            user,
            outside,
            device: device_kind(device)?,
            super_packets,
            packets_file,
            mm_logs: mm_logs.into(),
        };
        let raised = Mutex::new(None);
        let ask = || {
            let asked = Python::attach(|py| {
                py.check_signals()?;
                signals.call0(py)?.extract::<Option<i32>>(py)
            });
            asked.unwrap_or_else(|error| {
                // what goes wrong in Python ends the command
                raised
                    .lock()
                    .expect("no panic holds it")
                    .get_or_insert(error);
                Some(SIGTERM)
            })
        };
        let outcome = py.detach(|| pathcast_emulator::shell(&options, &ask));
        if let Some(error) = raised.into_inner().expect("no panic holds it") {
            return Err(error);
        }
        let report = outcome.map_err(|error| EmulatorError::new_err(error.to_string()))?;
        let crossed = |one: Crossed| {
            serde_json::json!({
                "offered": one.offered,
                "offered_bytes": one.offered_bytes,
                "delivered": one.delivered,
                "dropped": one.dropped,
                "lost": one.lost,
                "marked": one.marked,
            })
        };
        let report = serde_json::json!({
            "exit_code": report.exit_code,
            "forward": crossed(report.forward),
            "reverse": crossed(report.reverse),
            "slip_us": report.slip_us,
            "wall_s": report.wall_s,
            "cpu_s": report.cpu_s,
            "invalid_because": report.invalid_because,
            "refused": report.refused,
        });
        Ok(report.to_string())
    }

    /// A congestion control of TCP that the kernel has for as long as this lives, wherever it is from.
    #[pyclass(unsendable, module = "pathcast._internal")]
    pub struct KernelScheme {
        schemes: Schemes,
        name: String,
    }

    #[pymethods]
    impl KernelScheme {
        #[new]
        fn new(name: String) -> PyResult<Self> {
            let provided = Schemes::provide([name.as_str()]);
            let schemes = provided.map_err(|error| EmulatorError::new_err(error.to_string()))?;
            Ok(Self { schemes, name })
        }

        /// What the kernel calls it.
        #[getter]
        fn kernel_name(&self) -> &str {
            self.schemes.kernel_name(&self.name)
        }

        /// Whether its code is Pathcast's own, loaded as BPF.
        #[getter]
        fn by_bpf(&self) -> bool {
            self.schemes.by_bpf().count() > 0
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::*;
    use crate::errors::EmulatorError;

    /// Refuses: there are no network namespaces here.
    #[pyfunction]
    #[pyo3(signature = (*_args))]
    pub fn run_shell(_args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<String> {
        Err(EmulatorError::new_err("a shell inside a path needs Linux"))
    }

    /// Refuses, as there.
    #[pyclass(module = "pathcast._internal")]
    pub struct KernelScheme;

    #[pymethods]
    impl KernelScheme {
        #[new]
        fn new(_name: String) -> PyResult<Self> {
            Err(EmulatorError::new_err(
                "congestion controls of a kernel need Linux",
            ))
        }
    }
}

pub use linux::{KernelScheme, run_shell};
