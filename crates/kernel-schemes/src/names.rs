//! Names of schemes, and which of them are a run's own.

use crate::error::SchemeError;

/// The schemes that the feature `bpf` can bring.
pub const BPF_SCHEMES: [&str; 2] = ["scalable", "vegas"];

/// The kernel's TCP_CA_NAME_MAX, less the zero at its end.
const LONGEST_NAME: usize = 15;

/// What a run calls its own scheme in the kernel ends with six of these, after an underscore.
pub(crate) const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
pub(crate) const DIGITS_IN_NAME: usize = 6;

/// Whether a run registered a scheme of this name in the kernel for itself.
pub(crate) fn is_of_a_run(name: &str) -> bool {
    let rest = |scheme| name.strip_prefix(scheme)?.strip_prefix('_');
    let random = |rest: &str| {
        rest.len() == DIGITS_IN_NAME && rest.bytes().all(|digit| DIGITS.contains(&digit))
    };
    BPF_SCHEMES.into_iter().filter_map(rest).any(random)
}

/// Checks that `name` can be a scheme's. It may become a part of a module's name.
///
/// # Errors
/// [`SchemeError::BadName`].
pub fn check_name(name: &str) -> Result<(), SchemeError> {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(SchemeError::BadName {
        got: name.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_taken() {
        check_name("a-name-of-15-ch").unwrap();
    }

    #[test]
    fn schemes_that_a_run_registered_are_told_from_the_kernels() {
        for name in ["vegas_abc123", "scalable_zzzzzz"] {
            assert!(is_of_a_run(name), "{name}");
        }
        for name in [
            "vegas",
            "scalable",
            "vegas_",
            "vegas_abc12",
            "vegas_ABC123",
            "bbr_abc123",
        ] {
            assert!(!is_of_a_run(name), "{name}");
        }
    }
}
