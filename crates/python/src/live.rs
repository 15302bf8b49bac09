//! Flows between two hosts.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
mod linux {
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use pathcast_live::{Key, LiveError, Programs, RunOptions, ServerEvent, ServerOptions};
    use pathcast_scenario::Heading;

    use super::*;
    use crate::errors::LiveError as LiveException;
    use crate::runs::tell;
    use crate::specs::ScenarioSpec;
    use crate::trace::Trace;

    fn raised(error: &LiveError) -> PyErr {
        LiveException::new_err(error.to_string())
    }

    /// Writes a new key to a file that is not there yet.
    #[pyfunction]
    pub fn live_key(file: PathBuf) -> PyResult<()> {
        let written = Key::random().and_then(|key| key.write(&file));
        written.map_err(|error| raised(&error))
    }

    /// Serves clients until `say` raises; it is called with each thing that happens, and with None some
    /// times a second.
    #[pyfunction]
    #[allow(clippy::too_many_arguments)] // Python calls it by name
    pub fn live_serve(
        py: Python<'_>,
        listen: &str,
        key_file: PathBuf,
        most_clients: usize,
        most_duration_s: f64,
        once: bool,
        programs: Option<Vec<String>>,
        say: Py<PyAny>,
    ) -> PyResult<()> {
        let listen: SocketAddr = listen.parse().map_err(|_| {
            LiveException::new_err(format!(
                "got {listen:?}, expected an address and a port, such as 127.0.0.1:5600 or [::1]:5600"
            ))
        })?;
        let options = ServerOptions {
            listen,
            key: Key::read(&key_file).map_err(|error| raised(&error))?,
            most_clients,
            most_duration_s,
            once,
            programs,
        };
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let problem = Mutex::new(None);
        let heard = Mutex::new(Vec::new());
        let served = py.detach(|| {
            thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let note = |event: ServerEvent| {
                        heard
                            .lock()
                            .expect("no panic holds it")
                            .push(event.to_string());
                    };
                    let served = pathcast_live::serve(&options, &note, &stop);
                    over.store(true, Ordering::Relaxed);
                    served
                });
                // only this thread hears of Ctrl-C
                loop {
                    let ended = over.load(Ordering::Relaxed);
                    let lines = std::mem::take(&mut *heard.lock().expect("no panic holds it"));
                    let told = Python::attach(|py| {
                        py.check_signals()?;
                        for line in lines {
                            say.call1(py, (line,))?;
                        }
                        PyResult::Ok(())
                    });
                    if let Err(error) = told {
                        stop.store(true, Ordering::Relaxed);
                        problem
                            .lock()
                            .expect("no panic holds it")
                            .get_or_insert(error);
                    }
                    if ended {
                        break;
                    }
                    thread::sleep(Duration::from_millis(50));
                }
                server
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        if let Some(error) = problem.into_inner().expect("no panic holds it") {
            return Err(error);
        }
        served.map_err(|error| raised(&error))
    }

    /// Runs flows with a server: a report as JSON, and the trace. Without schemes, the text is a
    /// scenario.
    #[pyfunction]
    #[allow(clippy::too_many_arguments)] // Python calls it by name
    pub fn live_run(
        py: Python<'_>,
        server: (String, u16),
        key_file: PathBuf,
        scenario: Option<PyRef<'_, ScenarioSpec>>,
        schemes: Vec<String>,
        reverse: bool,
        workload: Option<String>,
        duration_s: f64,
        seed: u64,
        packets_file: Option<PathBuf>,
        messages_file: Option<PathBuf>,
        programs: Option<(Vec<String>, String)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(String, Trace)> {
        let scenario = match scenario {
            Some(spec) => (*spec.scenario).clone(),
            None => {
                let heading = if reverse {
                    Heading::Reverse
                } else {
                    Heading::Forward
                };
                let made = pathcast_live::scenario_of(&schemes, heading, workload.as_deref());
                made.map_err(LiveException::new_err)?
            }
        };
        let options = RunOptions {
            server,
            key: Key::read(&key_file).map_err(|error| raised(&error))?,
            scenario,
            duration_s,
            seed,
            packets_file,
            messages_file,
            programs: programs.map(|(command, asked)| Programs { command, asked }),
        };
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let elapsed = Mutex::new(0.0);
        let mut problem = None;
        let ran = py.detach(|| {
            thread::scope(|scope| {
                let run = scope.spawn(|| {
                    let note = |elapsed_s| *elapsed.lock().expect("no panic holds it") = elapsed_s;
                    let ran = pathcast_live::run(&options, &note, &stop);
                    over.store(true, Ordering::Relaxed);
                    ran
                });
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(50));
                    let elapsed_s = *elapsed.lock().expect("no panic holds it");
                    if problem.is_none() && !tell(progress.as_ref(), elapsed_s, &mut problem) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                run.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        if let Some(error) = problem {
            // an interrupted run leaves no files
            let files = [options.packets_file, options.messages_file];
            for file in files.into_iter().flatten() {
                let _ = std::fs::remove_file(file);
            }
            return Err(error);
        }
        let (report, trace) = ran.map_err(|error| raised(&error))?;
        let report = serde_json::to_string(&report).expect("plain data");
        Ok((report, Trace(trace)))
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::*;
    use crate::errors::LiveError;

    const WHY: &str = "flows between two hosts need Linux on both";

    /// Refuses: there are no network namespaces here.
    #[pyfunction]
    #[pyo3(signature = (*_args))]
    pub fn live_key(_args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        Err(LiveError::new_err(WHY))
    }

    /// Refuses: there are no network namespaces here.
    #[pyfunction]
    #[pyo3(signature = (*_args))]
    pub fn live_serve(_args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        Err(LiveError::new_err(WHY))
    }

    /// Refuses: there are no network namespaces here.
    #[pyfunction]
    #[pyo3(signature = (*_args))]
    pub fn live_run(_args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        Err(LiveError::new_err(WHY))
    }
}

pub use linux::{live_key, live_run, live_serve};
