//! How two hosts that share a key agree on a session, and what its datagrams look like.
//!
//! Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s, one message each way. Whoever has not the key cannot make
//! the first message, and gets no answer; the answer is never longer than what asked for it; what is
//! recorded today cannot be read with a key that is stolen tomorrow.
//!
//! ```text
//! hello     01 01 00 00 | client's index | Noise message
//! welcome   02 01 00 00 | client's index | server's index | Noise message
//! data      03 01 00 00 | receiver's index | number (8 bytes) | ciphertext
//! ```
//!
//! Numbers are little-endian, indices have four bytes. A number is given once: it is the nonce of its
//! datagram and its name in both hosts' logs.

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::key::Key;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Both must mean the same by what they say.
const PROLOGUE: &[u8] = b"pathcast live 1";
const VERSION: u8 = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATA: u8 = 3;

const TAG_BYTES: usize = 16;
const PUBLIC_KEY_BYTES: usize = 32;
/// Before the ciphertext of a datagram.
const DATA_HEADER_BYTES: usize = 16;
/// What a datagram has beside the packet in it.
pub(crate) const OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TAG_BYTES;
/// A hello is padded to the size of its answer.
const PADDING: [u8; 5] = [0; 5];
const HELLO_BYTES: usize = 8 + PUBLIC_KEY_BYTES + PADDING.len() + TAG_BYTES;
const WELCOME_BYTES: usize = 12 + PUBLIC_KEY_BYTES + 1 + TAG_BYTES;
const _: () = assert!(WELCOME_BYTES <= HELLO_BYTES);

/// Longest datagram that is looked at.
pub(crate) const MOST_BYTES: usize = 2048;

/// What a datagram claims to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Datagram<'a> {
    Hello {
        from: u32,
        message: &'a [u8],
    },
    Welcome {
        to: u32,
        from: u32,
        message: &'a [u8],
    },
    Data {
        to: u32,
        number: u64,
        ciphertext: &'a [u8],
    },
}

impl<'a> Datagram<'a> {
    /// Reads a datagram; none if it is none of ours.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let [kind, VERSION, 0, 0] = *head else {
            return None;
        };
        match kind {
            HELLO if bytes.len() == HELLO_BYTES => {
                let (from, message) = rest.split_first_chunk()?;
                let from = u32::from_le_bytes(*from);
                Some(Self::Hello { from, message })
            }
            WELCOME if bytes.len() == WELCOME_BYTES => {
                let (to, rest) = rest.split_first_chunk()?;
                let (from, message) = rest.split_first_chunk()?;
                Some(Self::Welcome {
                    to: u32::from_le_bytes(*to),
                    from: u32::from_le_bytes(*from),
                    message,
                })
            }
            DATA if bytes.len() > OVERHEAD_BYTES => {
                let (to, rest) = rest.split_first_chunk()?;
                let (number, ciphertext) = rest.split_first_chunk()?;
                Some(Self::Data {
                    to: u32::from_le_bytes(*to),
                    number: u64::from_le_bytes(*number),
                    ciphertext,
                })
            }
            _ => None,
        }
    }
}

/// What a server says to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Welcome,
    /// It has as many clients as it takes.
    Busy,
}

fn builder(key: &Key) -> Builder<'_> {
    let pattern: NoiseParams = PATTERN.parse().expect("a pattern that snow knows");
    let builder = Builder::new(pattern).psk(0, key.bytes());
    let builder = builder.and_then(|builder| builder.prologue(PROLOGUE));
    builder.expect("key and prologue are set once")
}

/// A client that has said hello.
pub(crate) struct Asking {
    noise: Box<HandshakeState>,
    index: u32,
    /// The datagram to send, again if nobody answers.
    pub(crate) hello: Vec<u8>,
}

impl Asking {
    /// A client that will know its datagrams by `index`.
    pub(crate) fn new(key: &Key, index: u32) -> Self {
        let noise = builder(key).build_initiator();
        let mut noise = Box::new(noise.expect("all that an initiator needs is there"));
        let mut hello = vec![HELLO, VERSION, 0, 0];
        hello.extend(index.to_le_bytes());
        let begin = hello.len();
        hello.resize(HELLO_BYTES, 0);
        let written = noise.write_message(&PADDING, &mut hello[begin..]);
        assert_eq!(written.ok(), Some(HELLO_BYTES - begin));
        Self {
            noise,
            index,
            hello,
        }
    }

    /// Whether this is the answer of a server with the same key; then what it says.
    ///
    /// An answer that was forged breaks the handshake: a hello of another session is needed.
    pub(crate) fn answered(self, datagram: &[u8]) -> Result<(Answer, Session), Option<Self>> {
        let Self {
            mut noise, index, ..
        } = self;
        let Some(Datagram::Welcome { to, from, message }) = Datagram::parse(datagram) else {
            return Err(Some(Self { noise, ..self }));
        };
        if to != index {
            return Err(Some(Self { noise, ..self }));
        }
        let mut said = [0; MOST_BYTES];
        let Ok(1) = noise.read_message(message, &mut said) else {
            return Err(None);
        };
        let answer = match said[0] {
            0 => Answer::Welcome,
            _ => Answer::Busy,
        };
        let transport = noise.into_stateless_transport_mode();
        let transport = transport.map_err(|_| None)?;
        Ok((answer, Session::new(transport, index, from)))
    }
}

/// Answers a hello: the datagram to send back and the session that it opens; none if it was not made
/// with this key.
pub(crate) fn answer(
    key: &Key,
    client: u32,
    message: &[u8],
    index: u32,
    answer: Answer,
) -> Option<(Vec<u8>, Session)> {
    let mut noise = builder(key).build_responder().ok()?;
    let mut said = [0; MOST_BYTES];
    noise.read_message(message, &mut said).ok()?;
    let mut welcome = vec![WELCOME, VERSION, 0, 0];
    welcome.extend(client.to_le_bytes());
    welcome.extend(index.to_le_bytes());
    let begin = welcome.len();
    welcome.resize(WELCOME_BYTES, 0);
    let status = [u8::from(answer == Answer::Busy)];
    noise.write_message(&status, &mut welcome[begin..]).ok()?;
    let transport = noise.into_stateless_transport_mode().ok()?;
    Some((welcome, Session::new(transport, index, client)))
}

/// Two hosts that can talk.
pub(crate) struct Session {
    transport: StatelessTransportState,
    /// What the other calls us.
    pub(crate) index: u32,
    peer_index: u32,
    next_number: u64,
}

impl Session {
    const fn new(transport: StatelessTransportState, index: u32, peer_index: u32) -> Self {
        Self {
            transport,
            index,
            peer_index,
            next_number: 0,
        }
    }

    /// Makes `datagram` carry `content`; gives its number and its size.
    #[inline]
    pub(crate) fn seal(&mut self, content: &[u8], datagram: &mut [u8; MOST_BYTES]) -> (u64, usize) {
        let number = self.next_number;
        self.next_number += 1;
        datagram[..4].copy_from_slice(&[DATA, VERSION, 0, 0]);
        datagram[4..8].copy_from_slice(&self.peer_index.to_le_bytes());
        datagram[8..16].copy_from_slice(&number.to_le_bytes());
        let sealed = &mut datagram[DATA_HEADER_BYTES..];
        let size = self.transport.write_message(number, content, sealed);
        let size = size.expect("a packet of the MTU fits into a datagram");
        (number, DATA_HEADER_BYTES + size)
    }

    /// What is in the ciphertext of datagram `number`; none if it was not sealed by the other.
    #[inline]
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        ciphertext: &[u8],
        content: &'a mut [u8; MOST_BYTES],
    ) -> Option<&'a [u8]> {
        let size = self
            .transport
            .read_message(number, ciphertext, content)
            .ok()?;
        Some(&content[..size])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(client_key: &Key, server_key: &Key) -> Option<(Session, Session)> {
        let asking = Asking::new(client_key, 7);
        let Some(Datagram::Hello { from, message }) = Datagram::parse(&asking.hello) else {
            panic!("a hello");
        };
        let (welcome, server) = answer(server_key, from, message, 9, Answer::Welcome)?;
        let Ok((Answer::Welcome, client)) = asking.answered(&welcome) else {
            panic!("a welcome");
        };
        Some((client, server))
    }

    #[test]
    fn two_who_have_the_same_key_understand_each_other() {
        let key = Key::random().unwrap();
        let (mut client, mut server) = agree(&key, &key).unwrap();
        for (from, to, index) in [(true, false, 9), (false, true, 7)] {
            assert_ne!(from, to);
            let (mut datagram, mut content) = ([0; MOST_BYTES], [0; MOST_BYTES]);
            let (writer, reader) = match from {
                true => (&mut client, &server),
                false => (&mut server, &client),
            };
            for expected in [0, 1] {
                let (number, size) = writer.seal(b"hello there", &mut datagram);
                assert_eq!((number, size), (expected, 11 + OVERHEAD_BYTES));
                let Some(Datagram::Data {
                    to,
                    number,
                    ciphertext,
                }) = Datagram::parse(&datagram[..size])
                else {
                    panic!("data");
                };
                assert_eq!((to, number), (index, expected));
                let opened = reader.open(number, ciphertext, &mut content);
                assert_eq!(opened, Some(&b"hello there"[..]));
                assert_eq!(reader.open(number + 1, ciphertext, &mut content), None);
                let mut forged = ciphertext.to_vec();
                forged[3] ^= 1;
                assert_eq!(reader.open(number, &forged, &mut content), None);
            }
        }
    }

    #[test]
    fn who_has_another_key_gets_no_answer() {
        let (one, other) = (Key::random().unwrap(), Key::random().unwrap());
        assert!(agree(&one, &other).is_none());
    }

    #[test]
    fn a_forged_or_foreign_answer_opens_no_session() {
        let key = Key::random().unwrap();
        let asking = Asking::new(&key, 7);
        let Some(Datagram::Hello { from, message }) = Datagram::parse(&asking.hello) else {
            panic!("a hello");
        };
        let (mut welcome, _) = answer(&key, from, message, 9, Answer::Busy).unwrap();
        let asking = match asking.answered(b"nonsense") {
            Err(Some(asking)) => asking,
            _ => panic!("nonsense is passed over"),
        };
        welcome[4] ^= 1; // to another client
        let asking = match asking.answered(&welcome) {
            Err(Some(asking)) => asking,
            _ => panic!("it is not for us"),
        };
        welcome[4] ^= 1;
        *welcome.last_mut().unwrap() ^= 1;
        assert!(matches!(asking.answered(&welcome), Err(None)));
    }

    #[test]
    fn what_is_cut_or_strange_is_none_of_ours() {
        let key = Key::random().unwrap();
        let hello = Asking::new(&key, 7).hello;
        for length in 0..hello.len() {
            assert_eq!(Datagram::parse(&hello[..length]), None);
        }
        for strange in [[3, 2, 0, 0], [9, 1, 0, 0], [3, 1, 1, 0]] {
            let mut datagram = [0; 100];
            datagram[..4].copy_from_slice(&strange);
            assert_eq!(Datagram::parse(&datagram), None);
        }
        let mut longer = hello.clone();
        longer.push(0);
        assert_eq!(Datagram::parse(&longer), None);
    }
}
