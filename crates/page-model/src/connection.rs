//! What a server sends into a connection: a window in each round trip.

use std::collections::VecDeque;

use pathcast_path::{Span, Time, seed};
use pathcast_scenario::Message;
use pathcast_window_law::{Cc, Epoch};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::model::{Law, LossCurve, MSS_BYTES, Model, PACKET_BYTES};

/// A delay of the queue at which CUBIC leaves slow start (HyStart in Linux): an eighth of the round trip within these.
const HYSTART_LEAST: Span = Span::from_millis(4);
const HYSTART_MOST: Span = Span::from_millis(16);
/// BBR keeps up to so many bandwidth-delay products in flight.
const BBR_GAIN: f64 = 2.0;

/// The link: it sends in order.
#[derive(Debug)]
pub struct Link {
    free: Time,
    rate_bps: Option<f64>,
    /// The most bytes that the path and its queue hold. The model sends each window as one burst, so all of it counts.
    most_bytes: f64,
}

impl Link {
    pub fn new(model: &Model) -> Self {
        Self {
            free: Time::ZERO,
            rate_bps: model.rate_bps,
            most_bytes: model.queue_bytes + PACKET_BYTES * model.bdp_packets(),
        }
    }

    /// How long what comes at `now` waits.
    fn wait(&self, now: Time) -> Span {
        self.free.max(now).since(now)
    }

    /// Payload enters at `now`: when its last byte has left, and whether the queue was full.
    fn send(&mut self, now: Time, payload_bytes: f64) -> (Time, bool) {
        let Some(rate) = self.rate_bps else {
            return (now, false);
        };
        let full = self.wait(now).as_secs() * rate / 8.0 > self.most_bytes;
        let bits = 8.0 * payload_bytes * PACKET_BYTES / MSS_BYTES;
        self.free = self.free.max(now) + Span::from_secs(bits / rate);
        (self.free, full)
    }
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Connection {
    window: f64,
    /// In slow start while the window is below.
    threshold: f64,
    /// Of congestion avoidance, with its beginning.
    epoch: Option<(Epoch, Time)>,
    /// Where the window was at the loss before.
    aim: f64,
    /// The current round trip: until when, and how many packets of the window have left in it.
    round_end: Time,
    used: f64,
    /// When the first and the last packet of the round have left the link.
    left: Option<(Time, Time)>,
    /// Losses are drawn as a Poisson process: how much of its intensity is left until the next.
    until_loss: f64,
    recovers_until: Time,
    /// Until when the repair of a loss is missing, and what that holds up: all of TCP's bytes, one stream of QUIC's.
    blocked: Vec<(u32, Time)>,
    /// What was not sent whole: its stream, and how many bytes are left.
    waiting: VecDeque<(u32, Message, f64)>,
    rng: Xoshiro256PlusPlus,
}

impl Connection {
    pub fn new(model: &Model, mut rng: Xoshiro256PlusPlus) -> Self {
        Self {
            window: model.initial_window,
            threshold: f64::INFINITY,
            epoch: None,
            aim: 0.0,
            round_end: Time::ZERO,
            used: 0.0,
            left: None,
            until_loss: exponential(&mut rng),
            recovers_until: Time::ZERO,
            blocked: Vec::new(),
            waiting: VecDeque::new(),
            rng,
        }
    }

    /// Writes a message of a stream; TCP has one.
    pub fn write(&mut self, stream: u32, message: Message) {
        self.waiting
            .push_back((stream, message, message.bytes as f64));
    }

    /// A loss holds up a stream.
    fn block(&mut self, now: Time, stream: u32, until: Time) {
        self.blocked.retain(|(_, end)| *end > now);
        self.blocked.push((stream, until));
    }

    fn blocked_until(&self, stream: u32) -> Time {
        let of_stream = self.blocked.iter().filter(|(one, _)| *one == stream);
        of_stream
            .map(|(_, until)| *until)
            .max()
            .unwrap_or(Time::ZERO)
    }

    /// Whether anything waits or is in flight.
    pub fn is_busy(&self, now: Time) -> bool {
        !self.waiting.is_empty() || (now < self.round_end && self.used > 0.0)
    }

    /// Sends at `now` what the window allows of what was written, with losses by `curve`; `more` gives further records with
    /// their streams, and `deliver` receives each message that was sent whole, with the time of its arrival. Returns when
    /// to call again, if there is more.
    pub fn send(
        &mut self,
        now: Time,
        model: &Model,
        curve: &LossCurve,
        link: &mut Link,
        mut more: impl FnMut() -> Option<(u32, Message)>,
        mut deliver: impl FnMut(Time, Message),
    ) -> Option<Time> {
        if now >= self.round_end {
            self.begin_round(now, model, link);
        }
        loop {
            if self.waiting.is_empty() {
                let (stream, message) = more()?;
                self.write(stream, message);
            }
            let room = self.window - self.used;
            if room < 1e-9 {
                return Some(self.end_round(model));
            }
            let (stream, message, left_bytes) = self.waiting.front_mut().expect("it is not empty");
            let bytes = left_bytes.min(room * MSS_BYTES);
            *left_bytes -= bytes;
            let is_whole = *left_bytes < 0.5;
            let (stream, message) = (*stream, *message);
            if is_whole {
                self.waiting.pop_front();
            }
            let packets = bytes / MSS_BYTES;
            self.used += packets;
            let (leaves, is_full) = link.send(now, bytes);
            self.left = Some((self.left.map_or(leaves, |(first, _)| first), leaves));
            let arrives = leaves + half(model.rtt);
            self.until_loss -= packets * curve.at(self.window);
            if self.until_loss <= 0.0 || is_full {
                if is_whole
                    && self.waiting.is_empty()
                    && let Some((stream, next)) = more()
                {
                    self.write(stream, next);
                }
                // what repairs it leaves when acknowledgments of later packets have come: a round trip later; at the
                // end of all there are none, and a probe has to ask for them
                let is_tail = self.waiting.is_empty() && is_whole;
                let repair = if is_tail {
                    model.rtt + model.rtt
                } else {
                    model.rtt
                };
                self.block(now, stream, arrives + repair);
                self.lose(now, model);
            }
            if is_whole {
                deliver(arrives.max(self.blocked_until(stream)), message);
            }
        }
    }

    /// When the next window may leave: the first acknowledgment of this one has come, and the link has sent all of it.
    fn end_round(&mut self, model: &Model) -> Time {
        if let Some((first, last)) = self.left.take() {
            self.round_end = self.round_end.max(first + model.rtt).max(last);
        }
        self.round_end
    }

    /// The next round trip begins: the window grows if all of it was used.
    fn begin_round(&mut self, now: Time, model: &Model, link: &Link) {
        let was_full = self.window - self.used < 1e-9;
        if was_full && now >= self.recovers_until {
            match model.law {
                Law::Bandwidth => {
                    self.window = (2.0 * self.window).min(BBR_GAIN * model.bdp_packets());
                }
                Law::Window(cc) => self.grow(now, model, cc, link),
            }
        }
        self.used = 0.0;
        self.left = None;
        self.round_end = now + model.rtt;
    }

    fn grow(&mut self, now: Time, model: &Model, cc: Cc, link: &Link) {
        if self.window < self.threshold {
            self.window = (2.0 * self.window).min(self.threshold);
            let eighth = model.rtt.mul_div(1, 8);
            let delay = eighth.clamp(HYSTART_LEAST, HYSTART_MOST);
            if cc == Cc::Cubic && self.window >= 16.0 && link.wait(now) > delay {
                self.threshold = self.window;
            }
            return;
        }
        let rtt_s = model.rtt.as_secs();
        let (epoch, begin) = self
            .epoch
            .get_or_insert((Epoch::new(cc, self.window, self.window, rtt_s), now));
        self.window = epoch.window_packets(now.since(*begin).as_secs() + rtt_s);
    }

    /// A packet is lost.
    fn lose(&mut self, now: Time, model: &Model) {
        if self.until_loss <= 0.0 {
            self.until_loss = exponential(&mut self.rng);
        }
        // several losses in one round trip are one event
        if now < self.recovers_until {
            return;
        }
        self.recovers_until = now + model.rtt;
        if let Law::Window(cc) = model.law {
            let epoch = Epoch::after_loss(cc, self.window, self.aim, model.rtt.as_secs());
            self.aim = self.window;
            self.window = epoch.start_packets.max(2.0);
            self.threshold = self.window;
            self.epoch = Some((epoch, now + model.rtt));
        }
    }
}

const fn half(span: Span) -> Span {
    span.mul_div(1, 2)
}

/// A draw of mean 1.
fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    -libm::log(seed::uniform(rng))
}
