//! A watch of this process's own sockets.

use std::os::fd::BorrowedFd;

use pathcast_trace::{Record, WatchReport};
use rustix::net::sockopt::{socket_cookie, tcp_congestion};

use crate::error::ProbeError;
use crate::flow::Flow;
use crate::method::Method;
use crate::owner::Process;
use crate::probe::{Observation, Options, Probe};
use crate::sock_diag::SocketId;
use crate::watched::id_of;

/// Own sockets under watch, and who they are.
pub(crate) struct Own {
    probe: Probe,
    flows: Vec<(SocketId, Option<String>)>,
}

impl Own {
    /// # Errors
    /// A socket is not a connected TCP socket, or the method is not available.
    pub(crate) fn start(
        sockets: &[BorrowedFd<'_>],
        method: Option<Method>,
    ) -> Result<Self, ProbeError> {
        let options = Options {
            method: method.unwrap_or_default(),
            fifo_priority: None,
            ..Options::default()
        };
        let probe = Probe::attach(sockets, &options)?;
        if let (Some(wanted), Some(why)) = (method, probe.fallback_because()) {
            return Err(ProbeError::Unavailable(format!("{wanted}: {why}")));
        }
        let mut flows = Vec::with_capacity(sockets.len());
        for (flow, socket) in sockets.iter().enumerate() {
            let error = |source| ProbeError::Socket { flow, source };
            let cookie = socket_cookie(socket).map_err(|errno| error(errno.into()))?;
            let scheme = tcp_congestion(socket).ok();
            flows.push((id_of(*socket, cookie).map_err(error)?, scheme));
        }
        Ok(Self { probe, flows })
    }

    pub(crate) const fn method(&self) -> Method {
        self.probe.method()
    }

    pub(crate) fn fallback_because(&self) -> Option<String> {
        self.probe.fallback_because().map(String::from)
    }

    pub(crate) const fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The report of what was seen, the rows, and when the last look was.
    pub(crate) fn finish(self, began_ns: u64) -> (WatchReport, Vec<Record>, u64) {
        let Observation {
            mut records,
            records_lost,
            flows: totals,
            end_ns,
            cpu_s,
            ..
        } = self.probe.finish(began_ns);
        let mut flows = Vec::with_capacity(totals.len());
        for ((id, scheme), totals) in self.flows.into_iter().zip(&totals) {
            let process = Process::of(std::process::id());
            flows.push(Flow::own(id, scheme, process, totals, began_ns));
        }
        // what only receives has no rows here either
        records.retain(|record| record.snd_nxt_bytes != Some(0));
        for record in &records {
            flows[record.flow as usize].replay(*record, began_ns);
        }
        let report = WatchReport {
            flows: flows.iter().map(|flow| flow.report(began_ns)).collect(),
            records: records.len() as u64,
            records_lost,
            cpu_s,
            ..WatchReport::default()
        };
        (report, records, end_ns)
    }
}
