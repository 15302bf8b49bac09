//! The log of mahimahi's mm-link: packets that arrive at a link, leave it, or are dropped there.
//!
//! Lines are `MS + BYTES`, `MS - BYTES DELAY_MS`, `MS d PACKETS BYTES`, and `MS # BYTES` for each
//! opportunity to send. Sizes include the 4 bytes of the TUN header. The log does not identify
//! packets: each departure is matched to the oldest packet of its arrival time and size. Packets
//! that are passed over were dropped.

use std::collections::VecDeque;
use std::path::Path;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Input, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::rows::Rows;
use crate::record::{Direction, PacketEvent, PacketRecord, Source};

pub(super) const KIND: Kind = Kind {
    known: Some("a log of mm-link"),
    windows: Windows::None("it tells of packets and not of windows; read it as packets"),
    packets: Some(|input, most, _| packets(input, most)),
    ..Kind::called("log of mm-link")
};

/// Bytes that TUN puts before each packet.
const TUN_BYTES: u32 = 4;
/// A longer queue is implausible.
const MAX_QUEUE: usize = 1 << 20;
/// How many earlier arrivals are searched for a departure.
const MAX_PASSED: usize = 1 << 12;

struct Queued {
    seq: u64,
    came_ms: u64,
    bytes: u32,
}

pub(super) fn packets(input: Input<'_>, most: usize) -> Result<Read<PacketRecord>, TraceError> {
    let mut log = Log {
        path: input.path,
        rows: Rows::new(most),
        queue: VecDeque::new(),
        base_ms: 0,
        next_seq: 0,
        opportunities: 0,
        described: Vec::new(),
        unknown: 0,
    };
    let mut lines = input.lines()?;
    let mut feed = || -> Result<(), TraceError> {
        while let Some((number, line)) = lines.next()? {
            let wrong = |message: String| TraceError::at(input.path, number, "", message);
            match line.strip_prefix('#') {
                Some(comment) => log.comment(comment.trim()).map_err(wrong)?,
                None => log.line(number, line)?,
            }
        }
        Ok(())
    };
    let damage = feed().err();
    Ok(log.finish(damage, lines.warning()))
}

struct Log<'a> {
    path: &'a Path,
    rows: Rows<PacketRecord>,
    queue: VecDeque<Queued>,
    base_ms: u64,
    next_seq: u64,
    opportunities: u64,
    described: Vec<(String, String)>,
    /// Departures without a matching arrival.
    unknown: u64,
}

impl Log<'_> {
    fn comment(&mut self, comment: &str) -> Result<(), String> {
        if let Some(base) = comment.strip_prefix("base timestamp:") {
            self.base_ms = whole(base.trim(), "the base timestamp")?;
        } else if self.described.len() < 8
            && let Some((key, value)) = comment.split_once(": ")
        {
            let value = value.chars().take(500).collect::<String>();
            self.described.push((key.to_string(), value));
        }
        Ok(())
    }

    fn line(&mut self, number: u64, line: &str) -> Result<(), TraceError> {
        let path = self.path;
        let wrong = |message: String| TraceError::at(path, number, "", message);
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        let [time, kind, ref numbers @ ..] = words[..] else {
            if words.is_empty() {
                return Ok(());
            }
            let message = format!("got {}, expected TIME and +, -, # or d", shown(line));
            return Err(wrong(message));
        };
        let now_ms = whole(time, "the time").map_err(wrong)?;
        let bytes = |at: usize, what: &str| -> Result<u32, TraceError> {
            let text = numbers.get(at).copied().unwrap_or("");
            let count = whole(text, what).map_err(wrong)?;
            u32::try_from(count).map_err(|_| wrong(format!("{what}: got {count}, too many")))
        };
        let moment = Moment { number, now_ms };
        match kind {
            "+" => self.came(moment, bytes(0, "the size")?),
            "-" => self.left(moment, bytes(0, "the size")?, bytes(1, "the delay")?),
            "d" => {
                let (count, bytes) = (bytes(0, "the packets")?, bytes(1, "the bytes")?);
                let queue = &mut self.queue;
                for dropped in dropped(queue, count as usize, u64::from(bytes), now_ms) {
                    self.push(moment, &dropped, PacketEvent::DroppedByQueue, None)?;
                }
                Ok(())
            }
            "#" => {
                self.opportunities += 1;
                Ok(())
            }
            _ => {
                let message = format!("got {}, expected +, -, # or d", shown(kind));
                Err(wrong(message))
            }
        }
    }

    fn came(&mut self, moment: Moment, bytes: u32) -> Result<(), TraceError> {
        let queued = Queued {
            seq: self.next_seq,
            came_ms: moment.now_ms,
            bytes,
        };
        self.push(moment, &queued, PacketEvent::Sent, None)?;
        self.next_seq += 1;
        self.queue.push_back(queued);
        if self.queue.len() > MAX_QUEUE {
            let message = format!("more than {MAX_QUEUE} packets in the queue");
            return Err(TraceError::at(self.path, moment.number, "", message));
        }
        Ok(())
    }

    fn left(&mut self, moment: Moment, bytes: u32, delay_ms: u32) -> Result<(), TraceError> {
        let came_ms = moment.now_ms.checked_sub(u64::from(delay_ms));
        let mut candidates = self.queue.iter().take(MAX_PASSED);
        let found = candidates.position(|q| Some(q.came_ms) == came_ms && q.bytes == bytes);
        let Some(at) = found else {
            // the packet arrived before the log began, or in a missing part of it
            self.unknown += 1;
            return Ok(());
        };
        for _ in 0..at {
            if let Some(passed) = self.queue.pop_front() {
                self.push(moment, &passed, PacketEvent::DroppedByQueue, None)?;
            }
        }
        if let Some(gone) = self.queue.pop_front() {
            self.push(moment, &gone, PacketEvent::Delivered, Some(delay_ms))?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        moment: Moment,
        queued: &Queued,
        event: PacketEvent,
        delay_ms: Option<u32>,
    ) -> Result<(), TraceError> {
        let record = PacketRecord {
            time_s: (moment.now_ms as f64 - self.base_ms as f64) / 1e3,
            flow: 0,
            seq: queued.seq,
            size_bytes: queued.bytes.saturating_sub(TUN_BYTES),
            event,
            one_way_delay_s: delay_ms.map(|ms| f64::from(ms) / 1e3),
            direction: Direction::Data,
        };
        let place = Place::Line {
            line: moment.number,
            column: String::new(),
        };
        self.rows.push(self.path, place, record)
    }

    fn finish(self, damage: Option<TraceError>, cut: Option<String>) -> Read<PacketRecord> {
        let mut read = Read::new(Source::Mahimahi, self.rows, damage);
        read.warnings.extend(cut);
        if self.unknown > 0 {
            let (file, unknown) = (self.path.display(), self.unknown);
            let message =
                format!("{file}: {unknown} departures of packets that did not come are left out");
            read.warnings.push(message);
        }
        let environment = &mut read.metadata.environment;
        environment.extend(self.described);
        environment.insert("opportunities".to_string(), self.opportunities.to_string());
        let meaning = "time in the link's queue, without propagation".to_string();
        environment.insert("one_way_delay_s".to_string(), meaning);
        read
    }
}

/// A line of the log, and its time.
#[derive(Clone, Copy)]
struct Moment {
    number: u64,
    now_ms: u64,
}

/// Removes dropped packets from the queue and returns them: the youngest if they arrived just now,
/// else the oldest.
fn dropped(queue: &mut VecDeque<Queued>, count: usize, bytes: u64, now_ms: u64) -> Vec<Queued> {
    let count = count.min(queue.len());
    let sum = |packets: &mut dyn Iterator<Item = &Queued>| -> u64 {
        packets.map(|queued| u64::from(queued.bytes)).sum()
    };
    let youngest = queue.len() - count;
    let newest = queue
        .get(youngest)
        .is_none_or(|queued| queued.came_ms == now_ms)
        && sum(&mut queue.range(youngest..)) == bytes;
    if !newest && sum(&mut queue.range(..count)) == bytes {
        return queue.drain(..count).collect();
    }
    queue.drain(youngest..).collect()
}

fn whole(text: &str, what: &str) -> Result<u64, String> {
    // whole numbers below 2^53 are exact as floats
    let parsed = text.parse().ok().filter(|number: &u64| *number < 1 << 53);
    parsed.ok_or_else(|| format!("{what}: got {}, expected a whole number", shown(text)))
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, packets, read};
    use crate::record::PacketEvent::{Delivered, DroppedByQueue, Sent};

    const LOG: &str = "\
# mahimahi mm-link (uplink) [12mbps.trace] > up.log
# command line: mm-link 12mbps.trace 12mbps.trace
# queue: droptail [packets=2]
# init timestamp: 1700000000000
# base timestamp: 100
100 + 1504
100 # 1504
100 - 1504 0
101 + 1504
101 + 600
101 + 504
101 d 1 504
103 # 1504
103 - 1504 2
104 - 600 3
";

    #[test]
    fn packets_are_followed_through_the_queue() {
        let read = packets(LOG).unwrap();
        let rows: Vec<_> = (read.records.iter())
            .map(|r| {
                (
                    (r.time_s * 1e3).round() as i64,
                    r.seq,
                    r.size_bytes,
                    r.event,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                (0, 0, 1500, Sent),
                (0, 0, 1500, Delivered),
                (1, 1, 1500, Sent),
                (1, 2, 596, Sent),
                (1, 3, 500, Sent),
                (1, 3, 500, DroppedByQueue),
                (3, 1, 1500, Delivered),
                (4, 2, 596, Delivered),
            ]
        );
        assert_eq!(read.records[6].one_way_delay_s, Some(0.002));
        assert_eq!(read.metadata.environment["queue"], "droptail [packets=2]");
        assert!(read.warnings.is_empty());
    }

    #[test]
    fn drops_that_are_not_told_show_when_they_are_passed_over() {
        let text = "5 + 100\n6 + 200\n7 - 200 1\n";
        let records = packets(text).unwrap().records;
        assert_eq!((records[2].seq, records[2].event), (0, DroppedByQueue));
        assert_eq!((records[3].seq, records[3].event), (1, Delivered));
    }

    #[test]
    fn it_has_no_windows_and_what_is_wrong_is_told_by_line() {
        let error = read(LOG).unwrap_err();
        assert!(error.contains("read it as packets"), "{error}");
        let error = packets(LOG.replace("103 #", "103 ?")).unwrap_err();
        assert_eq!(error, "f:13: got \"?\", expected +, -, # or d");
        let error = packets(LOG.replace("104 - 600 3", "104 - 600")).unwrap_err();
        assert_eq!(error, "f:15: the delay: got \"\", expected a whole number");
    }

    never_panics!(LOG);
}
