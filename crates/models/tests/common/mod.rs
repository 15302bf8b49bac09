//! The authors' traces, read at run time: they carry no licence, so they are not in the repository.
#![allow(dead_code)]

use std::io::Read;
use std::path::PathBuf;

use pathcast_models::Series;

pub const TRACES: [&str; 4] = [
    "reno-wireless_reno-data_1_1_10000",
    "reno-wireless_reno-data_1_3_10000",
    "cubic-longDistance_cubic-data_5_1_53002",
    "cubic-longDistance_cubic-data_9_1_53092",
];

/// The folder of the traces, or `None` after saying why the test skips. In CI it must be there.
pub fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/data/econ"
    ));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "CI must have the traces in ../shared/data/econ"
    );
    eprintln!("skipped: no traces in ../shared/data/econ beside the workspace");
    None
}

/// The columns of one CSV file with a header line, gzip or plain.
pub fn columns(path: &std::path::Path) -> Vec<Vec<f64>> {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .unwrap();
    } else {
        std::io::BufReader::new(file)
            .read_to_string(&mut text)
            .unwrap();
    }
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for line in text.lines().skip(1) {
        for (i, field) in line.split(',').enumerate() {
            if columns.len() <= i {
                columns.push(Vec::new());
            }
            columns[i].push(field.trim().parse().unwrap());
        }
    }
    columns
}

/// The cwnd series of one trace.
pub fn series(folder: &std::path::Path, trace: &str) -> Series {
    let mut columns = columns(&folder.join(format!("{trace}.cwnd.csv.gz")));
    let cwnd = columns.remove(1);
    Series::new(columns.remove(0), cwnd).unwrap()
}
