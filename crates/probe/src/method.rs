//! The ways of watching a sender.

use std::fmt;
use std::str::FromStr;

use crate::error::ProbeError;

/// How the records were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The tracepoint: a record for each acknowledgment, taken as it arrives.
    #[default]
    TcpProbe,
    /// `TCP_INFO` of own sockets: a look each millisecond, kept if something changed.
    TcpInfo,
    /// The kernel's list of sockets, of any process: a look each two milliseconds.
    SockDiag,
    /// What own sockets report with the timestamp of an acknowledgment (`SO_TIMESTAMPING`).
    OptStats,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TcpProbe => "tcp_probe",
            Self::TcpInfo => "tcp_info",
            Self::SockDiag => "sock_diag",
            Self::OptStats => "opt_stats",
        })
    }
}

impl FromStr for Method {
    type Err = ProbeError;

    fn from_str(text: &str) -> Result<Self, ProbeError> {
        let all = [
            Self::TcpProbe,
            Self::SockDiag,
            Self::TcpInfo,
            Self::OptStats,
        ];
        let found = all.into_iter().find(|method| method.to_string() == text);
        found.ok_or_else(|| {
            let names = all.map(|method| method.to_string()).join(", ");
            ProbeError::Selection(format!("method is {text:?}, expected one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_called_by_their_names() {
        for name in ["tcp_probe", "sock_diag", "tcp_info", "opt_stats"] {
            assert_eq!(name.parse::<Method>().unwrap().to_string(), name);
        }
        let error = "magic".parse::<Method>().unwrap_err().to_string();
        assert!(
            error.contains("expected one of tcp_probe, sock_diag"),
            "{error}"
        );
    }
}
