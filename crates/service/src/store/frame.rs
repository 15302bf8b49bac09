//! Frames of a file: length, checksum, content. A frame that was cut off or damaged is noticed.

use std::io::{self, Read};

/// No frame is longer; a length beyond it is damage.
const LONGEST: u32 = 1 << 30;
/// Bytes before the content.
const HEADER: usize = 8;

/// Appends a frame to a buffer; `write` appends the content.
pub fn append(buffer: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = buffer.len();
    buffer.extend([0; HEADER]);
    write(buffer);
    let content = &buffer[begin + HEADER..];
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let sum = crc32fast::hash(content);
    buffer[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    buffer[begin + 4..begin + HEADER].copy_from_slice(&sum.to_le_bytes());
}

/// The next frame of a file.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// Its content.
    Whole(Vec<u8>),
    /// The checksum does not match; the next frame may be read.
    Damaged,
    /// The file ends within the frame, or its length is damaged.
    CutOff,
    /// The file ends here.
    End,
}

/// Reads the next frame.
///
/// # Errors
/// If the file cannot be read.
pub fn next(file: &mut impl Read) -> io::Result<Frame> {
    let mut header = [0; HEADER];
    let mut filled = 0;
    while filled < HEADER {
        match file.read(&mut header[filled..])? {
            0 if filled == 0 => return Ok(Frame::End),
            0 => return Ok(Frame::CutOff),
            count => filled += count,
        }
    }
    let [a, b, c, d, sum @ ..] = header;
    let length = u32::from_le_bytes([a, b, c, d]);
    if length > LONGEST {
        return Ok(Frame::CutOff);
    }
    let mut content = Vec::new();
    file.take(length.into()).read_to_end(&mut content)?;
    if content.len() < length as usize {
        return Ok(Frame::CutOff);
    }
    if crc32fast::hash(&content) == u32::from_le_bytes(sum) {
        Ok(Frame::Whole(content))
    } else {
        Ok(Frame::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_noticed() {
        let mut file = Vec::new();
        append(&mut file, |content| content.extend(b"one"));
        append(&mut file, |content| content.extend(b"two"));
        let read = |file: &[u8]| {
            let mut file = file;
            let mut frames = Vec::new();
            loop {
                let frame = next(&mut file).unwrap();
                let is_last = matches!(frame, Frame::End | Frame::CutOff);
                frames.push(frame);
                if is_last {
                    return frames;
                }
            }
        };
        let (one, two) = (Frame::Whole(b"one".to_vec()), Frame::Whole(b"two".to_vec()));
        assert_eq!(read(&file), [one, two, Frame::End]);
        assert_eq!(read(&file[..file.len() - 1])[1], Frame::CutOff);
        file[9] ^= 1;
        assert_eq!(read(&file)[0], Frame::Damaged);
        file[3] = 0xff;
        assert_eq!(read(&file), [Frame::CutOff]);
    }
}
