//! Where messages spent their time, from what both hosts noted of the packets that carried them.

use std::collections::BTreeMap;

use pathcast_trace::{DelaySplit, Direction, MessageRecord, Read, Segment, Splitter};

use crate::endpoints::Arrival;
use crate::log::Passage;
use crate::plan::Task;

/// Packets are counted from this long before the run begins: they may come before it.
const BEFORE_NS: u64 = 1_000_000_000_000;
/// Longer than this in the sender's stack is buffered, as in the emulator.
const BUFFERED_NS: u64 = 1_000_000;

fn since_ns(before_ns: u64, run_s: f64) -> u64 {
    (run_s * 1e9 + before_ns as f64).max(0.0) as u64
}

/// Whether a flow writes messages with its data; who asks is answered with it.
fn writes(task: &Task) -> bool {
    let workload = &task.spec.workload;
    !workload.is_greedy() && !workload.asks()
}

/// Every message of the flows, and the parts of each flow's delays. `passages` are those of all packets, in the
/// order of their times of either end; `written_s` and `read_s` turn the clocks of a flow's two hosts into seconds
/// of the run.
pub(crate) fn split<'a>(
    tasks: &[Task],
    passages: impl IntoIterator<Item = &'a Passage>,
    arrivals: impl IntoIterator<Item = &'a Arrival>,
    times: impl Fn(&Arrival) -> (f64, f64),
) -> (Vec<MessageRecord>, BTreeMap<u32, DelaySplit>) {
    let flows = tasks.iter().filter(|task| writes(task));
    let mut splitter = Splitter::new(flows.map(|task| task.number), BUFFERED_NS);
    let mut packets: Vec<(u64, &Passage, bool)> = Vec::new();
    for passage in passages {
        packets.push((since_ns(BEFORE_NS, passage.sent_s), passage, false));
        if let Some(arrived_s) = passage.arrived_s {
            packets.push((since_ns(BEFORE_NS, arrived_s), passage, true));
        }
    }
    packets.sort_by_key(|&(at_ns, _, arrived)| (at_ns, arrived));
    for (at_ns, passage, arrived) in packets {
        let segment = Segment {
            first: passage.first,
            end: passage.first.saturating_add(passage.payload_bytes.into()),
            entered_ns: since_ns(BEFORE_NS, passage.sent_s),
            left_ns: arrived.then_some(at_ns),
        };
        splitter.packet(passage.flow, Direction::Data, segment);
    }
    let mut told: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for arrival in arrivals {
        let (number, first) = told.entry(arrival.flow).or_default();
        let end = first.saturating_add(arrival.bytes);
        let (written_s, read_s) = times(arrival);
        splitter.read(Read {
            flow: arrival.flow,
            direction: Direction::Data,
            number: *number,
            first: *first,
            end,
            written_ns: since_ns(0, written_s),
            read_ns: since_ns(0, read_s),
        });
        (*number, *first) = (*number + 1, end);
    }
    let mut rows = Vec::new();
    splitter.tell(BEFORE_NS, |row| rows.push(row));
    rows.sort_by(|a, b| a.read_s.total_cmp(&b.read_s));
    (rows, splitter.summaries())
}

#[cfg(test)]
mod tests {
    use pathcast_path::Span;
    use pathcast_scenario::Heading;

    use super::*;
    use crate::plan::{CLIENT, over_real_path, scenario_of, tasks};

    fn passage(first: u64, sent_s: f64, arrived_s: Option<f64>) -> Passage {
        Passage {
            flow: 0,
            first,
            payload_bytes: 1000,
            sent_s,
            arrived_s,
        }
    }

    #[test]
    fn a_message_waits_in_the_sender_the_network_and_behind_a_lost_packet() {
        let workload = "{ kind = 'constant-rate', rate = '1 Mbit/s' }";
        let scenario = scenario_of(&["reno".into()], Heading::Forward, Some(workload)).unwrap();
        let tasks = tasks(&over_real_path(&scenario), 1, CLIENT);
        let passages = [
            passage(0, 0.010, None),
            passage(1000, 0.050, Some(0.070)),
            passage(0, 0.090, Some(0.110)), // again
        ];
        let arrival = |written_ns, arrived_ns| Arrival {
            flow: 0,
            bytes: 1000,
            written_ns,
            arrived_ns,
        };
        let ms = |ms: u64| Span::from_millis(ms).as_nanos();
        let arrivals = [arrival(ms(10), ms(111)), arrival(ms(20), ms(111))];
        let (rows, split) = split(&tasks, &passages, &arrivals, |arrival| {
            (
                arrival.written_ns as f64 * 1e-9,
                arrival.arrived_ns as f64 * 1e-9,
            )
        });
        let told: Vec<[u32; 5]> = rows
            .iter()
            .map(|row| {
                let times = [
                    row.written_s,
                    row.entered_s,
                    row.sent_s,
                    row.left_s,
                    row.read_s,
                ];
                times.map(|at_s| (at_s * 1e3).round() as u32)
            })
            .collect();
        assert_eq!(told, [[10, 10, 90, 110, 111], [20, 50, 50, 70, 111]]);
        assert_eq!(split[&0].buffered_fraction, 0.5);
    }
}
