//! A packet capture of a simulation, as a host's own tools would take it at the senders' side: data and datagrams as they
//! leave, acknowledgments as they arrive. Headers only.

use std::collections::VecDeque;
use std::fs::File;
use std::net::Ipv4Addr;

use pathcast_path::Time;
use pathcast_scenario::{Heading, ReceiveWindow, Scenario, Transport};
use pathcast_tcp::{AckSegment, DataSegment, Ecn};
use pathcast_trace::capture_file::{CaptureWriter, IpPacket, TcpHeader, flags};
use pathcast_trace::{MessageRecord, PacketRecord, QueueRecord, Record};

use crate::recorder::Recorder;
use crate::wire::{MSS_BYTES, UDP_IP_BYTES};

/// Options that the MSS of a handshake counts in: timestamps.
const OPTION_BYTES: u32 = 12;
/// The largest window that TCP can say, and its scale (RFC 7323, section 2.3).
const MOST_WINDOW_BYTES: u64 = 1 << 30;
const MOST_SCALE: u32 = 14;
/// The largest buffer that an application may ask for, for which the scale is enough too (net.core.rmem_max).
const MOST_ASKED_BYTES: u64 = 4 << 20;
/// The largest window of a header.
const MOST_HEADER_WINDOW: u64 = u16::MAX as u64;
/// Ports of one address.
const PORTS: u32 = 20_000;
const FIRST_PORT: u32 = 40_000;
const RECEIVER_PORT: u16 = 5001;
/// Hops of what leaves, and of what has come from afar.
const TTLS: [u8; 2] = [64, 60];
/// Packets before the first that is not acknowledged whose place is remembered, for duplicates.
const REMEMBERED: u64 = 1 << 16;

/// Where packets lie among the bytes of a stream: most hold an MSS, the last of a message less, a FIN one.
#[derive(Default)]
struct Places {
    /// Packets that are short, and the bytes missing up to their end.
    missing: VecDeque<(u64, u64)>,
    next: u64,
}

impl Places {
    /// Notes packet `seq`, which is `short` bytes shorter than the others.
    fn note(&mut self, seq: u64, short: u64) {
        if seq >= self.next {
            self.next = seq + 1;
            if short > 0 {
                let before = self.missing.back().map_or(0, |(_, missing)| *missing);
                self.missing.push_back((seq, before + short));
            }
        }
    }

    /// The first byte of packet `seq`.
    fn byte(&self, seq: u64, mss: u64) -> u64 {
        let after = self.missing.partition_point(|(short, _)| *short < seq);
        let missing = match after.checked_sub(1) {
            Some(last) => self.missing[last].1,
            None => 0,
        };
        (seq * mss).saturating_sub(missing)
    }

    /// Forgets packets long before `una`, except by how many bytes they were short in total.
    fn forget(&mut self, una: u64) {
        while self.missing.len() > 1 && self.missing[1].0 + REMEMBERED < una {
            self.missing.pop_front();
        }
    }
}

/// One flow as its packets show it.
struct Flow {
    /// Who sends data, and who gets it.
    ends: [(Ipv4Addr, u16); 2],
    is_tcp: bool,
    mss: u64,
    /// What the receiver takes whatever it says, and the scale of its windows.
    most_window_packets: u64,
    scale: u32,
    places: Places,
    /// Numbers of the first byte, of each end.
    first: [u32; 2],
    ids: [u16; 2],
    /// The last timestamp that has come, in milliseconds.
    echo: u32,
}

/// Writes a capture during the run.
pub struct CaptureLog<'a> {
    writer: CaptureWriter<'a>,
    flows: Vec<Flow>,
}

impl<'a> CaptureLog<'a> {
    /// Of the flows of `scenario`, into `file`.
    pub fn new(scenario: &Scenario, file: &'a mut File) -> Self {
        let flows = (0..).zip(scenario.flows());
        let flows =
            flows.map(|(number, flow)| Flow::new(number, &flow.spec.transport, flow.spec.heading));
        Self {
            writer: CaptureWriter::new(file, "pathcast simulate"),
            flows: flows.collect(),
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Says why the file cannot be written.
    pub fn finish(self) -> Result<(), String> {
        self.writer.finish()
    }
}

impl Flow {
    fn new(number: u32, transport: &Transport, heading: Heading) -> Self {
        let near = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)) + number / PORTS);
        let far = Ipv4Addr::new(10, 0, 1, 1);
        let (source, sink) = match heading {
            Heading::Forward => (near, far),
            Heading::Reverse => (far, near),
        };
        let mss = u64::from(transport.mss_bytes());
        let window = match transport {
            Transport::Tcp { receive_window, .. } => *receive_window,
            Transport::Quic(_) | Transport::Udp => ReceiveWindow::Unlimited,
        };
        let most_window_packets = window.fixed_bytes().unwrap_or(MOST_WINDOW_BYTES) / mss;
        // enough for the largest window, as a kernel chooses it
        let most = match window.auto_buffer_bytes() {
            Some(buffer_bytes) => buffer_bytes.max(MOST_ASKED_BYTES),
            None => most_window_packets * mss,
        };
        let scale = (0..MOST_SCALE).find(|scale| most >> scale <= MOST_HEADER_WINDOW);
        // the same in each run, and different for each flow (Knuth's multiplicative hash)
        let first = number.wrapping_add(1).wrapping_mul(2_654_435_761);
        Self {
            ends: [
                (source, (FIRST_PORT + number % PORTS) as u16),
                (sink, RECEIVER_PORT),
            ],
            is_tcp: transport.is_tcp(),
            mss,
            most_window_packets: most_window_packets.max(1),
            scale: scale.unwrap_or(MOST_SCALE),
            places: Places::default(),
            first: [first, first.rotate_left(16)],
            ids: [0; 2],
            echo: 0,
        }
    }

    /// A packet from one end, 0 being the sender's.
    fn packet(&mut self, end: usize, payload_bytes: u32) -> IpPacket {
        self.ids[end] = self.ids[end].checked_add(1).unwrap_or(1);
        IpPacket {
            from: self.ends[end],
            to: self.ends[1 - end],
            id: self.ids[end],
            ttl: TTLS[end],
            ecn_capable: false,
            payload_bytes,
        }
    }

    /// The number in segments of the first byte of packet `seq`. The SYN has the first.
    fn number(&self, seq: u64) -> u32 {
        let byte = self.places.byte(seq, self.mss);
        self.first[0].wrapping_add(1).wrapping_add(byte as u32)
    }

    fn data(&mut self, now: Time, segment: &DataSegment) -> (IpPacket, TcpHeader) {
        let has_data = !segment.is_empty() && !segment.is_fin();
        let short = u64::from(segment.short_by_bytes()) + self.mss - u64::from(MSS_BYTES);
        if segment.is_fin() {
            self.places.note(segment.seq, self.mss - 1);
        } else if has_data {
            self.places.note(segment.seq, short);
        }
        let payload = if has_data { self.mss - short } else { 0 };
        let mut packet = self.packet(0, payload as u32);
        packet.ecn_capable = segment.ecn() != Ecn::NotCapable;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let opens = segment.is_syn();
        let seq = match (opens, segment.asks_for_window()) {
            (true, _) => self.first[0],
            // a byte that was acknowledged (Linux's tcp_xmit_probe_skb)
            (false, true) => self.number(segment.seq).wrapping_sub(1),
            (false, false) => self.number(segment.seq),
        };
        let header = TcpHeader {
            seq,
            ack: if opens {
                0
            } else {
                self.first[1].wrapping_add(1)
            },
            flags: flag(opens, flags::SYN)
                | flag(!opens, flags::ACK)
                | flag(segment.is_fin(), flags::FIN)
                | flag(segment.is_pushed(), flags::PSH)
                | flag(segment.has_reduced(), flags::CWR),
            window: MOST_HEADER_WINDOW as u16,
            opening: opens.then(|| self.opening()),
            timestamps: (millis(now), self.echo),
            sacks: [None; 3],
        };
        (packet, header)
    }

    fn acknowledgment(&mut self, now: Time, segment: &AckSegment) -> (IpPacket, TcpHeader) {
        self.places.forget(segment.cumulative);
        let packet = self.packet(1, 0);
        let window = u64::from(segment.window_packets).min(self.most_window_packets) * self.mss;
        let window = match segment.is_syn {
            true => window,
            false => window >> self.scale,
        };
        let mut sacks = [None; 3];
        let duplicate = segment.duplicate().map(|seq| (seq, seq + 1));
        let blocks = segment.sacks().map(|block| (block.start, block.end));
        for (sack, (start, end)) in sacks.iter_mut().zip(duplicate.into_iter().chain(blocks)) {
            *sack = Some((self.number(start), self.number(end)));
        }
        let syn = if segment.is_syn { flags::SYN } else { 0 };
        let echo = if segment.ecn_echo() { flags::ECE } else { 0 };
        self.echo = millis(now);
        let header = TcpHeader {
            seq: self.first[1].wrapping_add(u32::from(!segment.is_syn)),
            ack: self.number(segment.cumulative),
            flags: flags::ACK | syn | echo,
            window: window.min(MOST_HEADER_WINDOW) as u16,
            opening: segment.is_syn.then(|| self.opening()),
            timestamps: (self.echo, millis(segment.echo)),
            sacks,
        };
        (packet, header)
    }

    /// What a SYN says: the largest segment and the scale of windows.
    fn opening(&self) -> (u16, u8) {
        ((self.mss as u32 + OPTION_BYTES) as u16, self.scale as u8)
    }
}

/// A timestamp. One of 0 would say that there is nothing to echo.
fn millis(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000 + 1) as u32
}

impl Recorder for Option<&mut CaptureLog<'_>> {
    const ACKS: bool = false;
    const PACKETS: bool = false;
    const CAPTURE: bool = true;
    fn ack(&mut self, _: Record) {}
    fn packet(&mut self, _: PacketRecord) {}
    fn message(&mut self, _: MessageRecord) {}
    fn queue(&mut self, _: QueueRecord) {}

    fn left(&mut self, now: Time, flow: u32, size_bytes: u32, segment: &DataSegment) {
        let Some(log) = self else { return };
        let flow = &mut log.flows[flow as usize];
        if flow.is_tcp {
            let (packet, header) = flow.data(now, segment);
            log.writer.tcp(now.as_nanos(), &packet, &header);
        } else {
            let packet = flow.packet(0, size_bytes.saturating_sub(UDP_IP_BYTES));
            log.writer.udp(now.as_nanos(), &packet);
        }
    }

    fn reached(&mut self, now: Time, flow: u32, size_bytes: u32, segment: &AckSegment) {
        let Some(log) = self else { return };
        let flow = &mut log.flows[flow as usize];
        if flow.is_tcp {
            let (packet, header) = flow.acknowledgment(now, segment);
            log.writer.tcp(now.as_nanos(), &packet, &header);
        } else {
            let packet = flow.packet(1, size_bytes.saturating_sub(UDP_IP_BYTES));
            log.writer.udp(now.as_nanos(), &packet);
        }
    }
}

#[cfg(test)]
mod tests;
