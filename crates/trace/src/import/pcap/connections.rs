//! The TCP connections of a capture, identified and counted in a first pass.

use std::collections::HashMap;
use std::net::IpAddr;

use super::segment::{ACK, SYN, Segment};

/// Further connections are left out, with a warning.
const MAX_CONNECTIONS: usize = 65_536;

type End = (IpAddr, u16);

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub connection: u32,
    /// From the end with the greater address.
    pub backward: bool,
}

struct Connection {
    ends: [End; 2],
    syns: [Option<u32>; 2],
    payload_bytes: [u64; 2],
    /// Times of the first and last segments.
    lasted_ns: (i64, i64),
}

/// Assigns segments to connections. The same segments in the same order give the same result.
#[derive(Default)]
pub struct Connections {
    latest: HashMap<[End; 2], u32>,
    connections: Vec<Connection>,
    /// Segments of connections beyond the maximum.
    pub left_out: u64,
}

impl Connections {
    /// Counts a segment. A SYN with a new sequence number begins a new connection between the same
    /// ends.
    pub fn count(&mut self, segment: &Segment, time_ns: i64) -> Option<Way> {
        let backward = segment.from > segment.to;
        let ends = match backward {
            true => [segment.to, segment.from],
            false => [segment.from, segment.to],
        };
        let side = usize::from(backward);
        let syn = (segment.flags & SYN != 0).then_some(segment.seq);
        let known = self.latest.get(&ends).copied().filter(|&number| {
            let connection = &self.connections[number as usize];
            let same = syn.is_none() || connection.syns[side].is_none_or(|seq| Some(seq) == syn);
            // a first SYN after data begins a new connection
            let fresh = segment.flags & (SYN | ACK) != SYN
                || connection.syns[side].is_some()
                || connection.payload_bytes == [0; 2];
            same && fresh
        });
        let number = match known {
            Some(number) => number,
            None if self.connections.len() == MAX_CONNECTIONS => {
                self.left_out += 1;
                return None;
            }
            None => {
                let number = self.connections.len() as u32;
                self.latest.insert(ends, number);
                self.connections.push(Connection {
                    ends,
                    syns: [None; 2],
                    payload_bytes: [0; 2],
                    lasted_ns: (time_ns, time_ns),
                });
                number
            }
        };
        let connection = &mut self.connections[number as usize];
        connection.syns[side] = connection.syns[side].or(syn);
        connection.payload_bytes[side] += u64::from(segment.payload_bytes);
        connection.lasted_ns.1 = connection.lasted_ns.1.max(time_ns);
        Some(Way {
            connection: number,
            backward,
        })
    }

    /// The directions that carry data, the busiest first.
    pub fn busiest(&self) -> Vec<Way> {
        let mut flows: Vec<(u64, Way)> = Vec::new();
        for (connection, counted) in (0u32..).zip(&self.connections) {
            for backward in [false, true] {
                let bytes = counted.payload_bytes[usize::from(backward)];
                if bytes > 0 {
                    let direction = Way {
                        connection,
                        backward,
                    };
                    flows.push((bytes, direction));
                }
            }
        }
        // the sort is stable: among equals, the earliest connection comes first
        flows.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        flows.into_iter().map(|(_, direction)| direction).collect()
    }

    /// The flow's name: sender and receiver.
    pub fn name(&self, direction: Way) -> String {
        let [a, b] = self.connections[direction.connection as usize].ends;
        let (from, to) = if direction.backward { (b, a) } else { (a, b) };
        let shown = |(address, port): End| std::net::SocketAddr::new(address, port).to_string();
        format!("{} -> {}", shown(from), shown(to))
    }

    /// The bytes a flow carried, retransmissions included, and the duration of its connection.
    pub fn size(&self, direction: Way) -> String {
        let connection = &self.connections[direction.connection as usize];
        let bytes = connection.payload_bytes[usize::from(direction.backward)];
        let (from_ns, to_ns) = connection.lasted_ns;
        let lasted_s = to_ns.saturating_sub(from_ns) as f64 * 1e-9;
        format!("{bytes} B in {lasted_s:.3} s")
    }
}
