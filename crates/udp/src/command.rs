//! The command line of `pathcast-udp`.

use std::net::SocketAddr;

use pathcast_congestion::Scheme;
use serde_json::{Value, json};

use crate::error::UdpError;
use crate::io::{Listening, most_payload_bytes, nonce, send};
use crate::receiving::ReceivingEnd;
use crate::sending::{SendingEnd, SendingOptions};
use crate::wire::MOST_PAYLOAD_BYTES;

/// How it is called.
pub const USAGE: &str = "\
usage: pathcast-udp receive ADDRESS:PORT
       pathcast-udp send ADDRESS:PORT --scheme NAME [--bytes N] [--payload N] [--seed N]

Send by a congestion controller of Pathcast's own over UDP, as fast as it allows, until SIGTERM.

receive  Print `listening` when ready, receive until SIGTERM, then print a line of JSON.
send     Send until SIGTERM, or --bytes N until all are acknowledged (0: no end); then print a line of JSON.

  --scheme NAME  the controller: copa, vivace, ledbat, ledbat++, fixed:N, cubic, ...
  --payload N    bytes of payload in a datagram, at most 1446; default: what fits into the interface's MTU
  --seed N       of what the controller draws; default: 1

Example: pathcast-udp receive 127.0.0.1:9000 & pathcast-udp send 127.0.0.1:9000 --scheme copa --bytes 10000000";

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Show how it is called.
    Help,
    /// Receive here.
    Receive(SocketAddr),
    /// Send there.
    Send {
        /// Where the receiver is.
        to: SocketAddr,
        /// The controller.
        scheme: Scheme,
        /// How much; none: until it is stopped.
        bytes: Option<u64>,
        /// Bytes of payload in a datagram; none: what fits.
        payload_bytes: Option<usize>,
        /// Of what the controller draws.
        seed: u64,
    },
}

impl Command {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// It is wrong.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, UdpError> {
        let mut arguments = arguments.into_iter();
        let role = arguments.next().unwrap_or_default();
        match role.as_str() {
            "-h" | "--help" => return Ok(Self::Help),
            "receive" | "send" => {}
            _ => {
                return Err(usage(format!(
                    "got {role:?}; expected receive or send: pathcast-udp --help"
                )));
            }
        }
        let text = arguments.next().unwrap_or_default();
        let address = text.parse().map_err(|_| {
            usage(format!(
                "got address {text:?}; expected ADDRESS:PORT such as 127.0.0.1:9000"
            ))
        })?;
        if role == "receive" {
            return match arguments.next() {
                None => Ok(Self::Receive(address)),
                Some(more) => Err(usage(format!(
                    "got {more:?} after the address; expected nothing"
                ))),
            };
        }
        Self::parse_send(address, arguments)
    }

    fn parse_send(
        to: SocketAddr,
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, UdpError> {
        let (mut scheme, mut bytes) = (None, None);
        let (mut payload_bytes, mut seed) = (None, 1);
        while let Some(option) = arguments.next() {
            let value = arguments.next();
            let value = value
                .ok_or_else(|| usage(format!("got {option:?} without a value; expected one")))?;
            let most = match option.as_str() {
                "--scheme" => {
                    scheme = Some(value.parse::<Scheme>()?);
                    continue;
                }
                "--payload" => MOST_PAYLOAD_BYTES as u64,
                "--bytes" => 1 << 53,
                "--seed" => u64::MAX,
                _ => {
                    return Err(usage(format!(
                        "got option {option:?}; expected --scheme, --bytes, --payload or --seed"
                    )));
                }
            };
            let least = u64::from(option == "--payload");
            let number = value.parse().ok().filter(|n| (least..=most).contains(n));
            let number = number.ok_or_else(|| {
                usage(format!(
                    "got {option} {value:?}; expected an integer from {least} to {most}"
                ))
            })?;
            match option.as_str() {
                "--payload" => payload_bytes = Some(number as usize),
                "--bytes" => bytes = (number > 0).then_some(number),
                _ => seed = number,
            }
        }
        let scheme = scheme.ok_or_else(|| {
            usage("got no --scheme; expected one, such as --scheme copa".to_string())
        })?;
        Ok(Self::Send {
            to,
            scheme,
            bytes,
            payload_bytes,
            seed,
        })
    }
}

const fn usage(message: String) -> UdpError {
    UdpError::Usage(message)
}

/// Does what a command line says; `print` receives each line of standard output.
///
/// # Errors
/// See [`UdpError`].
pub fn command(
    arguments: impl IntoIterator<Item = String>,
    print: &mut dyn FnMut(&str),
) -> Result<(), UdpError> {
    match Command::parse(arguments)? {
        Command::Help => print(USAGE),
        Command::Receive(address) => {
            let listening = Listening::open(address)?;
            let mut end = ReceivingEnd::default();
            print("listening");
            listening.receive(&mut end)?;
            let said = json!({
                "received_bytes": end.received_bytes(),
                "seconds": end.seconds(),
                "senders": end.peers(),
                "refused_datagrams": end.refused(),
            });
            print(&said.to_string());
        }
        Command::Send {
            to,
            scheme,
            bytes,
            payload_bytes,
            seed,
        } => {
            let options = SendingOptions {
                bytes,
                payload_bytes: match payload_bytes {
                    Some(bytes) => bytes,
                    None => most_payload_bytes(to)?,
                },
                seed,
                nonce: nonce()?,
            };
            let mut end = SendingEnd::new(&scheme, &options);
            let ended = send(&mut end, to);
            let seconds = ended.as_ref().copied().unwrap_or(0.0);
            print(&report(&end, seconds).to_string());
            ended?;
        }
    }
    Ok(())
}

/// What a sender says at its end; the name is the running controller's own, not that of the command line.
fn report(end: &SendingEnd, seconds: f64) -> Value {
    let sender = end.sender();
    let controller = sender.controller();
    let milliseconds = |span: Option<pathcast_base::Span>| span.map(|span| 1e3 * span.as_secs());
    let opened_s = end
        .opened_at()
        .map_or(seconds, pathcast_base::Time::as_secs);
    json!({
        "controller": controller.name(),
        "evidence": format!(
            "the running controller object: its name, cwnd {:.1} packets, pacing {}",
            controller.cwnd(),
            controller.pacing_rate().map_or_else(|| "none".to_string(), |rate| format!("{rate:.0} packets/s")),
        ),
        "sent_bytes": end.sent_bytes(),
        "acknowledged_bytes": end.acknowledged_bytes(),
        "retransmits": sender.retransmits(),
        "srtt_ms": milliseconds(sender.rtt().srtt()),
        "min_rtt_ms": milliseconds(sender.rtt().min()),
        "seconds": (seconds - opened_s).max(0.0),
        "refused_datagrams": end.refused(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, UdpError> {
        Command::parse(line.split_whitespace().map(str::to_string))
    }

    fn refusal(line: &str) -> String {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn a_transfer_of_zero_bytes_has_no_end() {
        let bytes_of = |line: &str| match parse(line).unwrap() {
            Command::Send { bytes, .. } => bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(bytes_of("send 127.0.0.1:9 --scheme copa --bytes 0"), None);
        assert_eq!(bytes_of("send [::1]:9 --bytes 7 --scheme fixed:3"), Some(7));
    }

    #[test]
    fn wrong_command_lines_say_what_was_expected() {
        assert!(refusal("").contains("receive or send"));
        assert!(refusal("receive 127.0.0.1").contains("ADDRESS:PORT"));
        assert!(refusal("receive 127.0.0.1:1 x").contains("nothing"));
        assert!(refusal("send 127.0.0.1:1").contains("--scheme"));
        assert!(refusal("send 127.0.0.1:1 --scheme kopa").contains("copa"));
        assert!(refusal("send 127.0.0.1:1 --scheme copa --bytes -1").contains("from 0"));
        assert!(refusal("send 127.0.0.1:1 --scheme copa --payload 1500").contains("1446"));
        assert!(refusal("send 127.0.0.1:1 --scheme").contains("without a value"));
        assert!(refusal("send 127.0.0.1:1 --speed 1").contains("--payload"));
    }
}
