//! Which flows to watch.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::error::ProbeError;

/// Which flows to watch: those of which all that is given holds; by default all.
///
/// A flow is a socket: one that is connected to another socket of the same machine is two flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Port at either end.
    pub port: Option<u16>,
    /// Port at this end.
    pub local_port: Option<u16>,
    /// Port at the far end.
    pub remote_port: Option<u16>,
    /// The process that holds the socket, by its number; in whichever network namespace it is.
    pub pid: Option<u32>,
    /// The cgroup (version 2) in which the socket was made, or one below it: its folder, its path as
    /// `/proc/PID/cgroup` says it, or its number.
    pub cgroup: Option<String>,
    /// Where the far end is.
    pub prefix: Option<Prefix>,
    /// Whether to watch flows of other network namespaces too, which only tcp_probe sees.
    pub all_namespaces: bool,
}

impl Selection {
    /// # Errors
    /// A port is 0, or a process or cgroup is given for all namespaces, where owners of sockets are unknown.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        for (name, port) in [
            ("port", self.port),
            ("local port", self.local_port),
            ("remote port", self.remote_port),
        ] {
            if port == Some(0) {
                return Err(ProbeError::Selection(format!(
                    "{name} is 0, expected 1 to 65535"
                )));
            }
        }
        if self.all_namespaces && (self.pid.is_some() || self.cgroup.is_some()) {
            return Err(ProbeError::Selection(
                "got a process or a cgroup for all namespaces, expected ports or a prefix: to whom \
                 sockets of other namespaces belong is not known"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Whether a flow's addresses and ports are as they should be.
    pub(crate) fn has(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let is = |wanted: Option<u16>, port| wanted.is_none_or(|wanted| wanted == port);
        (is(self.port, local.port()) || is(self.port, remote.port()))
            && is(self.local_port, local.port())
            && is(self.remote_port, remote.port())
            && self
                .prefix
                .is_none_or(|prefix| prefix.contains(remote.ip()))
    }

    /// The pairs of ports, local and remote, that find all these flows; 0 is any.
    pub(crate) fn ports(&self) -> Vec<(u16, u16)> {
        let given = (self.local_port.unwrap_or(0), self.remote_port.unwrap_or(0));
        match (self.port, given) {
            (Some(port), (0, 0)) => vec![(port, 0), (0, port)],
            _ => vec![given],
        }
    }

    /// The filter of a tracepoint that has `sport` and `dport`; empty for none.
    pub(crate) fn filter(&self) -> String {
        let mut terms = Vec::new();
        if let Some(port) = self.port {
            terms.push(format!("(sport=={port}||dport=={port})"));
        }
        terms.extend(self.local_port.map(|port| format!("sport=={port}")));
        terms.extend(self.remote_port.map(|port| format!("dport=={port}")));
        terms.join("&&")
    }
}

/// The network of addresses that begin with the same bits, as `192.0.2.0/24` or `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Whether it contains `address`; IPv4 over an IPv6 socket is IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| match u32::from(self.bits) {
            0 => true,
            bits => a >> (width - bits) == b >> (width - bits),
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = ProbeError;

    fn from_str(text: &str) -> Result<Self, ProbeError> {
        let wrong = |why: &str| {
            ProbeError::Selection(format!(
                "prefix is {text:?}{why}, expected an address and its bits, such as 192.0.2.0/24"
            ))
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong(""))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().map_err(|_| wrong(""))?,
        };
        if bits > most {
            return Err(wrong(&format!(", of more than {most} bits")));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_contains_what_begins_with_its_bits() {
        let contains = |text: &str, address: &str| prefix(text).contains(address.parse().unwrap());
        assert!(contains("192.0.2.0/24", "192.0.2.255"));
        assert!(!contains("192.0.2.0/24", "192.0.3.0"));
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.7"));
        assert!(contains("0.0.0.0/0", "8.8.8.8"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!contains("2001:db8::/33", "2001:db8:8000::1"));
        assert!(contains("::1", "::1"));
        assert_eq!(prefix("10.0.0.1").to_string(), "10.0.0.1/32");
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for text in [
            "",
            "ten",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0/8",
            "::/129",
            "1.2.3.4/",
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains("192.0.2.0/24"), "{error}");
        }
    }

    #[test]
    fn all_that_is_given_must_hold() {
        let [local, remote] = ["10.0.0.1:443", "192.0.2.9:5000"].map(|end| end.parse().unwrap());
        let any = Selection::default();
        assert!(any.has(local, remote) && any.filter().is_empty());
        assert_eq!(any.ports(), [(0, 0)]);
        let https = Selection {
            port: Some(443),
            ..Selection::default()
        };
        assert!(https.has(local, remote) && https.has(remote, local));
        assert_eq!(https.ports(), [(443, 0), (0, 443)]);
        let some = Selection {
            remote_port: Some(5000),
            prefix: Some(prefix("192.0.2.0/28")),
            ..https
        };
        assert!(some.has(local, remote) && !some.has(remote, local));
        assert_eq!(some.filter(), "(sport==443||dport==443)&&dport==5000");
        assert_eq!(some.ports(), [(0, 5000)]);
    }

    #[test]
    fn port_0_and_processes_of_other_namespaces_are_refused() {
        let zero = Selection {
            remote_port: Some(0),
            ..Selection::default()
        };
        let error = zero.check().unwrap_err().to_string();
        assert!(
            error.contains("remote port is 0, expected 1 to 65535"),
            "{error}"
        );
        let everywhere = Selection {
            pid: Some(1),
            all_namespaces: true,
            ..Selection::default()
        };
        assert!(everywhere.check().is_err());
        assert!(Selection::default().check().is_ok());
    }
}
