//! The records of a run, whichever backend it used.
//!
//! [`Trace`] records TCP senders, one row for each acknowledgment or change, as Parquet in the
//! schema of `docs/reference/trace-format.md`. [`RunReport`] is the summary that `pathcast
//! simulate` and `pathcast emulate` print. The simulator, the emulator and the probe write both;
//! the models read columns of the first. [`read_with`] and [`read_packets`] also read traces of
//! other tools, and some of those formats can be written.

pub mod capture_file;
mod csv_reader;
mod delay;
mod delay_split;
mod error;
mod export;
mod file;
mod groups;
mod import;
mod output;
mod pages;
mod parquet_file;
mod quiet_panics;
mod record;
mod report;
mod watch;

pub use csv_reader::read_csv;
pub use delay::DelayHistogram;
pub use delay_split::{Read, Segment, Splitter};
pub use error::{Place, TraceError};
pub use export::{write_csv, write_delivery_trace, write_mm_link_log, write_perf_csv};
pub use file::read;
pub use groups::Groups;
pub use import::{
    Damage, Format, Imported, Packets, PerfRow, ReadOptions, TraceFile, merge_tunnel_ends,
    packets_of_bytes, read_bytes, read_packets, read_pantheon_perf, read_with, recognize,
};
pub use output::{
    User, check_writable, remove_written, write_beside, write_beside_for, write_new_secret,
};
pub use parquet_file::{
    Row, TableWriter, read_parquet, write_batch, write_packets, write_parquet, write_rows,
};
pub use record::{
    Direction, MessageRecord, Metadata, Mode, PacketEvent, PacketRecord, QueueRecord, Record,
    SCHEMA_VERSION, Source, Trace,
};
pub use report::{
    DelaySplit, FlowReport, GroupReport, Latency, MessageReport, OneWayDelay, PageReport,
    ResourceReport, RunReport, Slip,
};
pub use watch::{WatchReport, WatchedFlow};
