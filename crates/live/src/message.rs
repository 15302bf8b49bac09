//! How messages lie in a TCP connection, so that the far end knows where they end, when they were
//! written and what to answer.
//!
//! Each begins with three numbers of eight bytes: its own size, these included; when it was written,
//! by the writer's clock; the size of the answer, 0 for none. Answers are bare bytes: who asked knows
//! how many to expect. A message is never smaller than its head.

/// Bytes of a message's head.
pub(crate) const HEAD_BYTES: usize = 24;

/// What stands before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The message with its head.
    pub(crate) bytes: u64,
    pub(crate) written_ns: u64,
    pub(crate) answer_bytes: u64,
}

impl Head {
    /// A message of `bytes` bytes, as an application writes it.
    pub(crate) fn new(bytes: u64, written_ns: u64, answer_bytes: u64) -> Self {
        Self {
            bytes: bytes.max(HEAD_BYTES as u64),
            written_ns,
            answer_bytes,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.bytes.to_le_bytes());
        head[8..16].copy_from_slice(&self.written_ns.to_le_bytes());
        head[16..].copy_from_slice(&self.answer_bytes.to_le_bytes());
        head
    }

    fn decode(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let head = Self {
            bytes: word(0),
            written_ns: word(8),
            answer_bytes: word(16),
        };
        (head.bytes >= HEAD_BYTES as u64).then_some(head)
    }
}

/// Reads messages as they come, in whatever pieces.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    head: [u8; HEAD_BYTES],
    have: usize,
    /// The message whose head has come, and what of it has not.
    current: Option<(Head, u64)>,
}

impl Reader {
    /// Bytes to read next at most, and whether they matter or are only counted.
    pub(crate) fn wants(&self) -> (u64, bool) {
        match self.current {
            Some((_, left)) => (left, false),
            None => ((HEAD_BYTES - self.have) as u64, true),
        }
    }

    /// Takes `size` bytes that have arrived, at most those still missing; `bytes` has their content, if it
    /// matters. Returns the message that they complete; an error if this is not a message.
    pub(crate) fn take(&mut self, size: u64, bytes: &[u8]) -> Result<Option<Head>, ()> {
        let (head, left) = match &mut self.current {
            Some((head, left)) => {
                *left -= size;
                (*head, *left)
            }
            None => {
                let bytes = bytes.get(..size as usize).ok_or(())?;
                self.head[self.have..self.have + bytes.len()].copy_from_slice(bytes);
                self.have += bytes.len();
                if self.have < HEAD_BYTES {
                    return Ok(None);
                }
                self.have = 0;
                let head = Head::decode(&self.head).ok_or(())?;
                let left = head.bytes - HEAD_BYTES as u64;
                self.current = Some((head, left));
                (head, left)
            }
        };
        if left > 0 {
            return Ok(None);
        }
        self.current = None;
        Ok(Some(head))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_whatever_the_pieces(
            sizes in proptest::collection::vec(1u64..200, 1..20),
            pieces in proptest::collection::vec(1u64..90, 1..20),
        ) {
            let heads: Vec<Head> = (0..).zip(&sizes).map(|(i, &size)| Head::new(size, i, size / 2)).collect();
            let mut stream = Vec::new();
            for head in &heads {
                stream.extend(head.encode());
                stream.resize(stream.len() + head.bytes as usize - HEAD_BYTES, 7);
            }
            let (mut reader, mut rest, mut read) = (Reader::default(), &stream[..], Vec::new());
            for piece in pieces.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let size = reader.wants().0.min(*piece).min(rest.len() as u64);
                let (now, later) = rest.split_at(size as usize);
                read.extend(reader.take(size, now).unwrap());
                rest = later;
            }
            prop_assert_eq!(read, heads);
        }
    }

    #[test]
    fn a_head_that_says_less_than_itself_is_none() {
        let mut reader = Reader::default();
        assert_eq!(reader.take(24, &[0; 24]), Err(()));
    }
}
