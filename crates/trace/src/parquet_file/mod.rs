//! The trace as Parquet: one row per record, the metadata as JSON under the key `pathcast`.

mod read;
mod tables;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use read::read_opened;
pub use read::read_parquet;
pub use tables::Row;
pub use write::{TableWriter, write_batch, write_packets, write_parquet, write_rows};
