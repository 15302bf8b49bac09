//! A command outside of a shell, which runs as long as the shell does: the server that the command
//! inside is to reach.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::EmulatorError;
use crate::sys::die_with_this_thread;

/// How long to wait for a server to be ready; one that speaks neither TCP nor UDP never seems to be.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How long the command may take to end after the signal to end.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A command that ends, with what it started, when this goes.
pub(crate) struct Outside(Child);

impl Outside {
    /// Starts a command in the calling thread's namespaces, and waits until it listens. Its output goes to
    /// standard error, because standard output is the other command's.
    pub(crate) fn start(
        (program, arguments): &(OsString, Vec<OsString>),
        environment: &[(OsString, OsString)],
        user: Option<(u32, u32)>,
    ) -> Result<Self, EmulatorError> {
        let name = || program.to_string_lossy().into_owned();
        let standard_error = std::io::stderr().as_fd().try_clone_to_owned();
        let standard_error = standard_error
            .map_err(|error| EmulatorError::from_io("copying standard error", error))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(standard_error)
            .process_group(0);
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        die_with_this_thread(&mut command);
        let before = listening();
        let child = command.spawn().map_err(|source| EmulatorError::Command {
            program: name(),
            source,
        })?;
        let mut outside = Self(child);
        let deadline = Instant::now() + READY_WITHIN;
        while listening().is_subset(&before) && Instant::now() < deadline {
            if let Ok(Some(status)) = outside.0.try_wait() {
                return Err(EmulatorError::OutsideEnded {
                    program: name(),
                    status,
                });
            }
            sleep(Duration::from_millis(10));
        }
        Ok(outside)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + END_WITHIN;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
        }
        // what is left of the group, and of the command itself
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Sockets of the calling thread's network namespace that wait for others to begin, by their inodes.
fn listening() -> BTreeSet<String> {
    let of = |(table, state): (&str, &str)| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        sockets_in(&text.unwrap_or_default(), state)
    };
    let (listen, unconnected) = ("0A", "07"); // the kernel's TCP_LISTEN, TCP_CLOSE
    [
        ("tcp", listen),
        ("tcp6", listen),
        ("udp", unconnected),
        ("udp6", unconnected),
    ]
    .into_iter()
    .flat_map(of)
    .collect()
}

/// The inodes of the sockets in `state` in a table such as `/proc/net/tcp`.
fn sockets_in(table: &str, state: &str) -> Vec<String> {
    // sl local_address rem_address st queues timer retransmits uid timeout inode
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(3);
            (words.next()? == state).then(|| words.nth(5).map(String::from))?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_listens_from_the_moment_that_it_is_bound() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
             uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        \
             0 4711 1 0000000000000000 100 0 0 10 0\n   \
             1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        \
             0 4712 1 0000000000000000 20 4 30 10 -1\n";
        assert_eq!(sockets_in(table, "0A"), ["4711"]);
        let before = listening();
        let _server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listening().difference(&before).count() > 0);
    }
}
