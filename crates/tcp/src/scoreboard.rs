//! What the sender knows about each packet in flight, and RACK: which of them are lost (RFC 8985).
//!
//! The work is constant for each packet on average, however large the window: SACK blocks are
//! compared with those of the acknowledgment before, and losses are looked for in the order of
//! transmission, where the oldest packet comes first: packets sent once are in that order by their numbers,
//! and copies have a list of their own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pathcast_base::{Span, Time};
use pathcast_congestion::RateSample;

use crate::heard::Heard;
use crate::rate::DeliveryRate;
use crate::segment::{AckSegment, MAX_SACK_BLOCKS, SackBlock};
use crate::sent::{EVER_RETRANSMITTED, LOST, RETRANSMITTED, SACKED, Sent};

/// Linux sets the reordering timer this much after the last deadline, so that acknowledgments still in flight
/// arrive before it expires (TCP_TIMEOUT_MIN_US).
const TIMEOUT_MIN: Span = Span::from_millis(2);

/// What an acknowledgment changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// Packets newly known to have arrived.
    pub delivered: u64,
    /// Whether the cumulative acknowledgment moved.
    pub advanced: bool,
    /// Round-trip time of the first of them that was not sent twice: with the time for which it
    /// waited to be acknowledged.
    pub first_rtt: Option<Span>,
    /// That of the last.
    pub rtt: Option<Span>,
    /// The lowest of them that was sent only once.
    pub lowest_original: Option<u64>,
    /// Whether any of them arrived out of order.
    pub sacked: bool,
    /// How many packets sent after it had arrived before one that was never sent again; 0: none.
    pub reordered: u64,
    /// The one that was sent last.
    newest: Option<Sent>,
}

/// A packet sent again.
#[derive(Clone, Copy, Debug)]
struct Resent {
    transmission: u32,
    seq: u64,
    /// The next new packet then: those before it had been sent.
    next: u64,
}

impl Resent {
    const fn left_before(&self, transmission: u32) -> bool {
        (self.transmission.wrapping_sub(transmission) as i32) < 0
    }
}

/// All packets from the first unacknowledged one to the last one sent.
#[derive(Clone, Debug, Default)]
#[repr(C)] // what is needed without losses comes first, as in the sender
pub struct Scoreboard {
    una: u64,
    packets: VecDeque<Sent>,
    sacked: u64,
    lost: u64,
    retransmitted: u64,
    transmissions: u32,
    /// The last transmission that is known to have arrived (RACK.xmit_ts), and its round-trip time.
    rack_transmission: u32,
    rack_rtt: Span,
    /// Packets before this one were sent before it, but for copies.
    rack_next: u64,
    /// Packets sent once before this one have arrived or are lost.
    looked: u64,
    /// One past the highest packet SACKed so far (RACK.fack).
    fack: u64,
    rate: DeliveryRate,
    /// Copies, oldest first; stale entries are skipped when they come to the front.
    resent: VecDeque<Resent>,
    /// Lost packets, the first in sequence first (RFC 6675, NextSeg); stale entries are skipped.
    to_retransmit: BinaryHeap<Reverse<u64>>,
    last_sacks: [SackBlock; MAX_SACK_BLOCKS],
    /// Of a sender that may know of the first few packets past a hole only.
    heard: Option<Box<Heard>>,
}

impl Scoreboard {
    /// The first packet not yet acknowledged.
    pub const fn una(&self) -> u64 {
        self.una
    }

    /// The next new packet.
    pub fn next(&self) -> u64 {
        self.una + self.packets.len() as u64
    }

    /// Packets in flight, as far as the sender knows (RFC 6675's pipe).
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.packets.len() as u64 + self.retransmitted - self.sacked - self.lost
    }

    /// Packets that are lost, as far as is known, sent again or not.
    #[inline]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Lost packets that wait to be sent again.
    #[inline]
    pub const fn waiting(&self) -> u64 {
        self.lost - self.retransmitted
    }

    /// One past the highest packet SACKed so far.
    pub const fn fack(&self) -> u64 {
        self.fack
    }

    /// Packets that arrived past the first unacknowledged one.
    #[inline]
    pub const fn sacked(&self) -> u64 {
        self.sacked
    }

    /// Copies in flight of packets that were lost.
    #[inline]
    pub const fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Packets sent and not acknowledged cumulatively.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.packets.len() as u64
    }

    /// Packets delivered so far.
    pub const fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// Packets found lost so far; one that is found lost again counts again.
    pub const fn found_lost(&self) -> u64 {
        self.rate.lost()
    }

    /// See [`Sender::touch`](crate::Sender::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        let first = self.packets.front();
        let last = self.packets.back();
        let sent = |packet: Option<&Sent>| packet.map_or(0, |packet| packet.sent_at.as_nanos());
        self.rack_next ^ self.rate.delivered() ^ sent(first) ^ sent(last)
    }

    /// The application has no more data to send.
    #[inline]
    pub fn on_app_limited(&mut self) {
        let in_flight = self.in_flight();
        self.rate.on_app_limited(in_flight);
    }

    /// Sends the next new packet.
    #[inline]
    pub fn send_new(&mut self, now: Time) -> u64 {
        let seq = self.next();
        if self.packets.is_empty() {
            self.rate.restart(now);
        }
        let packet = self.transmit(now);
        self.packets.push_back(packet);
        seq
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Sent {
        self.transmissions = self.transmissions.wrapping_add(1);
        self.rate
            .stamp(now, self.transmissions, self.in_flight() + 1)
    }

    fn transmit_again(&mut self, now: Time, seq: u64) -> Sent {
        let packet = self.transmit(now);
        self.resent.push_back(Resent {
            transmission: packet.transmission,
            seq,
            next: self.next(),
        });
        packet
    }

    /// The next lost packet that waits to be sent again.
    #[inline]
    pub fn next_to_retransmit(&mut self) -> Option<u64> {
        while let Some(&Reverse(seq)) = self.to_retransmit.peek() {
            let flags = self.get_mut(seq).map(|packet| packet.flags);
            if flags.is_some_and(|flags| flags & (LOST | SACKED | RETRANSMITTED) == LOST) {
                return Some(seq);
            }
            self.to_retransmit.pop();
        }
        None
    }

    /// Sends the next lost packet again, if one waits for it.
    #[inline]
    pub fn retransmit(&mut self, now: Time) -> Option<u64> {
        let seq = self.next_to_retransmit()?;
        self.to_retransmit.pop();
        let mut packet = self.transmit_again(now, seq);
        packet.flags |= LOST | RETRANSMITTED | EVER_RETRANSMITTED;
        *self.get_mut(seq).expect("as above") = packet;
        self.retransmitted += 1;
        Some(seq)
    }

    #[inline]
    fn get_mut(&mut self, seq: u64) -> Option<&mut Sent> {
        let at = seq.checked_sub(self.una)?;
        self.packets.get_mut(at as usize)
    }

    /// Takes an acknowledgment that arrived at `now`.
    pub fn on_ack(&mut self, now: Time, ack: &AckSegment, min_rtt: Option<Span>) -> Delivery {
        // ignore acknowledgments of what was never sent
        let cumulative = ack.cumulative.min(self.next());
        if ack.block_count() == 0
            && let Some(delivery) = self.take_in_order(now, cumulative)
        {
            return delivery;
        }
        let mut delivery = Delivery::default();
        while self.una < cumulative {
            let packet = self.packets.pop_front().expect("una < next");
            delivery.advanced = true;
            if packet.flags != 0 {
                self.forget(packet.flags);
            }
            if packet.flags & SACKED == 0 {
                // the timestamp of the packet that fills a hole distinguishes the original from its copy
                let original = ack.echo < packet.sent_at;
                self.take_delivery(now, self.una, packet, original, min_rtt, &mut delivery);
            }
            self.una += 1;
        }
        if self.heard.is_some() {
            self.sack_what_is_known(now, ack, min_rtt, &mut delivery);
        } else if ack.block_count() > 0 {
            let last = std::mem::take(&mut self.last_sacks);
            for (slot, block) in ack.sacks().enumerate() {
                self.last_sacks[slot] = block;
                self.sack_new_part(now, block, &last, min_rtt, &mut delivery);
            }
            let highest = ack.sacks().map(|block| block.end).max();
            self.fack = self.fack.max(highest.unwrap_or(0).min(self.next()));
        }
        if let Some(newest) = &delivery.newest {
            self.rate.on_delivered(now, delivery.delivered, newest);
        }
        delivery
    }

    /// What most acknowledgments do: they move on over packets that were sent once and of which nothing is known.
    /// The same as `on_ack` does packet by packet, for a third of its time; none, and nothing is done, if there is
    /// another kind among them.
    #[inline]
    fn take_in_order(&mut self, now: Time, cumulative: u64) -> Option<Delivery> {
        let una = self.una;
        let packets = cumulative.checked_sub(una).filter(|packets| *packets > 0)?;
        let mut acked = self.packets.range(..packets as usize);
        if acked.any(|packet| packet.flags != 0) {
            return None;
        }
        let first_rtt = now.since(self.packets.front()?.sent_at);
        let mut newest = None;
        for _ in 0..packets {
            newest = self.packets.pop_front();
        }
        let newest = newest?;
        self.una = cumulative;
        self.rack_rtt = now.since(newest.sent_at);
        if newest.sent_after(self.rack_transmission) {
            self.rack_transmission = newest.transmission;
            self.rack_next = cumulative - 1;
        }
        self.rate.on_delivered(now, packets, &newest);
        Some(Delivery {
            delivered: packets,
            advanced: true,
            first_rtt: Some(first_rtt),
            rtt: Some(self.rack_rtt),
            lowest_original: Some(una),
            sacked: false,
            reordered: self.fack.saturating_sub(una),
            newest: Some(newest),
        })
    }

    /// Packets that had been delivered when the newest packet of `delivery` was sent.
    pub fn prior_delivered(&self, delivery: &Delivery) -> u64 {
        let delivered = self.rate.delivered();
        let since = delivery
            .newest
            .map(|newest| newest.delivered_since(delivered));
        delivered - since.unwrap_or(0)
    }

    /// How fast the path delivered up to `delivery`, the last that `on_ack` returned, at `now`.
    #[inline]
    pub fn rate_sample(&self, now: Time, delivery: &Delivery, min_rtt: Span) -> Option<RateSample> {
        self.rate.sample(now, delivery.newest.as_ref()?, min_rtt)
    }

    /// SACKs what of `block` no block of `last` covers.
    fn sack_new_part(
        &mut self,
        now: Time,
        block: SackBlock,
        last: &[SackBlock],
        min_rtt: Option<Span>,
        delivery: &mut Delivery,
    ) {
        let end = block.end.min(self.next());
        let mut seq = block.start.max(self.una);
        while seq < end {
            if let Some(known) = last
                .iter()
                .find(|known| known.start <= seq && seq < known.end)
            {
                seq = known.end;
                continue;
            }
            let packet = *self.get_mut(seq).expect("una <= seq < next");
            if packet.flags & SACKED == 0 {
                self.forget(packet.flags);
                self.get_mut(seq).expect("as above").flags = SACKED;
                self.sacked += 1;
                delivery.sacked = true;
                self.take_delivery(now, seq, packet, false, min_rtt, delivery);
            }
            seq += 1;
        }
    }

    /// Takes a packet with these flags out of the counts.
    #[inline]
    fn forget(&mut self, flags: u8) {
        self.sacked -= u64::from(flags & SACKED != 0);
        self.lost -= u64::from(flags & LOST != 0);
        self.retransmitted -= u64::from(flags & RETRANSMITTED != 0);
    }

    #[inline]
    fn take_delivery(
        &mut self,
        now: Time,
        seq: u64,
        packet: Sent,
        original: bool,
        min_rtt: Option<Span>,
        delivery: &mut Delivery,
    ) {
        delivery.delivered += 1;
        if delivery
            .newest
            .is_none_or(|newest| packet.sent_after(newest.transmission))
        {
            delivery.newest = Some(packet);
        }
        let rtt = now.since(packet.sent_at);
        if packet.flags & EVER_RETRANSMITTED == 0 {
            delivery.first_rtt.get_or_insert(rtt);
            let lowest = *delivery.lowest_original.get_or_insert(seq);
            delivery.lowest_original = Some(lowest.min(seq));
            delivery.rtt = Some(rtt);
            delivery.reordered = delivery.reordered.max(self.fack.saturating_sub(seq));
        } else if original || min_rtt.is_some_and(|min| rtt < min) {
            return; // it was the first copy that arrived (RFC 8985, section 6.2, step 2)
        }
        // the newest delivery's, whichever was sent last (Linux's tcp_rack_advance)
        self.rack_rtt = rtt;
        if packet.sent_after(self.rack_transmission) {
            self.rack_transmission = packet.transmission;
            self.rack_next = match packet.has(EVER_RETRANSMITTED) {
                false => seq,
                true => self.next_when_resent(packet.transmission),
            };
        }
    }

    /// The next new packet when the copy of this transmission left.
    fn next_when_resent(&self, transmission: u32) -> u64 {
        self.resent[self.resent_before(transmission)].next
    }

    /// How many of the copies left before this transmission.
    fn resent_before(&self, transmission: u32) -> usize {
        self.resent
            .partition_point(|copy| copy.left_before(transmission))
    }

    /// Marks as lost what was sent before a packet that has arrived, and `window` has passed
    /// (RFC 8985, section 6.2).
    ///
    /// Returns how many packets were found lost and, if some may yet be, when to look again.
    #[inline]
    pub fn detect_losses(&mut self, now: Time, window: Span) -> (u64, Option<Time>) {
        self.looked = self.looked.max(self.una);
        if self.looked >= self.rack_next && self.resent.is_empty() {
            return (0, None);
        }
        self.look_for_losses(now, window)
    }

    fn look_for_losses(&mut self, now: Time, window: Span) -> (u64, Option<Time>) {
        let wait = self.rack_rtt + window;
        let (mut found, mut early) = (0, false);
        while self.looked < self.rack_next {
            let seq = self.looked;
            if let Some(packet) = self.only_one_on_its_way(seq) {
                if packet.sent_at + wait > now {
                    early = true;
                    break;
                }
                self.mark_lost(seq);
                found += 1;
            }
            self.looked += 1;
        }
        while let Some(&copy) = self.resent.front() {
            if !copy.left_before(self.rack_transmission) {
                break;
            }
            if let Some(packet) = self.copy_on_its_way(copy) {
                if packet.sent_at + wait > now {
                    early = true;
                    break;
                }
                self.mark_lost(copy.seq);
                found += 1;
            }
            self.resent.pop_front();
        }
        // one timer for all that may be lost (Linux's tcp_rack_detect_loss)
        let last = early.then(|| self.last_that_may_be_lost()).flatten();
        (found, last.map(|last| last.sent_at + wait + TIMEOUT_MIN))
    }

    /// A packet, unless it has arrived or waits to be sent again.
    #[inline]
    fn on_its_way(&self, seq: u64) -> Option<Sent> {
        let at = seq.checked_sub(self.una)?;
        let packet = *self.packets.get(at as usize)?;
        let gone = packet.has(SACKED) || packet.flags & (LOST | RETRANSMITTED) == LOST;
        (!gone).then_some(packet)
    }

    /// Likewise, of a packet that was never sent again.
    #[inline]
    fn only_one_on_its_way(&self, seq: u64) -> Option<Sent> {
        self.on_its_way(seq)
            .filter(|packet| !packet.has(EVER_RETRANSMITTED))
    }

    /// The packet of a copy, unless it has arrived, waits to be sent again, or was sent again since.
    fn copy_on_its_way(&self, copy: Resent) -> Option<Sent> {
        let packet = self.on_its_way(copy.seq)?;
        (packet.transmission == copy.transmission).then_some(packet)
    }

    /// Of the packets in flight that were sent before the newest that has arrived, the one sent last.
    fn last_that_may_be_lost(&self) -> Option<Sent> {
        let earlier = self.resent_before(self.rack_transmission);
        let mut copies = self.resent.range(..earlier).rev();
        let copy = copies.find_map(|&copy| Some((copy.next, self.copy_on_its_way(copy)?)));
        // packets sent once, after that copy
        let first = copy.map_or(self.looked, |(next, _)| next.max(self.looked));
        let mut once = (first..self.rack_next).rev();
        once.find_map(|seq| self.only_one_on_its_way(seq))
            .or(copy.map(|(_, packet)| packet))
    }

    fn mark_lost(&mut self, seq: u64) {
        let packet = self.get_mut(seq).expect("caller looked");
        let was = packet.flags;
        packet.flags = (was | LOST) & !RETRANSMITTED;
        self.lost += u64::from(was & LOST == 0);
        self.retransmitted -= u64::from(was & RETRANSMITTED != 0);
        // one that waits to be sent again cannot be lost once more
        if was & (LOST | RETRANSMITTED) != LOST {
            self.rate.on_lost(1);
            self.to_retransmit.push(Reverse(seq));
        }
    }

    /// The retransmission timer expired: what was not SACKed is lost, except packets after the first that
    /// were sent within the last round trip (RFC 8985, section 6.3; Linux's tcp_timeout_mark_lost).
    pub fn mark_lost_on_timeout(&mut self, now: Time) {
        for seq in self.una..self.next() {
            let packet = self.packets[(seq - self.una) as usize];
            let recent = packet.sent_at + self.rack_rtt > now;
            if !packet.has(SACKED) && (seq == self.una || !recent) {
                self.mark_lost(seq);
            }
        }
    }

    /// When the first unacknowledged packet was last sent.
    #[inline]
    pub fn first_sent_at(&self) -> Option<Time> {
        Some(self.packets.front()?.sent_at)
    }

    /// Sends the last packet again, lost or not, for a tail loss probe; it still counts once in flight.
    pub fn probe_with_last(&mut self, now: Time) -> Option<u64> {
        let seq = self.next().checked_sub(1)?;
        let flags = self.get_mut(seq)?.flags;
        let mut packet = self.transmit_again(now, seq);
        packet.flags |= (flags & (SACKED | LOST | RETRANSMITTED)) | EVER_RETRANSMITTED;
        *self.get_mut(seq)? = packet;
        Some(seq)
    }

    /// Nothing was lost: everything that did not arrive is in flight.
    pub fn unmark_all_lost(&mut self) {
        self.to_retransmit.clear();
        (self.lost, self.retransmitted) = (0, 0);
        self.looked = self.una;
        let (mut once, mut resent) = (Vec::new(), Vec::new());
        for (seq, packet) in (self.una..).zip(&mut self.packets) {
            packet.flags &= !(LOST | RETRANSMITTED);
            let transmission = packet.transmission;
            if packet.flags & (SACKED | EVER_RETRANSMITTED) == 0 {
                once.push((transmission, seq));
            } else if !packet.has(SACKED) {
                let next = seq;
                resent.push(Resent {
                    transmission,
                    seq,
                    next,
                });
            }
        }
        let oldest = self.transmissions.wrapping_sub(1 << 31);
        let age = |transmission: u32| transmission.wrapping_sub(oldest);
        resent.sort_unstable_by_key(|copy: &Resent| age(copy.transmission));
        for copy in &mut resent {
            let before = once.partition_point(|(sent, _)| age(*sent) < age(copy.transmission));
            copy.next = once.get(before).map_or(self.next(), |(_, seq)| *seq);
        }
        self.resent = resent.into();
    }
}

mod short_sighted;
#[cfg(test)]
mod tests;
