//! Secrets of agents, and signatures of bodies: HMAC-SHA256 (RFC 2104), compared in constant time.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{ControlError, invalid};

/// Header of a signature, in the form of `HeaderName::from_static`.
pub const SIGNATURE_HEADER: &str = "pathcast-signature";
/// What a signature begins with.
const SCHEME: &str = "hmac-sha256=";
/// Bytes of a secret.
const BYTES: usize = 32;

/// The secret that one agent and its manager share: 32 bytes, written as 64 hexadecimal digits.
#[derive(Clone)]
pub struct Secret([u8; BYTES]);

impl Secret {
    /// A secret of random bytes that the caller drew.
    pub fn new(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// The 64 hexadecimal digits: what the token file and the header Authorization have.
    pub fn reveal(&self) -> String {
        hex(&self.0)
    }

    /// SHA-256 of the secret's bytes: by it a manager finds an agent.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }

    /// The header of a body's signature, over its exact bytes.
    ///
    /// # Example
    /// ```
    /// use pathcast_control::Secret;
    /// let secret = Secret::new([7; 32]);
    /// let header = secret.sign(b"body");
    /// assert!(header.starts_with("hmac-sha256="));
    /// assert!(secret.verify(b"body", &header).is_ok());
    /// assert!(secret.verify(b"Body", &header).is_err());
    /// ```
    pub fn sign(&self, body: &[u8]) -> String {
        format!("{SCHEME}{}", hex(&self.mac(body).finalize().into_bytes()))
    }

    /// Checks the header of a body's signature, in constant time.
    ///
    /// # Errors
    /// [`ControlError::Signature`] if it has another form, or was made by another secret or of other bytes.
    pub fn verify(&self, body: &[u8], header: &str) -> Result<(), ControlError> {
        let digits = header.trim().strip_prefix(SCHEME);
        let given: [u8; 32] = digits.and_then(unhex).ok_or(ControlError::Signature)?;
        self.mac(body)
            .verify_slice(&given)
            .map_err(|_| ControlError::Signature)
    }

    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(body);
        mac
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

impl FromStr for Secret {
    type Err = ControlError;

    /// Reads the line of a token file; white space around it is skipped. The text itself is in no message.
    fn from_str(text: &str) -> Result<Self, ControlError> {
        let found = unhex(text.trim()).map(Self);
        found.ok_or_else(|| {
            let message = format!(
                "got {} characters, expected one line of 64 hexadecimal digits",
                text.trim().len()
            );
            invalid("token", message)
        })
    }
}

/// Hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(value(pair[0])? * 16 + value(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_rfc() {
        // RFC 4231, test case 1, with its key of 20 bytes padded by zeros: HMAC pads keys so itself
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let expected =
            "hmac-sha256=b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(Secret::new(key).sign(b"Hi There"), expected);
    }

    #[test]
    fn another_secret_body_or_form_is_refused() {
        let secret = Secret::new([1; 32]);
        let header = secret.sign(b"body");
        assert_eq!(secret.verify(b"body", &header), Ok(()));
        let wrong = [
            Secret::new([2; 32]).sign(b"body"),
            secret.sign(b"bodY"),
            String::new(),
            header.replace("sha256", "sha1"),
            header[..header.len() - 2].into(),
            format!("{header}00"),
            header.replace(|c: char| c.is_ascii_digit(), "z"),
        ];
        for header in wrong {
            assert_eq!(
                secret.verify(b"body", &header),
                Err(ControlError::Signature),
                "{header}"
            );
        }
    }

    #[test]
    fn a_secret_is_read_from_its_line_and_never_shown() {
        let secret = Secret::new([0xa5; 32]);
        let line = format!("{}\n", secret.reveal());
        assert_eq!(line.parse::<Secret>().unwrap(), secret);
        assert_eq!(format!("{secret:?}"), "Secret(...)");
        let error = "a5a5".parse::<Secret>().unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal") && !error.contains("a5a5"));
    }
}
