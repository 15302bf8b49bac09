//! Watches of the kernel's TCP senders.

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::PathBuf;
    use std::sync::Mutex;

    use pathcast_probe::{Keep, Prefix, Selection, WatchOptions, duplicate};
    use pyo3::prelude::*;

    use crate::errors::ProbeError;
    use crate::trace::Trace;

    fn error(error: impl ToString) -> PyErr {
        ProbeError::new_err(error.to_string())
    }

    /// A watch that continues until it is finished or closed.
    #[pyclass(frozen, module = "pathcast._internal")]
    pub struct Watch(Mutex<Option<pathcast_probe::Watch>>);

    #[pymethods]
    impl Watch {
        /// Begins: flows of any process, or of the own sockets with these numbers.
        #[new]
        #[allow(clippy::too_many_arguments)] // Python calls it by name
        fn new(
            py: Python<'_>,
            port: Option<u16>,
            local_port: Option<u16>,
            remote_port: Option<u16>,
            pid: Option<u32>,
            cgroup: Option<String>,
            prefix: Option<String>,
            all_namespaces: bool,
            sockets: Option<Vec<i32>>,
            method: Option<String>,
            record: bool,
            trace_file: Option<PathBuf>,
        ) -> PyResult<Self> {
            let method = method.map(|name| name.parse()).transpose().map_err(error)?;
            let keep = match (trace_file, record) {
                (Some(file), _) => Keep::File(file),
                (None, true) => Keep::Memory,
                (None, false) => Keep::Nothing,
            };
            let options = WatchOptions { method, keep };
            let selection = Selection {
                port,
                local_port,
                remote_port,
                pid,
                cgroup,
                prefix: prefix
                    .map(|text| text.parse::<Prefix>())
                    .transpose()
                    .map_err(error)?,
                all_namespaces,
            };
            let watch = match sockets {
                None => py.detach(|| pathcast_probe::Watch::start(selection, options)),
                Some(sockets) => {
                    let sockets: Vec<OwnedFd> = sockets
                        .into_iter()
                        .map(|fd| duplicate(fd).map_err(|why| error(format!("socket {fd}: {why}"))))
                        .collect::<PyResult<_>>()?;
                    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                    py.detach(|| pathcast_probe::Watch::sockets(&sockets, options))
                }
            };
            Ok(Self(Mutex::new(Some(watch.map_err(error)?))))
        }

        /// Flows and records so far; none once it is over.
        fn progress(&self) -> Option<(u64, u64)> {
            let watch = self.0.lock().expect("no panic holds it");
            let progress = watch.as_ref()?.progress();
            Some((progress.flows, progress.records))
        }

        /// Ends the watch: a report as JSON, and the trace if it was to be kept; none if it was over.
        fn finish(&self, py: Python<'_>) -> PyResult<Option<(String, Option<Trace>)>> {
            let Some(watch) = self.0.lock().expect("no panic holds it").take() else {
                return Ok(None);
            };
            let (report, trace) = py.detach(|| watch.finish()).map_err(error)?;
            let report = serde_json::to_string(&report).expect("plain data");
            Ok(Some((report, trace.map(Trace))))
        }

        /// Ends the watch and leaves nothing of it.
        fn close(&self, py: Python<'_>) {
            let watch = self.0.lock().expect("no panic holds it").take();
            py.detach(|| drop(watch));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use pyo3::prelude::*;

    use crate::errors::ProbeError;

    /// There is nothing to watch here.
    #[pyclass(frozen, module = "pathcast._internal")]
    pub struct Watch;

    #[pymethods]
    impl Watch {
        /// Refuses.
        #[new]
        #[pyo3(signature = (*_args, **_kwargs))]
        fn new(
            _args: &Bound<'_, pyo3::types::PyTuple>,
            _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
        ) -> PyResult<Self> {
            Err(ProbeError::new_err("watching flows needs Linux"))
        }
    }
}

pub use linux::Watch;
