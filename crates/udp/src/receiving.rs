//! The receiving end, without I/O.

use std::hash::{BuildHasher, Hash, RandomState};

use pathcast_base::{Span, Time};
use pathcast_tcp::{AckSegment, DataSegment, Receiver, ReceiverConfig};

use crate::wire::{Datagram, read, write};

/// Packets past the next one that a receiver takes: what a sender can make it remember is bounded.
pub const WINDOW_PACKETS: u32 = 1 << 16;
/// A sender that says nothing for so long makes room for another.
const SILENCE: Span = Span::from_millis(10_000);

/// The sender that a receiver listens to.
struct Peer<A> {
    address: A,
    token: u64,
    receiver: Receiver,
    heard_at: Time,
}

/// Receives from one sender at a time: datagrams and the time go in, answers come out.
///
/// `A` is an address. A sender becomes the peer by data that carries the token of its address; until then the
/// receiver holds no state of it, and its answers are shorter than what they answer.
pub struct ReceivingEnd<A> {
    /// Tokens are keyed hashes of the address and the number of peers so far.
    secret: RandomState,
    peers: u64,
    peer: Option<Peer<A>>,
    /// Who was welcomed last, and when: the first data gives the round-trip time.
    welcomed: Option<(A, Time)>,
    received_bytes: u64,
    /// When the first and the last new data came.
    span: Option<(Time, Time)>,
    refused: u64,
}

impl<A: Copy + Eq + Hash> Default for ReceivingEnd<A> {
    fn default() -> Self {
        Self {
            secret: RandomState::new(),
            peers: 0,
            peer: None,
            welcomed: None,
            received_bytes: 0,
            span: None,
            refused: 0,
        }
    }
}

impl<A: Copy + Eq + Hash> ReceivingEnd<A> {
    /// Bytes of payload received, each once.
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Seconds from the first new data to the last.
    pub fn seconds(&self) -> f64 {
        self.span
            .map_or(0.0, |(first, last)| last.since(first).as_secs())
    }

    /// Senders so far.
    pub const fn peers(&self) -> u64 {
        self.peers
    }

    /// Datagrams that were not read: of no sender of ours, or without its token.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a datagram that came at `now`; an answer to its address is written into `answer`, and its size returned.
    pub fn on_datagram(
        &mut self,
        now: Time,
        from: A,
        bytes: &[u8],
        answer: &mut [u8],
    ) -> Option<usize> {
        if (self.peer.as_ref()).is_some_and(|peer| now.since(peer.heard_at) >= SILENCE) {
            self.peer = None;
        }
        let said = match read(bytes) {
            Some(Datagram::Hello { nonce }) if self.peer.is_none() => {
                self.welcomed = Some((from, now));
                let token = self.token_of(from, self.peers);
                Datagram::Welcome { nonce, token }
            }
            Some(Datagram::Data {
                token,
                segment,
                payload_bytes,
            }) if self.is_peer(now, from, token) => {
                let segment = self.on_data(now, &segment, payload_bytes)?;
                Datagram::Ack { token, segment }
            }
            // said three times
            Some(Datagram::Close { .. }) if self.peer.is_none() => return None,
            Some(Datagram::Close { token })
                if (self.peer.as_ref())
                    .is_some_and(|peer| peer.address == from && peer.token == token) =>
            {
                self.peer = None;
                return None;
            }
            _ => {
                self.refused += 1;
                return None;
            }
        };
        Some(write(&said, answer))
    }

    fn token_of(&self, address: A, peers: u64) -> u64 {
        self.secret.hash_one((address, peers))
    }

    /// Whether data with `token` from this address is the peer's; it may become the peer.
    fn is_peer(&mut self, now: Time, from: A, token: u64) -> bool {
        if let Some(peer) = &mut self.peer {
            let is_ours = peer.address == from && peer.token == token;
            if is_ours {
                peer.heard_at = now;
            }
            return is_ours;
        }
        if token != self.token_of(from, self.peers) {
            return false;
        }
        self.peers += 1;
        let welcomed = self.welcomed.take().filter(|(whom, _)| *whom == from);
        let receiver = Receiver::new(ReceiverConfig {
            window_packets: WINDOW_PACKETS,
            rtt: welcomed.map(|(_, at)| now.since(at)),
            ..ReceiverConfig::default()
        });
        self.peer = Some(Peer {
            address: from,
            token,
            receiver,
            heard_at: now,
        });
        true
    }

    fn on_data(
        &mut self,
        now: Time,
        segment: &DataSegment,
        payload_bytes: usize,
    ) -> Option<AckSegment> {
        let receiver = &mut self.peer.as_mut()?.receiver;
        let had = receiver.has(segment.seq);
        let answer = receiver.on_data(now, segment);
        if !had && receiver.has(segment.seq) {
            self.received_bytes += payload_bytes as u64;
            let (first, last) = self.span.get_or_insert((now, now));
            *last = now.max(*first);
        }
        answer
    }

    /// When to call [`on_timer`](Self::on_timer), if at all.
    pub fn next_timer(&self) -> Option<Time> {
        self.peer.as_ref()?.receiver.next_timer()
    }

    /// Writes the acknowledgment that is due at `now`, if one is; returns its address and size.
    pub fn on_timer(&mut self, now: Time, answer: &mut [u8]) -> Option<(A, usize)> {
        let peer = self.peer.as_mut()?;
        let segment = peer.receiver.on_timer(now)?;
        let token = peer.token;
        Some((
            peer.address,
            write(&Datagram::Ack { token, segment }, answer),
        ))
    }
}
