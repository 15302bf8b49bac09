//! The sending end, without I/O.

use pathcast_base::{Span, Time};
use pathcast_congestion::Scheme;
use pathcast_tcp::{AckSegment, Handshake, Sender, SenderConfig, Start};

use crate::wire::{Datagram, MOST_PAYLOAD_BYTES, read, write};

/// First time to wait for an answer to a hello; each later one is twice as long, up to the longest.
const FIRST_WAIT: Span = Span::from_millis(200);
const LONGEST_WAIT: Span = Span::from_millis(1600);
/// Hellos without an answer end here.
const PATIENCE: Span = Span::from_millis(10_000);
/// Data without an acknowledgment ends here.
const SILENCE: Span = Span::from_millis(30_000);
/// How often a close is said, because nothing answers it.
const CLOSES: u32 = 3;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub struct SendingOptions {
    /// How much; none: until [`SendingEnd::stop`].
    pub bytes: Option<u64>,
    /// Bytes of payload in each datagram, at most [`MOST_PAYLOAD_BYTES`].
    pub payload_bytes: usize,
    /// Seed of what the controller draws.
    pub seed: u64,
    /// What the hello carries: to be drawn at random.
    pub nonce: u64,
}

impl SendingOptions {
    /// All there is, in packets of 1500 bytes.
    pub const fn unlimited(nonce: u64) -> Self {
        Self {
            bytes: None,
            payload_bytes: MOST_PAYLOAD_BYTES,
            seed: 1,
            nonce,
        }
    }
}

/// How a sending end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// All was acknowledged, or it was stopped.
    Done,
    /// No hello was answered.
    NoAnswer,
    /// The receiver stopped acknowledging.
    Silent,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Says hello: when first and last, how often, and when again.
    Opening {
        first_at: Option<Time>,
        tries: u32,
        next_at: Time,
    },
    Open {
        token: u64,
    },
    /// Says so many more closes.
    Closing {
        token: u64,
        left: u32,
    },
    Over(Over),
}

/// Sends by a congestion controller of ours: datagrams and the time go in, datagrams come out.
///
/// Call [`poll`](Self::poll) until it returns none whenever a datagram came or the timer expired.
pub struct SendingEnd {
    state: State,
    sender: Sender,
    payload_bytes: usize,
    nonce: u64,
    /// When the receiver last acknowledged anything, or the connection opened.
    heard_at: Time,
    sent_bytes: u64,
    /// Bytes less than full packets that the last packet of a transfer has.
    short_by: u64,
    opened_at: Option<Time>,
    /// Datagrams that were not the receiver's, or that say what cannot be.
    refused: u64,
}

impl SendingEnd {
    /// An end that has sent nothing yet.
    ///
    /// # Panics
    /// `payload_bytes` is 0 or larger than a datagram.
    pub fn new(scheme: &Scheme, options: &SendingOptions) -> Self {
        let payload = options.payload_bytes;
        assert!((1..=MOST_PAYLOAD_BYTES).contains(&payload), "{payload}");
        let packets = options.bytes.map(|bytes| bytes.div_ceil(payload as u64));
        let short_by = match (options.bytes, packets) {
            (Some(bytes), Some(packets)) => packets * payload as u64 - bytes,
            _ => 0,
        };
        let config = SenderConfig {
            packets,
            mss_bytes: payload as u32,
            last_short_by_bytes: short_by as u16,
            start: Start::Accepts,
            ..SenderConfig::default()
        };
        Self {
            state: State::Opening {
                first_at: None,
                tries: 0,
                next_at: Time::ZERO,
            },
            sender: Sender::new(config, scheme.controller(options.seed)),
            payload_bytes: payload,
            nonce: options.nonce,
            heard_at: Time::ZERO,
            sent_bytes: 0,
            short_by,
            opened_at: None,
            refused: 0,
        }
    }

    /// How it ended, if it has.
    pub const fn over(&self) -> Option<Over> {
        match self.state {
            State::Over(how) => Some(how),
            _ => None,
        }
    }

    /// The sender, with its controller.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Bytes of payload sent, those sent again among them.
    pub const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Bytes of payload that the receiver has acknowledged in order.
    pub fn acknowledged_bytes(&self) -> u64 {
        let bytes = self.sender.una_and_next().0 * self.payload_bytes as u64;
        let whole = self.sender.is_done() && !self.sender.has_unsent();
        bytes - if whole { self.short_by.min(bytes) } else { 0 }
    }

    /// When the receiver answered the hello, if it has.
    pub const fn opened_at(&self) -> Option<Time> {
        self.opened_at
    }

    /// Datagrams that were not read: not the receiver's, or saying what cannot be.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Sends no more, and says so to the receiver.
    pub const fn stop(&mut self) {
        self.state = match self.state {
            State::Open { token } => State::Closing {
                token,
                left: CLOSES,
            },
            State::Opening { .. } => State::Over(Over::Done),
            other => other,
        };
    }

    /// Takes a datagram that came from the receiver's address at `now`.
    pub fn on_datagram(&mut self, now: Time, bytes: &[u8]) {
        match (read(bytes), self.state) {
            (
                Some(Datagram::Welcome { nonce, token }),
                State::Opening {
                    first_at: Some(first_at),
                    tries,
                    ..
                },
            ) if nonce == self.nonce => {
                // after several hellos nobody knows which one was answered
                let rtt = (tries == 1).then(|| now.since(first_at));
                let is_lossy = tries > 2;
                self.state = State::Open { token };
                (self.heard_at, self.opened_at) = (now, Some(now));
                self.sender.on_open(now, Handshake { rtt, is_lossy });
            }
            (Some(Datagram::Ack { token, segment }), State::Open { token: ours })
                if token == ours && self.is_possible(now, &segment) =>
            {
                self.heard_at = now;
                self.sender.on_ack(now, &segment);
                if self.sender.is_done() {
                    self.stop();
                }
            }
            // late, or said twice
            (Some(Datagram::Welcome { nonce, .. }), _) if nonce == self.nonce => {}
            (Some(Datagram::Ack { .. }), State::Closing { .. } | State::Over(_)) => {}
            _ => self.refused += 1,
        }
    }

    /// Whether an acknowledgment speaks of packets that were sent, and of a time that was.
    fn is_possible(&self, now: Time, ack: &AckSegment) -> bool {
        let next = self.sender.una_and_next().1;
        let sacks = |ack: &AckSegment| {
            (ack.sacks()).all(|block| block.start > ack.cumulative && block.end <= next)
        };
        ack.cumulative <= next
            && ack.echo <= now
            && ack.duplicate().is_none_or(|seq| seq < next)
            && sacks(ack)
    }

    /// When to call [`on_timer`](Self::on_timer), if at all.
    pub fn next_timer(&self) -> Option<Time> {
        match self.state {
            State::Opening { next_at, .. } => Some(next_at),
            State::Open { .. } => {
                let silent_at = self.heard_at + SILENCE;
                Some(
                    self.sender
                        .next_timer()
                        .map_or(silent_at, |at| at.min(silent_at)),
                )
            }
            State::Closing { .. } | State::Over(_) => None,
        }
    }

    /// Does what is due at `now`.
    pub fn on_timer(&mut self, now: Time) {
        match self.state {
            State::Opening {
                first_at: Some(first_at),
                ..
            } if now.since(first_at) >= PATIENCE => self.state = State::Over(Over::NoAnswer),
            State::Open { .. } if now.since(self.heard_at) >= SILENCE => {
                self.state = State::Over(Over::Silent);
            }
            State::Open { .. } if self.sender.next_timer().is_some_and(|at| at <= now) => {
                self.sender.on_timer(now);
            }
            _ => {}
        }
    }

    /// Writes the next datagram to send at `now` into `buffer`, of [`MOST_BYTES`](crate::wire::MOST_BYTES), and
    /// returns its size.
    pub fn poll(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.state {
            State::Opening {
                first_at,
                tries,
                next_at,
            } => {
                if *next_at > now {
                    return None;
                }
                first_at.get_or_insert(now);
                *next_at = now
                    + FIRST_WAIT
                        .mul_div(1 << (*tries).min(8), 1)
                        .min(LONGEST_WAIT);
                *tries += 1;
                Some(write(&Datagram::Hello { nonce: self.nonce }, buffer))
            }
            State::Open { token } => {
                let token = *token;
                self.poll_data(now, token, buffer)
            }
            State::Closing { token, left } => {
                let close = Datagram::Close { token: *token };
                *left -= 1;
                if *left == 0 {
                    self.state = State::Over(Over::Done);
                }
                Some(write(&close, buffer))
            }
            State::Over(_) => None,
        }
    }

    fn poll_data(&mut self, now: Time, token: u64, buffer: &mut [u8]) -> Option<usize> {
        let idle = self.sender.in_flight() == 0;
        let segment = self.sender.poll_transmit(now)?;
        if idle {
            // nothing was to be acknowledged until now
            self.heard_at = self.heard_at.max(now);
        }
        let payload_bytes = match segment.is_empty() {
            true => 0,
            false => self.payload_bytes - usize::from(segment.short_by_bytes()),
        };
        self.sent_bytes += payload_bytes as u64;
        let datagram = Datagram::Data {
            token,
            segment,
            payload_bytes,
        };
        Some(write(&datagram, buffer))
    }
}
