//! The key that both hosts share.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pathcast_trace::write_new_secret;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::LiveError;

const BYTES: usize = 32;

/// 32 random bytes that only the two hosts know. Whoever has them may use the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; BYTES]);

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no randomness to give.
    pub fn random() -> Result<Self, LiveError> {
        let mut bytes = [0; BYTES];
        let got = getrandom(&mut bytes, GetRandomFlags::empty())
            .map_err(|errno| LiveError::from_io("drawing a random key", errno))?;
        assert_eq!(got, BYTES, "up to 256 bytes come whole: getrandom(2)");
        Ok(Self(bytes))
    }

    /// Reads a key file: 64 hexadecimal digits.
    ///
    /// # Errors
    /// The file cannot be read, users other than its owner may read it, or it is not a key.
    pub fn read(file: &Path) -> Result<Self, LiveError> {
        let wrong = |why: String| LiveError::Key {
            file: file.display().to_string(),
            why,
        };
        let io = |error: std::io::Error| wrong(error.to_string());
        let opened = File::open(file).map_err(io)?;
        let mode = opened.metadata().map_err(io)?.mode();
        if mode & 0o077 != 0 {
            let mode = mode & 0o777;
            return Err(wrong(format!(
                "others may read it (mode {mode:o}), expected 600: `chmod 600` it"
            )));
        }
        let mut text = String::new();
        let most = 4 * BYTES as u64; // a larger file is not a key
        let read = (&opened).take(most).read_to_string(&mut text);
        read.map_err(io)?;
        Self::parse(text.trim()).map_err(wrong)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let expected = "expected 64 hexadecimal digits, as `pathcast live key FILE` writes them";
        if text.len() != 2 * BYTES {
            return Err(format!("got {} characters, {expected}", text.len()));
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(pair).map_err(|_| expected.to_string())?;
            // from_str_radix takes a sign, too
            if !pair.iter().all(u8::is_ascii_hexdigit) {
                return Err(format!("got {digits:?}, {expected}"));
            }
            *byte = u8::from_str_radix(digits, 16).map_err(|_| expected.to_string())?;
        }
        Ok(Self(bytes))
    }

    /// Writes a new file that only its owner may read.
    ///
    /// # Errors
    /// There is such a file already, or it cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), LiveError> {
        let io = |error: std::io::Error| LiveError::Key {
            file: file.display().to_string(),
            why: error.to_string(),
        };
        let mut text = String::with_capacity(2 * BYTES + 1);
        for byte in self.0 {
            write!(text, "{byte:02x}").expect("strings take all");
        }
        text.push('\n');
        write_new_secret(file, text.as_bytes()).map_err(io)
    }

    pub(crate) const fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

/// Never shown: logs are read by others.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_and_no_two_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let key = Key::random().unwrap();
        key.write(&file).unwrap();
        assert_eq!(Key::read(&file).unwrap(), key);
        assert_ne!(Key::random().unwrap(), key);
        let error = key.write(&file).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        Key::random().unwrap().write(&file).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&file, open).unwrap();
        let error = Key::read(&file).unwrap_err().to_string();
        assert!(error.contains("644") && error.contains("chmod"), "{error}");
    }

    #[test]
    fn what_is_no_key_is_told() {
        let digits = "0123456789abcdef".repeat(4);
        assert!(Key::parse(&digits).is_ok());
        for text in [
            "",
            "00",
            &digits[1..],
            &digits.replace('a', "+"),
            &digits.replace('a', "ä"),
        ] {
            let error = Key::parse(text).unwrap_err();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
