//! A snapshot: a frame for each part, and one for the groups.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use pathcast_decide::Entry;
use pathcast_decide::group::{StoredGroup, StoredPrefix};
use serde::{Deserialize, Serialize};

use super::frame;
use crate::knowledge::{Knowledge, PARTS};

/// What is read and written; another version is refused.
pub const VERSION: u32 = 3;

/// A frame that is written.
#[derive(Serialize)]
pub enum Written<'a> {
    /// The version.
    Begin(u32),
    /// A part: its number, the last batch that it has, its prefixes.
    Part(u16, u64, Vec<(StoredPrefix, &'a Entry)>),
    /// The groups, with the last batch that they have.
    Groups(u64, Vec<StoredGroup>),
    /// The snapshot is whole.
    End,
}

/// A frame that is read.
#[derive(Deserialize)]
pub enum Piece {
    /// The version.
    Begin(u32),
    /// A part: its number, the last batch that it has, its prefixes.
    Part(u16, u64, Vec<(StoredPrefix, Entry)>),
    /// The groups, with the last batch that they have.
    Groups(u64, Vec<StoredGroup>),
    /// The snapshot is whole.
    End,
}

/// Writes a snapshot under a temporary name, syncs it, and gives it its name.
///
/// # Errors
/// If the disk is full, or fails; nothing is left then.
pub fn write(path: &Path, knowledge: &Knowledge) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let written = write_to(&temporary, knowledge).and_then(|()| {
        fs::rename(&temporary, path)?;
        // the name is on disk too
        path.parent()
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_to(path: &Path, knowledge: &Knowledge) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut buffer = Vec::new();
    let mut write = |piece: Option<&Written<'_>>, content: &[u8]| {
        buffer.clear();
        frame::append(&mut buffer, |buffer| match piece {
            Some(piece) => buffer.extend(postcard::to_stdvec(piece).unwrap_or_default()),
            None => buffer.extend(content),
        });
        file.write_all(&buffer)
    };
    write(Some(&Written::Begin(VERSION)), &[])?;
    let mut content = Vec::new();
    for number in 0..PARTS {
        knowledge.store_part(number, |batch, table| {
            let entries = table
                .iter()
                .map(|(prefix, entry)| ((prefix.is_v6(), prefix.bits(), prefix.length()), entry));
            #[allow(clippy::cast_possible_truncation)] // below PARTS
            let piece = Written::Part(number as u16, batch, entries.collect());
            content = postcard::to_stdvec(&piece).unwrap_or_default();
        });
        write(None, &content)?;
    }
    let (batch, groups) = knowledge.store_groups();
    write(Some(&Written::Groups(batch, groups)), &[])?;
    write(Some(&Written::End), &[])?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()
}
