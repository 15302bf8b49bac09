//! What a simulation says at its end: a report, or why it got no further.

use std::fmt::Write as _;

use pathcast_path::{Counters, Time};
use pathcast_scenario::Scenario;
use pathcast_trace::{DelayHistogram, FlowReport, GroupReport, MessageReport};

use super::World;
use super::hosts::{Connection, Flow, Framing};
use crate::network::Network;
use crate::recorder::Recorder;
use crate::simulation::SimError;

impl<N: Network, R: Recorder> World<'_, N, R> {
    /// What became of everything, `end` being how far the run got.
    ///
    /// # Errors
    /// Packets were sent, and none arrived.
    pub fn finish(
        mut self,
        end: Time,
    ) -> Result<(Vec<FlowReport>, Counters, DelayHistogram), SimError> {
        self.check_quic()?;
        let counters = self.network.counters();
        if counters.enqueued > 0 && counters.delivered == 0 {
            return Err(self.stalled(end, "nothing that was sent has arrived"));
        }
        let flows = self.flows.iter().zip(&self.connections);
        let reports = flows.map(|(flow, connection)| flow.report(connection, end));
        Ok((reports.collect(), counters, self.one_way_delay))
    }

    /// What became of the data of each table of flows of `scenario`.
    pub fn group_reports(&mut self, scenario: &Scenario) -> Vec<GroupReport> {
        if self.groups.are_counted() {
            // drops since the last arrival
            self.note_drops();
        }
        let flows = scenario.flows.iter();
        self.groups
            .reports(flows.map(|spec| spec.connections() as u32))
    }

    /// The error of a run that can make no progress, with the state it was left in.
    pub(super) fn stalled(&self, at: Time, why: &'static str) -> SimError {
        let Counters {
            enqueued,
            delivered,
            ..
        } = self.network.counters();
        let mut state = format!(
            "{enqueued} packets sent, {delivered} arrived, {} dropped, {} under way",
            self.network.counters().dropped(),
            self.network.in_flight()
        );
        let next = self.network.next_data().min(self.network.next_ack());
        if next < Time::MAX {
            let next_s = next.as_secs();
            let _ = write!(state, ", the next thing on the path at {next_s} s");
        }
        const FLOWS: usize = 3;
        for (number, (flow, connection)) in self
            .flows
            .iter()
            .zip(&self.connections)
            .enumerate()
            .take(FLOWS)
        {
            if let Framing::Quic(quic) = &connection.framing {
                let sender = quic.sender();
                let _ = write!(
                    state,
                    "; flow {number} ({}, {}): window of {} bytes, {} of {} acknowledged",
                    flow.scheme,
                    flow.kind,
                    sender.window_bytes,
                    sender.acknowledged_bytes,
                    sender.sent_bytes
                );
                continue;
            }
            let sender = &connection.sender;
            let (una, next) = sender.una_and_next();
            let _ = write!(
                state,
                "; flow {number} ({}, {}): window of {} packets, {una} of {next} acknowledged",
                flow.scheme,
                flow.kind,
                sender.cwnd()
            );
            if let Some(timer) = sender.next_timer() {
                let _ = write!(state, ", timer at {} s", timer.as_secs());
            }
        }
        if self.flows.len() > FLOWS {
            let _ = write!(state, "; and {} more flows", self.flows.len() - FLOWS);
        }
        SimError::Stalled {
            at_s: at.as_secs().to_string(),
            why,
            state,
        }
    }
}

impl Flow {
    fn report(&self, connection: &Connection, end: Time) -> FlowReport {
        let delivered = connection.receiver.delivered();
        let (written, arrived) = self.application.counts();
        let completed = self.application.completed();
        let (delivered_bytes, completed) = match &connection.framing {
            Framing::Bulk => (delivered * u64::from(connection.mss_bytes), completed),
            Framing::Messages(stream) => (stream.delivered_bytes(delivered), completed),
            Framing::Datagrams(datagrams) => {
                let last = completed.and(datagrams.last_arrival());
                (datagrams.delivered_bytes(), last)
            }
            Framing::Quic(quic) => (quic.arrived_bytes(), completed),
        };
        let retransmits = match &connection.framing {
            Framing::Quic(quic) => quic.sender().resent_packets,
            _ => connection.sender.retransmits(),
        };
        let span_s = completed.unwrap_or(end).since(self.start).as_secs();
        FlowReport {
            scheme: self.scheme.clone(),
            goodput_bps: delivered_bytes as f64 * 8.0 / span_s.max(f64::MIN_POSITIVE),
            retransmits,
            workload: self.kind.to_string(),
            start_s: self.start.as_secs(),
            completed_s: completed.map(Time::as_secs),
            delivered_bytes,
            messages: (!self.is_greedy).then(|| MessageReport {
                // over TCP a request counts when it has arrived
                written: match self.requests {
                    Some(_) => self.application.answered(),
                    None => written,
                },
                delivered: arrived,
                latency_ms: self
                    .latency
                    .as_ref()
                    .map(|latency| latency.latency_ms())
                    .unwrap_or_default(),
                delay_split_ms: None,
            }),
            video: self.application.video(),
        }
    }
}
