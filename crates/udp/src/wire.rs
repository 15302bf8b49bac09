//! The datagrams: what each carries, and how it is read and written.
//!
//! All numbers are big-endian. The first byte is the kind.
//!
//! | kind | after it |
//! |---|---|
//! | hello | version, nonce of the sender; zeros up to 64 bytes |
//! | welcome | version, the nonce again, token of the receiver |
//! | data | flags, token, number, time of sending in ns; payload |
//! | ack | flags, token, next number expected, echoed time, window; up to 3 pairs of numbers |
//! | close | token |
//!
//! A hello is longer than its answer, so that a forged source address gains nothing. Everything else is read only if
//! it carries the token, which the receiver sends to the address that said hello.

use pathcast_base::Time;
use pathcast_tcp::{AckSegment, DataSegment, MAX_SACK_BLOCKS, SackBlock};

/// The largest datagram: an IPv4 packet of 1500 bytes.
pub const MOST_BYTES: usize = 1500 - 20 - 8;
/// Bytes before the payload of a data datagram.
pub const HEADER_BYTES: usize = 2 + 8 + 8 + 8;
/// The largest payload.
pub const MOST_PAYLOAD_BYTES: usize = MOST_BYTES - HEADER_BYTES;
/// The size of a hello.
pub const HELLO_BYTES: usize = 64;

const VERSION: u8 = 1;
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;
const CLOSE: u8 = 5;

/// Flags of data.
const PUSHED: u8 = 1;
const ASKS: u8 = 1 << 1;
/// Flags of an acknowledgment: the number of pairs, and whether the first one is a packet that came twice.
const PAIRS: u8 = 3;
const DUPLICATE: u8 = 1 << 2;

/// What a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// The sender is there.
    Hello {
        /// Chosen at random by the sender.
        nonce: u64,
    },
    /// The receiver takes data from this address that carries the token.
    Welcome {
        /// Of the hello.
        nonce: u64,
        /// Chosen by the receiver.
        token: u64,
    },
    /// A packet.
    Data {
        /// Of the welcome.
        token: u64,
        /// Its number and flags.
        segment: DataSegment,
        /// Bytes after the header.
        payload_bytes: usize,
    },
    /// An acknowledgment.
    Ack {
        /// Of the welcome.
        token: u64,
        /// What it says.
        segment: AckSegment,
    },
    /// The sender sends no more.
    Close {
        /// Of the welcome.
        token: u64,
    },
}

/// Takes the first bytes of a datagram away.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        self.number().map(Time::from_nanos)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a datagram; none if it is not one of ours.
pub fn read(bytes: &[u8]) -> Option<Datagram> {
    let mut reader = Reader(bytes);
    match reader.byte()? {
        HELLO => {
            let of_ours = bytes.len() == HELLO_BYTES && reader.byte()? == VERSION;
            let nonce = reader.number()?;
            of_ours.then_some(Datagram::Hello { nonce })
        }
        WELCOME => {
            let version = reader.byte()?;
            let (nonce, token) = (reader.number()?, reader.number()?);
            let of_ours = version == VERSION && reader.is_empty();
            of_ours.then_some(Datagram::Welcome { nonce, token })
        }
        DATA => read_data(reader),
        ACK => read_ack(reader),
        CLOSE => {
            let token = reader.number()?;
            reader.is_empty().then_some(Datagram::Close { token })
        }
        _ => None,
    }
}

fn read_data(mut reader: Reader<'_>) -> Option<Datagram> {
    let flags = reader.byte()?;
    let (token, seq, sent_at) = (reader.number()?, reader.number()?, reader.time()?);
    let payload_bytes = reader.0.len();
    let asks = flags & ASKS != 0;
    if flags & !(PUSHED | ASKS) != 0 || asks != (payload_bytes == 0) {
        return None;
    }
    let mut segment = DataSegment::new(sent_at, seq).with_pushed(flags & PUSHED != 0);
    if asks {
        segment = segment.as_window_probe();
    }
    Some(Datagram::Data {
        token,
        segment,
        payload_bytes,
    })
}

fn read_ack(mut reader: Reader<'_>) -> Option<Datagram> {
    let flags = reader.byte()?;
    let (token, cumulative, echo) = (reader.number()?, reader.number()?, reader.time()?);
    let mut segment = AckSegment::new(cumulative);
    segment.echo = echo;
    segment.window_packets = u32::from_be_bytes(reader.array()?);
    for at in 0..flags & PAIRS {
        let block = SackBlock {
            start: reader.number()?,
            end: reader.number()?,
        };
        if !fits(cumulative, block) {
            return None;
        }
        match at == 0 && flags & DUPLICATE != 0 {
            true if block.end - block.start == 1 => segment.push_duplicate(block.start),
            true => return None,
            false => segment.push(block),
        }
    }
    let known = flags & !(PAIRS | DUPLICATE) == 0;
    let has_first = flags & DUPLICATE == 0 || flags & PAIRS > 0;
    (known && has_first && reader.is_empty()).then_some(Datagram::Ack { token, segment })
}

/// Whether a block can be noted in an acknowledgment, which holds distances of 31 bits.
fn fits(cumulative: u64, block: SackBlock) -> bool {
    let near = |number: u64| number.abs_diff(cumulative) <= u64::from(u32::MAX >> 2);
    block.start < block.end && near(block.start) && near(block.end)
}

/// Writes bytes one after another into a buffer that is large enough.
struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }
}

/// Writes a datagram into `buffer`, of [`MOST_BYTES`] at least, and returns its size. The payload of data stays
/// as it is in the buffer.
pub fn write(datagram: &Datagram, buffer: &mut [u8]) -> usize {
    let mut writer = Writer { buffer, at: 0 };
    match datagram {
        Datagram::Hello { nonce } => {
            writer.bytes(&[HELLO, VERSION]);
            writer.number(*nonce);
            let rest = HELLO_BYTES - writer.at;
            writer.bytes(&[0; HELLO_BYTES][..rest]);
        }
        Datagram::Welcome { nonce, token } => {
            writer.bytes(&[WELCOME, VERSION]);
            writer.number(*nonce);
            writer.number(*token);
        }
        Datagram::Data {
            token,
            segment,
            payload_bytes,
        } => {
            let pushed = if segment.is_pushed() { PUSHED } else { 0 };
            let asks = if *payload_bytes == 0 { ASKS } else { 0 };
            writer.bytes(&[DATA, pushed | asks]);
            writer.number(*token);
            writer.number(segment.seq);
            writer.number(segment.sent_at.as_nanos());
            writer.at += payload_bytes;
        }
        Datagram::Ack { token, segment } => write_ack(*token, segment, &mut writer),
        Datagram::Close { token } => {
            writer.bytes(&[CLOSE]);
            writer.number(*token);
        }
    }
    writer.at
}

fn write_ack(token: u64, segment: &AckSegment, writer: &mut Writer<'_>) {
    const { assert!(MAX_SACK_BLOCKS <= PAIRS as usize) };
    let duplicate = segment.duplicate();
    let flag = if duplicate.is_some() { DUPLICATE } else { 0 };
    writer.bytes(&[ACK, flag | segment.block_count() as u8]);
    writer.number(token);
    writer.number(segment.cumulative);
    writer.number(segment.echo.as_nanos());
    writer.bytes(&segment.window_packets.to_be_bytes());
    if let Some(seq) = duplicate {
        writer.number(seq);
        writer.number(seq + 1);
    }
    for block in segment.sacks() {
        writer.number(block.start);
        writer.number(block.end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn again(datagram: Datagram) -> (Option<Datagram>, usize) {
        let mut buffer = [0xaa; MOST_BYTES];
        let size = write(&datagram, &mut buffer);
        (read(&buffer[..size]), size)
    }

    #[test]
    fn a_welcome_is_shorter_than_its_hello() {
        let (hello, asked) = again(Datagram::Hello { nonce: 7 });
        let (welcome, answered) = again(Datagram::Welcome { nonce: 7, token: 9 });
        assert_eq!(hello, Some(Datagram::Hello { nonce: 7 }));
        assert_eq!(welcome, Some(Datagram::Welcome { nonce: 7, token: 9 }));
        assert!(answered < asked);
    }

    #[test]
    fn a_full_data_datagram_makes_a_packet_of_1500_bytes() {
        let datagram = Datagram::Data {
            token: 1,
            segment: DataSegment::new(Time::from_nanos(5), 3).with_pushed(true),
            payload_bytes: MOST_PAYLOAD_BYTES,
        };
        assert_eq!(again(datagram), (Some(datagram), MOST_BYTES));
    }

    #[test]
    fn flags_and_sizes_that_no_end_writes_are_refused() {
        let mut buffer = [0; MOST_BYTES];
        let ack = Datagram::Ack {
            token: 1,
            segment: AckSegment::new(8),
        };
        let size = write(&ack, &mut buffer);
        assert!(read(&buffer[..size]).is_some());
        assert_eq!(read(&buffer[..size - 1]), None);
        assert_eq!(read(&buffer[..size + 1]), None);
        buffer[1] |= DUPLICATE;
        assert_eq!(read(&buffer[..size]), None);
        buffer[1] = 1 << 7;
        assert_eq!(read(&buffer[..size]), None);
        assert_eq!(read(&[]), None);
    }

    proptest! {
        #[test]
        fn acknowledgments_survive_the_wire(
            cumulative in 1_u64 << 31..1 << 60, window in any::<u32>(), echo in any::<u64>(),
            duplicate in proptest::option::of(1_u64..1 << 29),
            blocks in proptest::collection::vec((1_u64..1 << 28, 1_u64..1 << 28), 0..3),
        ) {
            let mut segment = AckSegment::new(cumulative);
            segment.window_packets = window;
            segment.echo = Time::from_nanos(echo);
            if let Some(behind) = duplicate {
                segment.push_duplicate(cumulative - behind);
            }
            for (gap, packets) in blocks {
                let start = cumulative + gap;
                segment.push(SackBlock { start, end: start + packets });
            }
            let datagram = Datagram::Ack { token: 3, segment };
            prop_assert_eq!(again(datagram).0, Some(datagram));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..7) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some(datagram) = read(&bytes) {
                let mut buffer = [0; MOST_BYTES];
                let size = write(&datagram, &mut buffer);
                prop_assert_eq!(read(&buffer[..size]), Some(datagram));
            }
        }
    }
}
