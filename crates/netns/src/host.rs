//! One end of a path: a namespace with one TUN device.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::net::IpAddr;

use crate::error::NetnsError;
use crate::interface::{Shape, configure};
use crate::namespace::Namespace;
use crate::tun::Tun;

/// The device's name; each namespace has its own, so they do not collide.
const DEVICE: &str = "path0";

/// What all sockets of a host have in common.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What a socket may buffer at most.
    pub buffer_bytes: u64,
    /// Whether a flow that was idle begins with a smaller window.
    pub slow_start_after_idle: bool,
    /// Whether connections agree on ECN.
    pub ecn: bool,
}

/// One end of a path.
pub struct Host {
    /// Where its sockets are.
    pub namespace: Namespace,
    /// What its packets go out and come in by.
    pub tun: Tun,
    /// `/proc/net/dev` as it looks from inside.
    statistics: File,
    /// Settings that the kernel did not let us make.
    pub refused: Vec<String>,
}

impl Host {
    /// A host with these addresses.
    ///
    /// # Errors
    /// The process lacks privileges, or the machine TUN devices.
    pub fn create(
        addresses: &[IpAddr],
        shape: Shape,
        settings: &Settings,
    ) -> Result<Self, NetnsError> {
        let kernel = |doing: &str, error: io::Error| NetnsError::from_io(doing, error);
        let namespace =
            Namespace::create().map_err(|error| kernel("creating a network namespace", error))?;
        let made = namespace
            .run(|| -> Result<_, NetnsError> {
                let refused = set_sysctls(settings, addresses);
                let tun = Tun::create(DEVICE)?;
                configure(DEVICE, addresses, shape)
                    .map_err(|error| kernel("configuring the TUN device", error))?;
                let statistics = File::open("/proc/thread-self/net/dev")
                    .map_err(|error| kernel("opening /proc/thread-self/net/dev", error))?;
                Ok((tun, statistics, refused))
            })
            .map_err(|error| kernel("entering a network namespace", error))?;
        let (tun, statistics, refused) = made?;
        Ok(Self {
            namespace,
            tun,
            statistics,
            refused,
        })
    }

    /// Packets that the device itself dropped, in either direction.
    ///
    /// # Errors
    /// The statistics cannot be read.
    pub fn device_drops(&self) -> Result<u64, NetnsError> {
        let mut text = String::new();
        let mut statistics = &self.statistics;
        statistics
            .rewind()
            .and_then(|()| statistics.read_to_string(&mut text))
            .map_err(|error| NetnsError::from_io("reading the device's statistics", error))?;
        parse_device_drops(&text, DEVICE).ok_or_else(|| {
            let missing = io::Error::other(format!("no line for {DEVICE} in {text:?}"));
            NetnsError::from_io("reading the device's statistics", missing)
        })
    }
}

/// What the new namespace's TCP must not inherit. Gives what could not be set.
pub fn set_sysctls(settings: &Settings, addresses: &[IpAddr]) -> Vec<String> {
    let buffer_bytes = settings.buffer_bytes;
    let mut values = vec![
        // else a flow begins with the ssthresh that the last one to this host ended with
        ("net/ipv4/tcp_no_metrics_save", "1".to_string()),
        // smallest, initial, largest: the kernel's defaults but for the last
        ("net/ipv4/tcp_wmem", format!("4096 131072 {buffer_bytes}")),
        ("net/ipv4/tcp_rmem", format!("4096 131072 {buffer_bytes}")),
        (
            "net/ipv4/tcp_slow_start_after_idle",
            u8::from(settings.slow_start_after_idle).to_string(),
        ),
        // 2: if the other asks for it
        (
            "net/ipv4/tcp_ecn",
            if settings.ecn { "1" } else { "2" }.to_string(),
        ),
    ];
    // no packets of the kernel's own on the path
    if addresses.iter().any(IpAddr::is_ipv6) {
        for name in [
            "net/ipv6/conf/default/router_solicitations",
            "net/ipv6/conf/default/accept_dad",
            "net/ipv6/conf/default/accept_ra",
        ] {
            values.push((name, "0".to_string()));
        }
    } else {
        values.push(("net/ipv6/conf/all/disable_ipv6", "1".to_string()));
        values.push(("net/ipv6/conf/default/disable_ipv6", "1".to_string()));
    }
    let mut refused = Vec::new();
    for (name, value) in values {
        match fs::write(format!("/proc/sys/{name}"), &value) {
            Ok(()) => {}
            // a kernel without IPv6 has nothing to switch off
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.contains("ipv6") => {}
            Err(error) => refused.push(format!("{}={value}: {error}", name.replace('/', "."))),
        }
    }
    refused
}

/// The two drop counts of `device` in `/proc/net/dev`.
pub fn parse_device_drops(text: &str, device: &str) -> Option<u64> {
    let counts = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    // bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop ...
    let counts: Vec<u64> = counts
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    Some(counts.get(3)? + counts.get(11)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_both_directions_are_read() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n    \
             lo: 3193 29 0 9 0 0 0 0 3193 29 0 9 0 0 0 0\n \
             path0:  100 1 0 2 0 0 0 0 200 2 0 40 0 0 0 0\n";
        assert_eq!(parse_device_drops(text, "path0"), Some(42));
        assert_eq!(parse_device_drops(text, "path"), None);
        assert_eq!(parse_device_drops("", "path0"), None);
    }
}
