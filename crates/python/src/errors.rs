//! Rust errors as Python exceptions; `pathcast.exceptions` shows them as one tree.

use pathcast_sim::SimError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    pathcast,
    PathFileError,
    PyException,
    "A path file that cannot be used."
);
create_exception!(
    pathcast,
    TraceError,
    PyException,
    "A trace that cannot be read or written."
);
create_exception!(
    pathcast,
    SchemeError,
    PyException,
    "A congestion control that is not there."
);
create_exception!(
    pathcast,
    SimulationError,
    PyException,
    "A simulation that can make no progress."
);
create_exception!(
    pathcast,
    EmulatorError,
    PyException,
    "The emulator cannot run here, or not so."
);
create_exception!(
    pathcast,
    LiveError,
    PyException,
    "Two hosts that cannot run flows with each other."
);
create_exception!(
    pathcast,
    ProbeError,
    PyException,
    "Flows that cannot be watched."
);
create_exception!(
    pathcast,
    ServiceError,
    PyException,
    "The service of decisions cannot start."
);
create_exception!(
    pathcast,
    ModelError,
    PyException,
    "A series that no model can use."
);

/// A simulation's error; `what` says which simulation it is, if there are several.
pub fn of_simulation(what: &str, error: &SimError) -> PyErr {
    match error {
        SimError::Stalled { .. } | SimError::Broken { .. } => {
            SimulationError::new_err(format!("{what}{error}"))
        }
        _ => SchemeError::new_err(format!("{what}{error}")),
    }
}
