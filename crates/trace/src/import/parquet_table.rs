//! The project's own table in Parquet.

use std::collections::BTreeMap;

use super::input::Input;
use super::kind::{Kind, Windows};
use super::{Format, Imported, ReadOptions, no_windows, one_flow};
use crate::error::TraceError;
use crate::parquet_file::read_opened;

pub(super) const KIND: Kind = Kind {
    known: Some("Parquet of pathcast"),
    claims: |head| head.starts_with(b"PAR1"),
    windows: Windows::Table(read),
    ..Kind::called("Parquet")
};

fn read(input: Input<'_>, options: &ReadOptions) -> Result<Imported, TraceError> {
    let Some(file) = input.whole() else {
        let why = "it is read from a file or pipe, and not out of bytes";
        return Err(no_windows(input, Format::Parquet, why));
    };
    let trace = read_opened(input.path, &file?)?;
    one_flow(input.path, trace, options.flow).map(|trace| Imported {
        trace,
        format: Format::Parquet,
        goodput_bps: BTreeMap::new(),
        warnings: Vec::new(),
    })
}
