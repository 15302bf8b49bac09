//! Packet captures: a TCP sender's behavior, inferred from its packets and the acknowledgments.
//!
//! A file is read twice: first for its connections, then for the requested one. Memory does not
//! grow with the number of other connections.

mod board;
mod connections;
mod container;
mod duplicates;
mod gaps;
mod layers;
mod notes;
mod segment;
mod sender;
#[cfg(test)]
mod tests;
mod vantage;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::Input;
use crate::import::kind::{Kind, Windows};
use crate::import::rows::Rows;
use crate::record::{Direction, PacketEvent, PacketRecord, Record, Source};

use connections::{Connections, Way};
use container::Frames;
use duplicates::Duplicates;
use notes::{RoundTrips, SkippedFrames, round_trips};
use segment::Segment;
use sender::{Given, Look, Sender};

pub(super) const KIND: Kind = Kind {
    known: Some("pcap or pcapng"),
    claims: |head| {
        matches!(
            head,
            [0xd4, 0xc3, 0xb2, 0xa1, ..]
                | [0xa1, 0xb2, 0xc3, 0xd4, ..]
                | [0x4d, 0x3c, 0xb2, 0xa1, ..]
                | [0xa1, 0xb2, 0x3c, 0x4d, ..]
                | [0x0a, 0x0d, 0x0d, 0x0a, ..]
        )
    },
    windows: Windows::Rows(read),
    packets: Some(packets),
    ..Kind::called("packet capture")
};

/// Calls `take` with every TCP segment, its time and its place in the file.
///
/// # Errors
/// Errors of the file, or of `take`.
fn segments(
    input: Input<'_>,
    skipped: &mut SkippedFrames,
    mut take: impl FnMut(&Segment, i64, u64) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut frames = Frames::open(input)?;
    let mut buffer = Vec::new();
    while let Some(frame) = frames.next(&mut buffer)? {
        match layers::parse(frame.link, &buffer, frame.wire_bytes) {
            Ok((segment, tunnel)) => {
                skipped.unwrapped(tunnel);
                take(&segment, frame.time_ns, frame.offset)?;
            }
            Err(why) => skipped.count(why),
        }
    }
    skipped.timeless += frames.timeless;
    Ok(())
}

/// A flow that was followed to the end of the file, or to damage.
struct Followed {
    sender: Sender,
    /// Names of the flows, and the bytes they carried.
    flows: Vec<(String, String)>,
    copies: u64,
    tunnels: Option<String>,
    warnings: Vec<String>,
    damage: Option<TraceError>,
}

/// Follows flow `number`. `look` and `give` receive what is seen of it, with its place in the file.
fn follow(
    input: Input<'_>,
    number: u32,
    mut look: impl FnMut(Look, u64) -> Result<(), TraceError>,
    mut give: impl FnMut(Given, u64) -> Result<(), TraceError>,
) -> Result<Followed, TraceError> {
    let mut skipped = SkippedFrames::default();
    let mut connections = Connections::default();
    let mut tcp = 0u64;
    let counted = segments(input, &mut skipped, |segment, time_ns, _| {
        connections.count(segment, time_ns);
        tcp += 1;
        Ok(())
    });
    let flows = connections.busiest();
    let Some(&wanted) = flows.get(number as usize) else {
        counted?;
        let message = match (flows.len(), tcp) {
            (0, 0) => match &skipped.warnings()[..] {
                [] => "is a packet capture that has no TCP packets".to_string(),
                left_out => format!("has no TCP packets to follow; {}", left_out.join("; ")),
            },
            (0, _) => format!("has {tcp} TCP packets, none of which carries data"),
            (flows, _) => format!("has no flow {number}; its flows are 0 to {}", flows - 1),
        };
        return Err(TraceError::new(input.path, message));
    };
    let file = input.path.display();
    let mut warnings: Vec<String> = (skipped.warnings().iter())
        .map(|what| format!("{file}: {what}"))
        .collect();
    if connections.left_out > 0 {
        let count = connections.left_out;
        warnings.push(format!(
            "{file}: left out: {count} packets of too many connections"
        ));
    }

    let mut sender = Sender::new();
    let mut duplicates = Duplicates::default();
    let mut again = Connections::default();
    let mut last_offset = 0;
    let mut outcome = segments(
        input,
        &mut SkippedFrames::default(),
        |segment, time_ns, offset| {
            let Some(direction) = again.count(segment, time_ns) else {
                return Ok(());
            };
            let rtt_ns = sender.vantage().least_ns();
            if direction.connection != wanted.connection
                || duplicates.is_copy(segment, direction.backward, time_ns, rtt_ns)
            {
                return Ok(());
            }
            last_offset = offset;
            let seen = if direction == wanted {
                sender.data(segment, time_ns)
            } else {
                sender.acknowledgment(segment, time_ns)
            };
            if let Some(seen) = seen.look {
                look(seen, offset)?;
            }
            if let Some(given) = seen.given {
                give(given, offset)?;
            }
            Ok(())
        },
    );
    if outcome.is_ok()
        && let Some(last) = sender.unanswered()
    {
        outcome = look(last, last_offset);
    }
    let doubts = notes::doubts(&sender, duplicates.copies);
    warnings.extend(doubts.iter().map(|doubt| format!("{file}: {doubt}")));
    let named = |flow: &Way| (connections.name(*flow), connections.size(*flow));
    Ok(Followed {
        sender,
        flows: flows.iter().take(64).map(named).collect(),
        copies: duplicates.copies,
        tunnels: skipped.tunnels(),
        warnings,
        damage: outcome.err(),
    })
}

/// How windows are determined, for the metadata.
const INFERRED: &str = "inferred from the bytes in flight just before each acknowledgment; a \
    lower bound while the sender had nothing to send or waited for the receiver's window";

fn seconds(time_ns: i64) -> f64 {
    time_ns as f64 / 1e9
}

pub(super) fn read(input: Input<'_>, most: usize, flow: u32) -> Result<Read<Record>, TraceError> {
    let mut rows = Rows::new(most);
    let mut start_ns = None;
    // round trip of each row, used if the samples combine both sides of the capture
    let mut whole_s = Vec::new();
    let look = |look: Look, offset: u64| {
        // times start near 0: as seconds since 1970, a float cannot resolve nanoseconds
        let start_ns = *start_ns.get_or_insert(look.time_ns);
        let record = Record {
            time_s: seconds(look.time_ns.saturating_sub(start_ns)),
            flow,
            // in bytes, until the packet size is known
            cwnd_packets: look.pipe_bytes as f64,
            srtt_s: look.srtt.outer_ns.map(|srtt| srtt / 1e9),
            snd_nxt_bytes: Some(look.snd_nxt),
            snd_una_bytes: Some(look.snd_una),
            rwnd_bytes: look.rwnd_bytes,
            retransmits: Some(look.retransmits),
            ..Record::default()
        };
        whole_s.push(look.srtt.whole_ns.map_or(f64::NAN, |srtt| srtt / 1e9));
        rows.push(input.path, Place::Byte(offset), record)
    };
    let followed = follow(input, flow, look, |_, _| Ok(()))?;
    let mss_bytes = followed.sender.mss_bytes();
    let known = round_trips(followed.sender.vantage());
    for (record, whole_s) in rows.iter_mut().zip(whole_s) {
        record.cwnd_packets /= f64::from(mss_bytes);
        record.srtt_s = match known {
            RoundTrips::Whole => record.srtt_s,
            RoundTrips::InParts => Some(whole_s).filter(|srtt_s| !srtt_s.is_nan()),
            RoundTrips::Unknown => None,
        };
    }
    let goodput_bps = followed.sender.goodput_bps();
    let mut read = described(Read::new(Source::Pcap, rows, None), followed, start_ns);
    let inferred = INFERRED.to_string();
    read.metadata
        .environment
        .insert("cwnd_packets".to_string(), inferred);
    read.goodput_bps
        .extend(goodput_bps.map(|goodput_bps| (flow, goodput_bps)));
    Ok(read)
}

pub(super) fn packets(
    input: Input<'_>,
    most: usize,
    flow: u32,
) -> Result<Read<PacketRecord>, TraceError> {
    // as captured; packets larger than the MSS are split once the MSS is known
    let mut given: Vec<(Given, u64)> = Vec::new();
    let give = |one: Given, offset: u64| {
        if given.len() == most {
            let message = format!("more than {most} rows");
            return Err(TraceError::at_byte(input.path, offset, message));
        }
        given.push((one, offset));
        Ok(())
    };
    let mut followed = follow(input, flow, |_, _| Ok(()), give)?;
    let mss_bytes = followed.sender.mss_bytes();
    let start_ns = given.first().map(|(one, _)| one.time_ns);
    let mut rows = Rows::new(most);
    'all: for (one, offset) in &given {
        let mut left = one.payload_bytes;
        let mut at = one.start;
        while left > 0 {
            let payload = left.min(mss_bytes);
            let record = PacketRecord {
                time_s: seconds(one.time_ns.saturating_sub(start_ns.unwrap_or(0))),
                flow,
                seq: at / u64::from(mss_bytes),
                size_bytes: payload + one.header_bytes,
                event: PacketEvent::Sent,
                one_way_delay_s: None,
                direction: Direction::Data,
            };
            if let Err(error) = rows.push(input.path, Place::Byte(*offset), record) {
                followed.damage = Some(error);
                break 'all;
            }
            left -= payload;
            at += u64::from(payload);
        }
    }
    Ok(described(
        Read::new(Source::Pcap, rows, None),
        followed,
        start_ns,
    ))
}

fn described<R: super::rows::Timed>(
    mut read: Read<R>,
    followed: Followed,
    start_ns: Option<i64>,
) -> Read<R> {
    read.metadata.mss_bytes = Some(followed.sender.mss_bytes());
    read.name_flows(followed.flows.iter().map(|(name, _)| name));
    let about = &mut read.metadata.environment;
    for (number, (_, size)) in followed.flows.iter().enumerate() {
        about.insert(format!("flow {number} carried"), size.clone());
    }
    if let Some(start_ns) = start_ns {
        about.insert("started_s".to_string(), format!("{:.6}", seconds(start_ns)));
    }
    if let Some(tunnels) = followed.tunnels {
        about.insert("tunnels".to_string(), tunnels);
    }
    notes::describe(&followed.sender, followed.copies, about);
    read.warnings = followed.warnings;
    read.damage = followed.damage;
    read
}
