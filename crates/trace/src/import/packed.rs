//! Files that were packed: unpacked as they are read, up to a limit that follows from their size.
//!
//! A few bytes can unpack to gigabytes, and rows take more memory than the text that they stand in.
//! So a packed file may unpack to [`FREE_BYTES`], or to [`MAX_RATIO`] times what was read of it, and
//! give [`FREE_ROWS`], or [`ROWS_PER_BYTE`] for each of its bytes, whichever is more.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

use crate::record::FREE_ROWS;

/// Every file may unpack to as much.
pub(super) const FREE_BYTES: u64 = 64 << 20;
/// Logs that repeat a line with small changes reach about 100.
const MAX_RATIO: u64 = 200;
const ROWS_PER_BYTE: u64 = 4;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
}

impl Packing {
    /// The longest of the numbers by which files begin.
    pub const HEAD_BYTES: usize = 6;

    /// How a file that begins with `head` is packed, if it is.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            _ => None,
        }
    }

    /// What `source` unpacks to; it fails at the limit.
    pub fn unpack<'a>(self, source: impl Read + 'a) -> Box<dyn Read + 'a> {
        let packed_bytes = Rc::new(Cell::new(0));
        let source = BufReader::new(Counted {
            source,
            bytes: Rc::clone(&packed_bytes),
        });
        let unpacked: Box<dyn Read + 'a> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(source)),
        };
        Box::new(Limited {
            source: unpacked,
            packed_bytes,
            unpacked_bytes: 0,
        })
    }
}

/// The most rows of a packed file of this size.
pub(super) fn most_rows(packed_bytes: u64) -> usize {
    let rows = packed_bytes.saturating_mul(ROWS_PER_BYTE);
    usize::try_from(rows).unwrap_or(usize::MAX).max(FREE_ROWS)
}

struct Counted<R> {
    source: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

struct Limited<'a> {
    source: Box<dyn Read + 'a>,
    packed_bytes: Rc<Cell<u64>>,
    unpacked_bytes: u64,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.unpacked_bytes += count as u64;
        let packed_bytes = self.packed_bytes.get();
        if self.unpacked_bytes > packed_bytes.saturating_mul(MAX_RATIO).max(FREE_BYTES) {
            let message = format!(
                "its first {packed_bytes} bytes unpack to {} and more, expected at most {FREE_BYTES} \
                 bytes or {MAX_RATIO} times as many; if it is to be trusted, unpack it first",
                self.unpacked_bytes
            );
            return Err(io::Error::other(message));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: u64) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        io::copy(&mut io::repeat(b' ').take(bytes), &mut encoder).unwrap();
        encoder.flush().unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_file_that_unpacks_to_a_thousand_times_its_size_ends_at_the_limit() {
        let unpack = |bytes: u64| {
            let packed = gzip(bytes);
            let mut unpacked = Packing::Gzip.unpack(&packed[..]);
            io::copy(&mut unpacked, &mut io::sink())
        };
        assert_eq!(unpack(FREE_BYTES).unwrap(), FREE_BYTES);
        let error = unpack(FREE_BYTES * 2).unwrap_err().to_string();
        assert!(error.contains("200 times as many"), "{error}");
    }

    #[test]
    fn rows_follow_from_the_size() {
        assert_eq!(most_rows(78_000), 1 << 20);
        assert_eq!(most_rows(1 << 20), 4 << 20);
        assert_eq!(most_rows(u64::MAX), usize::MAX);
    }
}
