//! The system calls that no library wraps safely.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has `command` killed when the thread that starts it ends, however it ends: also by `kill -9` of
/// the whole process.
pub(crate) fn die_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let die_with_parent = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // a parent that died before that cannot tell any more
        match rustix::process::getppid() {
            Some(pid) if pid.as_raw_nonzero().get() as u32 == parent => Ok(()),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: between fork and exec this makes two system calls; it takes no lock, allocates nothing
    // and panics nowhere, so that it does not matter what other threads were doing.
    unsafe { command.pre_exec(die_with_parent) };
}

/// Sets an option of TCP that is an `int`.
pub(crate) fn set_tcp_option(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, whose size it is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
