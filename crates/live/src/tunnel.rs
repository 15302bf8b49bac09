//! The tunnel: carries the packets of sessions between their devices and one UDP socket, and notes
//! each. One thread serves all sessions of a host.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use pathcast_base::clock::{monotonic_ns, thread_cpu_s};
use pathcast_netns::Host;
use pathcast_probe::realtime::request_fifo;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, read, write};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::Timespec;

use crate::clock::Sample;
use crate::cookie::Cookies;
use crate::error::LiveError;
use crate::handshake::{Answer, Datagram, MOST_BYTES, Session, Signer, answer};
use crate::key::Key;
use crate::log::Log;
use crate::plan::MTU;
use crate::replay::ReplayWindow;

/// Packets taken from one source before the others have their turn.
const BATCH: usize = 64;
/// Never sleep longer, so that a stop is seen.
const LONGEST_SLEEP_NS: u64 = 20_000_000;
/// A session whose other end says nothing for so long is over.
const SILENCE_NS: u64 = 10_000_000_000;
/// A session that was agreed on and never used is given up after this.
const UNUSED_NS: u64 = 5_000_000_000;
/// Sessions that were agreed on and not used yet.
const MOST_UNUSED: usize = 32;
/// Samples of the other's clock that are kept.
const MOST_SAMPLES: usize = 100_000;

/// The first byte of datagrams that carry no packet. Packets begin with the version of IP, 4 or 6, in the
/// upper half of their first byte.
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const FAREWELL: u8 = 3;

/// Numbers of events.
const UDP: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// What a session has noted, and how it is: shared with whoever runs flows over it.
#[derive(Default)]
pub(crate) struct Shared {
    notes: Mutex<Notes>,
    /// Packets of flows are noted.
    pub(crate) noting: AtomicBool,
    /// The session is over, whoever ended it.
    pub(crate) over: AtomicBool,
    /// Nanoseconds between questions about the other's clock; 0: none.
    pub(crate) ask_every_ns: AtomicU64,
    /// Packets that the socket or the device did not take.
    pub(crate) refused: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) log: Log,
    pub(crate) samples: Vec<Sample>,
}

impl Shared {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("no panic holds it")
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A session that a client has begun to use: it has the key.
pub(crate) struct Arrived {
    pub(crate) index: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: SocketAddr,
}

enum Command {
    Attach(u32, Arc<Host>),
    Close(u32),
}

/// Speaks to the tunnel's thread from others.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
}

impl Handle {
    fn send(&self, command: Command) {
        let _ = self.commands.send(command); // the tunnel is gone, and its sessions with it
        let _ = write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Packets of session `index` go out and come in by the device of `host`.
    pub(crate) fn attach(&self, index: u32, host: Arc<Host>) {
        self.send(Command::Attach(index, host));
    }

    /// Ends the session and reports that to the other host.
    pub(crate) fn close(&self, index: u32) {
        self.send(Command::Close(index));
    }
}

struct Carried {
    session: Session,
    replay: ReplayWindow,
    peer: SocketAddr,
    host: Option<Arc<Host>>,
    shared: Arc<Shared>,
    used: bool,
    /// The hello that it began with, and its answer; of what this host has asked for, none.
    began: Option<Began>,
    heard_ns: u64,
    asked_ns: u64,
}

struct Began {
    hello: Vec<u8>,
    from: SocketAddr,
    welcome: Vec<u8>,
}

/// How a host treats hellos.
pub(crate) struct Welcoming {
    key: Key,
    signer: Signer,
    cookies: Cookies,
    /// The most simultaneous sessions.
    most: usize,
    arrived: Sender<Arrived>,
}

impl Welcoming {
    /// Reports clients with `key`, at most `most` at a time, to `arrived`.
    pub(crate) fn new(key: Key, most: usize, arrived: Sender<Arrived>) -> Result<Self, LiveError> {
        Ok(Self {
            signer: Signer::new(&key),
            cookies: Cookies::new()?,
            key,
            most,
            arrived,
        })
    }
}

/// The tunnel's thread works on this.
pub(crate) struct Tunnel {
    udp: UdpSocket,
    epoll: OwnedFd,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    sessions: BTreeMap<u32, Carried>,
    welcoming: Option<Welcoming>,
    datagram: Box<[u8; MOST_BYTES]>,
    content: Box<[u8; MOST_BYTES]>,
    /// Datagrams of no session.
    strange: u64,
}

/// What the tunnel's thread says at its end.
pub(crate) struct TunnelReport {
    pub(crate) cpu_s: f64,
    pub(crate) fifo_refused: Option<String>,
    /// Datagrams that were not sealed with the key, or had come before.
    pub(crate) strange: u64,
}

impl Tunnel {
    /// A tunnel over a bound socket; hosts that welcome others are servers.
    pub(crate) fn new(
        udp: UdpSocket,
        welcoming: Option<Welcoming>,
    ) -> Result<(Self, Handle), LiveError> {
        let setting_up = |errno: Errno| LiveError::from_io("setting up epoll", errno);
        udp.set_nonblocking(true)
            .map_err(|error| LiveError::from_io("setting up the UDP socket", error))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(setting_up)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(setting_up)?);
        let readable = epoll::EventFlags::IN;
        epoll::add(&epoll, &udp, epoll::EventData::new_u64(UDP), readable).map_err(setting_up)?;
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE), readable)
            .map_err(setting_up)?;
        let (sender, commands) = channel();
        let handle = Handle {
            commands: sender,
            wake: Arc::clone(&wake),
        };
        let tunnel = Self {
            udp,
            epoll,
            commands,
            wake,
            sessions: BTreeMap::new(),
            welcoming,
            datagram: Box::new([0; MOST_BYTES]),
            content: Box::new([0; MOST_BYTES]),
            strange: 0,
        };
        Ok((tunnel, handle))
    }

    /// Carries a session that this host has asked for.
    pub(crate) fn carry(&mut self, session: Session, peer: SocketAddr) -> Arc<Shared> {
        let shared = Arc::new(Shared::default());
        let carried = Carried::new(session, peer, Arc::clone(&shared), true);
        self.sessions.insert(carried.session.index, carried);
        shared
    }

    /// Carries packets until `stop`.
    pub(crate) fn run(mut self, fifo_priority: i32, stop: &AtomicBool) -> TunnelReport {
        let fifo_refused = request_fifo(fifo_priority)
            .err()
            .map(|error| error.to_string());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        while !stop.load(Ordering::Relaxed) {
            let sleep_ns = self.keep_up();
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: sleep_ns as _,
            };
            events.clear();
            // interrupted or not, the next turn looks again
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait));
            for event in &events {
                match event.data.u64() {
                    UDP => self.take_from_network(),
                    WAKE => self.obey(),
                    index => self.take_from_host(index as u32),
                }
            }
        }
        let indices: Vec<u32> = self.sessions.keys().copied().collect();
        for index in indices {
            self.close(index);
        }
        TunnelReport {
            cpu_s: thread_cpu_s(),
            fifo_refused,
            strange: self.strange,
        }
    }

    /// Asks for the time where that is due, and ends sessions that are over; returns how long to sleep.
    fn keep_up(&mut self) -> u64 {
        let now_ns = monotonic_ns();
        let mut sleep_ns = LONGEST_SLEEP_NS;
        let mut over = Vec::new();
        for (index, carried) in &mut self.sessions {
            let patience_ns = if carried.used { SILENCE_NS } else { UNUSED_NS };
            if now_ns.saturating_sub(carried.heard_ns) > patience_ns {
                over.push(*index);
            }
            let every_ns = carried.shared.ask_every_ns.load(Ordering::Relaxed);
            if every_ns == 0 {
                continue;
            }
            let due_ns = carried.asked_ns + every_ns;
            if due_ns <= now_ns {
                carried.asked_ns = now_ns;
                let mut question = [0; 9];
                question[0] = QUESTION;
                question[1..].copy_from_slice(&monotonic_ns().to_le_bytes());
                carried.send(&self.udp, &mut self.datagram, &question);
            }
            sleep_ns = sleep_ns.min((carried.asked_ns + every_ns).saturating_sub(now_ns));
        }
        for index in over {
            self.forget(index);
        }
        sleep_ns
    }

    fn obey(&mut self) {
        let mut count = [0; 8];
        let _ = read(&*self.wake, &mut count);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Attach(index, host) => {
                    let Some(carried) = self.sessions.get_mut(&index) else {
                        continue;
                    };
                    let event = epoll::EventData::new_u64(index.into());
                    let readable = epoll::EventFlags::IN;
                    if epoll::add(&self.epoll, &host.device, event, readable).is_ok() {
                        carried.host = Some(host);
                    }
                }
                Command::Close(index) => self.close(index),
            }
        }
    }

    fn close(&mut self, index: u32) {
        if let Some(carried) = self.sessions.get_mut(&index) {
            // three times, because it is not repeated after a loss
            for _ in 0..3 {
                carried.send(&self.udp, &mut self.datagram, &[FAREWELL]);
            }
        }
        self.forget(index);
    }

    fn forget(&mut self, index: u32) {
        if let Some(carried) = self.sessions.remove(&index) {
            if let Some(host) = &carried.host {
                let _ = epoll::delete(&self.epoll, &host.device);
            }
            carried.shared.over.store(true, Ordering::Relaxed);
        }
    }

    /// Sends what waits in a session's device to the other host.
    fn take_from_host(&mut self, index: u32) {
        let Some(carried) = self.sessions.get_mut(&index) else {
            return;
        };
        let Some(host) = carried.host.clone() else {
            return;
        };
        for _ in 0..BATCH {
            match host.device.read(&mut self.content[..MTU as usize]) {
                Ok(Some(size)) => {
                    let packet = &self.content[..size];
                    if !is_packet(packet) {
                        continue;
                    }
                    let at_ns = monotonic_ns();
                    let number = carried.send(&self.udp, &mut self.datagram, packet);
                    if carried.shared.noting.load(Ordering::Relaxed) {
                        carried.shared.notes().log.note_sent(number, at_ns, packet);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    carried.shared.refused.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    fn take_from_network(&mut self) {
        for _ in 0..BATCH {
            // what is longer than any of ours is cut, and then no longer authentic
            let (size, from) = match self.udp.recv_from(&mut self.datagram[..]) {
                Ok(received) => received,
                Err(_) => return, // nothing waits, or a message that a datagram did not arrive
            };
            let came_ns = monotonic_ns();
            match Datagram::parse(&self.datagram[..size]) {
                Some(Datagram::Data { .. }) => self.on_data(size, from, came_ns),
                Some(Datagram::Hello(_) | Datagram::OtherHello) => {
                    self.on_hello(size, from, came_ns);
                }
                _ => self.strange += 1,
            }
        }
    }

    fn on_hello(&mut self, size: usize, from: SocketAddr, came_ns: u64) {
        let datagram = &self.datagram[..size];
        let Some(welcoming) = &self.welcoming else {
            self.strange += 1;
            return;
        };
        // who says the same again has its place, and gets the same answer
        let began = self.sessions.values().filter_map(|c| c.began.as_ref());
        for began in began {
            if began.from == from && began.hello == datagram {
                let _ = self.udp.send_to(&began.welcome, from);
                return;
            }
        }
        if !welcoming.signer.is_hello(datagram) {
            self.strange += 1;
            return;
        }
        let Some(Datagram::Hello(hello)) = Datagram::parse(datagram) else {
            let other = welcoming.signer.other(datagram);
            let _ = self.udp.send_to(&other, from);
            return;
        };
        if !welcoming.cookies.holds(hello.cookie, from, came_ns) {
            // nothing is kept of who may not be where it says, or have been recorded
            let cookie = welcoming.cookies.make(from, came_ns);
            let again = welcoming.signer.again(datagram, &cookie);
            let _ = self.udp.send_to(&again, from);
            return;
        }
        let unused = self
            .sessions
            .values()
            .filter(|carried| !carried.used)
            .count();
        if unused >= MOST_UNUSED {
            return; // who means it asks again
        }
        let status = match self.sessions.len() - unused < welcoming.most {
            true => Answer::Welcome,
            false => Answer::Busy,
        };
        let Some(index) = unused_index(&self.sessions) else {
            return;
        };
        let Some((welcome, session)) = answer(&welcoming.key, &hello, index, status) else {
            self.strange += 1;
            return;
        };
        let _ = self.udp.send_to(&welcome, from);
        if status == Answer::Welcome {
            let mut carried = Carried::new(session, from, Arc::default(), false);
            carried.began = Some(Began {
                hello: datagram.to_vec(),
                from,
                welcome,
            });
            self.sessions.insert(index, carried);
        }
    }

    fn on_data(&mut self, size: usize, from: SocketAddr, came_ns: u64) {
        let Some(Datagram::Data {
            to,
            number,
            ciphertext,
        }) = Datagram::parse(&self.datagram[..size])
        else {
            return;
        };
        let carried = self.sessions.get_mut(&to);
        let Some(carried) = carried.filter(|carried| carried.replay.is_new(number)) else {
            self.strange += 1;
            return;
        };
        let Some(content) = carried.session.open(number, ciphertext, &mut self.content) else {
            self.strange += 1;
            return;
        };
        // a client that changes its network, or whose NAT forgets it, has a new address; an overtaken
        // datagram has the former one
        if carried.replay.is_newest(number) {
            carried.peer = from;
        }
        carried.replay.note(number);
        carried.heard_ns = came_ns;
        if !carried.used {
            let used = self
                .sessions
                .values()
                .filter(|carried| carried.used)
                .count();
            let (Some(welcoming), true) = (
                &self.welcoming,
                self.welcoming
                    .as_ref()
                    .is_some_and(|welcoming| used < welcoming.most),
            ) else {
                return self.close(to);
            };
            let carried = self.sessions.get_mut(&to).expect("it was there");
            carried.used = true;
            let _ = welcoming.arrived.send(Arrived {
                index: to,
                shared: Arc::clone(&carried.shared),
                peer: from,
            });
            // what it said is said again
            return;
        }
        match content {
            [QUESTION, asked @ ..] if asked.len() == 8 => {
                let mut said = [0; 25];
                said[0] = ANSWER;
                said[1..9].copy_from_slice(asked);
                said[9..17].copy_from_slice(&came_ns.to_le_bytes());
                said[17..].copy_from_slice(&monotonic_ns().to_le_bytes());
                carried.send(&self.udp, &mut self.datagram, &said);
            }
            [ANSWER, times @ ..] => {
                let sample = times.try_into().ok();
                let sample = sample.and_then(|times| Sample::of_answer(times, came_ns));
                let mut notes = carried.shared.notes();
                if notes.samples.len() < MOST_SAMPLES {
                    notes.samples.extend(sample);
                }
            }
            [FAREWELL] => self.forget(to),
            packet if is_packet(packet) => {
                if carried.shared.noting.load(Ordering::Relaxed) {
                    carried.shared.notes().log.note_received(number, came_ns);
                }
                if let Some(host) = &carried.host
                    && host.device.write(packet).is_err()
                {
                    carried.shared.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }
}

impl Carried {
    fn new(session: Session, peer: SocketAddr, shared: Arc<Shared>, used: bool) -> Self {
        Self {
            session,
            replay: ReplayWindow::new(),
            peer,
            host: None,
            shared,
            used,
            began: None,
            heard_ns: monotonic_ns(),
            asked_ns: 0,
        }
    }

    /// Seals `content` and sends it; gives its number.
    #[inline]
    fn send(&mut self, udp: &UdpSocket, datagram: &mut [u8; MOST_BYTES], content: &[u8]) -> u64 {
        let (number, size) = self.session.seal(content, datagram);
        if udp.send_to(&datagram[..size], self.peer).is_err() {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
        }
        number
    }
}

fn is_packet(content: &[u8]) -> bool {
    content
        .first()
        .is_some_and(|first| matches!(first >> 4, 4 | 6))
}

/// A random index that no session has.
fn unused_index(sessions: &BTreeMap<u32, Carried>) -> Option<u32> {
    for _ in 0..16 {
        let mut bytes = [0; 4];
        getrandom(&mut bytes, GetRandomFlags::empty()).ok()?;
        let index = u32::from_le_bytes(bytes);
        if !sessions.contains_key(&index) {
            return Some(index);
        }
    }
    None
}
