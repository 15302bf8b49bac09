//! Where the records of own sockets come from.

use std::io;

use crate::error::ProbeError;
use crate::method::Method;
use crate::opt_stats::OptStats;
use crate::sock_diag::{Diag, SocketId};
use crate::tcp_probe::TcpProbe;
use crate::watched::Watched;

/// Where the records come from.
pub(crate) enum Source {
    TcpProbe(TcpProbe),
    TcpInfo,
    /// The kernel's list, and what the flows are called there.
    SockDiag(Diag, Vec<SocketId>),
    OptStats(Vec<OptStats>),
}

impl Source {
    pub(crate) const fn method(&self) -> Method {
        match self {
            Self::TcpProbe(_) => Method::TcpProbe,
            Self::TcpInfo => Method::TcpInfo,
            Self::SockDiag(..) => Method::SockDiag,
            Self::OptStats(_) => Method::OptStats,
        }
    }
}

/// The kernel's list, with each of these sockets in it.
pub(crate) fn diag_of(ids: Vec<SocketId>) -> Result<Source, ProbeError> {
    let listing = |source| ProbeError::Diag { source };
    let mut diag = Diag::open().map_err(listing)?;
    for (flow, id) in ids.iter().enumerate() {
        if diag.socket(id).map_err(listing)?.is_none() {
            let source = io::Error::other("it is not in this thread's network namespace");
            return Err(ProbeError::Socket { flow, source });
        }
    }
    Ok(Source::SockDiag(diag, ids))
}

pub(crate) fn opt_stats_of(flows: &mut [Watched]) -> Result<Source, ProbeError> {
    let mut queues = Vec::with_capacity(flows.len());
    for (number, flow) in flows.iter_mut().enumerate() {
        let error = |source| ProbeError::Socket {
            flow: number,
            source,
        };
        queues.push(opt_stats(flow).map_err(error)?);
    }
    Ok(Source::OptStats(queues))
}

pub(crate) fn opt_stats(flow: &mut Watched) -> io::Result<OptStats> {
    let queue = OptStats::of(flow.socket.try_clone()?)?;
    // statistics count payload, TCP_INFO counts the SYN too
    flow.first.bytes_acked = flow.first.bytes_acked.min(flow.first.new_bytes());
    Ok(queue)
}
