//! What a sender sends now, as far as the windows and the pace allow it.

use pathcast_base::Time;
use pathcast_congestion::INITIAL_WINDOW;

use super::state::State;
use super::{NEVER, Sender};
use crate::offload::{Moment, load_packets};
use crate::segment::DataSegment;

impl Sender {
    /// The next packet to send at `now`, if there is one and the windows and the pace allow it. Call
    /// until `None`.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Time) -> Option<DataSegment> {
        self.paced_until = NEVER;
        if self.probe_tail_now || self.probe_window_now || self.opening.is_some() {
            return self.poll_special(now);
        }
        if self.scoreboard.in_flight() >= self.cwnd {
            if self.scoreboard.waiting() > 0 && self.takes_one_at_once() {
                return self.retransmit(now, true);
            }
            self.pause(true);
            return None;
        }
        let again = match self.scoreboard.waiting() {
            0 => None,
            _ if self.state.sends_new_first() && self.has_new() => None,
            _ => self.scoreboard.next_to_retransmit(),
        };
        if again.is_none() && !self.may_send_new(now) {
            self.pause(false);
            return None;
        }
        let begins = match again {
            Some(seq) => !self.load.continues_with(now, seq),
            None => !self.load.is_leaving(now),
        };
        if begins && let Some(at) = self.pacer.blocked_until(now) {
            self.paced_until = at;
            self.pause(false);
            return None;
        }
        if again.is_some() {
            return self.retransmit(now, begins);
        }
        if self.scoreboard.outstanding() == 0 {
            self.restart_after_idle(now);
        }
        if begins && !self.begin_load(now) {
            return None;
        }
        let pushed = self.load.on_send();
        let seq = self.scoreboard.send_new(now);
        Some(self.sent(now, seq, false, begins).with_pushed(pushed))
    }

    fn retransmit(&mut self, now: Time, begins: bool) -> Option<DataSegment> {
        let seq = self.scoreboard.retransmit(now)?;
        if seq == self.scoreboard.una() {
            // it is the one that the timer waits for (Linux's tcp_xmit_retransmit_queue)
            self.timeout_at = now + self.rtt.rto();
        }
        let most = self.pacer.burst_packets().unwrap_or(u64::MAX);
        self.load.send_again(now, seq, most);
        Some(self.sent(now, seq, true, begins))
    }

    /// Takes as many new packets as leave together, or none while it is worth waiting for more room.
    #[inline]
    fn begin_load(&mut self, now: Time) -> bool {
        let next = self.scoreboard.next();
        let cwnd_room = self.cwnd - self.scoreboard.in_flight();
        let receiver_room = self.receive_edge - next;
        let moment = Moment {
            now,
            last_sent_at: self.last_sent_at,
            head_sent_at: self.scoreboard.first_sent_at(),
            srtt: self.rtt.srtt(),
            cwnd: self.cwnd,
            room: cwnd_room.min(receiver_room),
            given: self.available - next,
            load: self.load_packets(),
        };
        let recovers = matches!(self.state, State::Recovery { .. } | State::Loss { .. });
        if !recovers && moment.should_wait() {
            self.pause(cwnd_room < receiver_room);
            return false;
        }
        // two loads make a window at least, so that acknowledgments keep coming (Linux's tcp_cwnd_test)
        let half = (self.cwnd / 2).max(1);
        let packets = moment.load.min(moment.room).min(half).min(moment.given);
        self.load.begin(now, packets);
        true
    }

    /// Packets that leave together at most: by the pace, or by the one that Linux computes for all
    /// (tcp_update_pacing_rate).
    #[inline]
    fn load_packets(&mut self) -> u64 {
        if let Some(packets) = self.pacer.burst_packets() {
            return packets;
        }
        if self.load_packets.1 != self.cwnd {
            self.load_packets = (self.unpaced_load(), self.cwnd);
        }
        self.load_packets.0
    }

    #[cold]
    fn unpaced_load(&self) -> u64 {
        if self.repairs_as_utp() {
            return 1; // its datagrams leave one by one
        }
        let Some(srtt) = self.rtt.srtt() else {
            return load_packets(u64::MAX, None, self.config.mss_bytes);
        };
        let doubling = (self.cwnd as f64) < self.controller.ssthresh() / 2.0;
        let ratio_ns = if doubling {
            2_000_000_000
        } else {
            1_200_000_000
        };
        let packets = self.cwnd.max(self.scoreboard.outstanding());
        let rate = packets.saturating_mul(ratio_ns) / srtt.as_nanos().max(1);
        load_packets(rate, self.rtt.min(), self.config.mss_bytes)
    }

    /// Whether there is a new packet and the receiver takes it.
    #[inline]
    pub(super) fn has_new(&self) -> bool {
        let next = self.scoreboard.next();
        next < self.available && next < self.receive_edge
    }

    /// As [`has_new`](Self::has_new), and notes what it is that lacks.
    #[inline]
    fn may_send_new(&mut self, now: Time) -> bool {
        let next = self.scoreboard.next();
        if next == self.available {
            self.scoreboard.on_app_limited();
            return false;
        }
        if next >= self.receive_edge {
            if self.scoreboard.outstanding() == 0 && self.persist_at == NEVER {
                self.persist_at = now + self.rtt.rto();
            }
            return false;
        }
        true
    }

    #[inline]
    fn pause(&mut self, limited: bool) {
        if self.state.sends_new_first() {
            self.state.end_new_data(self.scoreboard.next());
        }
        if self.in_burst || limited {
            self.in_burst = false;
            let (una, next) = self.una_and_next();
            self.window_use.on_pause(una, next, limited);
        }
    }

    /// Books a packet that leaves now.
    #[inline(always)]
    fn sent(
        &mut self,
        now: Time,
        seq: u64,
        retransmission: bool,
        begins_burst: bool,
    ) -> DataSegment {
        self.in_burst = true;
        self.last_sent_at = Some(now);
        self.pacer.on_send(now, begins_burst);
        if let Some(reduction) = self.state.reduction() {
            reduction.on_send();
        }
        if self.timeout_at == NEVER {
            self.timeout_at = now + self.rtt.rto();
        }
        if retransmission {
            self.retransmits += 1;
            if let Some(undo) = &mut self.undo {
                undo.on_retransmit(now);
            }
        } else if matches!(self.state, State::Open) && self.scoreboard.sacked() == 0 {
            let outstanding = self.scoreboard.outstanding();
            self.tail_probe
                .arm(now, self.rtt.srtt(), outstanding, self.timeout_at);
        }
        let last = seq + 1 == self.available;
        let capable = self.config.ecn && !retransmission;
        DataSegment::new(now, seq)
            .with_pushed(last)
            .with_short_by_bytes(if last {
                self.config.last_short_by_bytes
            } else {
                0
            })
            .with_echo(self.echo)
            .with_ecn_capable(capable)
            .with_reduced(capable && std::mem::take(&mut self.tell_reduced))
    }

    /// A SYN while the connection is not open; then what leaves whatever the windows say.
    #[cold]
    fn poll_special(&mut self, now: Time) -> Option<DataSegment> {
        if let Some(opening) = &mut self.opening {
            let opening = opening.as_mut().filter(|_| self.available > 0)?;
            self.timeout_at = opening.poll(now)?.unwrap_or(NEVER);
            self.retransmits += u64::from(opening.retries() > 0);
            return Some(DataSegment::new(now, 0).as_syn());
        }
        self.poll_probe(now)
    }

    /// The acknowledgment of a SYN/ACK; a question for the window; or new data if the receiver takes it, else
    /// the last packet again.
    fn poll_probe(&mut self, now: Time) -> Option<DataSegment> {
        if std::mem::take(&mut self.answer_syn_now) {
            self.probe_window_now = false;
            return Some(DataSegment::new(now, 0).as_syn_ack_ack());
        }
        if std::mem::take(&mut self.probe_window_now) {
            let una = self.scoreboard.una();
            return Some(DataSegment::new(now, una).as_window_probe());
        }
        self.probe_tail_now = false;
        let fresh = self.has_new();
        let seq = if fresh {
            self.scoreboard.send_new(now)
        } else {
            self.scoreboard.probe_with_last(now)?
        };
        // as if nothing had been sent before: the timeout is counted from here
        self.timeout_at = now + self.rtt.rto();
        let segment = self.sent(now, seq, !fresh, true);
        self.tail_probe.on_sent(self.scoreboard.next(), !fresh);
        Some(segment)
    }

    /// Reports to the controller that nothing is in flight (Linux's CA_EVENT_TX_START). An idle time of
    /// more than an RTO halves the window for each RTO, down to the initial window; ssthresh keeps three
    /// quarters of the former window, to which slow start returns (RFC 2861, as Linux's tcp_cwnd_restart).
    fn restart_after_idle(&mut self, now: Time) {
        let Some(last) = self.last_sent_at else {
            return;
        };
        let (idle, rto) = (now.since(last), self.rtt.rto());
        self.controller.on_idle_restart(now, idle);
        if idle > rto && self.config.slow_start_after_idle && !self.controller.manages_recovery() {
            let initial = self.config.initial_window_packets;
            let least = initial.map_or(INITIAL_WINDOW as u64, u64::from);
            let halvings = (idle.as_nanos() - 1) / rto.as_nanos().max(1);
            let halved = self.cwnd.checked_shr(halvings.min(64) as u32).unwrap_or(0);
            let cwnd = halved.max(least.min(self.cwnd));
            self.controller
                .set_window(cwnd as f64, self.current_ssthresh());
        }
        self.follow_controller();
    }
}
