//! The kernel's `tcp:tcp_probe` tracepoint.

use std::ffi::CString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use thiserror::Error;

use crate::netlink::u32_at;
use crate::perf::Rings;
use crate::sample::Event;
use crate::tracefs::read_event;
use crate::tracepoint::{Field, Layout};

/// Why tcp_probe is not available on this machine or to this process.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("tcp_probe is not available: {0}")]
pub struct Unavailable(String);

/// The fields that we read, found by name.
#[derive(Clone, Copy, Debug)]
struct Fields {
    saddr: Field,
    daddr: Field,
    snd_nxt: Field,
    snd_una: Field,
    snd_cwnd: Field,
    ssthresh: Field,
    srtt: Field,
    snd_wnd: Field,
    sock_cookie: Field,
}

impl Fields {
    fn find(format: &str) -> Result<Self, Unavailable> {
        let layout = Layout::parse(format);
        let missing =
            |name: &str| Unavailable(format!("this kernel's tracepoint has no field {name}"));
        let field = |name: &str| layout.field(name).ok_or_else(|| missing(name));
        let bytes = |name: &str| layout.bytes(name).ok_or_else(|| missing(name));
        Ok(Self {
            saddr: bytes("saddr")?,
            daddr: bytes("daddr")?,
            snd_nxt: field("snd_nxt")?,
            snd_una: field("snd_una")?,
            snd_cwnd: field("snd_cwnd")?,
            ssthresh: field("ssthresh")?,
            srtt: field("srtt")?,
            snd_wnd: field("snd_wnd")?,
            sock_cookie: field("sock_cookie")?,
        })
    }
}

/// One record, as the kernel wrote it.
#[derive(Clone, Copy)]
pub(crate) struct Sighting<'a> {
    fields: &'a Fields,
    time_ns: u64,
    record: &'a [u8],
}

impl Sighting<'_> {
    /// The only name of a socket that is unique on the machine: the tracepoint sees the flows of all
    /// network namespaces.
    #[inline]
    pub(crate) fn cookie(&self) -> Option<u64> {
        self.fields.sock_cookie.read(self.record)
    }

    /// The event of the flow with the number `flow`; none if the record is cut short.
    #[inline]
    pub(crate) fn event(&self, flow: u32) -> Option<Event> {
        let fields = self.fields;
        let number = |field: Field| Some(field.read(self.record)? as u32);
        Some(Event {
            time_ns: self.time_ns,
            flow,
            snd_nxt: number(fields.snd_nxt)?,
            snd_una: number(fields.snd_una)?,
            snd_cwnd: number(fields.snd_cwnd)?,
            ssthresh: number(fields.ssthresh)?,
            srtt_us: number(fields.srtt)?,
            snd_wnd: number(fields.snd_wnd)?,
        })
    }

    /// Both ends of the socket: this one, the far one.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let end = |field: Field| socket_address(field.slice(self.record)?);
        Some((end(self.fields.saddr)?, end(self.fields.daddr)?))
    }
}

/// `struct sockaddr_in` or `sockaddr_in6`.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((Ipv4Addr::from(octets), port).into())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32_at(bytes, 24)?;
            Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into())
        }
        _ => None,
    }
}

/// tcp_probe, as it is being recorded.
pub(crate) struct Recording {
    rings: Rings,
    fields: Fields,
}

impl Recording {
    /// Records the events that match `filter` from now on; all if it is empty.
    pub(crate) fn open(filter: &str) -> Result<Self, Unavailable> {
        let (id, format) = read_event("tcp/tcp_probe").map_err(Unavailable)?;
        let fields = Fields::find(&format)?;
        let filter = CString::new(filter).expect("a filter has no zero byte");
        let rings = Rings::open(id, &filter).map_err(|error| {
            Unavailable(format!("perf_event_open: {error} (needs CAP_PERFMON)"))
        })?;
        Ok(Self { rings, fields })
    }

    /// Hands over what the kernel has written since the last call, in the order of time for each
    /// processor, but not over all of them.
    #[inline]
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Sighting<'_>)) {
        let Self { rings, fields } = self;
        rings.drain(|time_ns, record| {
            take(Sighting {
                fields,
                time_ns,
                record,
            });
        });
    }

    /// Ends the recording; what is written can still be drained.
    pub(crate) fn disable(&self) {
        self.rings.disable();
    }

    /// Records that found a ring full.
    pub(crate) fn lost(&self) -> u64 {
        self.rings.lost()
    }
}

/// tcp_probe, recording the flows with the given cookies.
pub(crate) struct TcpProbe {
    recording: Recording,
    /// Socket cookie of each flow.
    cookies: Vec<u64>,
    events: Vec<Event>,
    /// Events that found no room.
    lost: u64,
}

impl TcpProbe {
    /// Records the sockets with these cookies, whose peers have these ports, from now on. Sockets that
    /// [join](Self::join) have `own_port`.
    pub(crate) fn open(
        cookies: Vec<u64>,
        peer_ports: &[u16],
        own_port: Option<u16>,
    ) -> Result<Self, Unavailable> {
        Ok(Self {
            recording: Recording::open(&filter(peer_ports, own_port))?,
            cookies,
            events: Vec::with_capacity(1 << 16),
            lost: 0,
        })
    }

    /// Records the socket with this cookie too.
    pub(crate) fn join(&mut self, cookie: u64) {
        self.cookies.push(cookie);
    }

    /// Takes what the kernel has written since the last call; of all that it takes, `most` events are kept.
    pub(crate) fn drain(&mut self, most: usize) {
        let Self {
            recording,
            cookies,
            events,
            lost,
        } = self;
        recording.drain(|sighting| match event_of(sighting, cookies) {
            Some(event) if events.len() < most => events.push(event),
            Some(_) => *lost += 1,
            None => {}
        });
    }

    /// Ends the recording: the events, processor by processor, and how many were lost.
    pub(crate) fn finish(mut self, most: usize) -> (Vec<Event>, u64) {
        self.recording.disable();
        self.drain(most);
        (self.events, self.recording.lost() + self.lost)
    }
}

/// The event, if it is whole and its socket is one of `cookies`.
fn event_of(sighting: Sighting<'_>, cookies: &[u64]) -> Option<Event> {
    let cookie = sighting.cookie()?;
    let flow = cookies.iter().position(|known| *known == cookie)?;
    sighting.event(flow as u32)
}

/// Passes events of senders to these ports or with an own one, so that the kernel skips the rest cheaply. The cookie
/// of an event identifies its flow.
fn filter(peer_ports: &[u16], own_port: Option<u16>) -> String {
    let mut ports = peer_ports.to_vec();
    ports.sort_unstable();
    ports.dedup();
    let peers = ports.iter().map(|port| format!("dport=={port}"));
    let own = own_port.map(|port| format!("sport=={port}"));
    let terms: Vec<String> = peers.chain(own).collect();
    terms.join("||")
}

/// Whether this process can have tcp_probe; if not, why.
///
/// # Errors
/// The reason, in words.
pub fn tcp_probe_available() -> Result<(), Unavailable> {
    TcpProbe::open(Vec::new(), &[1], None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\tfield:__u8 saddr[28];\toffset:8;\tsize:28;\tsigned:0;\n\
        \tfield:__u8 daddr[28];\toffset:36;\tsize:28;\tsigned:0;\n\
        \tfield:__u16 dport;\toffset:66;\tsize:2;\tsigned:0;\n\
        \tfield:__u32 snd_nxt;\toffset:80;\tsize:4;\tsigned:0;\n\
        \tfield:__u32 snd_una;\toffset:84;\tsize:4;\tsigned:0;\n\
        \tfield:__u32 snd_cwnd;\toffset:88;\tsize:4;\tsigned:0;\n\
        \tfield:__u32 ssthresh;\toffset:92;\tsize:4;\tsigned:0;\n\
        \tfield:__u32 snd_wnd;\toffset:96;\tsize:4;\tsigned:0;\n\
        \tfield:__u32 srtt;\toffset:100;\tsize:4;\tsigned:0;\n\
        \tfield:__u64 sock_cookie;\toffset:112;\tsize:8;\tsigned:0;\n";

    #[test]
    fn a_record_is_decoded_and_strangers_are_passed_over() {
        let fields = Fields::find(FORMAT).unwrap();
        let mut record = [0u8; 136];
        for (at, value) in [
            (80, 5000u32),
            (84, 4000),
            (88, 10),
            (92, 7),
            (96, 65_535),
            (100, 20_100),
        ] {
            record[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        record[112..120].copy_from_slice(&42u64.to_ne_bytes());
        record[8..16].copy_from_slice(&[0, 0, 0x1f, 0x90, 10, 0, 0, 1]);
        record[8..10].copy_from_slice(&2u16.to_ne_bytes());
        record[36..38].copy_from_slice(&10u16.to_ne_bytes());
        record[38..40].copy_from_slice(&443u16.to_be_bytes());
        record[44..60].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped().octets());
        let sighting = |size: usize| Sighting {
            fields: &fields,
            time_ns: 9,
            record: &record[..size],
        };
        let event = event_of(sighting(136), &[41, 42]).unwrap();
        assert_eq!(
            (event.time_ns, event.flow, event.snd_nxt, event.snd_una),
            (9, 1, 5000, 4000)
        );
        assert_eq!((event.snd_cwnd, event.ssthresh), (10, 7));
        assert_eq!((event.srtt_us, event.snd_wnd), (20_100, 65_535));
        assert_eq!(event_of(sighting(136), &[41]), None);
        assert_eq!(event_of(sighting(115), &[42]), None);
        let (local, remote) = sighting(136).ends().unwrap();
        assert_eq!(local.to_string(), "10.0.0.1:8080");
        assert_eq!(remote.to_string(), "[::ffff:192.0.2.9]:443");
        assert_eq!(sighting(63).ends(), None);
    }

    #[test]
    fn a_kernel_without_a_field_is_told() {
        let format = FORMAT.replace("sock_cookie", "cake");
        let error = Fields::find(&format).unwrap_err().to_string();
        assert!(error.contains("no field sock_cookie"), "{error}");
    }

    #[test]
    fn a_filter_names_each_port_once() {
        assert_eq!(filter(&[443, 80, 443], None), "dport==80||dport==443");
        assert_eq!(filter(&[80], Some(9)), "dport==80||sport==9");
    }
}
