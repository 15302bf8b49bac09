//! The kernel's `tcp:tcp_probe` tracepoint.

use std::ffi::CString;

use thiserror::Error;

use crate::perf::Rings;
use crate::sample::Event;
use crate::tracefs::read_event;
use crate::tracepoint::{Field, Layout};

/// Why tcp_probe cannot be had on this machine or by this process.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("tcp_probe is not available: {0}")]
pub struct Unavailable(String);

/// The fields that we read, found by name.
#[derive(Clone, Copy, Debug)]
struct Fields {
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
        let field = |name: &str| {
            let missing = || Unavailable(format!("this kernel's tracepoint has no field {name}"));
            layout.field(name).ok_or_else(missing)
        };
        Ok(Self {
            snd_nxt: field("snd_nxt")?,
            snd_una: field("snd_una")?,
            snd_cwnd: field("snd_cwnd")?,
            ssthresh: field("ssthresh")?,
            srtt: field("srtt")?,
            snd_wnd: field("snd_wnd")?,
            sock_cookie: field("sock_cookie")?,
        })
    }

    /// The event in `record`, if it is whole and its socket is one of `cookies`.
    fn event(&self, time_ns: u64, record: &[u8], cookies: &[u64]) -> Option<Event> {
        let cookie = self.sock_cookie.read(record)?;
        let flow = cookies.iter().position(|known| *known == cookie)? as u32;
        let number = |field: Field| Some(field.read(record)? as u32);
        Some(Event {
            time_ns,
            flow,
            snd_nxt: number(self.snd_nxt)?,
            snd_una: number(self.snd_una)?,
            snd_cwnd: number(self.snd_cwnd)?,
            ssthresh: number(self.ssthresh)?,
            srtt_us: number(self.srtt)?,
            snd_wnd: number(self.snd_wnd)?,
        })
    }
}

/// tcp_probe, recording the flows with the given cookies.
pub(crate) struct TcpProbe {
    rings: Rings,
    fields: Fields,
    /// Socket cookie of each flow: the only name of a socket that is unique on the machine, since
    /// the tracepoint sees the flows of all network namespaces.
    cookies: Vec<u64>,
    events: Vec<Event>,
}

impl TcpProbe {
    /// Records the sockets with these cookies, whose peers have these ports, from now on.
    pub(crate) fn open(cookies: Vec<u64>, peer_ports: &[u16]) -> Result<Self, Unavailable> {
        let (id, format) = read_event("tcp/tcp_probe").map_err(Unavailable)?;
        let fields = Fields::find(&format)?;
        let filter = CString::new(filter(peer_ports)).expect("a filter has no zero byte");
        let rings = Rings::open(id, &filter).map_err(|error| {
            Unavailable(format!("perf_event_open: {error} (needs CAP_PERFMON)"))
        })?;
        Ok(Self {
            rings,
            fields,
            cookies,
            events: Vec::with_capacity(1 << 16),
        })
    }

    /// Takes what the kernel has written since the last call.
    pub(crate) fn drain(&mut self) {
        let Self {
            rings,
            fields,
            cookies,
            events,
        } = self;
        rings.drain(|time_ns, record| events.extend(fields.event(time_ns, record, cookies)));
    }

    /// Ends the recording: the events, processor by processor, and how many were lost.
    pub(crate) fn finish(mut self) -> (Vec<Event>, u64) {
        self.rings.disable();
        self.drain();
        (self.events, self.rings.lost())
    }
}

/// Passes events of senders to these ports, so that the kernel skips the rest cheaply; which flow
/// an event belongs to is still told by its cookie.
fn filter(peer_ports: &[u16]) -> String {
    let mut ports = peer_ports.to_vec();
    ports.sort_unstable();
    ports.dedup();
    let terms: Vec<String> = ports.iter().map(|port| format!("dport=={port}")).collect();
    terms.join("||")
}

/// Whether this process can have tcp_probe; if not, why.
///
/// # Errors
/// The reason, in words.
pub fn tcp_probe_available() -> Result<(), Unavailable> {
    TcpProbe::open(Vec::new(), &[1]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\tfield:__u16 dport;\toffset:66;\tsize:2;\tsigned:0;\n\
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
        let event = fields.event(9, &record, &[41, 42]).unwrap();
        assert_eq!(
            (event.time_ns, event.flow, event.snd_nxt, event.snd_una),
            (9, 1, 5000, 4000)
        );
        assert_eq!((event.snd_cwnd, event.ssthresh), (10, 7));
        assert_eq!((event.srtt_us, event.snd_wnd), (20_100, 65_535));
        assert_eq!(fields.event(9, &record, &[41]), None);
        assert_eq!(fields.event(9, &record[..115], &[42]), None);
    }

    #[test]
    fn a_kernel_without_a_field_is_told() {
        let format = FORMAT.replace("sock_cookie", "cake");
        let error = Fields::find(&format).unwrap_err().to_string();
        assert!(error.contains("no field sock_cookie"), "{error}");
    }

    #[test]
    fn a_filter_names_each_port_once() {
        assert_eq!(filter(&[443, 80, 443]), "dport==80||dport==443");
    }
}
