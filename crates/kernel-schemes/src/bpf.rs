//! Schemes that Pathcast brings by BPF (`struct_ops`).

use std::collections::VecDeque;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};

use libbpf_rs::{ErrorKind, Link, MapCore, Object, ObjectBuilder, PrintLevel, set_print};

use crate::error::SchemeError;
use crate::names::{DIGITS, DIGITS_IN_NAME};

/// `name` is the first field of `struct tcp_congestion_ops` in bpf/kernel.h; a zero ends it.
const NAME_BYTES: usize = 16;

/// Somebody may have the name: more tries than that mean something else.
const TRIES: u32 = 8;

/// libelf needs the numbers in an object to be aligned.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

static SCALABLE: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/scalable.bpf.o")));
static VEGAS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/vegas.bpf.o")));

/// A scheme that the kernel has as long as this lives: the link's descriptor is all that holds it.
#[derive(Debug)]
pub(crate) struct Registered {
    name: String,
    /// Dropped first: it takes the scheme out of the kernel's list.
    _link: Link,
    _object: Object,
}

impl Registered {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Registers one of [`crate::BPF_SCHEMES`] under a unique name.
pub(crate) fn register(scheme: &str) -> Result<Registered, SchemeError> {
    let object = match scheme {
        "scalable" => &SCALABLE.0,
        "vegas" => &VEGAS.0,
        _ => unreachable!("there is no BPF for {scheme}"),
    };
    keep_warnings();
    let mut tried = 0;
    loop {
        tried += 1;
        let error = match register_as(object, unique_name(scheme)) {
            Ok(registered) => return Ok(registered),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tried < TRIES => continue,
            Err(error) => error,
        };
        let mut reason = format!("{error:#}");
        for warning in take_warnings() {
            let _ = write!(reason, "; {}", warning.trim_end());
        }
        return Err(SchemeError::Bpf {
            scheme: scheme.to_string(),
            reason,
        });
    }
}

fn register_as(object: &[u8], name: String) -> libbpf_rs::Result<Registered> {
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut map in open.maps_mut() {
        if map.name() == "scheme"
            && let Some(scheme) = map.initial_value_mut()
        {
            scheme[..NAME_BYTES].fill(0);
            scheme[..name.len()].copy_from_slice(name.as_bytes());
        }
    }
    let mut object = open.load()?;
    let link = object
        .maps_mut()
        .find(|map| map.name() == "scheme")
        .expect("each object in bpf/ has one")
        .attach_struct_ops()?;
    Ok(Registered {
        name,
        _link: link,
        _object: object,
    })
}

/// A name that no other process and no other run has, as good as certainly: names are the kernel's, and
/// process ids are not unique among containers.
fn unique_name(scheme: &str) -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let mut rest = RandomState::new().hash_one((std::process::id(), number));
    let mut name = format!("{scheme}_");
    for _ in 0..DIGITS_IN_NAME {
        let digit = rest % DIGITS.len() as u64;
        name.push(DIGITS[digit as usize].into());
        rest /= DIGITS.len() as u64;
    }
    name
}

/// libbpf's last warnings: it says there what an error number does not.
static WARNINGS: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
const MOST_WARNINGS: usize = 12;

/// Keeps libbpf's warnings for the error rather than for stderr.
fn keep_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, message| {
            let mut warnings = WARNINGS.lock().unwrap_or_else(|broken| broken.into_inner());
            if warnings.len() == MOST_WARNINGS {
                warnings.pop_front();
            }
            warnings.push_back(message);
        })));
    });
    take_warnings();
}

fn take_warnings() -> VecDeque<String> {
    let mut warnings = WARNINGS.lock().unwrap_or_else(|broken| broken.into_inner());
    std::mem::take(&mut *warnings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{BPF_SCHEMES, check_name};

    #[test]
    fn names_are_valid_and_differ() {
        for scheme in BPF_SCHEMES {
            let names: BTreeSet<String> = (0..1000).map(|_| unique_name(scheme)).collect();
            assert_eq!(names.len(), 1000);
            for name in names {
                check_name(&name).unwrap();
                assert!(crate::names::is_of_a_run(&name), "{name}");
                assert!(
                    name.starts_with(scheme) && name.len() < NAME_BYTES,
                    "{name}"
                );
            }
        }
    }
}
