//! Finds the schemes of a run, and holds those that are there only for it.

use std::collections::BTreeMap;

use crate::error::SchemeError;
use crate::kernel::{available, has};
use crate::module;
use crate::names::{BPF_SCHEMES, check_name};

/// Schemes that can be used as long as this lives.
#[derive(Debug, Default)]
pub struct Schemes {
    by_name: BTreeMap<String, Provided>,
}

/// Where a scheme is from.
#[derive(Debug)]
enum Provided {
    Kernel,
    Module,
    #[cfg(all(feature = "bpf", target_os = "linux"))]
    Bpf(crate::bpf::Registered),
}

impl Schemes {
    /// Makes each of these schemes usable; `names` may contain duplicates.
    ///
    /// # Errors
    /// [`SchemeError`], for the first scheme that is not available; then nothing stays registered. All
    /// names are checked before anything is done.
    pub fn provide<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, SchemeError> {
        let names: Vec<&str> = names.into_iter().collect();
        names.iter().try_for_each(|name| check_name(name))?;
        let mut schemes = Self::default();
        for name in names {
            if !schemes.by_name.contains_key(name) {
                schemes.by_name.insert(name.to_string(), provide(name)?);
            }
        }
        Ok(schemes)
    }

    /// The kernel's name of a scheme.
    ///
    /// # Panics
    /// If `name` is not one of those that were provided.
    pub fn kernel_name(&self, name: &str) -> &str {
        match &self.by_name[name] {
            #[cfg(all(feature = "bpf", target_os = "linux"))]
            Provided::Bpf(registered) => registered.name(),
            Provided::Kernel | Provided::Module => {
                let (name, _) = self.by_name.get_key_value(name).expect("just found");
                name
            }
        }
    }

    /// The schemes that are here by BPF, with the kernel's names of them.
    pub fn by_bpf(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.by_name.keys();
        names
            .map(|name| (name.as_str(), self.kernel_name(name)))
            .filter(|(name, kernels)| name != kernels)
    }

    /// The modules that were loaded. They stay.
    pub fn modules(&self) -> impl Iterator<Item = String> {
        let provided = self.by_name.iter();
        provided
            .filter(|(_, provided)| matches!(provided, Provided::Module))
            .map(|(name, _)| module::module(name))
    }
}

fn provide(name: &str) -> Result<Provided, SchemeError> {
    if has(name)? {
        return Ok(Provided::Kernel);
    }
    if module::load(name) && has(name)? {
        return Ok(Provided::Module);
    }
    if BPF_SCHEMES.contains(&name) {
        return by_bpf(name);
    }
    Err(unknown(
        name,
        format!(
            "load its module ({}), or take one of these or of {}",
            module::module(name),
            BPF_SCHEMES.join(", ")
        ),
    ))
}

/// Tries whether [`BPF_SCHEMES`] are available by BPF on this machine. Leaves nothing behind.
///
/// # Errors
/// [`SchemeError`] says why not.
pub fn try_bpf() -> Result<(), SchemeError> {
    BPF_SCHEMES
        .iter()
        .try_for_each(|name| by_bpf(name).map(drop))
}

#[cfg(all(feature = "bpf", target_os = "linux"))]
fn by_bpf(name: &str) -> Result<Provided, SchemeError> {
    crate::bpf::register(name).map(Provided::Bpf)
}

#[cfg(not(all(feature = "bpf", target_os = "linux")))]
fn by_bpf(name: &str) -> Result<Provided, SchemeError> {
    Err(unknown(
        name,
        "Pathcast can bring it by BPF, but was built without: install clang, libelf-dev, zlib1g-dev and \
         pkg-config, then `touch Cargo.toml && make build`, or build with `cargo build --features bpf`"
            .to_string(),
    ))
}

fn unknown(scheme: &str, advice: String) -> SchemeError {
    SchemeError::Unknown {
        scheme: scheme.to_string(),
        available: available(),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_none_are_refused() {
        for name in [
            "",
            "../../x",
            "a-name-of-16-chr",
            "Reno",
            "reno cubic",
            "reno\0",
            "r\u{e9}no",
        ] {
            let error = Schemes::provide(["cubic", name]).unwrap_err();
            assert!(matches!(error, SchemeError::BadName { .. }), "{error:?}");
            assert!(error.to_string().contains("1 to 15"), "{error}");
        }
    }

    #[test]
    fn the_kernels_own_keep_their_names() {
        let schemes = Schemes::provide(["cubic", "reno", "cubic"]).unwrap();
        assert_eq!(schemes.kernel_name("cubic"), "cubic");
        assert_eq!(schemes.kernel_name("reno"), "reno");
        assert_eq!(schemes.by_bpf().count() + schemes.modules().count(), 0);
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_what_there_is() {
        let error = Schemes::provide(["cubic", "tahoe"]).unwrap_err();
        assert!(matches!(error, SchemeError::Unknown { .. }), "{error:?}");
        let text = error.to_string();
        for word in ["\"tahoe\"", "cubic, ", "tcp_tahoe", "scalable, vegas"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    #[cfg(not(all(feature = "bpf", target_os = "linux")))]
    fn without_the_feature_a_scheme_that_it_would_bring_is_refused_with_how_to_build_it() {
        for name in BPF_SCHEMES {
            if has(name).unwrap() {
                println!("skipped, the kernel has {name}");
                continue;
            }
            let text = Schemes::provide([name]).unwrap_err().to_string();
            assert!(text.contains("--features bpf"), "{text}");
        }
    }
}
