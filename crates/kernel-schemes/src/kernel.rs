//! The schemes that the kernel has.

use std::fs;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::error::SchemeError;
use crate::names::is_of_a_run;

/// The schemes that this kernel has loaded, by name; without those that a run registered for itself by
/// BPF, which may be gone the next moment.
pub fn available() -> Vec<String> {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let mut names: Vec<String> = names
        .unwrap_or_default()
        .split_whitespace()
        .filter(|name| !is_of_a_run(name))
        .map(String::from)
        .collect();
    names.sort_unstable();
    names
}

/// Whether the kernel has a scheme, found out by choosing it for a socket: as root, this makes the
/// kernel load the scheme's module by itself if it knows how to.
pub(crate) fn has(scheme: &str) -> Result<bool, SchemeError> {
    let flags = SocketFlags::CLOEXEC;
    let kernel = |errno: Errno| SchemeError::Kernel {
        scheme: scheme.to_string(),
        source: errno.into(),
    };
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        // a kernel without IPv4 may have the other
        .or_else(|_| socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None))
        .map_err(kernel)?;
    match sockopt::set_tcp_congestion(&socket, scheme) {
        // EPERM: it is there, but not for every user; the flow's own socket will say so
        Ok(()) | Err(Errno::PERM) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(kernel(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_can_be_had_and_what_is_not_cannot() {
        let names = available();
        assert!(names.contains(&"cubic".to_string()), "{names:?}");
        assert!(has("cubic").unwrap());
        assert!(!has("tahoe").unwrap());
    }
}
