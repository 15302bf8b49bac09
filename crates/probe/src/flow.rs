//! One flow that is watched: who it is, what it did.

use pathcast_trace::{Record, WatchedFlow};

use crate::median::Median;
use crate::owner::Process;
use crate::sample::{Event, Look, Numbers, record_of_event, record_of_look, seconds_since};
use crate::sock_diag::{Socket, SocketId};
use crate::tcp_info::TcpInfo;
use crate::watched::FlowTotals;

pub(crate) struct Flow {
    pub(crate) id: SocketId,
    pub(crate) inode: u32,
    pub(crate) process: Option<Process>,
    scheme: Option<String>,
    /// Its state when its counters began; none if the kernel does not list it.
    base: Option<TcpInfo>,
    last: Option<TcpInfo>,
    numbers: Option<Numbers>,
    row: Option<Record>,
    first_ns: u64,
    pub(crate) changed_ns: u64,
    pub(crate) ended: bool,
    /// Whether something came since it was last looked at.
    pub(crate) stirred: bool,
    records: u64,
    /// Time and bytes of the first and the last row with more acknowledged than the one before.
    acked: Option<[(f64, u64); 2]>,
    srtt_min_s: Option<f64>,
    srtt_s: Median,
    cwnd_packets: Median,
}

impl Flow {
    /// A flow that the kernel lists. `began` says that it was not there when the watch began.
    pub(crate) fn listed(socket: &Socket, began: bool, now_ns: u64) -> Self {
        let base = match began {
            true => Some(TcpInfo::at_the_beginning()),
            false => socket.info,
        };
        Self {
            base,
            last: socket.info,
            scheme: socket.scheme.clone(),
            inode: socket.inode,
            ..Self::unlisted(socket.id, now_ns)
        }
    }

    /// A flow known from its packets only.
    pub(crate) fn unlisted(id: SocketId, now_ns: u64) -> Self {
        Self {
            id,
            inode: 0,
            process: None,
            scheme: None,
            base: None,
            last: None,
            numbers: None,
            row: None,
            first_ns: now_ns,
            changed_ns: now_ns,
            ended: false,
            stirred: true,
            records: 0,
            acked: None,
            srtt_min_s: None,
            srtt_s: Median::default(),
            cwnd_packets: Median::default(),
        }
    }

    /// A socket of this process, of which all is known.
    pub(crate) fn own(
        id: SocketId,
        scheme: Option<String>,
        process: Process,
        totals: &FlowTotals,
        began_ns: u64,
    ) -> Self {
        Self {
            base: Some(totals.first),
            last: Some(totals.last),
            scheme,
            process: Some(process),
            ..Self::unlisted(id, began_ns)
        }
    }

    /// Notes a row that was made elsewhere.
    pub(crate) fn replay(&mut self, record: Record, origin_ns: u64) {
        self.changed_ns = origin_ns + (record.time_s * 1e9) as u64;
        self.note(record);
    }

    pub(crate) const fn is_listed(&self) -> bool {
        self.base.is_some()
    }

    /// The row of an event of tcp_probe; none if the event says nothing about a sender, because its segment
    /// arrived while nothing was in flight and changed nothing.
    pub(crate) fn event(&mut self, event: &Event, origin_ns: u64) -> Option<Record> {
        self.stirred = true;
        let numbers = self.numbers.get_or_insert_with(|| Numbers::from(event));
        let info = self.last.zip(self.base);
        let retransmits = info.map(|(last, base)| retransmits(&last, &base));
        let record = record_of_event(event, numbers, retransmits, origin_ns);
        self.first_ns = self.first_ns.min(event.time_ns);
        let idle = event.snd_nxt == event.snd_una;
        if idle && self.row.is_none_or(|row| same(&row, &record)) {
            return None;
        }
        self.changed_ns = self.changed_ns.max(event.time_ns);
        self.note(record);
        Some(record)
    }

    /// Takes a look; the row, if something changed since the last one and it has ever sent. With
    /// `rows` false it is for the counters alone.
    pub(crate) fn look(
        &mut self,
        info: &TcpInfo,
        flow: u32,
        now_ns: u64,
        origin_ns: u64,
        rows: bool,
    ) -> Option<Record> {
        let base = *self.base.get_or_insert(*info);
        let before = self.last;
        self.last = Some(info.with_mss_in_use(before.as_ref()));
        if before.is_none_or(|before| before.bytes_received != info.bytes_received) {
            self.changed_ns = now_ns;
        }
        if !rows {
            return None;
        }
        let look = Look {
            time_ns: now_ns,
            flow,
            info: *info,
        };
        let record = record_of_look(&look, &base, origin_ns);
        if record.snd_nxt_bytes == Some(0) || self.row.is_some_and(|row| same(&row, &record)) {
            return None;
        }
        self.changed_ns = now_ns;
        self.note(record);
        Some(record)
    }

    /// Adds what the kernel lists about the flow.
    pub(crate) fn learn(&mut self, socket: &Socket) {
        if self.scheme.is_none() || socket.scheme.is_some() {
            self.scheme.clone_from(&socket.scheme);
        }
        if socket.inode != 0 {
            self.inode = socket.inode;
        }
    }

    fn note(&mut self, record: Record) {
        self.records += 1;
        if let Some(srtt_s) = record.srtt_s {
            self.srtt_min_s = Some(self.srtt_min_s.map_or(srtt_s, |least| least.min(srtt_s)));
        }
        let before = self.row.and_then(|row| row.snd_una_bytes).unwrap_or(0);
        let acked = record.snd_una_bytes.unwrap_or(0);
        if self.row.is_none() || acked > before {
            let point = (record.time_s, acked);
            let [first, _] = self.acked.unwrap_or([point; 2]);
            self.acked = Some([first, point]);
        }
        // a window counts for the bytes that were acknowledged under it, so that it does not matter
        // how often somebody looked, nor how long the application had nothing to send
        let weight = acked.saturating_sub(before);
        self.cwnd_packets.add(record.cwnd_packets, weight);
        self.srtt_s.add(record.srtt_s.unwrap_or(0.0), weight);
        self.row = Some(record);
    }

    /// Payload bytes acknowledged since its counters began.
    fn acked_bytes(&self) -> u64 {
        let counted = self.last.zip(self.base).and_then(|(last, base)| {
            let acked = last.bytes_acked?.saturating_sub(base.bytes_acked?);
            let sent = last.new_bytes()?.saturating_sub(base.new_bytes()?);
            Some(acked.min(sent))
        });
        let seen = self.row.and_then(|row| row.snd_una_bytes).unwrap_or(0);
        counted.unwrap_or(0).max(seen)
    }

    pub(crate) fn report(&self, origin_ns: u64) -> WatchedFlow {
        let info = self.last.zip(self.base);
        let received = info.and_then(|(last, base)| {
            Some(last.bytes_received?.saturating_sub(base.bytes_received?))
        });
        let goodput = self.acked.and_then(|[(from_s, from), (to_s, to)]| {
            (to_s > from_s).then(|| (to - from) as f64 * 8.0 / (to_s - from_s))
        });
        let canonical = |end: std::net::SocketAddr| {
            std::net::SocketAddr::new(end.ip().to_canonical(), end.port()).to_string()
        };
        WatchedFlow {
            local: canonical(self.id.local),
            remote: canonical(self.id.remote),
            scheme: self.scheme.clone(),
            pid: self.process.as_ref().map(|process| process.pid),
            process: self.process.as_ref().map(|process| process.name.clone()),
            cookie: self.id.cookie,
            first_s: seconds_since(self.first_ns, origin_ns),
            last_s: seconds_since(self.changed_ns, origin_ns),
            ended: self.ended,
            records: self.records,
            acked_bytes: self.acked_bytes(),
            received_bytes: received,
            goodput_bps: goodput,
            retransmits: info.map(|(last, base)| retransmits(&last, &base)),
            srtt_min_ms: self.srtt_min_s.map(|srtt_s| srtt_s * 1e3),
            srtt_median_ms: self.srtt_s.value().map(|srtt_s| srtt_s * 1e3),
            cwnd_median_packets: self.cwnd_packets.value(),
            mss_bytes: self.last.map(|info| info.snd_mss),
        }
    }
}

fn retransmits(last: &TcpInfo, base: &TcpInfo) -> u64 {
    last.total_retrans.wrapping_sub(base.total_retrans).into()
}

/// Whether two rows are equal except for their times.
fn same(a: &Record, b: &Record) -> bool {
    let time_s = a.time_s;
    *a == Record { time_s, ..*b }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN_NS: u64 = 1_000_000_000;

    fn flow() -> Flow {
        let [local, remote] = ["[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.2]:9"];
        let id = SocketId::new(local.parse().unwrap(), remote.parse().unwrap(), 7);
        Flow::unlisted(id, ORIGIN_NS)
    }

    fn event(at_ms: u64, snd_una: u32, snd_nxt: u32) -> Event {
        Event {
            time_ns: ORIGIN_NS + at_ms * 1_000_000,
            flow: 0,
            snd_nxt,
            snd_una,
            snd_cwnd: 10,
            ssthresh: u32::MAX,
            srtt_us: 20_000,
            snd_wnd: 65_535,
        }
    }

    #[test]
    fn what_only_receives_has_no_rows() {
        let mut flow = flow();
        for at_ms in 0..5 {
            assert_eq!(flow.event(&event(at_ms, 100, 100), ORIGIN_NS), None);
        }
        let report = flow.report(ORIGIN_NS);
        assert_eq!((report.records, report.acked_bytes), (0, 0));
        assert_eq!(
            (report.goodput_bps, report.cwnd_median_packets),
            (None, None)
        );
        assert_eq!(report.local, "10.0.0.1:80");
    }

    #[test]
    fn goodput_is_that_between_the_first_and_the_last_byte_acknowledged() {
        let mut flow = flow();
        assert!(flow.event(&event(0, 100, 20_100), ORIGIN_NS).is_some());
        assert!(flow.event(&event(500, 5100, 20_100), ORIGIN_NS).is_some());
        assert!(
            flow.event(&event(1000, 20_100, 20_100), ORIGIN_NS)
                .is_some()
        );
        assert!(
            flow.event(&event(9000, 20_100, 20_100), ORIGIN_NS)
                .is_none()
        );
        let report = flow.report(ORIGIN_NS);
        assert_eq!((report.acked_bytes, report.last_s), (20_000, 1.0));
        assert_eq!(report.goodput_bps, Some(160_000.0));
        assert!((report.cwnd_median_packets.unwrap() / 10.0 - 1.0).abs() < 0.01);
        assert_eq!(report.retransmits, None);
    }

    #[test]
    fn a_flow_that_began_during_the_watch_is_counted_from_its_beginning() {
        let info = TcpInfo {
            bytes_acked: Some(3001), // and the SYN
            bytes_sent: Some(4000),
            bytes_retrans: Some(1000),
            total_retrans: 1,
            snd_cwnd: 10,
            ..TcpInfo::at_the_beginning()
        };
        let socket = Socket {
            id: flow().id,
            inode: 5,
            info: Some(info),
            scheme: Some("reno".into()),
            cgroup: None,
        };
        for (began, bytes, retransmits) in [(true, 3000, 1), (false, 0, 0)] {
            let mut flow = Flow::listed(&socket, began, ORIGIN_NS);
            let row = flow.look(&info, 0, ORIGIN_NS, ORIGIN_NS, true);
            assert_eq!(row.is_some(), began);
            let report = flow.report(ORIGIN_NS);
            assert_eq!(
                (report.acked_bytes, report.retransmits),
                (bytes, Some(retransmits))
            );
            assert_eq!(flow.look(&info, 0, ORIGIN_NS + 1, ORIGIN_NS, true), None);
        }
    }

    #[test]
    fn the_mss_is_that_of_the_data_that_was_acknowledged() {
        let look = |acked_bytes, snd_mss| TcpInfo {
            bytes_acked: Some(acked_bytes),
            bytes_sent: Some(9000),
            snd_mss,
            snd_cwnd: 10,
            ..TcpInfo::at_the_beginning()
        };
        // larger once the path is known, and 36 bytes after its device has disappeared
        let looks = [(1, 536), (1449, 1448), (4345, 1448), (4345, 36)];
        let mut flow = flow();
        for (number, (acked_bytes, snd_mss)) in (1..).zip(looks) {
            let now_ns = ORIGIN_NS + number;
            flow.look(&look(acked_bytes, snd_mss), 0, now_ns, ORIGIN_NS, true);
        }
        assert_eq!(flow.report(ORIGIN_NS).mss_bytes, Some(1448));
    }
}
