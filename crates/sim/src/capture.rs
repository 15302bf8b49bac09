//! A packet capture of a simulation, as a host's own tools would take it at the senders' side: what leaves there as it
//! leaves, what comes from the other end as it arrives. Headers only.

use std::collections::VecDeque;
use std::fs::File;
use std::net::Ipv4Addr;

use pathcast_path::Time;
use pathcast_scenario::{Heading, ReceiveWindow, Scenario, Side, Transport};
use pathcast_tcp::{AckSegment, DataSegment, Ecn};
use pathcast_trace::capture_file::{CaptureWriter, IpPacket, TcpHeader, flags};
use pathcast_trace::{MessageRecord, PacketRecord, QueueRecord, Record};

use crate::recorder::{Crossing, Recorder};
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
    /// Who sends data, and who gets it and may send requests: by [`Side`].
    ends: [End; 2],
    is_tcp: bool,
    mss: u64,
    /// What the receiver takes whatever it says, and the scale of its windows.
    most_window_packets: u64,
    scale: u32,
}

/// One end of a flow.
struct End {
    address: (Ipv4Addr, u16),
    /// The number of its first byte, and where its packets lie.
    first: u32,
    places: Places,
    id: u16,
    /// The first packet that it has not acknowledged, as far as was seen.
    expects: u64,
    /// Its last timestamp, in milliseconds.
    stamp: u32,
}

impl End {
    fn new(address: (Ipv4Addr, u16), first: u32) -> Self {
        Self {
            address,
            first,
            places: Places::default(),
            id: 0,
            expects: 0,
            stamp: 0,
        }
    }

    /// The number in segments of the first byte of packet `seq`. The SYN has the first.
    fn number(&self, seq: u64, mss: u64) -> u32 {
        let byte = self.places.byte(seq, mss);
        self.first.wrapping_add(1).wrapping_add(byte as u32)
    }
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

    fn datagram(&mut self, at: Crossing) {
        let payload = at.size_bytes.saturating_sub(UDP_IP_BYTES);
        let packet = self.flows[at.flow as usize].packet(at.from, payload);
        self.writer.udp(at.at.as_nanos(), &packet);
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Says why the file cannot be written.
    pub fn finish(self) -> Result<(), String> {
        self.writer.finish()
    }
}

/// The index of the end that is not `side`.
const fn other(side: Side) -> usize {
    1 - side as usize
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
            Transport::Quic { .. } | Transport::Udp => ReceiveWindow::Unlimited,
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
                End::new((source, (FIRST_PORT + number % PORTS) as u16), first),
                End::new((sink, RECEIVER_PORT), first.rotate_left(16)),
            ],
            is_tcp: transport.is_tcp(),
            mss,
            most_window_packets: most_window_packets.max(1),
            scale: scale.unwrap_or(MOST_SCALE),
        }
    }

    /// A packet from one end.
    fn packet(&mut self, from: Side, payload_bytes: u32) -> IpPacket {
        let to = self.ends[other(from)].address;
        let end = &mut self.ends[from as usize];
        end.id = end.id.checked_add(1).unwrap_or(1);
        IpPacket {
            from: end.address,
            to,
            id: end.id,
            ttl: TTLS[from as usize],
            ecn_capable: false,
            payload_bytes,
        }
    }

    fn data(
        &mut self,
        at: Crossing,
        segment: &DataSegment,
        carried: Option<&AckSegment>,
    ) -> (IpPacket, TcpHeader) {
        let has_data = !segment.is_empty() && !segment.is_fin();
        let short = u64::from(segment.short_by_bytes()) + self.mss - u64::from(MSS_BYTES);
        let mss = self.mss;
        let [from, to] = [at.from as usize, other(at.from)];
        let end = &mut self.ends[from];
        if segment.is_fin() {
            end.places.note(segment.seq, mss - 1);
        } else if has_data {
            end.places.note(segment.seq, short);
        }
        // what arrives was stamped when it was sent
        end.stamp = millis(segment.sent_at);
        let mut echo = self.ends[to].stamp;
        if let Some(carried) = carried {
            self.ends[from].expects = carried.cumulative.max(self.ends[from].expects);
            echo = millis(carried.echo);
        }
        let payload = if has_data { mss - short } else { 0 };
        let mut packet = self.packet(at.from, payload as u32);
        packet.ecn_capable = segment.ecn() != Ecn::NotCapable;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let opens = segment.is_syn();
        let [from, to] = [&self.ends[from], &self.ends[to]];
        let seq = match (opens, segment.asks_for_window()) {
            (true, _) => from.first,
            // a byte that was acknowledged (Linux's tcp_xmit_probe_skb)
            (false, true) => from.number(segment.seq, mss).wrapping_sub(1),
            (false, false) => from.number(segment.seq, mss),
        };
        let header = TcpHeader {
            seq,
            ack: match opens {
                true => 0,
                false => to.number(from.expects, mss),
            },
            flags: flag(opens, flags::SYN)
                | flag(!opens, flags::ACK)
                | flag(segment.is_fin(), flags::FIN)
                | flag(segment.is_pushed(), flags::PSH)
                | flag(segment.has_reduced(), flags::CWR),
            window: MOST_HEADER_WINDOW as u16,
            opening: opens.then(|| self.opening()),
            timestamps: (from.stamp, echo),
            sacks: [None; 3],
        };
        (packet, header)
    }

    fn acknowledgment(&mut self, at: Crossing, segment: &AckSegment) -> (IpPacket, TcpHeader) {
        let packet = self.packet(at.from, 0);
        let [from, to] = [at.from as usize, other(at.from)];
        self.ends[from].expects = segment.cumulative.max(self.ends[from].expects);
        // taken for the time when it was sent, which readers do not need to the millisecond
        self.ends[from].stamp = millis(at.at);
        self.ends[to].places.forget(segment.cumulative);
        let [from, to] = [&self.ends[from], &self.ends[to]];
        let window = u64::from(segment.window_packets).min(self.most_window_packets) * self.mss;
        let window = match segment.is_syn {
            true => window,
            false => window >> self.scale,
        };
        let number = |seq| to.number(seq, self.mss);
        let mut sacks = [None; 3];
        let duplicate = segment.duplicate().map(|seq| (seq, seq + 1));
        let blocks = segment.sacks().map(|block| (block.start, block.end));
        for (sack, (start, end)) in sacks.iter_mut().zip(duplicate.into_iter().chain(blocks)) {
            *sack = Some((number(start), number(end)));
        }
        let syn = if segment.is_syn { flags::SYN } else { 0 };
        let echo = if segment.ecn_echo() { flags::ECE } else { 0 };
        let header = TcpHeader {
            seq: match segment.is_syn {
                true => from.first,
                false => from.number(from.places.next, self.mss),
            },
            ack: number(segment.cumulative),
            flags: flags::ACK | syn | echo,
            window: window.min(MOST_HEADER_WINDOW) as u16,
            opening: segment.is_syn.then(|| self.opening()),
            timestamps: (from.stamp, millis(segment.echo)),
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

    fn data(&mut self, at: Crossing, segment: &DataSegment, carried: Option<&AckSegment>) {
        let Some(log) = self else { return };
        let flow = &mut log.flows[at.flow as usize];
        if flow.is_tcp {
            let (packet, header) = flow.data(at, segment, carried);
            log.writer.tcp(at.at.as_nanos(), &packet, &header);
        } else {
            log.datagram(at);
        }
    }

    fn acknowledgment(&mut self, at: Crossing, segment: &AckSegment) {
        let Some(log) = self else { return };
        let flow = &mut log.flows[at.flow as usize];
        if flow.is_tcp {
            let (packet, header) = flow.acknowledgment(at, segment);
            log.writer.tcp(at.at.as_nanos(), &packet, &header);
        } else {
            log.datagram(at);
        }
    }
}

#[cfg(test)]
mod tests;
