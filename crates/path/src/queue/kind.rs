//! A kind of queue in a path file.

use crate::queue::QueueLimit;
use crate::reader::{Read, Table};

/// A queue size, in errors.
pub(super) const SIZE: &str =
    "a queue size with its unit, such as \"90 kB\", \"60 packets\" or \"1 BDP\"";

/// Linux's default limit of `codel` and `pie` (RFC 8033, section 5.3, leaves it open).
pub(super) const AQM_LIMIT: QueueLimit = QueueLimit::Packets(1000);

/// What a table with this `kind` may have, and how it is read, to the parameters of a discipline.
pub(super) struct Kind<T> {
    pub(super) name: &'static str,
    /// The keys in addition to `kind`.
    pub(super) keys: &'static [&'static str],
    /// `limit` where it is left out; none: what it is for a queue without `kind`.
    pub(super) limit: Option<QueueLimit>,
    pub(super) read: fn(Table<'_, '_>) -> Read<T>,
}
