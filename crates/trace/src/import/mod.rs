//! Traces that other tools wrote, one file a format.
//!
//! Every reader streams, holds at most [`ReadOptions::max_rows`] rows, and answers damaged or
//! hostile input with an error that says where, or with the rows before the damage and a warning.
//! `docs/reference/import-formats.md` says what each format gives and how far inferred columns are off.

mod detect;
mod each;
mod hints;
mod input;
mod kind;
mod opened;
mod packed;
mod probe_srtt;
mod rows;
#[cfg(test)]
mod testing;
mod zstd;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::error::TraceError;
use crate::record::{MAX_ROWS, Metadata, PacketRecord, Record, Source, Trace};

pub use opened::TraceFile;
pub use pantheon_ends::merge_tunnel_ends;
pub use pantheon_perf::{PerfRow, read_pantheon_perf};

use detect::{HEAD_BYTES, detect};
use input::Input;
use kind::{Kind, Windows};
use rows::{Rows, Timed};

/// Makes of the list of formats what goes by it: their modules, and [`Format`] with the `KIND` of each.
macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident in $module:ident;)*) => {
        $(mod $module;)*

        /// The formats that are known, [`read`](crate::read) or told apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $($(#[$doc])* $name,)*
        }

        impl Format {
            const ALL: &[Self] = &[$(Self::$name),*];

            const fn kind(self) -> &'static Kind {
                match self {
                    $(Self::$name => &$module::KIND,)*
                }
            }
        }
    };
}

// in the order in which errors list them
formats! {
    /// Our own table.
    Parquet in parquet_table;
    /// `time_s,cwnd_packets`.
    Csv in csv_table;
    /// `iperf3 -J` or `--json-stream`.
    Iperf3 in iperf3;
    /// tcp_probe's lines, of `/proc/net/tcpprobe` or tracefs.
    TcpProbe in tcp_probe;
    /// `ss -tin`.
    Ss in ss;
    /// Flent's data.
    Flent in flent;
    /// ndt7's archive, or its client's lines.
    Ndt7 in ndt7;
    /// pcap or pcapng.
    Pcap in pcap;
    /// qlog, JSON or a sequence of JSON texts.
    Qlog in qlog;
    /// The log of mm-link.
    MahimahiLog in mahimahi;
    /// A packet-delivery trace of mahimahi: a link and no flow.
    MahimahiTrace in mahimahi_trace;
    /// The merged log of a Pantheon tunnel.
    PantheonLog in pantheon;
    /// The log of one end of a Pantheon tunnel.
    PantheonEnd in pantheon_ends;
    /// `pantheon_perf.json`.
    PantheonPerf in pantheon_perf;
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name)
    }
}

/// What to do about a file that is cut short or corrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// It is an error.
    #[default]
    Refuse,
    /// The rows before the damage are taken, with a warning, if there are any.
    KeepPrefix,
}

/// How to read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// What to do about damage.
    pub damage: Damage,
    /// The one flow to read; all by default, but of a packet capture the busiest, number 0.
    pub flow: Option<u32>,
    /// More rows than this are refused; at least 1.
    pub max_rows: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            damage: Damage::Refuse,
            flow: None,
            max_rows: MAX_ROWS,
        }
    }
}

/// A trace, and what is to be said of how it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Rows and metadata.
    pub trace: Trace,
    /// What the file was.
    pub format: Format,
    /// Bytes delivered a second of each flow over the whole file, in bit/s, as the source counts
    /// them; of flows for which it does.
    pub goodput_bps: BTreeMap<u32, f64>,
    /// What a user should know: damage, guesses, packets left out.
    pub warnings: Vec<String>,
}

/// A packet table, and what is to be said of how it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Packets {
    /// What is known of the run.
    pub metadata: Metadata,
    /// Rows, ordered by time.
    pub records: Vec<PacketRecord>,
    /// What the file was.
    pub format: Format,
    /// As in [`Imported`].
    pub warnings: Vec<String>,
}

/// What an importer has when it comes to the end of the file, or to the damage.
struct Read<R> {
    metadata: Metadata,
    rows: Rows<R>,
    goodput_bps: BTreeMap<u32, f64>,
    warnings: Vec<String>,
    /// Why the file was read no further.
    damage: Option<TraceError>,
}

impl<R: Timed> Read<R> {
    fn new(source: Source, rows: Rows<R>, damage: Option<TraceError>) -> Self {
        Self {
            metadata: Metadata::new(source),
            rows,
            goodput_bps: BTreeMap::new(),
            warnings: Vec::new(),
            damage,
        }
    }

    /// Notes who the flows are.
    fn name_flows<'n>(&mut self, names: impl IntoIterator<Item = &'n String>) {
        for (number, name) in names.into_iter().enumerate().take(64) {
            let key = format!("flow {number}");
            self.metadata.environment.insert(key, name.clone());
        }
    }
}

/// Which format a file is in, told by content.
///
/// # Errors
/// A [`TraceError`] that names the known formats if it is none of them, or if the file cannot be
/// read.
pub fn recognize(path: &Path) -> Result<Format, TraceError> {
    TraceFile::open(path)?.format()
}

/// Reads a trace in any of the formats that are known, told by content.
///
/// # Errors
/// A [`TraceError`] if the file cannot be read, is of no known format, has no windows in it, has
/// no such flow, or is damaged and `options` do not ask for what comes before.
pub fn read_with(path: &Path, options: &ReadOptions) -> Result<Imported, TraceError> {
    TraceFile::open(path)?.read(options)
}

/// Reads a trace out of the bytes of a file, packed or not; `name` stands for it in errors. Not
/// for Parquet.
///
/// # Errors
/// As [`read_with`].
pub fn read_bytes(
    name: &Path,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<Imported, TraceError> {
    read_input(Input::bytes(name, bytes), options)
}

fn read_input(input: Input<'_>, options: &ReadOptions) -> Result<Imported, TraceError> {
    let format = format_of(input)?;
    let read = match format.kind().windows {
        Windows::Rows(read) => read(input, most_rows(input, options)?, options.flow.unwrap_or(0))?,
        Windows::Table(read) => return read(input, options),
        Windows::None(why) => return Err(no_windows(input, format, why)),
    };
    let goodput_bps = read.goodput_bps.clone();
    let (metadata, records, warnings) = settle(input, options.damage, read)?;
    let trace = one_flow(input.path, Trace { metadata, records }, options.flow)?;
    Ok(Imported {
        trace,
        format,
        goodput_bps: goodput_bps
            .into_iter()
            .filter(|(flow, _)| options.flow.is_none_or(|chosen| chosen == *flow))
            .collect(),
        warnings,
    })
}

fn no_windows(input: Input<'_>, format: Format, why: &str) -> TraceError {
    TraceError::new(input.path, format!("is a {format}: {why}"))
}

/// Reads the packets of a capture, a qlog, a log of mm-link or of a Pantheon tunnel.
///
/// # Errors
/// A [`TraceError`] as from [`read_with`], or because the format knows no packets.
pub fn read_packets(path: &Path, options: &ReadOptions) -> Result<Packets, TraceError> {
    TraceFile::open(path)?.packets(options)
}

/// Reads the packets out of the bytes of a file, packed or not; `name` stands for it in errors.
///
/// # Errors
/// As [`read_packets`].
pub fn packets_of_bytes(
    name: &Path,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<Packets, TraceError> {
    packets_of_input(Input::bytes(name, bytes), options)
}

fn packets_of_input(input: Input<'_>, options: &ReadOptions) -> Result<Packets, TraceError> {
    let format = format_of(input)?;
    let Some(packets) = format.kind().packets else {
        let message = format!(
            "is {format}, which does not tell of single packets; expected a packet capture, a \
             qlog, a log of mm-link or a merged log of Pantheon"
        );
        return Err(TraceError::new(input.path, message));
    };
    let most = most_rows(input, options)?;
    let read = packets(input, most, options.flow.unwrap_or(0))?;
    let (metadata, mut records, warnings) = settle(input, options.damage, read)?;
    if let Some(flow) = options.flow {
        let flows = records.iter().map(|record| record.flow);
        check_flow(input.path, flow, flows)?;
        records.retain(|record| record.flow == flow);
    }
    Ok(Packets {
        metadata,
        records,
        format,
        warnings,
    })
}

/// As many rows as are asked for and as a file of its size may have.
fn most_rows(input: Input<'_>, options: &ReadOptions) -> Result<usize, TraceError> {
    Ok(input.most_rows()?.min(options.max_rows).max(1))
}

/// What an unknown file is held against.
fn known() -> String {
    let formats: Vec<_> = Format::ALL
        .iter()
        .filter_map(|format| format.kind().known)
        .collect();
    let packed = "all but the first as they are or packed by gzip, xz, zstd or bzip2";
    format!("{}; {packed}", formats.join(", "))
}

fn format_of(input: Input<'_>) -> Result<Format, TraceError> {
    let head = input.head(HEAD_BYTES)?;
    let wrong = |message: String| Err(TraceError::new(input.path, message));
    if head.is_empty() {
        return wrong(format!("is empty, expected one of: {}", known()));
    }
    let claims = |format: &&Format| (format.kind().claims)(&head);
    match Format::ALL
        .iter()
        .find(claims)
        .copied()
        .or_else(|| detect(&head))
    {
        Some(format) => Ok(format),
        None => {
            if let Some(hint) = hints::hint(&head) {
                return wrong(hint.to_string());
            }
            let start = input::shown(&head[..head.len().min(60)]);
            wrong(format!("begins with {start}, expected one of: {}", known()))
        }
    }
}

type Settled<R> = (Metadata, Vec<R>, Vec<String>);

/// Decides about damage, and lets time begin at 0.
fn settle<R: Timed>(
    input: Input<'_>,
    damage: Damage,
    read: Read<R>,
) -> Result<Settled<R>, TraceError> {
    settle_at(input, damage, read, true)
}

fn settle_at<R: Timed>(
    input: Input<'_>,
    damage: Damage,
    read: Read<R>,
    from_zero: bool,
) -> Result<Settled<R>, TraceError> {
    let Read {
        mut metadata,
        rows,
        mut warnings,
        damage: error,
        ..
    } = read;
    let (records, start_s) = rows.finish(from_zero);
    if let Some(error) = error {
        if damage == Damage::Refuse || records.is_empty() {
            return Err(error);
        }
        let warning = format!("{error}; the {} rows before it are kept", records.len());
        metadata
            .environment
            .insert("damage".to_string(), warning.clone());
        warnings.push(warning);
    }
    if records.is_empty() {
        let message = "has no rows: nothing in it tells of a sender's window or packets";
        return Err(TraceError::new(input.path, message));
    }
    if from_zero && start_s != 0.0 {
        metadata
            .environment
            .insert("first_time_s".to_string(), start_s.to_string());
    }
    Ok((metadata, records, warnings))
}

fn one_flow(path: &Path, mut trace: Trace, flow: Option<u32>) -> Result<Trace, TraceError> {
    if let Some(flow) = flow {
        check_flow(path, flow, trace.records.iter().map(|record| record.flow))?;
        trace.records.retain(|record: &Record| record.flow == flow);
    }
    Ok(trace)
}

fn check_flow(
    path: &Path,
    flow: u32,
    mut flows: impl Iterator<Item = u32> + Clone,
) -> Result<(), TraceError> {
    let last = flows.clone().max().unwrap_or(0);
    if flows.any(|got| got == flow) {
        return Ok(());
    }
    let message = format!("has no flow {flow}; its flows are among 0 to {last}");
    Err(TraceError::new(path, message))
}
