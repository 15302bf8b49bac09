//! The experiments: each sets a knob of the kernel and looks at a real connection.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pathcast_netns::pace;
use pathcast_probe::TcpInfo;
use rustix::net::sockopt;

use super::rig::Rig;

/// Whether a knob does something, and what was seen.
pub(super) type Seen = io::Result<(bool, String)>;

/// Congestion controls of this kernel.
pub(super) fn schemes(rig: &Rig) -> io::Result<Vec<String>> {
    let names = rig.sysctl_value("tcp_available_congestion_control")?;
    Ok(names.split_whitespace().map(String::from).collect())
}

fn scheme_of_a_connection(rig: &Rig) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(&rig.connect()?.server)?)
}

pub(super) fn congestion_by_route(rig: &Rig) -> Seen {
    let (mut good, mut all) = (Vec::new(), true);
    for scheme in schemes(rig)? {
        rig.route(&["congctl", &scheme])?;
        match scheme_of_a_connection(rig)? {
            found if found == scheme => good.push(scheme),
            _ => all = false,
        }
    }
    rig.route(&[])?;
    Ok((
        all,
        format!(
            "accepted sockets had what the route said: {}",
            good.join(", ")
        ),
    ))
}

pub(super) fn congestion_by_namespace(rig: &Rig) -> Seen {
    let before = rig.sysctl_value("tcp_congestion_control")?;
    let (mut good, mut refused) = (Vec::new(), Vec::new());
    for scheme in schemes(rig)? {
        match rig.sysctl("tcp_congestion_control", &scheme) {
            Ok(()) if scheme_of_a_connection(rig)? == scheme => good.push(scheme),
            Ok(()) => refused.push(format!("{scheme} (no effect)")),
            Err(error) => refused.push(format!("{scheme} ({error})")),
        }
    }
    rig.sysctl("tcp_congestion_control", &before)?;
    let mut seen = format!("accepted sockets had: {}", good.join(", "));
    if !refused.is_empty() {
        seen += &format!("; refused: {}", refused.join(", "));
    }
    Ok((!good.is_empty(), seen))
}

pub(super) fn initial_window(rig: &Rig) -> Seen {
    let mut seen = Vec::new();
    for packets in ["4", "10", "20", "40"] {
        rig.route(&["initcwnd", packets])?;
        let found = rig.connect()?.info()?.snd_cwnd.to_string();
        seen.push((packets, found));
    }
    rig.route(&[])?;
    let effective = seen.iter().all(|(asked, found)| asked == found);
    let pairs: Vec<String> = seen
        .iter()
        .map(|(asked, found)| format!("{asked}: {found}"))
        .collect();
    Ok((
        effective,
        format!("snd_cwnd after accept by initcwnd: {}", pairs.join(", ")),
    ))
}

pub(super) fn initial_receive_window(rig: &Rig) -> Seen {
    let window = |packets: &str| -> io::Result<u32> {
        rig.route(&["initrwnd", packets])?;
        let connection = rig.connect()?;
        connection.send(1, 1)?; // windows of SYNs are not scaled
        Ok(TcpInfo::of(connection.client.as_fd())?.snd_wnd.unwrap_or(0))
    };
    let (small, large) = (window("4")?, window("40")?);
    rig.route(&[])?;
    Ok((
        large > small,
        format!("window of {small} bytes by initrwnd 4, of {large} by 40"),
    ))
}

pub(super) fn shortest_timeout(rig: &Rig) -> Seen {
    let rto = |attributes: &[&str]| -> io::Result<u32> {
        rig.route(attributes)?;
        Ok(rig.connect()?.info()?.rto_us)
    };
    let (usual, short) = (rto(&[])?, rto(&["rto_min", "50ms"])?);
    rig.route(&[])?;
    Ok((
        short < usual,
        format!("RTO {usual} us by default, {short} us by rto_min 50ms"),
    ))
}

/// The window before and after a pause of a second, five or more timeouts.
fn around_a_pause(rig: &Rig, scheme: &str, restart: &str) -> io::Result<(u32, u32)> {
    rig.route(&["congctl", scheme])?;
    rig.sysctl("tcp_slow_start_after_idle", restart)?;
    let connection = rig.connect()?;
    connection.send(4 << 20, 1 << 16)?;
    let before = connection.info()?.snd_cwnd;
    sleep(Duration::from_secs(1));
    connection.send(100, 100)?;
    Ok((before, connection.info()?.snd_cwnd))
}

/// Whether a window falls in a pause with the knob on, and stays with it off, under each scheme.
pub(super) fn slow_start_after_idle(rig: &Rig) -> io::Result<Vec<(String, bool, String)>> {
    let mut found = Vec::new();
    for scheme in schemes(rig)? {
        let on = around_a_pause(rig, &scheme, "1")?;
        let off = around_a_pause(rig, &scheme, "0")?;
        let effective = on.1 * 2 < on.0 && off.1 * 2 >= off.0;
        let seen = format!(
            "{scheme}: {} to {} packets by 1, {} to {} by 0",
            on.0, on.1, off.0, off.1
        );
        found.push((scheme, effective, seen));
    }
    rig.sysctl("tcp_slow_start_after_idle", "1")?;
    rig.route(&[])?;
    Ok(found)
}

pub(super) fn autocorking(rig: &Rig) -> Seen {
    // packets have to wait in the device for the kernel to hold small writes back
    let shaper = ["rate", "2mbit", "burst", "2kb", "limit", "1mb"];
    let queue = ["tc", "qdisc", "replace", "dev", "path0", "root", "tbf"];
    rig.command(&[&queue[..], &shaper].concat())?;
    let held_back = |on: &str| -> io::Result<u64> {
        rig.sysctl("tcp_autocorking", on)?;
        let connection = rig.connect()?;
        connection.server.set_nodelay(true)?;
        let before = rig.counter("TCPAutoCorking")?;
        connection.send(60_000, 100)?;
        Ok(rig.counter("TCPAutoCorking")? - before)
    };
    let counted = held_back("1").and_then(|on| Ok((on, held_back("0")?)));
    rig.sysctl("tcp_autocorking", "1")?;
    rig.command(&["tc", "qdisc", "del", "dev", "path0", "root"])?;
    let (on, off) = counted?;
    let seen = format!("of 600 small writes into a full device, {on} held back by 1, {off} by 0");
    Ok((on > 0 && off == 0, seen))
}

pub(super) fn pacing(rig: &Rig) -> Seen {
    const RATE: u32 = 2_000_000;
    const BYTES: usize = 1_000_000;
    let took = |paced: bool| -> io::Result<f64> {
        let connection = rig.connect()?;
        if paced {
            pace(connection.server.as_fd(), RATE)?;
        }
        let begun = Instant::now();
        connection.send(BYTES, 1 << 16)?;
        Ok(begun.elapsed().as_secs_f64())
    };
    rig.route(&["congctl", "reno"])?;
    let (unpaced, paced) = (took(false)?, took(true)?);
    rig.route(&[])?;
    let expected = BYTES as f64 / f64::from(RATE);
    let seen = format!(
        "1 MB at 2 MB/s took {paced:.2} s, without pacing {unpaced:.2} s; no fq queue is needed"
    );
    Ok((paced > expected * 0.8 && unpaced < expected * 0.5, seen))
}

pub(super) fn send_buffer(rig: &Rig) -> Seen {
    let before = rig.sysctl_value("tcp_wmem")?;
    let largest = |limit: usize| -> io::Result<usize> {
        rig.sysctl("tcp_wmem", &format!("4096 16384 {limit}"))?;
        let connection = rig.connect()?;
        connection.send(16 << 20, 1 << 16)?;
        Ok(sockopt::socket_send_buffer_size(&connection.server)?)
    };
    let sizes = largest(32 << 10).and_then(|small| Ok((small, largest(4 << 20)?)));
    rig.sysctl("tcp_wmem", &before)?;
    let (small, large) = sizes?;
    let seen = format!("after 16 MB: {small} bytes by a limit of 32 KiB, {large} by 4 MiB");
    Ok((small <= 32 << 10 && large > small, seen))
}

pub(super) fn unsent(rig: &Rig) -> Seen {
    let before = ["tcp_notsent_lowat", "tcp_wmem"].map(|name| (name, rig.sysctl_value(name)));
    // what a socket takes of an answer that nobody reads
    let taken = |limit: &str| -> io::Result<usize> {
        rig.sysctl("tcp_notsent_lowat", limit)?;
        let connection = rig.connect()?;
        connection.server.set_nonblocking(true)?;
        let (data, mut taken) = (vec![b'x'; 1 << 16], 0);
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            match (&connection.server).write(&data) {
                Ok(size) => taken += size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    };
    rig.sysctl("tcp_wmem", "4096 1048576 4194304")?;
    let taken = taken("16384").and_then(|little| Ok((little, taken("4294967295")?)));
    for (name, value) in before {
        rig.sysctl(name, &value?)?;
    }
    let (little, much) = taken?;
    let seen = format!(
        "of an answer that is not read, a socket took {little} bytes by 16 KiB, {much} without"
    );
    Ok((little < much / 2, seen))
}

pub(super) fn receive_buffer(rig: &Rig) -> Seen {
    let before = rig.sysctl_value("tcp_rmem")?;
    let window = |limit: usize| -> io::Result<u32> {
        rig.sysctl("tcp_rmem", &format!("4096 {} {limit}", limit.min(131_072)))?;
        let connection = rig.connect()?;
        connection.receive(64 << 20)?;
        Ok(TcpInfo::of(connection.client.as_fd())?.snd_wnd.unwrap_or(0))
    };
    let sizes = window(64 << 10).and_then(|small| Ok((small, window(6 << 20)?)));
    rig.sysctl("tcp_rmem", &before)?;
    let (small, large) = sizes?;
    let seen = format!("window after 64 MB: {small} bytes by a limit of 64 KiB, {large} by 6 MiB");
    Ok((small <= 64 << 10 && large > small, seen))
}
