//! Zstandard: a sequence of frames, and skippable frames between them.

use std::io::{self, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The first of the sixteen magic numbers of skippable frames.
const SKIPPABLE: u32 = 0x184d_2a50;

/// Whether a file that begins with `head` is in this format.
pub(super) fn is_zstd(head: &[u8]) -> bool {
    let Some(number) = head.first_chunk().map(|first| u32::from_le_bytes(*first)) else {
        return false;
    };
    number == 0xfd2f_b528 || number & !0xf == SKIPPABLE
}

/// Unpacks a file; one window takes at most 100 MiB.
pub(super) struct Frames<R: Read>(Option<State<R>>);

enum State<R: Read> {
    Between(R),
    Within(Box<StreamingDecoder<Rejoined<R>, FrameDecoder>>),
}

impl<R: Read> Frames<R> {
    pub fn new(source: R) -> Self {
        Self(Some(State::Between(source)))
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            // after an error there is nothing more to read
            match self.0.take() {
                None => return Ok(0),
                Some(State::Between(source)) => match begin(source)? {
                    None => return Ok(0),
                    Some(state) => self.0 = Some(state),
                },
                Some(State::Within(mut decoder)) => {
                    let count = decoder.read(buffer)?;
                    if count > 0 {
                        self.0 = Some(State::Within(decoder));
                        return Ok(count);
                    }
                    self.0 = Some(State::Between(decoder.into_inner().source));
                }
            }
        }
        Ok(0)
    }
}

/// Begins a frame, or skips one; returns `None` at the end.
fn begin<R: Read>(mut source: R) -> io::Result<Option<State<R>>> {
    let mut head = [0; 4];
    if source.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    source.read_exact(&mut head[1..])?;
    if u32::from_le_bytes(head) & !0xf == SKIPPABLE {
        let mut length = [0; 4];
        source.read_exact(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        let skipped = io::copy(&mut source.by_ref().take(length), &mut io::sink())?;
        if skipped < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        return Ok(Some(State::Between(source)));
    }
    let rejoined = Rejoined {
        head,
        taken: 0,
        source,
    };
    let decoder = StreamingDecoder::new(rejoined).map_err(io::Error::other)?;
    Ok(Some(State::Within(Box::new(decoder))))
}

/// A source together with its first bytes, which were read before.
struct Rejoined<R> {
    head: [u8; 4],
    taken: usize,
    source: R,
}

impl<R: Read> Read for Rejoined<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = &self.head[self.taken..];
        if left.is_empty() {
            return self.source.read(buffer);
        }
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'time_s,cwnd_packets\n0,10\n1,20\n' | zstd -19`
    const PACKED: &str =
        "28b52ffd0468f1000074696d655f732c63776e645f7061636b6574730a302c31300a312c32300ac05ec1ac";

    fn bytes() -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&PACKED[at..at + 2], 16).unwrap();
        (0..PACKED.len()).step_by(2).map(digit).collect()
    }

    fn unpacked(packed: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        Frames::new(packed).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn frames_follow_each_other_and_some_are_skipped() {
        let text = "time_s,cwnd_packets\n0,10\n1,20\n";
        assert_eq!(unpacked(&bytes()).unwrap(), text);
        let skipped = [0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let all = [&skipped[..], &bytes(), &skipped, &bytes()].concat();
        assert!(is_zstd(&all) && is_zstd(&bytes()));
        assert_eq!(unpacked(&all).unwrap(), text.repeat(2));
    }

    #[test]
    fn what_was_cut_is_an_error() {
        let whole = bytes();
        for length in 1..whole.len() - 4 {
            assert!(unpacked(&whole[..length]).is_err(), "{length}");
        }
        assert!(unpacked(&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1]).is_err());
    }
}
