//! Packed files, unpacked while they are read, up to a limit that depends on their size.
//!
//! A few bytes can unpack to gigabytes, and rows take more memory than their text. A packed file
//! may unpack to [`FREE_BYTES`] or [`MAX_RATIO`] times the bytes read, whichever is more. It may
//! give [`FREE_ROWS`] or [`ROWS_PER_BYTE`] for each of its bytes, whichever is more.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

use super::zstd::{Frames, is_zstd};
use crate::record::FREE_ROWS;

/// Every file may unpack to this size.
pub(super) const FREE_BYTES: u64 = 64 << 20;
/// Logs of similar lines reach a ratio of about 100.
const MAX_RATIO: u64 = 200;
const ROWS_PER_BYTE: u64 = 4;
/// Memory for xz's dictionary; `xz -9` needs 65 MiB.
const MAX_XZ_KIB: u32 = 128 << 10;

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Xz,
    Zstd,
    Bzip2,
}

impl Packing {
    /// Length of the longest magic number.
    pub const HEAD_BYTES: usize = 6;

    /// The compression of a file that begins with `head`, or `None`.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Some(Self::Bzip2),
            _ if is_zstd(head) => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Unpacks `source`; reading fails at the limit.
    pub fn unpack<'a>(self, source: impl Read + 'a) -> Box<dyn Read + 'a> {
        let packed_bytes = Rc::new(Cell::new(0));
        let source = BufReader::new(Counted {
            source,
            bytes: Rc::clone(&packed_bytes),
        });
        let unpacked: Box<dyn Read + 'a> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(source)),
            Self::Xz => Box::new(XzReader::new_mem_limit(source, true, MAX_XZ_KIB)),
            Self::Zstd => Box::new(Frames::new(source)),
            Self::Bzip2 => Box::new(MultiBzDecoder::new(source)),
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

    /// Output of `printf 'time_s,cwnd_packets\n0,10\n1,20\n'` through `xz -9` and `bzip2`, in
    /// hexadecimal.
    const XZ: &str = "fd377a585a000004e6d6b446020021011c00000010cf58cc01001d74696d655f732c63776e645f7061636b6574730a302c31300a312c32300a00000064a97843254f67bf0001361e3d1995531fb6f37d010000000004595a";
    const BZIP2: &str = "425a6839314159265359bd3d0c3900000ddb800010000470000000ae2b4c80200022268f48341e88534c8c4c4c436a0aab0464d3970498313217bcbfc5dc914e14242f4f430e40";

    fn bytes(digits: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn other_packings_are_known_by_their_first_bytes_and_follow_each_other() {
        let text = "time_s,cwnd_packets\n0,10\n1,20\n";
        for (packed, wanted) in [(XZ, Packing::Xz), (BZIP2, Packing::Bzip2)] {
            let packed = bytes(packed);
            assert_eq!(Packing::of(&packed), Some(wanted));
            let mut unpacked = String::new();
            let twice = packed.repeat(2);
            let mut source = wanted.unpack(&twice[..]);
            source.read_to_string(&mut unpacked).unwrap();
            assert_eq!(unpacked, text.repeat(2), "{wanted:?}");
            for length in 6..packed.len() {
                let mut source = wanted.unpack(&packed[..length]);
                let outcome = source.read_to_string(&mut String::new());
                assert!(outcome.is_err(), "{wanted:?} cut to {length}");
            }
        }
    }

    #[test]
    fn xz_may_not_ask_for_more_memory_than_its_own_program_does() {
        // the byte of the block's header that has the dictionary's size, and the header's checksum
        let mut packed = bytes(XZ);
        let at = 12;
        packed[at + 4] = 40; // 4 GiB - 1
        let crc = crc32(&packed[at..at + 8]).to_le_bytes();
        packed[at + 8..at + 12].copy_from_slice(&crc);
        let mut source = Packing::Xz.unpack(&packed[..]);
        let error = source.read_to_string(&mut String::new()).unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
    }

    fn crc32(bytes: &[u8]) -> u32 {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    }

    #[test]
    fn rows_follow_from_the_size() {
        assert_eq!(most_rows(78_000), 1 << 20);
        assert_eq!(most_rows(1 << 20), 4 << 20);
        assert_eq!(most_rows(u64::MAX), usize::MAX);
    }
}
