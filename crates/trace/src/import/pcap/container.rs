//! Capture file formats: pcap and pcapng, in either byte order.
//!
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-03.html>,
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html>

use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use crate::error::TraceError;
use crate::import::input::Input;

/// Larger packets or blocks are damage; captures have at most 256 KiB.
const MAX_BLOCK_BYTES: u32 = 4 << 20;
/// Packets on a wire are smaller: at most 512 KiB, with BIG TCP. A larger claim would be cut into
/// millions of segments.
const MAX_WIRE_BYTES: u32 = 1 << 20;
const MAX_INTERFACES: usize = 4096;

const NS: u128 = 1_000_000_000;

/// A captured packet; its bytes are in the buffer.
pub struct Frame {
    pub time_ns: i64,
    /// The type of its first header (LINKTYPE_...).
    pub link: u32,
    /// Its length on the wire.
    pub wire_bytes: u32,
    /// Where its record begins in the file.
    pub offset: u64,
}

/// An interface of a pcapng file.
struct Interface {
    link: u32,
    /// Time units per second.
    per_second: u128,
    offset_s: i64,
}

enum Kind {
    Pcap { link: u32, per_second: u128 },
    Pcapng(Vec<Interface>),
}

pub struct Frames<'a> {
    path: &'a Path,
    source: BufReader<Box<dyn Read + 'a>>,
    offset: u64,
    big_endian: bool,
    kind: Kind,
    /// Packets without a time.
    pub timeless: u64,
}

impl<'a> Frames<'a> {
    /// Reads a file's header.
    pub fn open(input: Input<'a>) -> Result<Self, TraceError> {
        let mut frames = Self {
            path: input.path,
            source: BufReader::with_capacity(1 << 16, input.open()?),
            offset: 0,
            big_endian: false,
            kind: Kind::Pcapng(Vec::new()),
            timeless: 0,
        };
        let mut block = Vec::new();
        let magic = frames.array::<4>("the header")?;
        let (big_endian, per_second) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, NS),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, NS),
            _ => {
                frames.section(&mut block)?;
                return Ok(frames);
            }
        };
        frames.big_endian = big_endian;
        let header = frames.array::<20>("the header")?;
        // the upper bits describe checksums at the end of frames, which TCP's length excludes
        let link = frames.u32(&header[16..]) & 0x0fff_ffff;
        frames.kind = Kind::Pcap { link, per_second };
        Ok(frames)
    }

    /// Returns the next packet, if there is one, and fills `buffer` with its bytes.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Frame>, TraceError> {
        match self.kind {
            Kind::Pcap { link, per_second } => self.record(link, per_second, buffer),
            Kind::Pcapng(_) => loop {
                let offset = self.offset;
                let Some(kind) = self.begins("a block")? else {
                    return Ok(None);
                };
                if kind == [0x0a, 0x0d, 0x0d, 0x0a] {
                    self.section(buffer)?;
                    continue;
                }
                let kind = self.u32(&kind);
                self.body(offset, buffer)?;
                match kind {
                    1 => self.interface(offset, buffer)?,
                    2 | 6 => {
                        if let Some(frame) = self.packet(offset, kind, buffer)? {
                            return Ok(Some(frame));
                        }
                    }
                    3 => self.timeless += 1, // simple packets
                    _ => {}                  // statistics, names, comments
                }
            },
        }
    }

    fn wrong(&self, offset: u64, message: impl Into<String>) -> TraceError {
        TraceError::at_byte(self.path, offset, message)
    }

    fn u32(&self, bytes: &[u8]) -> u32 {
        let word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    }

    fn u16(&self, bytes: &[u8]) -> u16 {
        let word = [bytes[0], bytes[1]];
        if self.big_endian {
            u16::from_be_bytes(word)
        } else {
            u16::from_le_bytes(word)
        }
    }

    /// Reads `N` bytes that must exist.
    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], TraceError> {
        let mut bytes = [0; N];
        let outcome = self.source.read_exact(&mut bytes);
        outcome.map_err(|error| self.cut(what, &error))?;
        self.offset += N as u64;
        Ok(bytes)
    }

    fn cut(&self, what: &str, error: &std::io::Error) -> TraceError {
        let message = match error.kind() {
            ErrorKind::UnexpectedEof => format!("the file ends within {what}"),
            _ => format!("cannot be read: {error}"),
        };
        self.wrong(self.offset, message)
    }

    /// Reads the first four bytes of the next record, or returns `None` at the end of the file.
    fn begins(&mut self, what: &str) -> Result<Option<[u8; 4]>, TraceError> {
        let mut first = [0; 1];
        loop {
            match self.source.read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut(what, &error)),
            }
        }
        self.offset += 1;
        let [b, c, d] = self.array::<3>(what)?;
        Ok(Some([first[0], b, c, d]))
    }

    /// Reads `count` bytes into `buffer`, which grows only as bytes arrive.
    fn fill(&mut self, count: u32, buffer: &mut Vec<u8>, what: &str) -> Result<(), TraceError> {
        buffer.clear();
        let limited = self.source.by_ref().take(u64::from(count));
        let outcome = { limited }.read_to_end(buffer);
        match outcome {
            Ok(got) if got == count as usize => {
                self.offset += u64::from(count);
                Ok(())
            }
            Ok(_) => Err(self.cut(what, &ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.cut(what, &error)),
        }
    }

    fn record(
        &mut self,
        link: u32,
        per_second: u128,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Frame>, TraceError> {
        let offset = self.offset;
        let Some(seconds) = self.begins("a packet's header")? else {
            return Ok(None);
        };
        let rest = self.array::<12>("a packet's header")?;
        let (seconds, fraction) = (self.u32(&seconds), self.u32(&rest));
        let (captured_bytes, wire_bytes) = (self.u32(&rest[4..]), self.u32(&rest[8..]));
        if u128::from(fraction) >= per_second {
            let message = format!("got {fraction} units within a second of {per_second}");
            return Err(self.wrong(offset, message));
        }
        if captured_bytes > MAX_BLOCK_BYTES {
            let message =
                format!("got a packet of {captured_bytes} B, expected at most {MAX_BLOCK_BYTES}");
            return Err(self.wrong(offset, message));
        }
        self.check_wire(offset, wire_bytes)?;
        self.fill(captured_bytes, buffer, "a packet")?;
        let time_ns =
            i64::from(seconds) * NS as i64 + (u128::from(fraction) * (NS / per_second)) as i64;
        Ok(Some(Frame {
            time_ns,
            link,
            wire_bytes,
            offset,
        }))
    }

    fn check_wire(&self, offset: u64, wire_bytes: u32) -> Result<(), TraceError> {
        if wire_bytes <= MAX_WIRE_BYTES {
            return Ok(());
        }
        let message = format!(
            "got a packet of {wire_bytes} B on the wire, expected at most {MAX_WIRE_BYTES}"
        );
        Err(self.wrong(offset, message))
    }

    /// The body length of a block whose type has been read.
    fn length(&self, offset: u64, length: [u8; 4]) -> Result<u32, TraceError> {
        let length = self.u32(&length);
        if !length.is_multiple_of(4) || !(12..=MAX_BLOCK_BYTES).contains(&length) {
            let message = format!(
                "got a block of {length} B, expected a multiple of 4 from 12 to {MAX_BLOCK_BYTES}"
            );
            return Err(self.wrong(offset, message));
        }
        Ok(length - 12)
    }

    fn body(&mut self, offset: u64, buffer: &mut Vec<u8>) -> Result<(), TraceError> {
        let length = self.array::<4>("a block")?;
        let body = self.length(offset, length)?;
        self.fill(body, buffer, "a block")?;
        self.trailer(offset, body)
    }

    fn trailer(&mut self, offset: u64, body: u32) -> Result<(), TraceError> {
        let again = self.array::<4>("a block")?;
        let again = self.u32(&again);
        if again != body + 12 {
            let message = format!("a block of {} B says {again} B at its end", body + 12);
            return Err(self.wrong(offset, message));
        }
        Ok(())
    }

    /// Reads a section header whose type has been read. Byte order and interfaces start over.
    fn section(&mut self, buffer: &mut Vec<u8>) -> Result<(), TraceError> {
        let offset = self.offset - 4;
        let length = self.array::<4>("a section's header")?;
        let magic = self.array::<4>("a section's header")?;
        self.big_endian = match magic {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => {
                let message = format!("got byte order {magic:02x?}, expected 1a2b3c4d");
                return Err(self.wrong(offset, message));
            }
        };
        let body = self.length(offset, length)?;
        let Some(rest) = body.checked_sub(4) else {
            return Err(self.wrong(offset, "a section's header of 12 B, expected 28"));
        };
        self.fill(rest, buffer, "a section's header")?;
        self.trailer(offset, body)?;
        self.kind = Kind::Pcapng(Vec::new());
        Ok(())
    }

    fn interface(&mut self, offset: u64, body: &[u8]) -> Result<(), TraceError> {
        if body.len() < 8 {
            let message = format!("got an interface of {} B, expected at least 8", body.len());
            return Err(self.wrong(offset, message));
        }
        let mut interface = Interface {
            link: u32::from(self.u16(body)),
            per_second: 1_000_000,
            offset_s: 0,
        };
        let mut options = &body[8..];
        while options.len() >= 4 {
            let (code, length) = (self.u16(options), self.u16(&options[2..]) as usize);
            let Some(value) = options.get(4..4 + length) else {
                return Err(self.wrong(offset, "an interface's option is longer than its block"));
            };
            match (code, length) {
                (0, _) => break,
                (9, 1) => {
                    let power = u32::from(value[0] & 0x7f);
                    let base = if value[0] & 0x80 == 0 { 10u128 } else { 2 };
                    let per_second = base.checked_pow(power).filter(|units| *units < 1 << 64);
                    let Some(per_second) = per_second else {
                        let message = format!("got times in {base}^-{power} s, too fine");
                        return Err(self.wrong(offset, message));
                    };
                    interface.per_second = per_second;
                }
                (14, 8) => {
                    let (a, b) = (self.u32(value), self.u32(&value[4..]));
                    let (high, low) = if self.big_endian { (a, b) } else { (b, a) };
                    interface.offset_s = ((u64::from(high) << 32) | u64::from(low)) as i64;
                }
                _ => {}
            }
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        let Kind::Pcapng(interfaces) = &mut self.kind else {
            return Ok(());
        };
        if interfaces.len() == MAX_INTERFACES {
            let message = format!("more than {MAX_INTERFACES} interfaces");
            return Err(self.wrong(offset, message));
        }
        interfaces.push(interface);
        Ok(())
    }

    /// Reads an enhanced packet block (6), or the obsolete packet block (2).
    fn packet(
        &self,
        offset: u64,
        kind: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Frame>, TraceError> {
        if buffer.len() < 20 {
            let message = format!("got a packet's block of {} B, expected 20", buffer.len());
            return Err(self.wrong(offset, message));
        }
        let number = match kind {
            6 => self.u32(buffer),
            _ => u32::from(self.u16(buffer)),
        };
        let Kind::Pcapng(interfaces) = &self.kind else {
            return Ok(None);
        };
        let Some(interface) = interfaces.get(number as usize) else {
            let message = format!(
                "got a packet of interface {number}, of which there are {}",
                interfaces.len()
            );
            return Err(self.wrong(offset, message));
        };
        let units = (u128::from(self.u32(&buffer[4..])) << 32) | u128::from(self.u32(&buffer[8..]));
        let time_ns = i64::try_from(units * NS / interface.per_second)
            .ok()
            .and_then(|time| time.checked_add(interface.offset_s.checked_mul(NS as i64)?));
        let Some(time_ns) = time_ns else {
            return Err(self.wrong(offset, "a packet's time is centuries away"));
        };
        let (captured_bytes, wire_bytes) = (self.u32(&buffer[12..]), self.u32(&buffer[16..]));
        if captured_bytes as usize > buffer.len() - 20 {
            let message = format!(
                "got a packet of {captured_bytes} B in a block with {} B for it",
                buffer.len() - 20
            );
            return Err(self.wrong(offset, message));
        }
        self.check_wire(offset, wire_bytes)?;
        buffer.truncate(20 + captured_bytes as usize);
        buffer.drain(..20);
        Ok(Some(Frame {
            time_ns,
            link: interface.link,
            wire_bytes,
            offset,
        }))
    }
}
