//! The system calls that no library wraps safely.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has `command` killed when the thread that starts it ends, however it ends: also by `kill -9` of
/// the whole process.
pub(crate) fn die_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let die_with_parent = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // a parent that died earlier sends no signal
        match rustix::process::getppid() {
            Some(pid) if pid.as_raw_nonzero().get() as u32 == parent => Ok(()),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: between fork and exec this makes two system calls; it takes no lock, allocates nothing
    // and panics nowhere, so that it does not matter what other threads were doing.
    unsafe { command.pre_exec(die_with_parent) };
}
