//! One end of a path: a namespace with one device.

use std::fs;
use std::io;
use std::net::IpAddr;

use crate::device::{Device, DeviceKind};
use crate::error::NetnsError;
use crate::interface::{Shape, configure, index};
use crate::namespace::Namespace;
use crate::route::{Beginning, add_beginning};

/// The device's name; each namespace has its own, so they do not collide.
const DEVICE: &str = "path0";

/// What all sockets of a host have in common.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What a socket may buffer at most.
    pub buffer_bytes: u64,
    /// Whether a flow that was idle begins with a smaller window.
    pub slow_start_after_idle: bool,
}

/// One end of a path.
pub struct Host {
    /// Where its sockets are.
    pub namespace: Namespace,
    /// What its packets go out and come in by.
    pub device: Device,
    /// Settings that the kernel did not let us make.
    pub refused: Vec<String>,
}

impl Host {
    /// A host with these addresses and a device of this kind; see [`Device::create`].
    ///
    /// # Errors
    /// The process lacks privileges, or the machine such devices.
    pub fn create(
        kind: Option<DeviceKind>,
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
                let device = Device::create(kind, DEVICE, shape)?;
                configure(DEVICE, addresses, shape)
                    .map_err(|error| kernel("configuring a device", error))?;
                Ok((device, refused))
            })
            .map_err(|error| kernel("entering a network namespace", error))?;
        let (device, refused) = made?;
        Ok(Self {
            namespace,
            device,
            refused,
        })
    }
}

impl Host {
    /// Connections with `peer`, which is reached by the device, begin so.
    ///
    /// # Errors
    /// What the kernel says of such a route.
    pub fn begin_with(&self, peer: IpAddr, beginning: Beginning) -> Result<(), NetnsError> {
        if beginning == Beginning::default() {
            return Ok(());
        }
        let add = || add_beginning(peer, index(self.device.name())?, beginning);
        let added = self.namespace.run(add).and_then(|added| added);
        added.map_err(|error| NetnsError::from_io(format!("adding a route to {peer}"), error))
    }
}

/// What the new namespace's TCP must not inherit. Gives what could not be set.
pub fn set_sysctls(settings: &Settings, addresses: &[IpAddr]) -> Vec<String> {
    let buffer_bytes = settings.buffer_bytes;
    let mut values = vec![
        // else a flow begins with the ssthresh that the last one to this host ended with
        ("net/ipv4/tcp_no_metrics_save", "1".to_string()),
        // smallest, initial, largest: the kernel's defaults except for the last
        ("net/ipv4/tcp_wmem", format!("4096 131072 {buffer_bytes}")),
        ("net/ipv4/tcp_rmem", format!("4096 131072 {buffer_bytes}")),
        (
            "net/ipv4/tcp_slow_start_after_idle",
            u8::from(settings.slow_start_after_idle).to_string(),
        ),
        // if the other asks for it; who asks is a matter of routes
        ("net/ipv4/tcp_ecn", "2".to_string()),
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
