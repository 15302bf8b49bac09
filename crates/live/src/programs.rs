//! Programs that run at both hosts in place of the kernel's flows: schemes of any transport, whose packets the
//! tunnel carries and notes.
//!
//! Each host starts a program of its own, in the network namespace of the tunnel. The server's reads what is asked of
//! it; which programs it starts in turn is for that program to decide. The packets of flow n are known by its receiver's
//! port, [`FIRST_PROGRAM_PORT`](crate::plan::FIRST_PROGRAM_PORT) plus n.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::LiveError;
use crate::party::Party;
use crate::plan::{CLIENT, SERVER, address};

/// What a server's program may be asked: it fits into the pipe that it reads, so that nobody waits for it.
pub(crate) const MOST_ASKED_BYTES: usize = 32 << 10;

/// How long a program may take to end when its input ends.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What runs at the client, and what the server's program is asked.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The client's program: the words of its command line.
    pub command: Vec<String>,
    /// One line that the server's program reads.
    pub asked: String,
}

/// A program in the namespace of a tunnel, with all that it starts: killed when this is dropped.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts a program that reads one line, and ends when its input does. `PATHCAST_ADDRESS` and `PATHCAST_BASE` tell
    /// it the addresses of client and server.
    pub(crate) fn start(party: &Party, command: &[String], line: &str) -> Result<Self, LiveError> {
        let [name, arguments @ ..] = command else {
            return Err(LiveError::Unsupported(
                "got no program to run, expected a command line".into(),
            ));
        };
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env("PATHCAST_ADDRESS", address(CLIENT).to_string())
            .env("PATHCAST_BASE", address(SERVER).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let starting = |error| LiveError::from_io(format!("starting {name}"), error);
        let started = party.inside(|| Ok(command.spawn()))?;
        let mut program = Self {
            child: started.map_err(starting)?,
        };
        let input = program.child.stdin.as_mut().expect("it is piped");
        // the program says why, if it is not there any more
        let _ = input.write_all(format!("{line}\n").as_bytes());
        Ok(program)
    }

    /// Whether it has ended, and with which code; `None`: it runs. What a signal ended has no code.
    pub(crate) fn ended(&mut self) -> Result<Option<Option<i32>>, LiveError> {
        let status = self.child.try_wait();
        let status = status.map_err(|error| LiveError::from_io("waiting for a program", error))?;
        Ok(status.map(|status| status.code()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < END_WITHIN && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // what it left behind
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
