//! The authors' traces, read at run time: they carry no license, so they are not in the repository.
#![allow(dead_code)]

use std::io::Read;
use std::path::{Path, PathBuf};

use pathcast_analysis::{Fit, Series};

pub const TRACES: [&str; 4] = [
    "reno-wireless_reno-data_1_1_10000",
    "reno-wireless_reno-data_1_3_10000",
    "cubic-longDistance_cubic-data_5_1_53002",
    "cubic-longDistance_cubic-data_9_1_53092",
];

/// The folder of the traces in the one that `PATHCAST_DATA` names, or `None` after saying why the test
/// skips.
pub fn folder() -> Option<PathBuf> {
    let Some(data) = std::env::var_os("PATHCAST_DATA").filter(|data| !data.is_empty()) else {
        eprintln!("skipped: PATHCAST_DATA is not set; it names the folder of real data");
        return None;
    };
    let folder = Path::new(&data).join("econ");
    assert!(
        folder.is_dir(),
        "{}: PATHCAST_DATA has no folder econ",
        folder.display()
    );
    Some(folder)
}

/// The folder that an example is given, or that of the traces.
pub fn given_or_folder(given: Option<String>) -> PathBuf {
    let folder = given.map(PathBuf::from).or_else(folder);
    folder.unwrap_or_else(|| {
        eprintln!("expected the folder of the traces as an argument, or PATHCAST_DATA");
        std::process::exit(2)
    })
}

/// The columns of one CSV file with a header line, gzip or plain.
pub fn columns(path: &Path) -> Vec<Vec<f64>> {
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
pub fn series(folder: &Path, trace: &str) -> Series {
    let mut columns = columns(&folder.join(format!("{trace}.cwnd.csv.gz")));
    let cwnd = columns.remove(1);
    Series::new(columns.remove(0), cwnd).unwrap()
}

/// Names of the traces in a folder, sorted.
pub fn traces(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".cwnd.csv.gz").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// How a fit agrees with the authors' epochs and curve.
#[derive(Debug)]
pub struct Agreement {
    /// Part of our epoch ends with one of theirs within two RTTs, and the reverse.
    pub precision: f64,
    pub recall: f64,
    /// The same if each end may be matched once only.
    pub precision_one_to_one: f64,
    pub recall_one_to_one: f64,
    /// Relative differences of p at the windows where they saw losses: median, 90 % quantile.
    pub curve_median: f64,
    pub curve_p90: f64,
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "  epoch ends: precision {:.3} recall {:.3}, one to one {:.3} {:.3}; curve: median difference {:.1} %, 90 % {:.1} %",
            self.precision,
            self.recall,
            self.precision_one_to_one,
            self.recall_one_to_one,
            100.0 * self.curve_median,
            100.0 * self.curve_p90
        )
    }
}

/// Compares a fit with the authors' files, if they are there.
pub fn agreement(folder: &Path, trace: &str, fit: &Fit) -> Option<Agreement> {
    let epochs = folder.join(format!("{trace}.epochs.csv"));
    let curve = folder.join(format!("{trace}.loss_curve.csv"));
    if !epochs.is_file() || !curve.is_file() {
        return None;
    }
    let (epochs, curve) = (columns(&epochs), columns(&curve));
    let ours: Vec<f64> = fit.epochs.iter().map(|epoch| epoch.end_s).collect();
    let (theirs, lost_at) = (&epochs[2], &epochs[3]);
    let within = 2.0 * fit.rtt_s;
    let matched = |a: &[f64], b: &[f64]| {
        let hits = a
            .iter()
            .filter(|x| b.iter().any(|y| (*x - y).abs() <= within))
            .count();
        hits as f64 / a.len() as f64
    };
    let (mut i, mut j, mut pairs) = (0, 0, 0.0);
    while i < ours.len() && j < theirs.len() {
        if (ours[i] - theirs[j]).abs() <= within {
            (i, j, pairs) = (i + 1, j + 1, pairs + 1.0);
        } else if ours[i] < theirs[j] {
            i += 1;
        } else {
            j += 1;
        }
    }
    let mut windows = lost_at.clone();
    windows.sort_by(f64::total_cmp);
    windows.dedup();
    let mut differences: Vec<f64> = (windows.iter())
        .filter_map(|w| {
            let at = curve[0].iter().position(|x| x == w)?;
            Some((fit.curve.loss_probability(*w) / curve[1][at] - 1.0).abs())
        })
        .collect();
    differences.sort_by(f64::total_cmp);
    Some(Agreement {
        precision: matched(&ours, theirs),
        recall: matched(theirs, &ours),
        precision_one_to_one: pairs / ours.len() as f64,
        recall_one_to_one: pairs / theirs.len() as f64,
        curve_median: differences[differences.len() / 2],
        curve_p90: differences[differences.len() * 9 / 10],
    })
}
