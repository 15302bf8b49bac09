//! Bulk flows: one thread that writes as much as the sockets take, one that reads all that arrives.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use pathcast_probe::realtime::{request_fifo, thread_cpu_s};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, write};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::error::EmulatorError;

/// Bytes written or read at once.
const CHUNK_BYTES: usize = 128 << 10;

/// Chunks of one flow before the next flow has its turn.
const CHUNKS_A_TURN: usize = 4;

/// The number of the stop event among those of the flows.
const STOP: u64 = u64::MAX;

/// Which end of the flows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Send,
    Receive,
}

/// One end of all flows: what a thread works on.
pub(crate) struct Endpoint<'a> {
    role: Role,
    sockets: &'a [OwnedFd],
    epoll: OwnedFd,
    /// Kept open: an event whose last descriptor is closed vanishes, raised or not.
    _stop: OwnedFd,
}

/// Ends an endpoint's thread, when it is dropped at the latest.
pub(crate) struct EndpointStop(OwnedFd);

/// What an endpoint's thread says at its end.
pub(crate) struct EndpointReport {
    pub(crate) cpu_s: f64,
    /// Flows whose connection broke, and how.
    pub(crate) broken: Vec<(usize, Errno)>,
    /// Why the thread was not in `SCHED_FIFO`.
    pub(crate) fifo_refused: Option<String>,
}

impl<'a> Endpoint<'a> {
    pub(crate) fn new(
        role: Role,
        sockets: &'a [OwnedFd],
    ) -> Result<(Self, EndpointStop), EmulatorError> {
        let make = || -> Result<_, Errno> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
            epoll::add(
                &epoll,
                &stop,
                epoll::EventData::new_u64(STOP),
                epoll::EventFlags::IN,
            )?;
            let ready = match role {
                Role::Send => epoll::EventFlags::OUT,
                Role::Receive => epoll::EventFlags::IN,
            };
            for (flow, socket) in sockets.iter().enumerate() {
                epoll::add(
                    &epoll,
                    socket,
                    epoll::EventData::new_u64(flow as u64),
                    ready,
                )?;
            }
            let raise = rustix::io::fcntl_dupfd_cloexec(&stop, 0)?;
            Ok((epoll, stop, raise))
        };
        let (epoll, stop, raise) =
            make().map_err(|errno| EmulatorError::from_io("setting up epoll", errno))?;
        Ok((
            Self {
                role,
                sockets,
                epoll,
                _stop: stop,
            },
            EndpointStop(raise),
        ))
    }

    /// Writes or reads until stopped; adds what each flow moved to `bytes`.
    pub(crate) fn run(self, fifo_priority: i32, bytes: &[AtomicU64]) -> EndpointReport {
        let fifo_refused = request_fifo(fifo_priority)
            .err()
            .map(|error| error.to_string());
        let mut broken = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        'running: loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => panic!("epoll_wait on our own descriptors: {errno}"),
            }
            for event in &events {
                let number = event.data.u64();
                if number == STOP {
                    break 'running;
                }
                let flow = number as usize;
                let outcome = self.turn(flow, &mut chunk, &bytes[flow]);
                if let Err(errno) = outcome {
                    broken.push((flow, errno));
                    let _ = epoll::delete(&self.epoll, &self.sockets[flow]);
                }
            }
        }
        EndpointReport {
            cpu_s: thread_cpu_s(),
            broken,
            fifo_refused,
        }
    }

    /// Moves what one flow's socket takes or gives now.
    fn turn(&self, flow: usize, chunk: &mut [u8], bytes: &AtomicU64) -> Result<(), Errno> {
        let socket = self.sockets[flow].as_fd();
        for _ in 0..CHUNKS_A_TURN {
            let moved = match self.role {
                Role::Send => send(socket, chunk, SendFlags::NOSIGNAL),
                // counted and thrown away in the kernel: the copy would tell nothing
                Role::Receive => recv(socket, &mut *chunk, RecvFlags::TRUNC).map(|(_, size)| size),
            };
            match moved {
                Ok(0) => return Err(Errno::CONNRESET), // the other end closed before we did
                Ok(size) => bytes.fetch_add(size as u64, Ordering::Relaxed),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }
}

impl Drop for EndpointStop {
    fn drop(&mut self) {
        let _ = write(&self.0, &1u64.to_ne_bytes()); // fails only if it is raised already
    }
}
