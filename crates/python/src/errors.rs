//! Rust errors as Python exceptions; `pathcast.exceptions` shows them as one tree.

use pyo3::create_exception;
use pyo3::exceptions::PyException;

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
    EmulatorError,
    PyException,
    "The emulator cannot run here, or not so."
);
create_exception!(
    pathcast,
    ModelError,
    PyException,
    "A series that no model can use."
);
