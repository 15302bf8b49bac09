//! Helpers for the tests of importers.

use std::path::Path;

use proptest::prelude::*;

use super::{Damage, Imported, Packets, ReadOptions, packets_of_bytes, read_bytes};

fn keeping() -> ReadOptions {
    ReadOptions {
        damage: Damage::KeepPrefix,
        ..ReadOptions::default()
    }
}

pub(super) fn read(content: impl AsRef<[u8]>) -> Result<Imported, String> {
    let options = ReadOptions::default();
    read_bytes(Path::new("f"), content.as_ref(), &options).map_err(|error| error.to_string())
}

pub(super) fn read_prefix(content: impl AsRef<[u8]>) -> Result<Imported, String> {
    read_bytes(Path::new("f"), content.as_ref(), &keeping()).map_err(|error| error.to_string())
}

pub(super) fn packets(content: impl AsRef<[u8]>) -> Result<Packets, String> {
    let options = ReadOptions::default();
    packets_of_bytes(Path::new("f"), content.as_ref(), &options).map_err(|error| error.to_string())
}

/// Ways to damage a file.
#[derive(Clone, Debug)]
pub(super) enum Harm {
    Truncate(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Repeat(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index, prop::sample::Index),
    /// Replaces a digit by another, which keeps the syntax valid.
    Digit(prop::sample::Index, u8),
}

pub(super) fn harms() -> impl Strategy<Value = Vec<Harm>> {
    use prop::sample::Index;
    let harm = prop_oneof![
        any::<Index>().prop_map(Harm::Truncate),
        (any::<Index>(), 1..=255u8).prop_map(|(i, x)| Harm::Flip(i, x)),
        (any::<Index>(), any::<Index>()).prop_map(|(i, j)| Harm::Repeat(i, j)),
        (any::<Index>(), any::<Index>()).prop_map(|(i, j)| Harm::Cut(i, j)),
        (any::<Index>(), 0..10u8).prop_map(|(i, d)| Harm::Digit(i, d)),
    ];
    prop::collection::vec(harm, 0..6)
}

pub(super) fn harmed(content: &[u8], harms: &[Harm]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    for harm in harms {
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        let range = |i: &prop::sample::Index, j: &prop::sample::Index| {
            let (i, j) = (i.index(length), j.index(length));
            i.min(j)..i.max(j)
        };
        match harm {
            Harm::Truncate(i) => bytes.truncate(i.index(length)),
            Harm::Flip(i, x) => bytes[i.index(length)] ^= x,
            Harm::Repeat(i, j) => {
                let part = bytes[range(i, j)].to_vec();
                bytes.splice(i.index(length)..i.index(length), part);
            }
            Harm::Cut(i, j) => _ = bytes.drain(range(i, j)),
            Harm::Digit(i, digit) => {
                let digits: Vec<usize> = (0..length)
                    .filter(|&at| bytes[at].is_ascii_digit())
                    .collect();
                if !digits.is_empty() {
                    bytes[digits[i.index(digits.len())]] = b'0' + digit;
                }
            }
        }
    }
    bytes
}

/// Reads `content` in all ways, and checks what the readers guarantee.
pub(super) fn check(content: &[u8]) {
    let (path, keeping) = (Path::new("f"), keeping());
    let strict = read_bytes(path, content, &ReadOptions::default());
    let kept = read_bytes(path, content, &keeping);
    assert!(strict.is_err() || kept.is_ok());
    for imported in [strict, kept].into_iter().flatten() {
        let records = &imported.trace.records;
        assert!(!records.is_empty());
        assert!(records.is_sorted_by(|a, b| a.time_s <= b.time_s));
        for record in records {
            assert!(record.time_s.is_finite());
            assert!(record.cwnd_packets.is_finite() && record.cwnd_packets > 0.0);
            assert!(record.srtt_s.is_none_or(|s| s.is_finite() && s >= 0.0));
        }
    }
    if let Ok(packets) = packets_of_bytes(path, content, &keeping) {
        assert!(!packets.records.is_empty());
        assert!(packets.records.is_sorted_by(|a, b| a.time_s <= b.time_s));
        for record in &packets.records {
            assert!(record.time_s.is_finite());
            assert!(record.one_way_delay_s.is_none_or(f64::is_finite));
        }
    }
}

/// A property test: valid inputs, damaged at random, are read or refused.
macro_rules! never_panics {
    ($($valid:expr),+ $(,)?) => {
        proptest::proptest! {
            #[test]
            fn damaged_input_is_read_or_refused(
                harms in crate::import::testing::harms(),
                which in proptest::prelude::any::<proptest::sample::Index>(),
            ) {
                let valid: Vec<Vec<u8>> = vec![$(AsRef::<[u8]>::as_ref(&$valid).to_vec()),+];
                let content = &valid[which.index(valid.len())];
                crate::import::testing::check(&crate::import::testing::harmed(content, &harms));
            }
        }
    };
}
pub(super) use never_panics;
