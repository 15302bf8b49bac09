//! The service of decisions.

use pyo3::prelude::*;

#[cfg(unix)]
mod unix {
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use pathcast_service::{Config, Stop, serve};

    use super::*;
    use crate::errors::ServiceError as ServiceException;

    fn raised(error: &impl ToString) -> PyErr {
        ServiceException::new_err(error.to_string())
    }

    /// Serves until Ctrl-C or `tick`, which is called some times a second, raises.
    #[pyfunction]
    pub fn serve_decisions(
        py: Python<'_>,
        listen: Option<&str>,
        state: Option<PathBuf>,
        watch: Option<&str>,
        config: Option<PathBuf>,
        tick: Py<PyAny>,
    ) -> PyResult<()> {
        let listen = listen.map(|text| {
            text.parse::<SocketAddr>().map_err(|_| {
                let expected = "expected such as 127.0.0.1:8080 or [::1]:8080";
                ServiceException::new_err(format!("--listen is {text:?}, {expected}"))
            })
        });
        let watch = watch.map(str::parse).transpose();
        let watch = watch.map_err(|error: pathcast_service::ServiceError| raised(&error))?;
        let config = Config::from_options(config.as_deref(), listen.transpose()?, state, watch);
        let config = config.map_err(|error| raised(&error))?;
        let (stop, over) = (Stop::default(), AtomicBool::new(false));
        let mut problem = None;
        let served = py.detach(|| {
            thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let served = serve(config, &stop, false, |_| ());
                    over.store(true, Ordering::Relaxed);
                    served
                });
                // only this thread receives signals of Python
                while !over.load(Ordering::Relaxed) {
                    let ticked = Python::attach(|py| {
                        py.check_signals()?;
                        tick.call0(py)
                    });
                    if let Err(error) = ticked {
                        stop.stop();
                        problem.get_or_insert(error);
                    }
                    thread::sleep(Duration::from_millis(50));
                }
                server
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        served.map_err(|error| raised(&error))?;
        problem.map_or(Ok(()), Err)
    }
}

#[cfg(not(unix))]
mod unix {
    use super::*;
    use crate::errors::ServiceError;

    /// Refuses: the service needs Unix.
    #[pyfunction]
    #[pyo3(signature = (*_args))]
    pub fn serve_decisions(_args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        Err(ServiceError::new_err("the service needs Linux or macOS"))
    }
}

pub use unix::serve_decisions;
