//! What to simulate, and the outcome.

use std::ops::ControlFlow;

use pathcast_congestion::{Scheme, SchemeError};
use pathcast_path::{Counters, Path, Span, Time};
use pathcast_quic::QuicError;
use pathcast_scenario::{Heading, Scenario, Transport};
use pathcast_trace::{
    DelayHistogram, FlowReport, GroupReport, Metadata, PageReport, RunReport, Source,
};
use thiserror::Error;

use crate::network::{Network, OnePath, Routed};
use crate::recorder::{NoRecorder, Recorder};
use crate::wire::QUIC_PAYLOAD_BYTES;
use crate::world::{World, asking_flows};

/// A simulation that cannot be run, or came to nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SimError {
    /// No flow was asked for.
    #[error("got no flow to simulate, expected at least one scheme")]
    NoFlow,
    /// No time was given.
    #[error("got a duration of 0 s, expected more")]
    NoTime,
    /// A congestion control that the simulator lacks.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// The ends of a flow over QUIC cannot be made.
    #[error(transparent)]
    Quic(#[from] QuicError),
    /// A connection of QUIC came to an end.
    #[error("the connection of flow {flow} broke: {why}")]
    Broken {
        /// The number of the flow.
        flow: u32,
        /// What QUIC says.
        why: String,
    },
    /// It can make no progress.
    #[error("no progress: {why} after {at_s} s; {state}")]
    Stalled {
        /// How far it got, in seconds of virtual time.
        at_s: String,
        /// What is the matter.
        why: &'static str,
        /// The state it was left in, in words.
        state: String,
    },
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// What runs over what.
    pub scenario: Scenario,
    /// How much virtual time passes at most; the run ends before if all flows have done what they
    /// ever will.
    pub duration: Span,
    /// Seed of all that is random.
    pub seed: u64,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// All flows have done what they ever will.
    Done,
    /// All pages have come.
    Loaded,
}

/// What a simulation did.
#[derive(Clone, Debug)]
pub struct Outcome {
    flows: Vec<FlowReport>,
    pages: Vec<PageReport>,
    groups: Vec<GroupReport>,
    data: Counters,
    one_way_delay: DelayHistogram,
    seed: u64,
    /// Virtual time that passed; less than asked for if the run was stopped or had nothing left to do.
    pub elapsed: Span,
}

impl Outcome {
    /// As a run report; the caller has the clocks.
    pub fn report(&self, cpu_s: f64, wall_s: f64) -> RunReport {
        let Counters {
            enqueued,
            delivered,
            ..
        } = self.data;
        RunReport {
            flows: self.flows.clone(),
            pages: self.pages.clone(),
            groups: self.groups.clone(),
            packets_delivered: delivered,
            loss_rate: self.data.dropped() as f64 / enqueued.max(1) as f64,
            one_way_delay_ms: self.one_way_delay.one_way_delay_ms(),
            cpu_s,
            wall_s,
            seed: self.seed,
            valid: true,
            invalid_because: Vec::new(),
            slip_us: None,
        }
    }

    /// The flows, in the order of their numbers.
    pub fn flows(&self) -> &[FlowReport] {
        &self.flows
    }

    /// The pages that were loaded, in the order of their flows.
    pub fn pages(&self) -> &[PageReport] {
        &self.pages
    }

    /// What became of the data packets of all flows. Over one path these are what its forward channel
    /// counted; over several links a packet counts once.
    pub const fn data(&self) -> Counters {
        self.data
    }
}

impl Simulation {
    /// Bulk flows that all begin within the first round-trip time, one for each scheme.
    pub fn bulk(path: Path, schemes: &[Scheme], duration: Span, seed: u64) -> Self {
        Self {
            scenario: Scenario::bulk(path, schemes.iter().map(ToString::to_string)),
            duration,
            seed,
        }
    }

    /// Whether there is anything to run, and the simulator has all that it takes.
    ///
    /// # Errors
    /// A [`SimError`] if not.
    pub fn check(&self) -> Result<(), SimError> {
        self.schemes()?;
        if self.scenario.flows().next().is_none() {
            return Err(SimError::NoFlow);
        }
        if self.duration == Span::ZERO {
            return Err(SimError::NoTime);
        }
        Ok(())
    }

    /// The schemes of the groups of flows over TCP; none for the others.
    fn schemes(&self) -> Result<Vec<Option<Scheme>>, SimError> {
        let groups = self.scenario.flows.iter();
        groups
            .map(|group| match &group.transport {
                Transport::Tcp { scheme, .. } => Ok(Some(scheme.parse()?)),
                Transport::Quic { .. } | Transport::Udp => Ok(None),
            })
            .collect()
    }

    /// What a trace of this simulation says of it.
    pub fn metadata(&self) -> Metadata {
        let bulk = self.scenario.as_bulk();
        let flows = self.scenario.flows();
        let mut payloads =
            (0..self.scenario.flows.len()).filter_map(|flow| self.payload_bytes(flow));
        Metadata {
            schemes: flows
                .map(|flow| flow.spec.transport.scheme().to_string())
                .collect(),
            mss_bytes: payloads
                .next()
                .filter(|first| payloads.all(|other| other == *first)),
            path_toml: bulk.as_ref().map(|(path, _)| path.to_toml()),
            scenario_toml: bulk.is_none().then(|| self.scenario.to_toml()),
            seed: Some(self.seed),
            ..Metadata::new(Source::Simulator)
        }
    }

    /// Payload of a full packet of a flow, in bytes; none if there is no such flow.
    pub fn payload_bytes(&self, flow: usize) -> Option<u32> {
        let flow = self.scenario.flows.get(flow)?;
        Some(match flow.transport {
            Transport::Quic { .. } => QUIC_PAYLOAD_BYTES,
            _ => flow.transport.mss_bytes(),
        })
    }

    /// Runs to the end. `progress` receives the virtual time from time to time, and may stop the run.
    ///
    /// # Errors
    /// A [`SimError`] if there is nothing to run, or the run can make no progress.
    pub fn run(
        &self,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
    ) -> Result<Outcome, SimError> {
        self.run_recorded(progress, &mut NoRecorder)
    }

    /// As [`run`](Self::run), until all pages have come, whatever else still runs.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn load(
        &self,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
    ) -> Result<Outcome, SimError> {
        self.run_until(Until::Loaded, progress, &mut NoRecorder)
    }

    /// As [`run`](Self::run), and reports to `recorder` what happens. A run without a recorder is compiled
    /// without reports.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_recorded<R: Recorder>(
        &self,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
        recorder: &mut R,
    ) -> Result<Outcome, SimError> {
        self.run_until(Until::Done, progress, recorder)
    }

    fn run_until<R: Recorder>(
        &self,
        until: Until,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
        recorder: &mut R,
    ) -> Result<Outcome, SimError> {
        self.check()?;
        // where data of TCP goes one way over one path, two channels are the whole network
        let simple = self.scenario.links.len() == 1
            && self.scenario.flows.iter().all(|flow| {
                flow.heading == Heading::Forward
                    && flow.delay == Span::ZERO
                    && !matches!(flow.transport, Transport::Quic { .. })
                    && !flow.workload.asks()
            });
        if simple {
            let network = OnePath::new(&self.scenario.links[0].path, self.seed);
            self.run_over(network, until, progress, recorder)
        } else {
            let asking = asking_flows(&self.scenario);
            let network = Routed::new(&self.scenario, self.seed, &asking);
            self.run_over(network, until, progress, recorder)
        }
    }

    fn run_over<N: Network, R: Recorder>(
        &self,
        network: N,
        until: Until,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
        recorder: &mut R,
    ) -> Result<Outcome, SimError> {
        let schemes = self.schemes()?;
        let mut world = World::new(&self.scenario, &schemes, self.seed, network, recorder)?;
        let end = world.run(Time::ZERO + self.duration, until, progress)?;
        let pages = world.page_reports();
        let groups = world.group_reports(&self.scenario);
        let (flows, data, one_way_delay) = world.finish(end)?;
        Ok(Outcome {
            flows,
            pages,
            groups,
            data,
            one_way_delay,
            seed: self.seed,
            elapsed: end.since(Time::ZERO),
        })
    }
}

#[cfg(test)]
mod connection_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod quic_tests;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod theory_tests;
#[cfg(test)]
mod workload_tests;
