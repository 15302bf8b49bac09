//! What a run leaves behind, whichever world it ran in.
//!
//! [`Trace`] is the record of TCP senders, one row for each acknowledgment or change, written as
//! Parquet in the one schema that `docs/trace-format.md` describes; [`RunReport`] is the summary
//! that `pathcast simulate` and `pathcast emulate` print. The simulator, the emulator and the
//! probe write both; the models read columns of the first.

mod csv_reader;
mod delay;
mod error;
mod file;
mod pages;
mod parquet_file;
mod quiet_panics;
mod record;
mod report;

pub use csv_reader::read_csv;
pub use delay::DelayHistogram;
pub use error::TraceError;
pub use file::{read, write_beside};
pub use parquet_file::{Row, TableWriter, read_parquet, write_batch, write_parquet};
pub use record::{
    Direction, Metadata, PacketEvent, PacketRecord, Record, SCHEMA_VERSION, Source, Trace,
};
pub use report::{FlowReport, Latency, MessageReport, OneWayDelay, RunReport, Slip};
