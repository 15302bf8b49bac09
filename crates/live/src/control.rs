//! The control connection of the two hosts: TCP in the tunnel, beside the flows.
//!
//! A frame is its kind (one byte), its size (four bytes, little-endian) and its content: JSON or bytes.
//! A thread reads frames, so that every wait for the other host has a time limit.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::LiveError;
use crate::plan::Plan;

const JSON: u8 = 0;
const BYTES: u8 = 1;

/// What a client may say at most in a frame: a scenario with its recordings.
pub(crate) const MOST_FROM_CLIENT: u32 = 8 << 20;
/// What a server may: the log of its packets.
pub(crate) const MOST_FROM_SERVER: u32 = 256 << 20;
/// What either may say in JSON at most, where it may say that much at all.
const MOST_JSON: u32 = 8 << 20;
/// Words of the other host that are shown, in characters; and how many things it may say of one kind.
const MOST_WORDS: usize = 300;
const MOST_SAYINGS: usize = 40;

/// Words of the other host, as they may be shown: not too many, and none that a terminal obeys.
pub(crate) fn words(said: &str) -> String {
    let mut shown = String::new();
    for (count, character) in said.chars().enumerate() {
        if count == MOST_WORDS {
            shown += " ...";
            break;
        }
        // control characters, and characters that change the direction of text
        let obeyed = character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match obeyed {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown
}

/// What the other host is, as it may be shown.
pub(crate) fn shown_environment(said: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let said = said.into_iter().take(MOST_SAYINGS);
    said.map(|(key, value)| (words(&key), words(&value)))
        .collect()
}

/// The longest wait for a frame that should come immediately.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long for what is long: logs over a slow path.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(600);

/// What the client says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    Plan(Plan),
    /// Flows are connected: they begin at this time of the server's monotonic clock.
    Begin {
        at_ns: u64,
    },
    End,
    /// Nothing is in transit any more.
    Results,
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Refused {
        why: String,
    },
    /// It listens, and its own flows may be accepted.
    Ready {
        environment: BTreeMap<String, String>,
    },
    /// All flows that it sends or receives are connected.
    Connected,
    /// Its ends of all flows have ended.
    Done,
    /// It has stopped, too.
    Ended,
    /// What it saw; frames of bytes follow: its log, its arrivals, its trace.
    Results {
        /// When the run began, by its clock.
        begin_ns: u64,
        results: Results,
    },
}

/// What a host saw, without its logs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// By flow number.
    pub(crate) endpoints: Vec<Endpoint>,
    /// By flow number; of flows that this host sends.
    pub(crate) senders: BTreeMap<u32, Sender>,
    pub(crate) cpu_s: f64,
    /// Why what was measured must not be used.
    pub(crate) invalid_because: Vec<String>,
    /// What is missing that helps.
    pub(crate) refused: Vec<String>,
    /// How the senders were watched.
    pub(crate) measured_by: String,
}

impl Results {
    /// What the other host says, as it may be shown and kept.
    pub(crate) fn shown(self) -> Self {
        let few = |said: Vec<String>| {
            let said = said.iter().take(MOST_SAYINGS);
            said.map(|why| words(why)).collect()
        };
        Self {
            invalid_because: few(self.invalid_because),
            refused: few(self.refused),
            measured_by: words(&self.measured_by),
            ..self
        }
    }
}

/// What a host saw of one end of a flow.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) arrived_bytes: u64,
    pub(crate) written: u64,
    pub(crate) ended_ns: Option<u64>,
}

/// What a host knows about a flow that it sends.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sender {
    pub(crate) retransmits: u64,
    pub(crate) mss_bytes: u32,
}

/// The most frames that are read ahead; then the other host must wait.
const MOST_WAITING: usize = 2;

/// One message of the control connection.
pub(crate) enum Frame {
    Json(Vec<u8>),
    Bytes(Vec<u8>),
}

/// One end of the connection.
pub(crate) struct Control {
    stream: TcpStream,
    frames: Receiver<io::Result<Frame>>,
}

impl Control {
    /// A control connection over `stream` with a peer whose frames have at most `most_bytes`.
    pub(crate) fn new(stream: TcpStream, most_bytes: u32) -> Result<Self, LiveError> {
        let talking = |error| LiveError::from_io("setting up the control connection", error);
        stream.set_nodelay(true).map_err(talking)?;
        stream
            .set_write_timeout(Some(LONG_PATIENCE))
            .map_err(talking)?;
        let mut reading = stream.try_clone().map_err(talking)?;
        let (sender, frames) = sync_channel(MOST_WAITING);
        let read = move || loop {
            let frame = read_frame(&mut reading, most_bytes);
            let over = frame.is_err();
            if sender.send(frame).is_err() || over {
                return;
            }
        };
        thread::Builder::new()
            .name("pathcast-control".into())
            .spawn(read)
            .map_err(talking)?;
        Ok(Self { stream, frames })
    }

    /// Says something.
    pub(crate) fn say<T: Serialize>(&mut self, value: &T) -> Result<(), LiveError> {
        let text = serde_json::to_vec(value).expect("plain data");
        self.write(JSON, &text)
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), LiveError> {
        self.write(BYTES, bytes)
    }

    fn write(&mut self, kind: u8, content: &[u8]) -> Result<(), LiveError> {
        let mut frame = vec![kind];
        frame.extend((content.len() as u32).to_le_bytes());
        frame.extend(content);
        let written = self.stream.write_all(&frame);
        written.map_err(|error| LiveError::Peer(format!("does not listen any more: {error}")))
    }

    /// The next thing that the other says; an error if nothing comes within `patience`, or `over` says
    /// that nothing will.
    pub(crate) fn hear<T: DeserializeOwned>(
        &self,
        patience: Duration,
        over: &dyn Fn() -> bool,
    ) -> Result<T, LiveError> {
        let begin = Instant::now();
        loop {
            if let Some(value) = self.heard(Duration::from_millis(20))? {
                return Ok(value);
            }
            if over() {
                return Err(LiveError::Peer("has gone".into()));
            }
            if begin.elapsed() > patience {
                let waited_s = begin.elapsed().as_secs();
                return Err(LiveError::Peer(format!(
                    "has said nothing for {waited_s} s"
                )));
            }
        }
    }

    /// The next thing that the other says, if it comes within `wait`.
    pub(crate) fn heard<T: DeserializeOwned>(
        &self,
        wait: Duration,
    ) -> Result<Option<T>, LiveError> {
        match self.frame(wait)? {
            None => Ok(None),
            Some(Frame::Json(text)) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                let why = words(&error.to_string());
                LiveError::Peer(format!("said what makes no sense: {why}"))
            }),
            Some(Frame::Bytes(_)) => Err(LiveError::Peer("sent bytes, expected words".into())),
        }
    }

    /// The bytes that the other sends.
    pub(crate) fn receive(&self, patience: Duration) -> Result<Vec<u8>, LiveError> {
        match self.frame(patience)? {
            Some(Frame::Bytes(bytes)) => Ok(bytes),
            Some(Frame::Json(_)) => Err(LiveError::Peer("sent words, expected bytes".into())),
            None => {
                let waited_s = patience.as_secs();
                Err(LiveError::Peer(format!(
                    "has sent nothing for {waited_s} s"
                )))
            }
        }
    }

    fn frame(&self, wait: Duration) -> Result<Option<Frame>, LiveError> {
        match self.frames.recv_timeout(wait) {
            Ok(Ok(frame)) => Ok(Some(frame)),
            Ok(Err(error)) => Err(LiveError::Peer(format!("does not talk any more: {error}"))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(LiveError::Peer("has gone".into())),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // ends the thread that reads
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

pub(crate) fn read_frame(stream: &mut impl Read, most_bytes: u32) -> io::Result<Frame> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [kind, size @ ..] = head;
    let size = u32::from_le_bytes(size);
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let most_bytes = match kind {
        JSON => most_bytes.min(MOST_JSON),
        _ => most_bytes,
    };
    if size > most_bytes {
        return Err(wrong(format!(
            "got a frame of {size} bytes, expected at most {most_bytes}"
        )));
    }
    // memory for what is there, not for what is announced
    let mut content = Vec::new();
    stream.take(size.into()).read_to_end(&mut content)?;
    if content.len() < size as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match kind {
        JSON => Ok(Frame::Json(content)),
        BYTES => Ok(Frame::Bytes(content)),
        _ => Err(wrong(format!(
            "got a frame of kind {kind}, expected 0 or 1"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (Control, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (there, _) = listener.accept().unwrap();
        (
            Control::new(here, 1000).unwrap(),
            Control::new(there, 1000).unwrap(),
        )
    }

    #[test]
    fn what_is_said_is_heard() {
        let (mut here, there) = pair();
        here.say(&Request::Begin { at_ns: 7 }).unwrap();
        here.send(b"abc").unwrap();
        let heard: Request = there.hear(PATIENCE, &|| false).unwrap();
        assert!(matches!(heard, Request::Begin { at_ns: 7 }));
        assert_eq!(there.receive(PATIENCE).unwrap(), b"abc");
        drop(here);
        let error = there.hear::<Request>(PATIENCE, &|| false).unwrap_err();
        assert!(error.to_string().contains("does not talk"), "{error}");
    }

    #[test]
    fn nonsense_is_told_and_never_more_read_than_was_agreed() {
        for (bytes, told) in [
            (&b"\x00\xff\xff\xff\xff"[..], "expected at most 1000"),
            (b"\x02\x00\x00\x00\x00", "kind 2"),
            (b"\x00\x02\x00\x00\x00{}", "makes no sense"),
            (b"\x00\x09\x00\x00\x00{", "does not talk"),
            (b"\x01\x01\x00\x00\x00x", "expected words"),
        ] {
            let (mut here, there) = pair();
            here.stream.write_all(bytes).unwrap();
            here.stream.shutdown(std::net::Shutdown::Write).unwrap();
            let error = there.hear::<Request>(PATIENCE, &|| false).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn words_of_the_other_host_do_nothing_to_a_terminal() {
        assert_eq!(
            words("no such scheme: reno 2 \u{e9}"),
            "no such scheme: reno 2 \u{e9}"
        );
        assert_eq!(
            words("a\x1b[2Jb\n\u{202e}c"),
            "a\\u{1b}[2Jb\\u{a}\\u{202e}c"
        );
        assert_eq!(words(&"x".repeat(1000)).len(), MOST_WORDS + 4);
        let results = Results {
            invalid_because: vec!["\x07".into(); 1000],
            ..Results::default()
        };
        let shown = results.shown().invalid_because;
        assert_eq!((shown.len(), &*shown[0]), (MOST_SAYINGS, "\\u{7}"));
    }

    #[test]
    fn json_has_a_limit_of_its_own() {
        let head = |kind| {
            let mut frame = vec![kind];
            frame.extend((MOST_JSON + 1).to_le_bytes());
            frame
        };
        let read = |kind| {
            read_frame(&mut &*head(kind), MOST_FROM_SERVER)
                .err()
                .unwrap()
        };
        assert!(read(JSON).to_string().contains("expected at most"));
        assert_eq!(read(BYTES).kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn nobody_waits_for_one_who_is_gone() {
        let (_here, there) = pair();
        let error = there.hear::<Request>(PATIENCE, &|| true).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
    }
}
