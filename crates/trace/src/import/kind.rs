//! What each format's module registers.

use super::input::Input;
use super::{Imported, Read, ReadOptions};
use crate::error::TraceError;
use crate::record::{PacketRecord, Record};

/// Reads at most this many rows. Where a reader takes one flow, the last argument is its number.
pub(super) type Reader<R> = fn(Input<'_>, usize, u32) -> Result<Read<R>, TraceError>;

/// How the windows of a format are read.
pub(super) enum Windows {
    /// A reader of rows.
    Rows(Reader<Record>),
    /// A reader of the project's own tables, which handles damage and flows itself.
    Table(fn(Input<'_>, &ReadOptions) -> Result<Imported, TraceError>),
    /// The format has no windows; the text explains this.
    None(&'static str),
}

/// A format.
pub(super) struct Kind {
    /// What the file is, for messages.
    pub(super) name: &'static str,
    /// The name in the list of known formats.
    pub(super) known: Option<&'static str>,
    /// Whether a file with these first bytes is certainly of this format. [`super::detect`]
    /// distinguishes the formats that resemble others.
    pub(super) claims: fn(&[u8]) -> bool,
    pub(super) windows: Windows,
    pub(super) packets: Option<Reader<PacketRecord>>,
}

impl Kind {
    /// A format with defaults for everything except its name.
    pub(super) const fn called(name: &'static str) -> Self {
        Self {
            name,
            known: None,
            claims: |_| false,
            windows: Windows::None("it has no windows"),
            packets: None,
        }
    }
}
