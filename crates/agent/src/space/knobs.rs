//! The list of knobs, with what the experiments saw.

use super::experiments::{self as try_out, Seen};
use super::rig::Rig;
use super::{Knob, Place};

const SOCKET: &str = "ss -ti; sock_diag";

/// All knobs. Without a rig, for the reason given, nothing is tried.
pub(super) fn knobs(rig: Result<&Rig, &str>) -> Vec<Knob> {
    let mut knobs = windows(rig);
    knobs.extend(senders(rig));
    knobs.extend(buffers(rig));
    knobs.extend(listeners());
    knobs.extend(dead());
    knobs
}

fn place(
    scope: &'static str,
    how: &'static str,
    rig: Result<&Rig, &str>,
    experiment: impl FnOnce(&Rig) -> Seen,
) -> Place {
    let (effective, seen) = match rig.map(experiment) {
        Ok(Ok((effective, seen))) => (Some(effective), seen),
        Ok(Err(error)) => (Some(false), error.to_string()),
        Err(why) => (None, why.to_string()),
    };
    Place {
        scope,
        how,
        effective,
        seen,
    }
}

/// A place that this command does not try.
fn untried(scope: &'static str, how: &'static str, why: &str) -> Place {
    Place {
        scope,
        how,
        effective: None,
        seen: why.to_string(),
    }
}

fn values<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(String::from).into()
}

fn windows(rig: Result<&Rig, &str>) -> Vec<Knob> {
    let by_program = "not tried by this command; an agent with the feature bpf sets it";
    let schemes = rig.ok().and_then(|rig| try_out::schemes(rig).ok());
    let default = rig
        .ok()
        .and_then(|rig| rig.sysctl_value("tcp_congestion_control").ok());
    vec![
        Knob {
            knob: "congestion_control",
            layer: "tcp",
            values: schemes.unwrap_or_else(|| values(["reno", "cubic", "bbr"])),
            default,
            places: vec![
                place(
                    "route",
                    "ip route … congctl lock NAME",
                    rig,
                    try_out::congestion_by_route,
                ),
                untried("connection", "sock_ops: TCP_CONGESTION", by_program),
                place(
                    "namespace",
                    "sysctl net.ipv4.tcp_congestion_control",
                    rig,
                    try_out::congestion_by_namespace,
                ),
            ],
            read_back: SOCKET,
            pruned: false,
            why: None,
        },
        Knob {
            knob: "initial_window",
            layer: "tcp",
            values: values(["1 to 1000 packets"]),
            default: Some("10".into()),
            places: vec![
                place(
                    "route",
                    "ip route … initcwnd N",
                    rig,
                    try_out::initial_window,
                ),
                untried("connection", "sock_ops: TCP_BPF_IW", by_program),
            ],
            read_back: "ss -ti: cwnd of a connection that has sent nothing",
            pruned: false,
            why: None,
        },
        Knob {
            knob: "initial_receive_window",
            layer: "tcp",
            values: values(["1 to 1000 packets"]),
            default: None,
            places: vec![place(
                "route",
                "ip route … initrwnd N",
                rig,
                try_out::initial_receive_window,
            )],
            read_back: "the client's TCP_INFO: snd_wnd",
            pruned: false,
            why: None,
        },
        Knob {
            knob: "rto_min",
            layer: "tcp",
            values: values(["1 to 200 ms"]),
            default: Some("200 ms".into()),
            places: vec![
                place(
                    "route",
                    "ip route … rto_min T",
                    rig,
                    try_out::shortest_timeout,
                ),
                untried("connection", "sock_ops: TCP_BPF_RTO_MIN", by_program),
            ],
            read_back: "ss -ti: rto",
            pruned: true,
            why: Some(
                "not in templates: below 200 ms, delayed acknowledgments cause false timeouts"
                    .into(),
            ),
        },
    ]
}

fn senders(rig: Result<&Rig, &str>) -> Vec<Knob> {
    let idle = rig.map(try_out::slow_start_after_idle);
    let (effective, seen, dead_under) = match idle {
        Ok(Ok(schemes)) => {
            let seen: Vec<&str> = schemes.iter().map(|(_, _, seen)| seen.as_str()).collect();
            let dead = schemes.iter().filter(|(_, effective, _)| !effective);
            let dead: Vec<&str> = dead.map(|(scheme, _, _)| scheme.as_str()).collect();
            let any = schemes.iter().any(|(_, effective, _)| *effective);
            (Some(any), seen.join("; "), dead.join(", "))
        }
        Ok(Err(error)) => (Some(false), error.to_string(), String::new()),
        Err(why) => (None, why.to_string(), String::new()),
    };
    vec![
        Knob {
            knob: "slow_start_after_idle",
            layer: "tcp",
            values: values(["true", "false"]),
            default: Some("true".into()),
            places: vec![Place {
                scope: "namespace",
                how: "sysctl net.ipv4.tcp_slow_start_after_idle",
                effective,
                seen,
            }],
            read_back: "sysctl; ss -ti: cwnd after a pause",
            pruned: false,
            why: (!dead_under.is_empty()).then(|| format!("no effect under {dead_under}")),
        },
        Knob {
            knob: "pacing",
            layer: "tcp",
            values: values(["on", "off"]),
            default: Some("off; bbr always paces".into()),
            places: vec![place(
                "connection",
                "sock_ops: SO_MAX_PACING_RATE",
                rig,
                try_out::pacing,
            )],
            read_back: "ss -ti: pacing_rate",
            pruned: false,
            why: None,
        },
        Knob {
            knob: "autocorking",
            layer: "tcp",
            values: values(["true", "false"]),
            default: Some("true".into()),
            places: vec![place(
                "namespace",
                "sysctl net.ipv4.tcp_autocorking",
                rig,
                try_out::autocorking,
            )],
            read_back: "sysctl; nstat: TcpExtTCPAutoCorking",
            pruned: false,
            why: Some("only for small writes while packets wait in the device".into()),
        },
    ]
}

fn buffers(rig: Result<&Rig, &str>) -> Vec<Knob> {
    let knob = |knob, how, experiment: fn(&Rig) -> Seen| Knob {
        knob,
        layer: "tcp",
        values: values(["4096 to 1073741824 bytes"]),
        default: None,
        places: vec![place("namespace", how, rig, experiment)],
        read_back: "sysctl; ss -tm",
        pruned: false,
        why: None,
    };
    vec![
        knob(
            "send_buffer_bytes",
            "sysctl net.ipv4.tcp_wmem, third value",
            try_out::send_buffer,
        ),
        knob(
            "receive_buffer_bytes",
            "sysctl net.ipv4.tcp_rmem, third value",
            try_out::receive_buffer,
        ),
        Knob {
            default: Some("no limit".into()),
            read_back: "sysctl; ss -ti: notsent",
            why: Some("for downloads that may be given up, as those of video".into()),
            ..knob(
                "unsent_bytes",
                "sysctl net.ipv4.tcp_notsent_lowat",
                try_out::unsent,
            )
        },
    ]
}

/// What a server is configured with: a pool of servers has one value, and the router chooses the pool.
fn listeners() -> Vec<Knob> {
    let knob = |knob, layer, values, default: &str, how, read_back| Knob {
        knob,
        layer,
        values,
        default: Some(default.into()),
        places: vec![untried(
            "listener",
            how,
            "the server's own; the agent asks each pool for what it negotiates",
        )],
        read_back,
        pruned: false,
        why: None,
    };
    vec![
        knob(
            "http_version",
            "http",
            values(["http/1.1", "h2"]),
            "http/1.1",
            "nginx: listen … http2; the router's pool",
            "ALPN of a connection to the pool",
        ),
        knob(
            "tls_version",
            "tls",
            values(["1.2", "1.3"]),
            "1.3",
            "nginx: ssl_protocols; the router's pool",
            "the version of a connection to the pool",
        ),
        knob(
            "tls_record_bytes",
            "tls",
            values(["1024 to 16384 bytes"]),
            "16384",
            "nginx: ssl_buffer_size; the router's pool",
            "nginx -T",
        ),
        knob(
            "keep_alive_s",
            "http",
            values(["0 to 3600 s"]),
            "75",
            "nginx: keepalive_timeout; the router's pool",
            "nginx -T",
        ),
    ]
}

/// Knobs that others list and that do nothing.
fn dead() -> Vec<Knob> {
    let exists = |name: &str| {
        std::path::Path::new("/proc/sys/net/ipv4")
            .join(name)
            .exists()
    };
    let knob = |knob: &'static str, how, why: &str| {
        let seen = match exists(knob) {
            true => "exists, for the machine as a whole: not tried here",
            false => "this kernel has no such sysctl",
        };
        Knob {
            knob,
            layer: "tcp",
            values: values(["0", "1"]),
            default: Some("0".into()),
            places: vec![Place {
                scope: "machine",
                how,
                effective: Some(false),
                seen: seen.into(),
            }],
            read_back: "sysctl",
            pruned: true,
            why: Some(why.into()),
        }
    };
    vec![
        knob(
            "tcp_low_latency",
            "sysctl net.ipv4.tcp_low_latency",
            "no effect since Linux 4.14, which removed the prequeue (tcp(7))",
        ),
        knob(
            "tcp_pacing",
            "sysctl net.ipv4.tcp_pacing",
            "never was a sysctl of Linux: pacing is a socket option, a queue's or the congestion control's",
        ),
    ]
}
