//! What wrappers of schemes have in common: the command line, SIGTERM, waiting, reports, certificates.
//!
//! A wrapper is one program of two roles: `receive ADDRESS:PORT` and `send ADDRESS:PORT [--bytes N]`, with options of
//! its own before. Both end at SIGTERM with one line of JSON on standard output.

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SerialNumber};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

#[cfg(feature = "rustls")]
mod any_certificate;
mod listener;

#[cfg(feature = "rustls")]
pub use any_certificate::client_config;
pub use listener::{Find, heard, listen};

/// Whatever ends a wrapper.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The name in certificates.
pub const SERVER_NAME: &str = "pathcast";
/// The protocol that both ends agree on (ALPN).
pub const PROTOCOL: &[u8] = b"pathcast";
/// SIGTERM is looked for so often.
pub const TURN: Duration = Duration::from_millis(100);

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The word of `--controller`, if there is one.
    pub controller: Option<String>,
    /// Whether this is the receiver.
    pub receives: bool,
    /// Of the receiver.
    pub address: SocketAddr,
    /// How much to send; 0: until SIGTERM.
    pub bytes: u64,
}

impl Job {
    /// Reads the program's arguments.
    ///
    /// # Errors
    /// They are others than `[--controller NAME] receive|send ADDRESS:PORT [--bytes N]`.
    pub fn from_arguments() -> Result<Self, Failure> {
        Self::parse(std::env::args().skip(1))
    }

    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut words = arguments.peekable();
        let mut controller = None;
        if words.next_if_eq("--controller").is_some() {
            controller = Some(words.next().ok_or("--controller has no name after it")?);
        }
        let receives = match words.next().as_deref() {
            Some("receive") => true,
            Some("send") => false,
            other => return Err(format!("got {other:?}; expected receive or send").into()),
        };
        let address = words
            .next()
            .ok_or("got no address; expected ADDRESS:PORT")?;
        let address = address
            .parse()
            .map_err(|_| format!("got {address:?}; expected ADDRESS:PORT"))?;
        let mut bytes = 0;
        if words.next_if_eq("--bytes").is_some() {
            let text = words.next().unwrap_or_default();
            bytes = text
                .parse()
                .map_err(|_| format!("--bytes is {text:?}; expected a number"))?;
        }
        match words.next() {
            Some(word) => Err(format!("got {word:?}; expected nothing more").into()),
            None => Ok(Self {
                controller,
                receives,
                address,
                bytes,
            }),
        }
    }
}

/// A flag that SIGTERM raises.
///
/// # Errors
/// The system refuses.
pub fn stopped() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&flag))?;
    Ok(flag)
}

/// Waits until the socket can be read, `timeout` has passed, or a signal comes; to the nanosecond (ppoll), as paced
/// senders need it.
///
/// # Errors
/// The system refuses.
pub fn wait(socket: &UdpSocket, timeout: Duration) -> Result<(), Failure> {
    wait_for(socket, PollFlags::IN, timeout)
}

/// Waits until the socket can be written to, a tenth of a second at most.
///
/// # Errors
/// The system refuses.
pub fn wait_to_write(socket: &UdpSocket) -> Result<(), Failure> {
    wait_for(socket, PollFlags::OUT, TURN)
}

fn wait_for(socket: &UdpSocket, event: PollFlags, timeout: Duration) -> Result<(), Failure> {
    let time = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), event)];
    match poll(&mut sockets, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a datagram; waits while the socket is full.
///
/// # Errors
/// The system refuses otherwise.
pub fn send_to(
    socket: &UdpSocket,
    datagram: &[u8],
    to: SocketAddr,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
        match socket.send_to(datagram, to) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => wait_to_write(socket)?,
            // the other end has gone; it is the transport's to see it
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Says that the receiver is ready.
pub fn say_listening() {
    say("listening");
}

/// The sender's last words.
pub fn report_sender(controller: &str, evidence: &str, sent_bytes: u64) {
    let report = json!({"controller": controller, "evidence": evidence, "sent_bytes": sent_bytes});
    say(&report.to_string());
}

/// The receiver's last words.
pub fn report_receiver(received_bytes: u64, time: Duration) {
    let seconds = time.as_secs_f64();
    say(&json!({"received_bytes": received_bytes, "seconds": seconds}).to_string());
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // nobody listens: nothing to do
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// The address from which datagrams to `to` leave.
///
/// # Errors
/// There is no route.
pub fn source_of(to: SocketAddr) -> Result<IpAddr, Failure> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    any.connect(to)?;
    Ok(any.local_addr()?.ip())
}

/// Writes a certificate and its key, made for this run, as files for as long as `use_them` takes: some implementations
/// take nothing else.
///
/// # Errors
/// A file cannot be written, or what `use_them` says.
pub fn with_certificate_files<T>(
    use_them: impl FnOnce(&str, &str) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (certificate, key) = certificate()?;
    let number = std::process::id();
    let name = |kind: &str| std::env::temp_dir().join(format!("pathcast-scheme-{number}.{kind}"));
    let files = [name("crt"), name("key")];
    std::fs::write(&files[0], certificate)?;
    std::fs::write(&files[1], key)?;
    let [first, second] = [&files[0], &files[1]].map(|file| file.to_string_lossy());
    let used = use_them(&first, &second);
    for file in &files {
        std::fs::remove_file(file)?;
    }
    used
}

/// A certificate and its key as PEM, made for this run; whoever sends does not check it.
///
/// # Errors
/// The system has no randomness.
pub fn certificate() -> Result<(String, String), Failure> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new([SERVER_NAME.to_string()])?;
    params.serial_number = Some(SerialNumber::from(1));
    let made = params.self_signed(&key)?;
    Ok((made.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Job, Failure> {
        Job::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn command_lines_are_read_or_refused() {
        let job = parse("--controller copa send 127.0.0.1:5000 --bytes 7").unwrap();
        assert_eq!(
            (job.controller.as_deref(), job.receives, job.bytes),
            (Some("copa"), false, 7)
        );
        assert!(parse("receive [::1]:5000").unwrap().receives);
        for wrong in [
            "",
            "send",
            "sendd 127.0.0.1:5000",
            "send 127.0.0.1",
            "send 127.0.0.1:5000 --bytes x",
            "receive 127.0.0.1:1 more",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
