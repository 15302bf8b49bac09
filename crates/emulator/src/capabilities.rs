//! Can the emulator run here?

use std::thread;

use pathcast_kernel_schemes::{BPF_SCHEMES, available, try_bpf};
use pathcast_netns::{DeviceKind, Host, Namespace, Settings};
use pathcast_path::End;
use pathcast_probe::{realtime, tcp_probe_available};

use crate::addresses::{Ip, SHAPE};

/// What this process can do on this machine, found out by trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It can make network namespaces and configure them.
    pub root: bool,
    /// It can make TUN devices.
    pub tun: bool,
    /// It can make veth pairs and packet sockets, which replace TUN devices where there are none.
    pub veth: bool,
    /// Its threads can have real-time priority. Without it, most runs on a busy machine are invalid.
    pub fifo: bool,
    /// It can read the tcp_probe tracepoint. Without it, senders are polled each millisecond.
    pub tcp_probe: bool,
    /// Congestion controls that the kernel has loaded, by name.
    pub schemes: Vec<String>,
    /// Those that it has not, and that Pathcast brings for a run, by BPF. Others may be there as modules.
    pub bpf_schemes: Vec<String>,
    /// Why what is missing is missing, in words.
    pub reasons: Vec<String>,
}

impl Capabilities {
    /// Whether [`crate::emulate`] can run at all.
    pub const fn can_emulate(&self) -> bool {
        self.root && (self.tun || self.veth)
    }
}

/// Whether this process may make network namespaces: if not, [`crate::enter_user_namespace`] may help.
pub fn may_make_namespaces() -> bool {
    Namespace::create().is_ok()
}

/// Tries everything that a run needs. Leaves nothing behind.
pub fn capabilities() -> Capabilities {
    let mut reasons = Vec::new();
    let settings = Settings {
        buffer_bytes: 1 << 20,
        slow_start_after_idle: true,
    };
    let address = Ip::V4.address(0, End::Near);
    let root = may_make_namespaces();
    let mut can_make = |kind| {
        let host = Host::create(Some(kind), &[address], SHAPE, &settings);
        let error = host.err().map(|error| error.to_string());
        let can = error.is_none();
        if root || kind == DeviceKind::Tun {
            reasons.extend(error); // without namespaces, both say the same
        }
        can
    };
    let (tun, veth) = (can_make(DeviceKind::Tun), can_make(DeviceKind::Veth));
    let fifo = thread::scope(|scope| {
        let trial = scope.spawn(|| realtime::request_fifo(1));
        trial
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if let Err(error) = &fifo {
        reasons.push(format!(
            "no real-time priority (SCHED_FIFO): {error}; needs CAP_SYS_NICE"
        ));
    }
    let tcp_probe = tcp_probe_available();
    reasons.extend(tcp_probe.as_ref().err().map(ToString::to_string));
    let schemes = available();
    let mut bpf_schemes: Vec<String> = BPF_SCHEMES.map(String::from).into();
    bpf_schemes.retain(|name| !schemes.contains(name));
    if !(root && (tun || veth)) {
        bpf_schemes.clear(); // no run, no scheme
    } else if !bpf_schemes.is_empty()
        && let Err(error) = try_bpf()
    {
        bpf_schemes.clear();
        reasons.push(error.to_string());
    }
    Capabilities {
        root,
        tun,
        veth,
        fifo: fifo.is_ok(),
        tcp_probe: tcp_probe.is_ok(),
        schemes,
        bpf_schemes,
        reasons,
    }
}
