//! Checks a Parquet file's footer and pages before the library reads them.
//!
//! The library allocates the unpacked size that a page header claims: up to 2 GiB for a few bytes
//! of a damaged file. It also scans unknown parts without checking for the end.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};

/// Most bytes that Snappy produces from one: three copy 64 (its format description, section 2.2).
/// The only other built-in codec stores data unchanged.
const EXPANSION: u64 = 22;
/// The smallest dictionary entry: a 32-bit number, or the length of a text.
const LEAST_ENTRY_BYTES: u64 = 4;
/// Deepest nesting of structures and lists; the format needs 8.
const MAX_DEPTH: u32 = 16;

/// Checks the footer of a file of `length` bytes, if it has one.
///
/// # Errors
/// If it holds anything that is not part of a footer.
pub fn check_footer(mut file: &File, length: u64) -> Result<(), String> {
    let mut walk = || -> io::Result<()> {
        let mut end = [0; 8]; // the footer's length, and a magic number
        let Some(end_at) = length.checked_sub(8) else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(end_at))?;
        file.read_exact(&mut end)?;
        let size = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
        let Some(start) = end_at.checked_sub(size) else {
            return Ok(()); // the library reports this
        };
        file.seek(SeekFrom::Start(start))?;
        let mut footer = Header {
            source: BufReader::new(file).take(size),
            lists: true,
        };
        footer.skip(0, 12, 0)
    };
    walk().map_err(|_| "is no readable Parquet file: its footer makes no sense".to_string())
}

/// Checks the pages of a column of `size_bytes` bytes that begins at byte `start`.
///
/// # Errors
/// If a page claims an impossible size, or its header cannot be read.
pub fn check(file: &File, start: u64, size_bytes: u64) -> Result<(), String> {
    let walk = || -> io::Result<()> {
        let mut source = BufReader::new(file);
        source.seek(SeekFrom::Start(start))?;
        let mut left = size_bytes;
        while left > 0 {
            let mut header = Header {
                source: source.by_ref().take(left),
                lists: false,
            };
            let sizes = header.sizes()?;
            let (unpacked, packed) = (sizes.unpacked, sizes.packed);
            left = header.source.limit();
            // the library allocates all entries of a dictionary before it reads one
            let dictionary_bytes = sizes.entries.saturating_mul(LEAST_ENTRY_BYTES);
            if packed > left
                || unpacked > packed.saturating_mul(EXPANSION)
                || dictionary_bytes > unpacked
            {
                return Err(damaged());
            }
            left -= packed;
            source.seek_relative(packed.try_into().map_err(|_| damaged())?)?;
        }
        Ok(())
    };
    walk().map_err(|_| "is damaged: the header of a page makes no sense".to_string())
}

fn damaged() -> io::Error {
    ErrorKind::InvalidData.into()
}

/// Checks the type of field `id` in the header, or in the structure of field `within`: an `i32` or
/// a structure. The library reads known fields by number alone.
fn check_kind(within: i64, id: i64, kind: u8) -> io::Result<()> {
    let expected = match (within, id) {
        (0 | 5, 1..=4) | (7, 1..=2) | (8, 1..=6) => 5,
        (0, 5..=8) => 12,
        _ => return Ok(()),
    };
    if kind == expected {
        Ok(())
    } else {
        Err(damaged())
    }
}

/// A page's header, or a footer, in Thrift's compact protocol
/// (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).
struct Header<R> {
    source: R,
    /// Whether lists are allowed; a page header has none.
    lists: bool,
}

/// The sizes in a page header.
#[derive(Default)]
struct Sizes {
    /// Unpacked size in bytes.
    unpacked: u64,
    /// Size in the file in bytes.
    packed: u64,
    /// Entries of a dictionary.
    entries: u64,
}

impl<R: Read> Header<R> {
    fn sizes(&mut self) -> io::Result<Sizes> {
        let mut id = 0;
        let mut sizes = Sizes::default();
        while let Some(kind) = self.field(&mut id)? {
            check_kind(0, id, kind)?;
            match id {
                2 | 3 => {
                    let size = u64::try_from(self.integer()?).map_err(|_| damaged())?;
                    // if a field is repeated, the last value counts
                    *(if id == 2 {
                        &mut sizes.unpacked
                    } else {
                        &mut sizes.packed
                    }) = size;
                }
                7 => sizes.entries = sizes.entries.max(self.entries()?),
                _ => self.skip(id, kind, 0)?,
            }
        }
        Ok(sizes)
    }

    /// The number of entries that a dictionary header claims.
    fn entries(&mut self) -> io::Result<u64> {
        let (mut id, mut entries) = (0, 0);
        while let Some(kind) = self.field(&mut id)? {
            check_kind(7, id, kind)?;
            if id == 1 {
                let claimed = u64::try_from(self.integer()?).map_err(|_| damaged())?;
                entries = claimed.max(entries);
            } else {
                self.skip(id, kind, 1)?;
            }
        }
        Ok(entries)
    }

    /// The type of the next field, if there is one; updates `id` to its number.
    fn field(&mut self, id: &mut i64) -> io::Result<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        *id = match byte >> 4 {
            0 => self.integer()?,
            more => id.wrapping_add(i64::from(more)),
        };
        // ids wrap in the library; 32767 is for extensions
        if !(1..=100).contains(id) && *id != 32_767 {
            return Err(damaged());
        }
        Ok(Some(byte & 0xf))
    }

    /// Skips the value of field `id`.
    fn skip(&mut self, id: i64, kind: u8, depth: u32) -> io::Result<()> {
        if depth == MAX_DEPTH {
            return Err(damaged());
        }
        match kind {
            1 | 2 => {} // the type holds the boolean
            3 => _ = self.byte()?,
            4..=6 => _ = self.integer()?,
            7 => self.skip_bytes(8)?,
            8 => {
                let length = self.unsigned()?;
                self.skip_bytes(length)?;
            }
            12 => {
                let mut inner = 0;
                while let Some(kind) = self.field(&mut inner)? {
                    if depth == 0 && !self.lists {
                        check_kind(id, inner, kind)?;
                    }
                    self.skip(inner, kind, depth + 1)?;
                }
            }
            9 | 10 if self.lists => {
                let byte = self.byte()?;
                let count = match byte >> 4 {
                    15 => self.unsigned()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    match byte & 0xf {
                        // footers have none, and they take no memory: the library would skip as
                        // many as the list claims
                        1 | 2 => return Err(damaged()),
                        kind => self.skip(0, kind, depth + 1)?,
                    }
                }
            }
            // the format has no maps; in a page header, the library skips lists one by one past the
            // end of the file
            _ => return Err(damaged()),
        }
        Ok(())
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.source.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn skip_bytes(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(count), &mut io::sink())?;
        if skipped < count {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Seven bits a byte, the lowest first.
    fn unsigned(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged())
    }

    /// 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
    fn integer(&mut self) -> io::Result<i64> {
        let number = self.unsigned()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(bytes: &[u8]) -> Option<(u64, u64)> {
        let lists = false;
        Header {
            source: bytes,
            lists,
        }
        .sizes()
        .ok()
        .map(|sizes| (sizes.unpacked, sizes.packed))
    }

    #[test]
    fn sizes_stand_among_other_fields() {
        // a data page of 1024 bytes, 20 in the file, with a checksum and its own header of a
        // number, and then a structure of a text and a boolean
        let header = [
            0x15, 0x00, 0x15, 0x80, 0x10, 0x15, 0x28, 0x15, 0x07, 0x1c, 0x15, 0x02, 0x4c, 0x18,
            0x02, 0xff, 0xff, 0x11, 0x00, 0x00, 0x00,
        ];
        assert_eq!(sizes(&header), Some((1024, 20)));
        for end in 0..header.len() {
            assert_eq!(sizes(&header[..end]), None, "{end}");
        }
        assert_eq!(sizes(&[0x15, 0x00, 0x15, 0x01, 0x00]), None); // of -1 bytes
        assert_eq!(sizes(&[0x28, 0x01, 0x15, 0x00]), None); // of a text
        assert_eq!(sizes(&[0x6c; 1000]), None); // nested without end
        assert_eq!(sizes(&[0x19, 0xf7, 0xff, 0xff, 0xff, 0xff, 0x07]), None); // 2 billion numbers
    }
}
