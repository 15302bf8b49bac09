//! A Parquet file's footer and its pages, as far as one must look before the library reads them.
//!
//! The library makes room for what the header of a page says that it unpacks to, 2 GiB for a few
//! bytes in a damaged file, and goes through what it does not know without looking for the end.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};

/// Bytes that Snappy makes of one, at most: three copy 64 (its format description, section 2.2). The
/// only other codec that is built in leaves all as it is.
const EXPANSION: u64 = 22;
/// The smallest entry that a dictionary has: a number of 32 bits, or the length of a text.
const LEAST_ENTRY_BYTES: u64 = 4;
/// How deep structures and lists may be nested; those of the format are 8 deep.
const MAX_DEPTH: u32 = 16;

/// Walks through the footer of a file of `length` bytes, if it has one.
///
/// # Errors
/// It holds what no footer does.
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
            return Ok(()); // the library says so
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

/// Walks through the pages of a column that takes up `size_bytes` from byte `start` on.
///
/// # Errors
/// A page claims to be larger than it can be, or its header cannot be read.
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
            // the library makes room for all entries of a dictionary before it reads one
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

/// Whether field `id` of the header, or of the structure in its field `within`, is of its kind, an
/// `i32` or a structure: the library reads what it knows by the number alone.
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
    /// Whether there may be lists: not in the header of a page.
    lists: bool,
}

/// What the header of a page says.
#[derive(Default)]
struct Sizes {
    /// Bytes, unpacked.
    unpacked: u64,
    /// Bytes, as it stands in the file.
    packed: u64,
    /// Of a dictionary.
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
                    // should a field come twice, it is the last that counts
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

    /// How many entries the header of a dictionary claims.
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

    /// The kind of the next field, if there is one, and its number.
    fn field(&mut self, id: &mut i64) -> io::Result<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        *id = match byte >> 4 {
            0 => self.integer()?,
            more => id.wrapping_add(i64::from(more)),
        };
        // the library has ids wrap; 32767 is for extensions
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
            1 | 2 => {} // booleans stand in the kind
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
                        // no footer has them, and to the library they take no room: it would skip
                        // as many as the list claims to have
                        1 | 2 => return Err(damaged()),
                        kind => self.skip(0, kind, depth + 1)?,
                    }
                }
            }
            // the format has no maps; in the header of a page, the library skips lists one by one,
            // long after the end of the file
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
        // a data page of 1024 bytes, 20 in the file, with a checksum and a header of its own that
        // has a number, and then a structure of a text and a boolean
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
