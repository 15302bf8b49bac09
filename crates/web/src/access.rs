//! Who may ask: tokens, names of this machine, and how often.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use blake2::{Blake2s256, Digest};
use lru::LruCache;

use crate::error::WebError;

/// Those whose requests are counted, at a time.
const COUNTED: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Shortest token.
const SHORTEST: usize = 16;

/// A token's hash: to compare hashes shows nothing of how much of a token was right.
type Hash = [u8; 32];

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Questions only.
    Read,
    /// Samples, outcomes and pages too.
    Write,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asker {
    /// The one with this token.
    Token(Hash),
    /// One at this address.
    Address(IpAddr),
}

/// The tokens.
#[derive(Debug, Default)]
pub struct Tokens(HashMap<Hash, Role>);

fn hash(token: &str) -> Hash {
    Blake2s256::digest(token.as_bytes()).into()
}

impl Tokens {
    /// Reads a file: a token a line, and `read` or `write` after it. Lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`WebError`] if the file cannot be read, others than its owner may read it, or a line is invalid.
    pub fn read(file: &Path) -> Result<Self, WebError> {
        let wrong = |message: &str| WebError(format!("{}: {message}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
        check_rights(file).map_err(|message| wrong(&message))?;
        let mut tokens = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, role) = match line.split_once(char::is_whitespace) {
                None => (line, Role::Write),
                Some((token, role)) => match role.trim() {
                    "read" => (token, Role::Read),
                    "write" => (token, Role::Write),
                    _ => {
                        return Err(wrong(&format!(
                            "line {number}: expected read or write after the token"
                        )));
                    }
                },
            };
            if token.len() < SHORTEST {
                let message =
                    format!("line {number}: the token is shorter than {SHORTEST} characters");
                return Err(wrong(&message));
            }
            tokens.insert(hash(token), role);
        }
        if tokens.is_empty() {
            return Err(wrong("has no token"));
        }
        Ok(Self(tokens))
    }

    /// The role of a header Authorization, and who has it.
    pub fn role(&self, header: &str) -> Option<(Role, Asker)> {
        let token = header.strip_prefix("Bearer ")?.trim();
        let hash = hash(token);
        Some((*self.0.get(&hash)?, Asker::Token(hash)))
    }
}

#[cfg(unix)]
fn check_rights(file: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file)
        .map_err(|error| error.to_string())?
        .permissions()
        .mode();
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err("everybody may read or write it; expected chmod 600".into()),
    }
}

#[cfg(not(unix))]
fn check_rights(_: &Path) -> Result<(), String> {
    Ok(())
}

/// Whether the header Host names this machine: a page of another site may have a name that leads here.
pub fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let loopback = address
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    loopback || name.eq_ignore_ascii_case("localhost")
}

/// Counts requests: each asker has a bucket that fills with the allowed rate, up to one second's worth.
#[derive(Debug)]
pub struct Rates {
    per_s: f64,
    begin: Instant,
    buckets: Mutex<LruCache<Asker, (f64, f64)>>,
}

impl Rates {
    /// At most so many a second; 0: any number.
    pub fn new(per_s: f64) -> Self {
        Self {
            per_s,
            begin: Instant::now(),
            buckets: Mutex::new(LruCache::new(COUNTED)),
        }
    }

    /// Whether a request is within the rate.
    pub fn allow(&self, asker: Asker) -> bool {
        if self.per_s <= 0.0 {
            return true;
        }
        let now_s = self.begin.elapsed().as_secs_f64();
        let full = self.per_s.max(1.0);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.get_or_insert_mut(asker, || (now_s, full));
        let filled = (bucket.1 + self.per_s * (now_s - bucket.0)).min(full);
        let is_allowed = filled >= 1.0;
        *bucket = (now_s, if is_allowed { filled - 1.0 } else { filled });
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Tokens, WebError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Tokens::read(file.path())
    }

    #[test]
    fn tokens_have_roles() {
        let read = tokens("# agents\nabcdefghijklmnop\nABCDEFGHIJKLMNOP read\n").unwrap();
        let role = |header: &str| read.role(header).map(|(role, _)| role);
        assert_eq!(role("Bearer abcdefghijklmnop"), Some(Role::Write));
        assert_eq!(role("Bearer ABCDEFGHIJKLMNOP"), Some(Role::Read));
        for header in [
            "",
            "Bearer ",
            "Bearer abcdefghijklmno",
            "Basic abcdefghijklmnop",
        ] {
            assert_eq!(role(header), None);
        }
        assert!(tokens("short").is_err());
        assert!(tokens("").is_err());
        assert!(tokens("abcdefghijklmnop admin").is_err());
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:80", "[::1]:80"] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "127.0.0.1.example.org:80",
            "192.0.2.1",
            "localhost.evil",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn requests_beyond_the_rate_are_refused() {
        let rates = Rates::new(3.0);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|at| Asker::Address(at.parse().unwrap()));
        assert_eq!((0..5).filter(|_| rates.allow(one)).count(), 3);
        assert!(rates.allow(other));
        assert!((0..1000).all(|_| Rates::new(0.0).allow(one)));
    }
}
