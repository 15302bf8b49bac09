//! The project's own table as text.

use std::collections::BTreeMap;

use super::input::Input;
use super::kind::{Kind, Windows};
use super::rows::Rows;
use super::{Format, Imported, Read, ReadOptions, most_rows, one_flow, settle_at};
use crate::csv_reader::read_rows;
use crate::error::TraceError;
use crate::record::{Source, Trace};

pub(super) const KIND: Kind = Kind {
    known: Some("CSV with time_s and cwnd_packets"),
    windows: Windows::Table(read),
    ..Kind::called("CSV")
};

fn read(input: Input<'_>, options: &ReadOptions) -> Result<Imported, TraceError> {
    let mut records = Vec::new();
    let most = most_rows(input, options)?;
    let outcome = read_rows(input.open()?, input.path, most, &mut records);
    let mut rows = Rows::new(most);
    rows.adopt(records);
    let read = Read::new(Source::Csv, rows, outcome.err());
    let (metadata, records, warnings) = settle_at(input, options.damage, read, false)?;
    let trace = one_flow(input.path, Trace { metadata, records }, options.flow)?;
    Ok(Imported {
        trace,
        format: Format::Csv,
        goodput_bps: BTreeMap::new(),
        warnings,
    })
}
