//! The application of one flow, the sockets of both its ends, and what carries its data.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use pathcast_netns::renew_receive_window;
use pathcast_path::Time;
use pathcast_scenario::{Application, Datagrams, Message, Pipe, SessionReport, Side, Transport};
use pathcast_trace::DelayHistogram;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::connection::Connection;
use crate::datagram::receive_datagram;
use crate::options::Flow;
use crate::quic::{Broken, QuicFlow, QuicOutcome};

/// Bytes of one write or read.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;

/// Chunks of one flow before the next flow has its turn.
const CHUNKS_A_TURN: usize = 4;

/// What became of a flow.
#[derive(Default)]
pub(crate) struct FlowOutcome {
    pub(crate) delivered_bytes: u64,
    /// Messages written and arrived whole.
    pub(crate) messages: (u64, u64),
    pub(crate) latency: Option<Box<DelayHistogram>>,
    /// When all that it ever writes had arrived, since the beginning of the run.
    pub(crate) completed: Option<Time>,
    /// What QUIC's sender knows, if that carried it.
    pub(crate) quic: Option<Box<QuicOutcome>>,
    /// Of an adaptive video.
    pub(crate) video: Option<SessionReport>,
}

impl FlowOutcome {
    /// A message has arrived whole.
    pub(crate) fn note(&mut self, now: Time, message: &Message) {
        self.latency
            .get_or_insert_with(|| Box::new(DelayHistogram::coarse()))
            .record(now.since(message.clock).as_nanos());
    }
}

pub(crate) enum Carrier {
    Stream(Box<Stream>),
    Udp(Box<Datagrams>),
}

/// What arrives in order and whole, both ways.
pub(crate) struct Stream {
    /// With the data, and against it: requests.
    pub(crate) pipes: [Pipe; 2],
    /// What the receiver's window is to be.
    window: Option<u64>,
    /// Whether the last packet of a message is filled with the next one, if that waits.
    fills: bool,
    /// None over TCP, which is the kernel's.
    pub(crate) quic: Option<Box<QuicFlow>>,
}

pub(crate) struct Session<'a> {
    pub(crate) application: Application,
    pub(crate) connection: &'a Connection,
    /// The page that it is a connection of, and which one.
    pub(crate) load: Option<(usize, usize)>,
    /// Whether the browser has opened it.
    pub(crate) opened: bool,
    /// Whether the sockets are watched for room to write.
    pub(crate) watched: [bool; 2],
    pub(crate) carrier: Carrier,
    pub(crate) outcome: FlowOutcome,
    pub(crate) broken: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        flow: &Flow<'_>,
        connection: &'a Connection,
        quic: Option<Box<QuicFlow>>,
        seed: u64,
    ) -> Self {
        let spec = flow.spec;
        let stream = |window| {
            Carrier::Stream(Box::new(Stream {
                pipes: Default::default(),
                window,
                // servers of pages do not mark the ends of their writes
                fills: spec.workload.is_page(),
                quic,
            }))
        };
        Self {
            application: Application::new(spec, flow.start, seed, flow.number)
                .watched(&spec.workload),
            connection,
            load: None,
            opened: false,
            watched: [false; 2],
            carrier: match spec.transport {
                Transport::Udp => Carrier::Udp(Box::default()),
                Transport::Quic { .. } => stream(None),
                Transport::Tcp { receive_window, .. } => stream(receive_window.fixed_bytes()),
            },
            outcome: FlowOutcome::default(),
            broken: false,
        }
    }

    /// The QUIC that carries it, if that does.
    pub(crate) fn quic(&mut self) -> Option<&mut QuicFlow> {
        match &mut self.carrier {
            Carrier::Stream(stream) => stream.quic.as_deref_mut(),
            Carrier::Udp(_) => None,
        }
    }

    /// Takes in the datagrams that have arrived at one end.
    pub(crate) fn receive_datagrams(
        &mut self,
        side: usize,
        chunk: &mut [u8],
        now: Time,
    ) -> Result<(), Broken> {
        let (Carrier::Udp(datagrams), Some(socket)) =
            (&mut self.carrier, self.connection.socket(side))
        else {
            return Ok(());
        };
        while let Some((seq, bytes)) = receive_datagram(socket, chunk)? {
            if let Some(message) = datagrams.on_arrival(now, seq, bytes) {
                self.application.on_delivered(now, &message);
                self.outcome.note(now, &message);
            }
        }
        Ok(())
    }

    /// Whether all that was written has arrived, as far as somebody sees to it.
    pub(crate) fn is_carried(&self) -> bool {
        matches!(self.carrier, Carrier::Udp(_)) || !self.application.is_waiting()
    }

    pub(crate) fn finish(self) -> FlowOutcome {
        let mut outcome = self.outcome;
        outcome.messages = self.application.counts();
        outcome.video = self.application.video();
        outcome.completed = self.application.completed();
        match self.carrier {
            Carrier::Udp(datagrams) => {
                outcome.delivered_bytes = datagrams.delivered_bytes();
                outcome.completed = outcome.completed.and(datagrams.last_arrival());
            }
            Carrier::Stream(stream) => {
                outcome.delivered_bytes = stream.pipes[Side::Source as usize].arrived;
                outcome.quic = stream.quic.map(|quic| Box::new(quic.finish()));
            }
        }
        outcome
    }
}

impl Stream {
    /// Writes what is taken now, messages or without an end; whether there is more, for which the socket
    /// must have room first.
    pub(crate) fn write(
        &mut self,
        side: usize,
        greedy: bool,
        socket: BorrowedFd<'_>,
        chunk: &[u8],
        now: Instant,
    ) -> Result<bool, Broken> {
        let pipe = &mut self.pipes[side];
        if let Some(quic) = &mut self.quic {
            loop {
                let is_page = quic.write_waiting()?;
                match greedy {
                    _ if is_page => {}
                    true => quic.write_greedily(side)?,
                    false => pipe.write(CHUNK_BYTES as u64, |bytes, _| quic.write(side, bytes))?,
                }
                // what was held back by pacing or by the window takes its turn by a timer, or when
                // acknowledgments come
                if !quic.send(side, socket, now)? {
                    return Ok(quic.is_blocked(side));
                }
            }
        }
        if greedy {
            for _ in 0..CHUNKS_A_TURN {
                match send(socket, chunk, SendFlags::NOSIGNAL) {
                    Ok(_) => {}
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
            return Ok(true);
        }
        let fills = self.fills;
        pipe.write(CHUNK_BYTES as u64, |bytes, is_last| {
            // the end of a message is not to be filled up with the next one
            let end = match is_last && !fills {
                true => SendFlags::EOR,
                false => SendFlags::empty(),
            };
            match send(socket, &chunk[..bytes as usize], SendFlags::NOSIGNAL | end) {
                Ok(sent) => Ok(sent as u64),
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                Err(errno) => Err(Broken::from(errno)),
            }
        })?;
        Ok(!self.pipes[side].pending.is_empty())
    }

    /// Takes in what has arrived at one end, at `now`, which is the time `at` of the run.
    pub(crate) fn take_in(
        &mut self,
        side: usize,
        socket: BorrowedFd<'_>,
        chunk: &mut [u8],
        now: Instant,
        at: Time,
    ) -> Result<(), Broken> {
        let pipe = &mut self.pipes[1 - side];
        if let Some(quic) = &mut self.quic {
            quic.receive(side, socket, chunk, now, at.as_secs())?;
            pipe.arrived = quic.arrived(side);
            return Ok(());
        }
        for _ in 0..CHUNKS_A_TURN {
            // counted and discarded in the kernel: a copy is not needed
            match recv(socket, &mut *chunk, RecvFlags::TRUNC) {
                Ok((_, 0)) => return Err(Errno::CONNRESET.into()), // closed before we did
                Ok((_, size)) => pipe.arrived += size as u64,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if let Some(window) = self.window
            && side == Side::Sink as usize
        {
            // it was accepted when the flow was connected, so an error here must not end the run
            let _ = renew_receive_window(socket, window);
        }
        Ok(())
    }
}
