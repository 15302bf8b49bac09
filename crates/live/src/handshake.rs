//! How two hosts that share a key agree on a session, and what its datagrams look like.
//!
//! Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s, one message each way. Whoever has not the key cannot make
//! the first message, and gets no answer; the answer is never longer than what asked for it; what is
//! recorded today cannot be read with a key that is stolen tomorrow.
//!
//! ```text
//! hello     01 02 00 00 | client's index | cookie (24 bytes) | Noise message | MAC (16 bytes)
//! again     04 02 00 00 | client's index | cookie (24 bytes) | MAC
//! welcome   02 02 00 00 | client's index | server's index | Noise message
//! data      03 02 00 00 | receiver's index | number (8 bytes) | ciphertext
//! other     05 VV 00 00 | client's index | MAC
//! ```
//!
//! A first hello has a cookie of zeros. It is answered by `again`, for which the server keeps nothing; the
//! hello with that cookie opens a session. Numbers are little-endian, indices have four bytes. A number is
//! given once: it is the nonce of its datagram and its name in both hosts' logs.
//!
//! The second byte is the version. Of any version from 2 on, a hello has its index and its MAC in these places,
//! and `other` says which version the server speaks (as the properties of QUIC that no version changes, RFC
//! 8999). MACs are by a key made from the shared one; that of an answer covers the MAC of its hello, too.

use blake2::digest::Mac;
use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::cookie::{COOKIE_BYTES, Cookie, MAC_BYTES, cut, mac};
use crate::key::Key;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Both must mean the same by what they say.
const PROLOGUE: &[u8] = b"pathcast live 2";
/// Of the protocol.
pub(crate) const VERSION: u8 = 2;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATA: u8 = 3;
const AGAIN: u8 = 4;
const OTHER: u8 = 5;

const TAG_BYTES: usize = 16;
const PUBLIC_KEY_BYTES: usize = 32;
/// Before the ciphertext of a datagram.
const DATA_HEADER_BYTES: usize = 16;
/// The bytes of a datagram in addition to the packet in it.
pub(crate) const OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TAG_BYTES;
const HELLO_BYTES: usize = 8 + COOKIE_BYTES + PUBLIC_KEY_BYTES + TAG_BYTES + MAC_BYTES;
const AGAIN_BYTES: usize = 8 + COOKIE_BYTES + MAC_BYTES;
const OTHER_BYTES: usize = 8 + MAC_BYTES;
const WELCOME_BYTES: usize = 12 + PUBLIC_KEY_BYTES + 1 + TAG_BYTES;
// whoever names another's address as its own makes no more traffic than it sends
const _: () = assert!(WELCOME_BYTES <= HELLO_BYTES && AGAIN_BYTES <= HELLO_BYTES);

/// Longest datagram that is looked at.
pub(crate) const MOST_BYTES: usize = 2048;

/// What a datagram claims to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Datagram<'a> {
    Hello(Hello<'a>),
    /// A hello of another version.
    OtherHello,
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

/// What a client says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello<'a> {
    pub(crate) from: u32,
    pub(crate) cookie: &'a Cookie,
    message: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a datagram; none if it is not of this protocol.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let (kind, version) = match *head {
            [kind, version, 0, 0] => (kind, version),
            _ => return None,
        };
        if version != VERSION {
            let is_hello = kind == HELLO && version > 0 && bytes.len() >= OTHER_BYTES;
            return is_hello.then_some(Self::OtherHello);
        }
        match kind {
            HELLO if bytes.len() == HELLO_BYTES => {
                let (from, rest) = rest.split_first_chunk()?;
                let (cookie, rest) = rest.split_first_chunk()?;
                let (message, _) = rest.split_last_chunk::<MAC_BYTES>()?;
                let from = u32::from_le_bytes(*from);
                Some(Self::Hello(Hello {
                    from,
                    cookie,
                    message,
                }))
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

/// Signs what is said before there is a session, by the shared key.
#[derive(Clone)]
pub(crate) struct Signer([u8; 32]);

impl Signer {
    pub(crate) fn new(key: &Key) -> Self {
        // a key for this purpose only
        let whole = mac(key.bytes(), &[b"pathcast live hello"]);
        Self(whole.finalize().into_bytes().into())
    }

    /// Whether a hello, of whatever version, is of one who has the key.
    pub(crate) fn is_hello(&self, datagram: &[u8]) -> bool {
        let Some((said, tag)) = datagram.split_last_chunk::<MAC_BYTES>() else {
            return false;
        };
        mac(&self.0, &[said]).verify_truncated_left(tag).is_ok()
    }

    /// Ends a datagram with its MAC; what it answers, if anything, is covered, too.
    fn sign(&self, mut datagram: Vec<u8>, hello: &[u8]) -> Vec<u8> {
        let tag = cut(self.answering(&datagram, hello));
        datagram.extend(tag);
        datagram
    }

    fn answering(&self, said: &[u8], hello: &[u8]) -> blake2::Blake2sMac256 {
        // a hello's own MAC stands for it
        let hello = hello.last_chunk::<MAC_BYTES>().map_or(hello, |tag| tag);
        mac(&self.0, &[said, hello])
    }

    /// What a hello without a cookie that holds is answered by.
    pub(crate) fn again(&self, hello: &[u8], cookie: &Cookie) -> Vec<u8> {
        let mut datagram = vec![AGAIN, VERSION, 0, 0];
        datagram.extend(&hello[4..8]);
        datagram.extend(cookie);
        self.sign(datagram, hello)
    }

    /// What a hello of another version is answered by.
    pub(crate) fn other(&self, hello: &[u8]) -> Vec<u8> {
        let mut datagram = vec![OTHER, VERSION, 0, 0];
        datagram.extend(&hello[4..8]);
        self.sign(datagram, hello)
    }

    /// Whether `datagram` was said in answer to this hello; then what, without head and MAC.
    fn answered<'d>(&self, datagram: &'d [u8], hello: &[u8]) -> Option<&'d [u8]> {
        let (said, tag) = datagram.split_last_chunk::<MAC_BYTES>()?;
        let (head, content) = said.split_at_checked(8)?;
        let right = self.answering(said, hello).verify_truncated_left(tag);
        (head[4..8] == hello[4..8] && right.is_ok()).then_some(content)
    }
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
    signer: Signer,
    index: u32,
    /// The datagram to send, and to repeat without an answer.
    pub(crate) hello: Vec<u8>,
}

/// What a datagram means to one who has said hello.
pub(crate) enum Answered {
    /// Both can talk now.
    Welcome(Session),
    /// The server has as many clients as it takes.
    Busy,
    /// The server asks for the hello again, with this cookie.
    Again(Cookie),
    /// The server speaks another version of the protocol.
    Other(u8),
    /// Nothing, or it was forged: the true answer may still come.
    Nothing(Asking),
}

impl Asking {
    /// A client that will know its datagrams by `index`; the cookie is zeros before the server gives one.
    pub(crate) fn new(key: &Key, index: u32, cookie: &Cookie) -> Self {
        let noise = builder(key).build_initiator();
        let mut noise = Box::new(noise.expect("all that an initiator needs is there"));
        let mut hello = vec![HELLO, VERSION, 0, 0];
        hello.extend(index.to_le_bytes());
        hello.extend(cookie);
        let begin = hello.len();
        hello.resize(HELLO_BYTES - MAC_BYTES, 0);
        let written = noise.write_message(&[], &mut hello[begin..]);
        assert_eq!(written.ok(), Some(HELLO_BYTES - MAC_BYTES - begin));
        let signer = Signer::new(key);
        let hello = signer.sign(hello, &[]);
        Self {
            noise,
            signer,
            index,
            hello,
        }
    }

    /// What a datagram means.
    pub(crate) fn answered(mut self, datagram: &[u8]) -> Answered {
        match *datagram {
            [AGAIN, VERSION, 0, 0, ..] if datagram.len() == AGAIN_BYTES => {
                let content = self.signer.answered(datagram, &self.hello);
                match content.and_then(|cookie| cookie.try_into().ok()) {
                    Some(cookie) => Answered::Again(cookie),
                    None => Answered::Nothing(self),
                }
            }
            [OTHER, version, 0, 0, ..] if datagram.len() == OTHER_BYTES => {
                match self.signer.answered(datagram, &self.hello) {
                    Some(_) if version != VERSION => Answered::Other(version),
                    _ => Answered::Nothing(self),
                }
            }
            _ => {
                let Some(Datagram::Welcome { to, from, message }) = Datagram::parse(datagram)
                else {
                    return Answered::Nothing(self);
                };
                let mut said = [0; MOST_BYTES];
                // what was forged leaves the handshake as it was
                if to != self.index || self.noise.read_message(message, &mut said).ok() != Some(1) {
                    return Answered::Nothing(self);
                }
                if said[0] != 0 {
                    return Answered::Busy;
                }
                let transport = self.noise.into_stateless_transport_mode();
                let transport = transport.expect("both messages are through");
                Answered::Welcome(Session::new(transport, self.index, from))
            }
        }
    }
}

/// Answers a hello: the datagram to send back and the session that it opens; none if it was not made
/// with this key.
pub(crate) fn answer(
    key: &Key,
    hello: &Hello<'_>,
    index: u32,
    answer: Answer,
) -> Option<(Vec<u8>, Session)> {
    let mut noise = builder(key).build_responder().ok()?;
    let mut said = [0; MOST_BYTES];
    noise.read_message(hello.message, &mut said).ok()?;
    let mut welcome = vec![WELCOME, VERSION, 0, 0];
    welcome.extend(hello.from.to_le_bytes());
    welcome.extend(index.to_le_bytes());
    let begin = welcome.len();
    welcome.resize(WELCOME_BYTES, 0);
    let status = [u8::from(answer == Answer::Busy)];
    noise.write_message(&status, &mut welcome[begin..]).ok()?;
    let transport = noise.into_stateless_transport_mode().ok()?;
    Some((welcome, Session::new(transport, index, hello.from)))
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

    const FIRST: Cookie = [0; COOKIE_BYTES];

    fn hello(datagram: &[u8]) -> Hello<'_> {
        let Some(Datagram::Hello(hello)) = Datagram::parse(datagram) else {
            panic!("a hello");
        };
        hello
    }

    fn agree(client_key: &Key, server_key: &Key) -> Option<(Session, Session)> {
        let asking = Asking::new(client_key, 7, &FIRST);
        let (welcome, server) = answer(server_key, &hello(&asking.hello), 9, Answer::Welcome)?;
        let Answered::Welcome(client) = asking.answered(&welcome) else {
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
    fn what_is_forged_or_foreign_is_passed_over_and_the_true_answer_taken() {
        let key = Key::random().unwrap();
        let asking = Asking::new(&key, 7, &FIRST);
        let signer = Signer::new(&key);
        let (welcome, _) = answer(&key, &hello(&asking.hello), 9, Answer::Busy).unwrap();
        let earlier = Asking::new(&key, 7, &FIRST).hello;
        let again = signer.again(&asking.hello, &[5; COOKIE_BYTES]);
        let other = signer.other(&asking.hello);
        let mut forged = vec![
            b"nonsense".to_vec(),
            // of this client, to what it said before
            signer.again(&earlier, &[5; COOKIE_BYTES]),
            answer(&key, &hello(&earlier), 9, Answer::Welcome)
                .unwrap()
                .0,
            // of somebody with another key
            Signer::new(&Key::random().unwrap()).again(&asking.hello, &[5; COOKIE_BYTES]),
            // its own version is not another one
            other,
        ];
        for true_answer in [&welcome, &again] {
            for at in 0..true_answer.len() {
                let mut changed = true_answer.clone();
                changed[at] ^= 1;
                forged.push(changed);
            }
        }
        // the server's index in its welcome is not covered: a wrong one leads nowhere
        forged.retain(|datagram| datagram[..8] != welcome[..8] || datagram[12..] != welcome[12..]);
        let mut asking = asking;
        for datagram in forged {
            asking = match asking.answered(&datagram) {
                Answered::Nothing(asking) => asking,
                _ => panic!("{datagram:?}"),
            };
        }
        assert!(matches!(asking.answered(&welcome), Answered::Busy));
    }

    #[test]
    fn a_server_asks_for_a_hello_with_its_cookie() {
        let key = Key::random().unwrap();
        let signer = Signer::new(&key);
        let asking = Asking::new(&key, 7, &FIRST);
        assert!(signer.is_hello(&asking.hello));
        let again = signer.again(&asking.hello, &[5; COOKIE_BYTES]);
        let Answered::Again(cookie) = asking.answered(&again) else {
            panic!("a cookie");
        };
        let second = Asking::new(&key, 7, &cookie).hello;
        assert_eq!(hello(&second).cookie, &[5; COOKIE_BYTES]);
        // the cookie of a hello cannot be exchanged
        let mut stolen = second.clone();
        stolen[8] ^= 1;
        assert!(signer.is_hello(&second) && !signer.is_hello(&stolen));
        assert!(!Signer::new(&Key::random().unwrap()).is_hello(&second));
    }

    #[test]
    fn hosts_of_different_versions_say_so() {
        let key = Key::random().unwrap();
        let signer = Signer::new(&key);
        // of a version that we do not know, all else may be different
        let mut newer = vec![HELLO, VERSION + 1, 0, 0, 9, 8, 7, 6, 1, 2, 3];
        newer.resize(200, 4);
        let newer = signer.sign(newer, &[]);
        assert_eq!(Datagram::parse(&newer), Some(Datagram::OtherHello));
        assert!(signer.is_hello(&newer));
        let said = signer.other(&newer);
        assert_eq!(said[..8], [OTHER, VERSION, 0, 0, 9, 8, 7, 6]);
        assert!(signer.answered(&said, &newer).is_some());
        // and what a newer server says to us
        let asking = Asking::new(&key, 7, &FIRST);
        let mut said = vec![OTHER, VERSION + 1, 0, 0];
        said.extend(7u32.to_le_bytes());
        let said = signer.sign(said, &asking.hello);
        assert!(
            matches!(asking.answered(&said), Answered::Other(version) if version == VERSION + 1)
        );
    }

    #[test]
    fn what_is_cut_or_strange_is_none_of_ours() {
        let key = Key::random().unwrap();
        let hello = Asking::new(&key, 7, &FIRST).hello;
        for length in 0..hello.len() {
            assert_eq!(Datagram::parse(&hello[..length]), None);
        }
        for strange in [[3, 1, 0, 0], [9, 2, 0, 0], [3, 2, 1, 0], [1, 0, 0, 0]] {
            let mut datagram = [0; 100];
            datagram[..4].copy_from_slice(&strange);
            assert_eq!(Datagram::parse(&datagram), None);
        }
        let mut longer = hello.clone();
        longer.push(0);
        assert_eq!(Datagram::parse(&longer), None);
    }
}
