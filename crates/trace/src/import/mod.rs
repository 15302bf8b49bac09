//! Importers of traces that other tools wrote, one file per format.
//!
//! Every reader streams and holds at most [`ReadOptions::max_rows`] rows. For damaged or hostile
//! input it returns an error with its place, or the rows before the damage and a warning.
//! `docs/reference/import-formats.md` lists what each format provides and the accuracy of inferred
//! columns.

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

/// Expands the list of formats to their modules, and to [`Format`] with the `KIND` of each.
macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident in $module:ident;)*) => {
        $(mod $module;)*

        /// The known formats, whether [`read`](crate::read) reads or only recognizes them.
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

// errors list the formats in this order
formats! {
    /// The project's own table.
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

/// How to handle a truncated or corrupt file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// Return an error.
    #[default]
    Refuse,
    /// Return the rows before the damage, if there are any, with a warning.
    KeepPrefix,
}

/// Options for reading a trace.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// How to handle damage.
    pub damage: Damage,
    /// The one flow to read. By default all flows, but of a packet capture only number 0, the
    /// busiest.
    pub flow: Option<u32>,
    /// Refuse files with more rows than this; at least 1.
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

/// A trace with its format and warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Rows and metadata.
    pub trace: Trace,
    /// The format of the file.
    pub format: Format,
    /// Goodput of each flow over the whole file in bit/s, as the source counts it. Flows without
    /// such a count are missing.
    pub goodput_bps: BTreeMap<u32, f64>,
    /// Warnings for the user: damage, guesses, packets left out.
    pub warnings: Vec<String>,
}

/// A packet table with its format and warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Packets {
    /// What is known about the run.
    pub metadata: Metadata,
    /// Rows, ordered by time.
    pub records: Vec<PacketRecord>,
    /// The format of the file.
    pub format: Format,
    /// As in [`Imported`].
    pub warnings: Vec<String>,
}

/// What an importer has read when it reaches the end of the file, or damage.
struct Read<R> {
    metadata: Metadata,
    rows: Rows<R>,
    goodput_bps: BTreeMap<u32, f64>,
    warnings: Vec<String>,
    /// Why reading stopped early.
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

    /// Records the names of the flows.
    fn name_flows<'n>(&mut self, names: impl IntoIterator<Item = &'n String>) {
        for (number, name) in names.into_iter().enumerate().take(64) {
            let key = format!("flow {number}");
            self.metadata.environment.insert(key, name.clone());
        }
    }
}

/// Returns the format of a file, recognized by content.
///
/// # Errors
/// A [`TraceError`] that lists the known formats if the file matches none, or if the file cannot be
/// read.
pub fn recognize(path: &Path) -> Result<Format, TraceError> {
    TraceFile::open(path)?.format()
}

/// Reads a trace in any known format, recognized by content.
///
/// # Errors
/// A [`TraceError`] if the file cannot be read, is of no known format, or has no windows or no such
/// flow. Also if it is damaged, unless `options` keep the rows before the damage.
pub fn read_with(path: &Path, options: &ReadOptions) -> Result<Imported, TraceError> {
    TraceFile::open(path)?.read(options)
}

/// Reads a trace from the bytes of a file, packed or not; `name` stands for the file in errors.
/// Parquet is not supported.
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
/// A [`TraceError`] as from [`read_with`], or if the format has no packets.
pub fn read_packets(path: &Path, options: &ReadOptions) -> Result<Packets, TraceError> {
    TraceFile::open(path)?.packets(options)
}

/// Reads packets from the bytes of a file, packed or not; `name` stands for the file in errors.
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

/// The row limit: the smaller of the option and the limit for the file's size.
fn most_rows(input: Input<'_>, options: &ReadOptions) -> Result<usize, TraceError> {
    Ok(input.most_rows()?.min(options.max_rows).max(1))
}

/// The list of known formats, for errors.
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

/// Applies the damage option, and shifts times to begin at 0.
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
