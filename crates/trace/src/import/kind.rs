//! What a format's file says of itself to the registry.

use super::input::Input;
use super::{Imported, Read, ReadOptions};
use crate::error::TraceError;
use crate::record::{PacketRecord, Record};

/// Reads at most so many rows, of the flow with this number where a reader takes one.
pub(super) type Reader<R> = fn(Input<'_>, usize, u32) -> Result<Read<R>, TraceError>;

/// Where the windows of a format come from.
pub(super) enum Windows {
    /// A reader of rows.
    Rows(Reader<Record>),
    /// A reader of our own tables, which looks after damage and flows itself.
    Table(fn(Input<'_>, &ReadOptions) -> Result<Imported, TraceError>),
    /// Nowhere, and what to say of that.
    None(&'static str),
}

/// A format.
pub(super) struct Kind {
    /// In messages: what the file is.
    pub(super) name: &'static str,
    /// In the list of all that are known.
    pub(super) known: Option<&'static str>,
    /// Whether a file that begins so is surely one. [`super::detect`] tells those apart that look like others.
    pub(super) claims: fn(&[u8]) -> bool,
    pub(super) windows: Windows,
    pub(super) packets: Option<Reader<PacketRecord>>,
}

impl Kind {
    /// A format of which nothing else is known.
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
