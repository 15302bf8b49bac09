//! Reads files of others at run time: they are not ours, so they are not in the repository.

use std::path::{Path, PathBuf};

use pathcast_trace::{
    Direction, Format, Metadata, PacketEvent, PacketRecord, ReadOptions, Source, read,
    read_packets, read_with, recognize, write_delivery_trace, write_mm_link_log, write_packets,
};

/// A folder in the directory that `PATHCAST_DATA` names. Returns `None` after printing why the test
/// skips.
fn folder(name: &str) -> Option<PathBuf> {
    let Some(data) = std::env::var_os("PATHCAST_DATA").filter(|data| !data.is_empty()) else {
        eprintln!("skipped: PATHCAST_DATA is not set; it names the folder of real data");
        return None;
    };
    let folder = Path::new(&data).join(name);
    assert!(
        folder.is_dir(),
        "{}: PATHCAST_DATA has no folder {name}",
        folder.display()
    );
    Some(folder)
}

fn files(folder: &Path, part: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(part))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{part} in {}", folder.display());
    files
}

#[test]
fn window_series_of_others_are_read_by_content() {
    let Some(folder) = folder("econ") else { return };
    for file in files(&folder, ".cwnd.csv.gz") {
        assert_eq!(recognize(&file).unwrap(), Format::Csv);
        let imported = read_with(&file, &ReadOptions::default()).unwrap();
        assert!(imported.trace.records.len() > 1000, "{}", file.display());
        assert_eq!(imported.warnings, Vec::<String>::new());
    }
}

#[test]
fn links_are_told_from_flows_and_packets_over_them_give_them_back() {
    let Some(folder) = folder("traces") else {
        return;
    };
    for file in files(&folder, "") {
        let error = read(&file).unwrap_err().to_string();
        assert!(
            error.contains("packet-delivery trace of mahimahi"),
            "{error}"
        );
        if file.extension().is_some_and(|ending| ending == "gz") {
            continue;
        }
        // a full packet at each opportunity, as a filled queue produces
        let text = std::fs::read_to_string(&file).unwrap();
        let times: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let packets: Vec<PacketRecord> = (0..)
            .zip(&times)
            .flat_map(|(seq, &ms)| {
                let record = |event, one_way_delay_s| PacketRecord {
                    time_s: ms as f64 / 1e3,
                    flow: 0,
                    seq,
                    size_bytes: 1500,
                    event,
                    one_way_delay_s,
                    direction: Direction::Data,
                };
                [
                    record(PacketEvent::Sent, None),
                    record(PacketEvent::Delivered, Some(0.0)),
                ]
            })
            .collect();
        let scratch = tempfile::tempdir().unwrap();
        let log = scratch.path().join("link.log");
        write_mm_link_log(&log, &packets).unwrap();
        let again = read_packets(&log, &ReadOptions::default()).unwrap();
        assert_eq!(again.records.len(), packets.len());
        let link = scratch.path().join("link.trace");
        let count = write_delivery_trace(&link, &again.records).unwrap();
        assert_eq!(count, times.len() as u64);
        let shifted: Vec<u64> = (std::fs::read_to_string(&link).unwrap().lines())
            .map(|line| line.parse::<u64>().unwrap() - 1 + times[0])
            .collect();
        assert_eq!(shifted, times, "{}", file.display());
        let table = scratch.path().join("packets.parquet");
        write_packets(&table, &Metadata::new(Source::Mahimahi), &again.records).unwrap();
    }
}

#[test]
fn what_is_of_no_known_format_is_told_with_those_that_are() {
    let Some(folder) = folder("pages") else {
        return;
    };
    for file in files(&folder, ".har.gz") {
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("iperf3 -J"), "{}: {error}", file.display());
    }
}
