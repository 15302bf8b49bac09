//! Which devices and namespaces the emulator and shells have.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
mod linux {
    use pathcast_emulator::DeviceKind;
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

    use super::*;
    use crate::errors::EmulatorError;

    /// The device of this name; none: any that is available.
    pub fn device_kind(name: Option<&str>) -> PyResult<Option<DeviceKind>> {
        match name {
            None => Ok(None),
            Some("tun") => Ok(Some(DeviceKind::Tun)),
            Some("veth") => Ok(Some(DeviceKind::Veth)),
            Some(other) => Err(EmulatorError::new_err(format!(
                "got the device {other:?}, expected \"tun\" or \"veth\""
            ))),
        }
    }

    /// Whether this process may make network namespaces.
    #[pyfunction]
    pub fn may_make_namespaces(py: Python<'_>) -> bool {
        py.detach(pathcast_emulator::may_make_namespaces)
    }

    /// Moves this process, which must have a single thread, into its own user namespace. The kernel kills
    /// it when process `parent`, which started it, ends.
    #[pyfunction]
    pub fn enter_user_namespace(parent: i32) -> PyResult<()> {
        let entered = pathcast_emulator::enter_user_namespace();
        let refused = entered.map_err(pathcast_emulator::EmulatorError::from);
        refused.map_err(|error| EmulatorError::new_err(error.to_string()))?;
        // after that: a change of privileges may forget it
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
        // a parent that died earlier sends no signal
        match getppid().map(Pid::as_raw_nonzero) {
            Some(pid) if pid.get() == parent => Ok(()),
            _ => Err(EmulatorError::new_err("no process waits for the result")),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::*;
    use crate::errors::EmulatorError;

    /// There are none on this system; the emulator reports that itself.
    #[pyfunction]
    pub fn may_make_namespaces() -> bool {
        true
    }

    /// Refuses: there are no user namespaces here.
    #[pyfunction]
    pub fn enter_user_namespace(_parent: i32) -> PyResult<()> {
        Err(EmulatorError::new_err("user namespaces need Linux"))
    }
}

#[cfg(target_os = "linux")]
pub use linux::device_kind;
pub use linux::{enter_user_namespace, may_make_namespaces};
