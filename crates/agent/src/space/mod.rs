//! What can be configured, at which level, and whether it does anything on this kernel.

mod experiments;
mod knobs;
mod rig;

use serde::Serialize;

use rig::Rig;

/// One knob of the configuration space.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knob {
    /// Its name in templates; of one that templates lack, the kernel's.
    pub knob: &'static str,
    /// `tcp`, `tls` or `http`.
    pub layer: &'static str,
    /// The values to choose from, or their range.
    pub values: Vec<String>,
    /// What a server has that nobody has configured; none: it differs between machines.
    pub default: Option<String>,
    /// Where it can be set.
    pub places: Vec<Place>,
    /// How the value in force is read.
    pub read_back: &'static str,
    /// Whether searches should leave it out.
    pub pruned: bool,
    /// Why, if so.
    pub why: Option<String>,
}

/// One way to set a knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// `route`: connections with a prefix. `connection`: one by one, as they are accepted. `namespace`: all of a
    /// network namespace. `listener`: all that a server accepts on a port.
    pub scope: &'static str,
    /// What sets it.
    pub how: &'static str,
    /// Whether it does something here; none: not tried here.
    pub effective: Option<bool>,
    /// What was seen, or why nothing was tried.
    pub seen: String,
}

/// The configuration space of this machine. Root tries each knob of the kernel in network namespaces of its
/// own, on real connections; this takes about 10 seconds and changes nothing else. Without root, nothing is
/// tried, and each place says so.
pub fn space() -> Vec<Knob> {
    match Rig::new() {
        Ok(rig) => knobs::knobs(Ok(&rig)),
        Err(error) => {
            let why = format!("not tried: needs root and ip(8): {error}");
            knobs::knobs(Err(&why))
        }
    }
}
