//! A packet-delivery trace of mahimahi. It is recognized but not read: it describes a link.

use super::kind::{Kind, Windows};

pub(super) const KIND: Kind = Kind {
    windows: Windows::None(
        "it describes a link, and stands in a path file (docs/reference/path-file.md)",
    ),
    ..Kind::called("packet-delivery trace of mahimahi")
};
