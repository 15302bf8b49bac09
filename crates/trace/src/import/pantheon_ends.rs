//! Merges the logs of both ends of a Pantheon tunnel as Pantheon does. [`super::pantheon`] reads
//! the merged log.
//!
//! The first line of each log ends in the origin of its times, in milliseconds of the host's clock.
//! Each packet then has a line `MS - NUMBER - BYTES`.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::TraceError;
use crate::import::input::{Input, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::{Damage, Format, ReadOptions, TraceFile, format_of, most_rows};

pub(super) const KIND: Kind = Kind {
    windows: Windows::None(
        "it knows packets of one end only; give the log of the other end, too (--egress), or \
         the *_datalink_run*.log that Pantheon merges out of both",
    ),
    ..Kind::called("log of one end of a Pantheon tunnel")
};

/// A packet at one end.
struct Passage {
    time_ms: f64,
    number: u64,
    bytes: u32,
}

/// The log of one end.
struct End {
    /// The origin of its times, in milliseconds of the host's clock.
    begin_ms: f64,
    passages: Vec<Passage>,
}

/// Merges the log of what entered a tunnel (`ingress`) with that of what left it (`egress`), and
/// returns warnings. If the hosts' clocks differ, all delays are off by the difference.
///
/// # Errors
/// A [`TraceError`] if a file cannot be read, is not such a log, or has too many rows. Also if it
/// is damaged, unless `options` keep the rows before the damage.
pub fn merge_tunnel_ends(
    ingress: &TraceFile,
    egress: &TraceFile,
    options: &ReadOptions,
) -> Result<(Vec<u8>, Vec<String>), TraceError> {
    merge(ingress.input(), egress.input(), options)
}

fn merge(
    ingress: Input<'_>,
    egress: Input<'_>,
    options: &ReadOptions,
) -> Result<(Vec<u8>, Vec<String>), TraceError> {
    let mut warnings = Vec::new();
    let entered = end(ingress, options, &mut warnings)?;
    let left = end(egress, options, &mut warnings)?;
    let begin_ms = entered.begin_ms.min(left.begin_ms);
    let since = |end: &End, passage: &Passage| end.begin_ms - begin_ms + passage.time_ms;
    let mut sent: HashMap<u64, (f64, u32)> = HashMap::with_capacity(entered.passages.len());
    // time, whether the packet left, and the rest of the line
    let mut lines: Vec<(f64, bool, u32, f64)> = Vec::new();
    for passage in &entered.passages {
        let at_ms = since(&entered, passage);
        sent.entry(passage.number).or_insert((at_ms, passage.bytes));
        lines.push((at_ms, false, passage.bytes, 0.0));
    }
    let (mut unknown, mut early) = (0u64, 0u64);
    for passage in &left.passages {
        // each packet leaves once
        let Some((entered_ms, bytes)) = sent.remove(&passage.number) else {
            unknown += 1;
            continue;
        };
        let at_ms = since(&left, passage);
        early += u64::from(at_ms < entered_ms);
        lines.push((at_ms, true, bytes, at_ms - entered_ms));
    }
    for (count, what) in [
        (
            unknown,
            "packets left that did not enter, or did twice; they are left out",
        ),
        (
            early,
            "packets left before they entered: the clocks of the ends differ",
        ),
    ] {
        if count > 0 {
            warnings.push(format!("{}: {count} {what}", egress.path.display()));
        }
    }
    // of events at the same time, entries come first
    lines.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut text = format!("# init timestamp: {begin_ms:.3}\n");
    for (at_ms, left, bytes, delay_ms) in lines {
        let written = match left {
            false => writeln!(text, "{at_ms:.3} + {bytes} 1"),
            true => writeln!(text, "{at_ms:.3} - {bytes} {delay_ms:.3} 1"),
        };
        written.expect("strings take all");
    }
    Ok((text.into_bytes(), warnings))
}

fn end(
    input: Input<'_>,
    options: &ReadOptions,
    warnings: &mut Vec<String>,
) -> Result<End, TraceError> {
    let format = format_of(input)?;
    if format != Format::PantheonEnd {
        let message = format!("is {format}, expected the log of one end of a Pantheon tunnel");
        return Err(TraceError::new(input.path, message));
    }
    let mut end = End {
        begin_ms: 0.0,
        passages: Vec::new(),
    };
    let most = most_rows(input, options)?;
    let mut lines = input.lines()?;
    let mut first = true;
    let mut feed = || -> Result<(), TraceError> {
        while let Some((number, line)) = lines.next()? {
            let wrong = |message: String| TraceError::at(input.path, number, "", message);
            if std::mem::take(&mut first) {
                let (_, begin) = line.rsplit_once(':').unwrap_or_default();
                end.begin_ms = milliseconds(begin.trim()).map_err(wrong)?;
                continue;
            }
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            if end.passages.len() == most {
                return Err(wrong(format!("there are more than {most} rows")));
            }
            end.passages.push(parse(line).map_err(wrong)?);
        }
        Ok(())
    };
    if let Err(error) = feed() {
        if options.damage == Damage::Refuse || end.passages.is_empty() {
            return Err(error);
        }
        let kept = end.passages.len();
        warnings.push(format!("{error}; the {kept} rows before it are kept"));
    }
    Ok(end)
}

fn parse(line: &str) -> Result<Passage, String> {
    let words: Vec<&str> = line.split_whitespace().take(6).collect();
    let [time, "-", number, "-", bytes] = words[..] else {
        return Err(format!(
            "got {}, expected TIME - NUMBER - BYTES",
            shown(line)
        ));
    };
    let number_error = || format!("got {}, expected a packet's number", shown(number));
    let bytes_of = || bytes.parse().ok().filter(|bytes: &u32| *bytes <= 1 << 20);
    Ok(Passage {
        time_ms: milliseconds(time)?,
        number: number.parse().map_err(|_| number_error())?,
        bytes: bytes_of().ok_or_else(|| format!("got {}, expected bytes", shown(bytes)))?,
    })
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let ms = text.parse::<f64>().ok().filter(|ms| ms.abs() < 1e14);
    ms.ok_or_else(|| format!("got {}, expected milliseconds", shown(text)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::import::{packets_of_bytes, read_bytes};
    use crate::record::PacketEvent;

    const INGRESS: &str = "# mm-tunnelclient ingress: 1000.000\n0.000 - 7 - 1500\n1.000 - 8 - 1500\n\
        2.000 - 9 - 100\n30.000 - 10 - 1500\n";
    /// Its clock began 500 ms earlier.
    const EGRESS: &str = "# mm-tunnelserver egress: 500.000\n520.500 - 7 - 1500\n522.000 - 9 - 100\n\
        522.000 - 9 - 100\n551.000 - 10 - 1500\n";

    fn merged(ingress: &[u8], egress: &[u8]) -> Result<(Vec<u8>, Vec<String>), TraceError> {
        let (one, other) = (Path::new("in.log"), Path::new("out.log"));
        let (one, other) = (Input::bytes(one, ingress), Input::bytes(other, egress));
        merge(one, other, &ReadOptions::default())
    }

    #[test]
    fn packets_of_both_ends_are_matched_by_number_on_one_clock() {
        let (log, warnings) = merged(INGRESS.as_bytes(), EGRESS.as_bytes()).unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}"); // number 9 left twice
        let options = ReadOptions::default();
        let packets = packets_of_bytes(Path::new("in.log"), &log, &options).unwrap();
        let of = |event| packets.records.iter().filter(move |row| row.event == event);
        assert_eq!(of(PacketEvent::Sent).count(), 4);
        let delays: Vec<f64> = of(PacketEvent::Delivered)
            .map(|row| (row.one_way_delay_s.unwrap() * 1e6).round() / 1e3)
            .collect();
        assert_eq!(delays, [20.5, 20.0, 21.0]);
        assert!(
            of(PacketEvent::Delivered).all(|row| row.seq != 1),
            "number 8 was lost"
        );
        let trace = read_bytes(Path::new("in.log"), &log, &options).unwrap();
        assert!(!trace.trace.records.is_empty());
    }

    #[test]
    fn clocks_that_differ_are_told() {
        let egress = EGRESS.replace("500.000", "400.000");
        let (_, warnings) = merged(INGRESS.as_bytes(), egress.as_bytes()).unwrap();
        assert!(
            warnings.iter().any(|w| w.contains("clocks")),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_is_no_such_log_or_damaged_is_refused_or_cut_as_wished() {
        for (ingress, told) in [
            ("12.0 + 1500 1\n", "expected the log of one end"),
            ("# x ingress: soon\n1.0 - 5 - 1500\n", "in.log"),
            ("# x ingress: 5\n1.0 - 5 - 1500\n2.0 - 6\n", "in.log:3"),
            (
                "# x ingress: 5\n1.0 - 5 - 1500\n2.0 - -6 - 1500\n",
                "a packet's number",
            ),
            ("# x ingress: 5\n1.0 - 5 - 9999999999\n", "expected bytes"),
            ("", "empty"),
        ] {
            let error = merged(ingress.as_bytes(), EGRESS.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(told), "{ingress:?}: {error}");
        }
        let damaged = format!("{INGRESS}31.000 - 11");
        let keeping = ReadOptions {
            damage: Damage::KeepPrefix,
            ..ReadOptions::default()
        };
        let (one, other) = (Path::new("in.log"), Path::new("out.log"));
        let (log, warnings) = merge(
            Input::bytes(one, damaged.as_bytes()),
            Input::bytes(other, EGRESS.as_bytes()),
            &keeping,
        )
        .unwrap();
        assert_eq!(
            log,
            merged(INGRESS.as_bytes(), EGRESS.as_bytes()).unwrap().0
        );
        assert!(
            warnings[0].contains("4 rows before it are kept"),
            "{warnings:?}"
        );
    }

    proptest! {
        #[test]
        fn whatever_the_ends_say_is_merged_to_what_is_read_or_refused(
            ingress in "# x ingress: [0-9]{1,9}\n([0-9.e]{1,9} - [0-9]{1,2} - [0-9]{1,5}\n){0,9}",
            egress in "# x egress: [0-9]{1,9}\n([0-9.e]{1,9} - [0-9]{1,2} - [0-9]{1,5}\n){0,9}",
        ) {
            if let Ok((log, _)) = merged(ingress.as_bytes(), egress.as_bytes()) {
                let options = ReadOptions { damage: Damage::KeepPrefix, ..ReadOptions::default() };
                let _ = packets_of_bytes(Path::new("log"), &log, &options);
                let _ = read_bytes(Path::new("log"), &log, &options);
            }
        }
    }
}
