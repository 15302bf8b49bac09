//! Warnings about a capture: what was left out, and how reliable the rest is.

use std::collections::BTreeMap;

use super::layers::Tunnel;
use super::segment::Skipped;
use super::sender::Sender;
use super::vantage::{Place, Vantage};

/// If the capture is farther from the sender than this share of the round trip, windows come out
/// too small.
const NEAR: f64 = 0.1;

/// Frames that were skipped, by reason.
#[derive(Default)]
pub struct SkippedFrames {
    cut: u64,
    malformed: u64,
    fragments: u64,
    links: BTreeMap<u32, u64>,
    hidden: BTreeMap<Tunnel, u64>,
    unwrapped: BTreeMap<Tunnel, u64>,
    /// Packets without a capture time.
    pub timeless: u64,
}

impl SkippedFrames {
    pub fn count(&mut self, why: Skipped) {
        match why {
            Skipped::Other => {}
            Skipped::Cut => self.cut += 1,
            Skipped::Malformed => self.malformed += 1,
            Skipped::Fragment => self.fragments += 1,
            Skipped::Link(kind) => *self.links.entry(kind).or_default() += 1,
            Skipped::Hidden(tunnel) => *self.hidden.entry(tunnel).or_default() += 1,
        }
    }

    /// Counts a segment, and its tunnel if it has one.
    pub fn unwrapped(&mut self, tunnel: Option<Tunnel>) {
        if let Some(tunnel) = tunnel {
            *self.unwrapped.entry(tunnel).or_default() += 1;
        }
    }

    /// The tunnels around segments, with the number of segments in each.
    pub fn tunnels(&self) -> Option<String> {
        let counted = (self.unwrapped.iter()).map(|(tunnel, n)| format!("{}: {n}", tunnel.name()));
        let counted: Vec<String> = counted.collect();
        (!counted.is_empty()).then(|| counted.join(", "))
    }

    pub fn warnings(&self) -> Vec<String> {
        let counted = [
            (
                self.cut,
                "packets were cut within their headers by the capture's length limit",
            ),
            (
                self.malformed,
                "packets have lengths that contradict each other",
            ),
            (self.fragments, "fragments of IP packets"),
            (self.timeless, "packets without a time"),
        ];
        let told = counted.iter().filter(|(count, _)| *count > 0);
        let mut warnings: Vec<String> = told
            .map(|(count, what)| format!("left out: {count} {what}"))
            .collect();
        for (tunnel, count) in &self.hidden {
            let name = tunnel.name();
            warnings.push(format!(
                "left out: {count} packets of {name}, which cannot be read"
            ));
        }
        for (kind, count) in self.links.iter().take(4) {
            warnings.push(format!(
                "left out: {count} packets with link header {kind}, which is not known (known: \
                 Ethernet, 802.11, FDDI, PPP, Linux cooked 1 and 2, raw IP, BSD loopback)"
            ));
        }
        warnings
    }
}

/// How the round-trip times of the rows were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTrips {
    /// From data to its acknowledgment: the capture is near the sender.
    Whole,
    /// From both sides of the capture.
    InParts,
    Unknown,
}

pub fn round_trips(vantage: &Vantage) -> RoundTrips {
    match vantage.place() {
        Place::Away(distance) if distance <= NEAR => RoundTrips::Whole,
        Place::Away(_) => RoundTrips::InParts,
        Place::AtSender => RoundTrips::Whole,
        Place::Unknown => RoundTrips::Unknown,
    }
}

/// Warnings about a flow that was followed.
pub fn doubts(sender: &Sender, copies: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    let vantage = sender.vantage();
    match vantage.place() {
        Place::Away(distance) if distance > NEAR => {
            let percent = distance * 100.0;
            let from = match (vantage.inner_ns(), vantage.handshake()) {
                (Some(_), _) => {
                    "srtt adds the way between sender and capture, by TCP timestamps".to_string()
                }
                (None, Some(parts)) => format!(
                    "without TCP timestamps, the only round-trip time that is known is the \
                     handshake's, {:.4} ms; later srtt is missing",
                    parts.total_ns() as f64 / 1e6
                ),
                (None, None) => "srtt is missing".to_string(),
            };
            doubts.push(format!(
                "captured {percent:.0} % of a round trip away from the sender: windows come out \
                 smaller by about as much; {from}; capture at the sender's side"
            ));
        }
        Place::Unknown => doubts.push(
            "round-trip times cannot be known: the capture has neither a handshake nor TCP \
             timestamps that say how far from the sender it was taken; srtt is missing"
                .to_string(),
        ),
        Place::Away(_) | Place::AtSender => {}
    }
    if copies > 0 {
        doubts.push(format!(
            "left out: {copies} packets that the capture has twice or more often (the same IP id, \
             numbers and checksum); they were not sent again"
        ));
    }
    let counts = sender.counts();
    if counts.missed_bytes > 0 {
        let bytes = counts.missed_bytes;
        doubts.push(format!(
            "the capture missed packets with {bytes} B of the flow's data"
        ));
    }
    if counts.overflowed > 0 {
        let count = counts.overflowed;
        doubts.push(format!(
            "{count} packets were sent without acknowledgments in the capture"
        ));
    }
    doubts
}

/// Adds the counts of a flow to the metadata.
pub fn describe(sender: &Sender, copies: u64, about: &mut BTreeMap<String, String>) {
    let counts = sender.counts();
    for (key, count) in [
        ("payload_bytes", counts.payload_bytes),
        ("sent_again_bytes", counts.again_bytes),
        ("sent_again_packets", counts.retransmits),
        ("late_packets", counts.late_segments),
        ("duplicated_packets", copies),
    ] {
        about.insert(key.to_string(), count.to_string());
    }
    if let Some(parts) = sender.vantage().handshake() {
        let rtt_s = parts.total_ns() as f64 / 1e9;
        about.insert("handshake_rtt_s".to_string(), rtt_s.to_string());
    }
    if let Place::Away(distance) = sender.vantage().place() {
        about.insert("distance_from_sender".to_string(), format!("{distance:.3}"));
    }
}
