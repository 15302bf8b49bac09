//! Infers the unit in which tcp_probe printed smoothed round-trip times. Kernels up to 3.14 print
//! jiffies (100, 250 or 1000 a second), later ones microseconds. A probe that prints the kernel's
//! own variable gives eighths of a microsecond.
//!
//! Data sent by the time of a row is acknowledged a round trip later. Rows exist only where the
//! window changed, so a later row may show the acknowledgment. The elapsed time is at least a round
//! trip, and in its lowest tenth about one.

use std::collections::{HashMap, VecDeque};

use crate::import::rows::Rows;
use crate::record::Record;

/// Units per second, and a name.
const UNITS: [(f64, &str); 5] = [
    (1e6, "microseconds"),
    (8e6, "eighths of a microsecond"),
    (1e3, "jiffies of 1 ms"),
    (250.0, "jiffies of 4 ms"),
    (100.0, "jiffies of 10 ms"),
];
/// Neighboring units are further apart than the square of this.
const SLACK: f64 = 1.58;
/// With fewer jiffies, the truncated fraction matters too much.
const LEAST_UNITS: f64 = 10.0;
const LEAST_SAMPLES: usize = 10;
const MOST_SAMPLES: usize = 1 << 20;
/// The uncertainty of a sending time may be at most this share of the time to its acknowledgment.
const BLUR: f64 = 0.3;
/// More jiffies than this would be more than 20 s.
const MOST_JIFFIES: f64 = 20_000.0;

/// The unit of the printed column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SrttUnit {
    /// Determined by sequence numbers and times, or by elimination.
    Known(f64, &'static str),
    Undecided,
}

/// Data sent by the time of a row and not yet acknowledged.
struct Sent {
    nxt: u64,
    /// The row's time, and that of the row before.
    time_s: f64,
    before_s: f64,
}

#[derive(Default)]
struct Flow {
    sent: VecDeque<Sent>,
    last_s: Option<f64>,
}

/// Converts `srtt_s`, which holds the printed values, to seconds. `traced` rows come from the
/// tracepoint, which prints microseconds.
pub(super) fn convert(rows: &mut Rows<Record>, traced: bool) -> SrttUnit {
    let unit = match infer(rows) {
        SrttUnit::Undecided if traced => SrttUnit::Known(UNITS[0].0, UNITS[0].1),
        unit => unit,
    };
    for row in rows.iter_mut() {
        row.srtt_s = match unit {
            SrttUnit::Known(per_s, _) => row.srtt_s.map(|srtt| srtt / per_s),
            SrttUnit::Undecided => None,
        };
    }
    unit
}

fn infer(rows: &mut Rows<Record>) -> SrttUnit {
    let mut flows: HashMap<u32, Flow> = HashMap::new();
    let (mut ratios, mut largest) = (Vec::new(), 0.0_f64);
    for row in rows.iter_mut() {
        let (Some(nxt), Some(una)) = (row.snd_nxt_bytes, row.snd_una_bytes) else {
            continue;
        };
        let srtt = row.srtt_s.unwrap_or(0.0);
        largest = largest.max(srtt);
        let flow = flows.entry(row.flow).or_default();
        while let Some(sent) = flow.sent.front() {
            if sent.nxt > una {
                break;
            }
            let (least_s, most_s) = (row.time_s - sent.time_s, row.time_s - sent.before_s);
            let sharp = least_s > 0.0 && most_s - least_s < BLUR * most_s;
            if sharp && srtt >= LEAST_UNITS && ratios.len() < MOST_SAMPLES {
                ratios.push(least_s / srtt);
            }
            flow.sent.pop_front();
        }
        let before_s = flow.last_s.replace(row.time_s);
        let newest = flow.sent.back().map_or(0, |sent| sent.nxt);
        if let Some(before_s) = before_s
            && nxt > una.max(newest)
        {
            flow.sent.push_back(Sent {
                nxt,
                time_s: row.time_s,
                before_s,
            });
        }
    }
    let microseconds = SrttUnit::Known(UNITS[0].0, UNITS[0].1);
    if ratios.len() < LEAST_SAMPLES {
        return match largest > MOST_JIFFIES {
            true => microseconds,
            false => SrttUnit::Undecided,
        };
    }
    let lowest_tenth = ratios.len() / 10;
    let (_, &mut ratio, _) = ratios.select_nth_unstable_by(lowest_tenth, f64::total_cmp);
    let off_by = |per_s: f64| (ratio * per_s).max(1.0 / (ratio * per_s));
    let near = |unit: &&(f64, &str)| off_by(unit.0) < SLACK;
    match UNITS.iter().find(near) {
        Some(&(per_s, name)) => SrttUnit::Known(per_s, name),
        None if largest > MOST_JIFFIES => microseconds,
        None => SrttUnit::Undecided,
    }
}
