//! The thread that carries packets between two hosts through a path, in real time.

use std::sync::atomic::{AtomicBool, Ordering};

use pathcast_path::{Channel, Dropped, Path, Span, Time};
use pathcast_probe::realtime::{monotonic_ns, request_fifo, thread_cpu_s};
use pathcast_trace::DelayHistogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::Timespec;

use crate::error::EmulatorError;
use crate::packet::{Packet, Pool, carries_tcp_payload};
use crate::tun::Tun;

/// Packets taken or let go before the other side has its turn.
const BATCH: usize = 64;

/// Up to this rate, the thread wakes for each packet; above it, waking costs more than carrying
/// (50 % of a core at 500 Mbit/s), and it sleeps for [`QUANTUM`] after each turn.
const WAKE_PER_PACKET_UP_TO_BPS: f64 = 500e6;

/// How long to sleep between turns on a fast path; packets leave late by up to this.
const QUANTUM: Span = Span::from_nanos(50_000);

/// Never sleep longer, so that a stop is seen.
const LONGEST_SLEEP: Span = Span::from_millis(20);

/// What one direction did.
#[derive(Default)]
pub(crate) struct LaneReport {
    /// Packets with payload that were offered.
    pub(crate) data_offered: u64,
    /// Of those, packets that the far end's device took.
    pub(crate) data_delivered: u64,
    /// When each packet with payload was dropped, on the monotonic clock.
    pub(crate) data_drops_ns: Vec<u64>,
    /// Packets without payload that were dropped.
    pub(crate) other_drops: u64,
    /// Packets that the device did not take or give.
    pub(crate) device_errors: u64,
    /// From one device to the other, packets with payload only.
    pub(crate) delays: DelayHistogram,
}

impl LaneReport {
    fn note_drop(&mut self, at_ns: u64, is_data: bool) {
        if is_data {
            self.data_drops_ns.push(at_ns);
        } else {
            self.other_drops += 1;
        }
    }
}

/// What the pump did.
pub(crate) struct PumpReport {
    pub(crate) forward: LaneReport,
    pub(crate) reverse: LaneReport,
    /// How late packets left, both directions.
    pub(crate) slips: DelayHistogram,
    /// Processor time in seconds.
    pub(crate) cpu_s: f64,
    /// Why the thread was not in `SCHED_FIFO`.
    pub(crate) fifo_refused: Option<String>,
}

/// The clock that the channels live by: zero when the pump was made.
#[derive(Clone, Copy)]
struct Clock {
    origin_ns: u64,
}

impl Clock {
    #[inline]
    fn now(self) -> Time {
        Time::from_nanos(monotonic_ns() - self.origin_ns)
    }
}

/// One direction: out of one device, through a channel, into the other.
struct Lane<'a> {
    from: &'a Tun,
    to: &'a Tun,
    channel: Channel<Packet>,
    report: LaneReport,
}

impl Lane<'_> {
    /// Takes waiting packets off the device; whether there may be more, and whether there were any.
    #[inline]
    fn take_in(&mut self, clock: Clock, pool: &mut Pool) -> (bool, bool) {
        for taken in 0..BATCH {
            let mut buffer = pool.take();
            let size = match self.from.read(&mut buffer[..]) {
                Ok(Some(size)) => size,
                Ok(None) => {
                    pool.give_back(buffer);
                    return (false, taken > 0);
                }
                Err(_) => {
                    pool.give_back(buffer);
                    self.report.device_errors += 1;
                    return (false, taken > 0);
                }
            };
            let is_data = carries_tcp_payload(&buffer[..size]);
            self.report.data_offered += u64::from(is_data);
            let (entered, size_bytes) = (clock.now(), size as u32);
            let packet = Packet {
                buffer,
                size_bytes,
                is_data,
                entered,
            };
            if let Err((packet, _reason)) = self.channel.enqueue(entered, size_bytes, packet) {
                self.report
                    .note_drop(clock.origin_ns + entered.as_nanos(), is_data);
                pool.give_back(packet.buffer);
            }
        }
        (true, true)
    }

    /// Lets go the packets that are due; whether there may be more, and whether there were any.
    #[inline]
    fn let_go(
        &mut self,
        clock: Clock,
        pool: &mut Pool,
        slips: &mut DelayHistogram,
    ) -> (bool, bool) {
        for gone in 0..BATCH {
            let now = clock.now();
            let arrived = self.channel.dequeue(now);
            while let Some(Dropped { packet, .. }) = self.channel.take_dropped() {
                self.report
                    .note_drop(clock.origin_ns + now.as_nanos(), packet.is_data);
                pool.give_back(packet.buffer);
            }
            let Some((due, packet)) = arrived else {
                return (false, gone > 0);
            };
            slips.record(now.since(due).as_nanos());
            let written = self.to.write(&packet.buffer[..packet.size_bytes as usize]);
            self.report.device_errors += u64::from(written.is_err());
            if packet.is_data && written.is_ok() {
                self.report.data_delivered += 1;
                self.report
                    .delays
                    .record(now.since(packet.entered).as_nanos());
            }
            pool.give_back(packet.buffer);
        }
        (true, true)
    }
}

/// Carries packets between two devices.
pub(crate) struct Pump<'a> {
    clock: Clock,
    lanes: [Lane<'a>; 2],
    pool: Pool,
    slips: DelayHistogram,
    epoll: rustix::fd::OwnedFd,
    quantum: Option<Span>,
}

impl<'a> Pump<'a> {
    /// A pump between the devices of the sender and the receiver of data, that will hold about
    /// `packets` packets at once.
    pub(crate) fn new(
        path: &Path,
        seed: u64,
        sender: &'a Tun,
        receiver: &'a Tun,
        packets: usize,
    ) -> Result<Self, EmulatorError> {
        let kernel = |errno: rustix::io::Errno| EmulatorError::from_io("setting up epoll", errno);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(kernel)?;
        for tun in [sender, receiver] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, tun, data, epoll::EventFlags::IN).map_err(kernel)?;
        }
        let fastest_bps = [&path.forward, &path.reverse]
            .map(|direction| {
                let rate = direction.peak_rate();
                rate.map_or(f64::INFINITY, |rate| rate.as_bps())
            })
            .into_iter()
            .fold(0.0, f64::max);
        let (forward, reverse) = path.channels(seed);
        let lane = |from, to, mut channel: Channel<Packet>| {
            channel.keep_drops();
            let data_drops_ns = Vec::with_capacity(1 << 16);
            Lane {
                from,
                to,
                channel,
                report: LaneReport {
                    data_drops_ns,
                    ..LaneReport::default()
                },
            }
        };
        Ok(Self {
            clock: Clock {
                origin_ns: monotonic_ns(),
            },
            lanes: [
                lane(sender, receiver, forward),
                lane(receiver, sender, reverse),
            ],
            pool: Pool::new(packets),
            slips: DelayHistogram::default(),
            epoll,
            quantum: (fastest_bps > WAKE_PER_PACKET_UP_TO_BPS).then_some(QUANTUM),
        })
    }

    /// Carries packets until `stop`.
    pub(crate) fn run(mut self, fifo_priority: i32, stop: &AtomicBool) -> PumpReport {
        let fifo_refused = request_fifo(fifo_priority)
            .err()
            .map(|error| error.to_string());
        let mut events = Vec::with_capacity(2);
        while !stop.load(Ordering::Relaxed) {
            let (mut more, mut worked) = (false, false);
            for lane in &mut self.lanes {
                let (more_out, went) = lane.let_go(self.clock, &mut self.pool, &mut self.slips);
                let (more_in, came) = lane.take_in(self.clock, &mut self.pool);
                more |= more_out | more_in;
                worked |= went | came;
            }
            if !more {
                self.sleep(worked, &mut events);
            }
        }
        let [forward, reverse] = self.lanes.map(|lane| lane.report);
        PumpReport {
            forward,
            reverse,
            slips: self.slips,
            cpu_s: thread_cpu_s(),
            fifo_refused,
        }
    }

    /// Sleeps until there may be something to do. A real-time thread that never slept would be
    /// stopped by the kernel for 50 ms in each second.
    #[inline]
    fn sleep(&self, worked: bool, events: &mut Vec<epoll::Event>) {
        let next = self
            .lanes
            .iter()
            .filter_map(|lane| lane.channel.next_event())
            .min();
        if let Some(quantum) = self.quantum.filter(|_| worked || next.is_some()) {
            let _ = clock_nanosleep_relative(ClockId::Monotonic, &timespec(quantum));
            return;
        }
        let wait = match next.map(|next| next.since(self.clock.now())) {
            Some(Span::ZERO) => return,
            Some(wait) => wait.min(LONGEST_SLEEP),
            None => LONGEST_SLEEP,
        };
        events.clear();
        // interrupted or not, the next turn looks at everything
        let _ = epoll::wait(&self.epoll, spare_capacity(events), Some(&timespec(wait)));
    }
}

fn timespec(span: Span) -> Timespec {
    let nanos = span.as_nanos();
    Timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as _,
    }
}
