//! Runs an end in real time: one thread, one socket, and a timer with the clock's own resolution.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use pathcast_base::Time;
use pathcast_base::clock::RunClock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::UdpError;
use crate::receiving::ReceivingEnd;
use crate::sending::{Over, SendingEnd};
use crate::sys;
use crate::wire::{HEADER_BYTES, MOST_BYTES, MOST_PAYLOAD_BYTES};

/// Datagrams taken or sent before the other direction has its turn.
const BATCH: usize = 64;
/// What may wait in the receiver's socket, as far as the system allows.
const BUFFER_BYTES: usize = 8 << 20;
/// When a timer is set that is due already: a moment of 0 would disarm it.
const LEAST_NS: u64 = 1;

/// A number that others cannot guess.
///
/// # Errors
/// The system has none.
pub fn nonce() -> Result<u64, UdpError> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|errno| UdpError::io("drawing a random number")(errno.into()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// What an end waits for.
struct Waiting {
    clock: RunClock,
    timer: OwnedFd,
    /// What the timer is set to; none: it has expired, and stays readable until it is set anew.
    armed: Option<Option<Time>>,
    stop: OwnedFd,
}

impl Waiting {
    fn new() -> Result<Self, UdpError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| UdpError::io("making a timer")(errno.into()))?;
        Ok(Self {
            clock: RunClock::start(),
            timer,
            armed: Some(None),
            stop: sys::termination().map_err(UdpError::io("taking signals"))?,
        })
    }

    /// Sets the timer.
    fn arm(&mut self, at: Option<Time>) -> Result<(), UdpError> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let ns = at.map_or(0, |at| self.clock.monotonic_ns(at).max(LEAST_NS));
        let second = 1_000_000_000;
        let moment = Timespec {
            tv_sec: (ns / second) as _,
            tv_nsec: (ns % second) as _,
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: moment,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)
            .map_err(|errno| UdpError::io("setting a timer")(errno.into()))?;
        self.armed = Some(at);
        Ok(())
    }

    /// Waits for a datagram, for room to send one if `sends`, for the timer or a signal; returns whether to stop.
    fn wait(&mut self, socket: &UdpSocket, sends: bool) -> Result<bool, UdpError> {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, sends);
        let mut waiting = [
            PollFd::new(socket, events),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::IN),
        ];
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(UdpError::io("waiting")(errno.into())),
        }
        let expired = !waiting[1].revents().is_empty();
        let stopped = !waiting[2].revents().is_empty();
        if expired {
            self.armed = None;
        }
        Ok(stopped)
    }
}

fn open(address: SocketAddr) -> Result<UdpSocket, UdpError> {
    let opening = format!("opening UDP socket {address}");
    let socket = UdpSocket::bind(address).map_err(UdpError::io(opening.clone()))?;
    socket
        .set_nonblocking(true)
        .map_err(UdpError::io(opening))?;
    // root may have more than the system's limit; others take what they get
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
    }
    Ok(socket)
}

/// Whether an error of a UDP socket says that a datagram came to nothing, as any datagram may.
fn is_of_the_path(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable};
    let kinds = [
        ConnectionRefused,
        HostUnreachable,
        Interrupted,
        NetworkUnreachable,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// A socket that sends to a receiver.
fn connected(to: SocketAddr) -> Result<UdpSocket, UdpError> {
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let socket = open(any)?;
    socket
        .connect(to)
        .map_err(UdpError::io(format!("reaching {to}")))?;
    Ok(socket)
}

/// The largest payload whose packet reaches a receiver whole, as far as this host knows: its interface's MTU, or
/// what the path has reported.
///
/// # Errors
/// There is no way to the receiver.
pub fn most_payload_bytes(to: SocketAddr) -> Result<usize, UdpError> {
    const UDP_BYTES: usize = 8;
    let socket = connected(to)?;
    let (mtu, ip_bytes) = match to {
        SocketAddr::V4(_) => (sockopt::ip_mtu(&socket), 20),
        SocketAddr::V6(_) => (sockopt::ipv6_mtu(&socket), 40),
    };
    let mtu = mtu.map_err(|errno| UdpError::io(format!("reaching {to}"))(errno.into()))?;
    let room = (mtu as usize).saturating_sub(ip_bytes + UDP_BYTES + HEADER_BYTES);
    Ok(room.clamp(1, MOST_PAYLOAD_BYTES))
}

/// Runs a sending end until it is over or a signal comes; returns the seconds that it took.
///
/// # Errors
/// The socket cannot be opened or used, or the receiver does not answer.
pub fn send(end: &mut SendingEnd, to: SocketAddr) -> Result<f64, UdpError> {
    let socket = connected(to)?;
    let mut waiting = Waiting::new()?;
    let mut buffer = filled();
    let mut answer = [0; MOST_BYTES + 1];
    // bytes in `buffer` that the socket had no room for
    let mut pending = 0;
    loop {
        for _ in 0..BATCH {
            match socket.recv(&mut answer) {
                Ok(size) => end.on_datagram(waiting.clock.now(), &answer[..size]),
                Err(error) if is_of_the_path(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(UdpError::io(format!("receiving from {to}"))(error)),
            }
        }
        let now = waiting.clock.now();
        if end.next_timer().is_some_and(|at| at <= now) {
            end.on_timer(now);
        }
        let mut left = BATCH;
        while left > 0 {
            if pending == 0 {
                match end.poll(waiting.clock.now(), &mut buffer) {
                    Some(size) => pending = size,
                    None => break,
                }
            }
            match socket.send(&buffer[..pending]) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_of_the_path(&error) => {}
                Err(error) => return Err(UdpError::io(format!("sending to {to}"))(error)),
            }
            (pending, left) = (0, left - 1);
        }
        match end.over() {
            Some(Over::Done) if pending == 0 => return Ok(waiting.clock.now().as_secs()),
            Some(Over::NoAnswer) => return Err(UdpError::NoAnswer(to)),
            Some(Over::Silent) => return Err(UdpError::Silent(to)),
            _ => {}
        }
        // more leaves as soon as the acknowledgments that came meanwhile are read
        let next = if left == 0 {
            Some(Time::ZERO)
        } else {
            end.next_timer()
        };
        waiting.arm(next)?;
        if waiting.wait(&socket, pending > 0)? {
            end.stop();
        }
    }
}

/// A buffer whose payload no compressing link makes small (a linear congruential generator, Knuth's constants).
fn filled() -> [u8; MOST_BYTES] {
    let mut state = 1_u64;
    std::array::from_fn(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// A receiver's socket.
pub struct Listening {
    socket: UdpSocket,
    waiting: Waiting,
    address: SocketAddr,
}

impl Listening {
    /// Opens a socket at `address`; port 0 takes any.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(address: SocketAddr) -> Result<Self, UdpError> {
        let socket = open(address)?;
        let local = socket.local_addr();
        Ok(Self {
            address: local.map_err(UdpError::io("reading the socket's address"))?,
            socket,
            waiting: Waiting::new()?,
        })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs a receiving end until a signal comes.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn receive(mut self, end: &mut ReceivingEnd<SocketAddr>) -> Result<(), UdpError> {
        let mut datagram = [0; MOST_BYTES + 1];
        let mut answer = [0; MOST_BYTES];
        loop {
            let mut taken = 0;
            while taken < BATCH {
                match self.socket.recv_from(&mut datagram) {
                    Ok((size, from)) => {
                        let now = self.waiting.clock.now();
                        if let Some(size) =
                            end.on_datagram(now, from, &datagram[..size], &mut answer)
                        {
                            // an answer that finds no room is lost as any other datagram may be
                            let _ = self.socket.send_to(&answer[..size], from);
                        }
                    }
                    Err(error) if is_of_the_path(&error) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(UdpError::io("receiving")(error)),
                }
                taken += 1;
            }
            if let Some((to, size)) = end.on_timer(self.waiting.clock.now(), &mut answer) {
                let _ = self.socket.send_to(&answer[..size], to);
            }
            self.waiting.arm(end.next_timer())?;
            if self.waiting.wait(&self.socket, false)? {
                return Ok(());
            }
        }
    }
}
