//! What a configuration means on this machine: which knob is set where. Pure.

mod disjoint;
mod pools;

use std::collections::BTreeMap;

use ipnet::IpNet;
use pathcast_control::{Configuration, Knobs, Name, Pacing, Prefix};

use crate::error::AgentError;
use crate::settings::{Connections, Pool, Settings};

pub(crate) use disjoint::disjoint;
use pools::choose;

/// Congestion controls that pace by themselves.
const PACES: [&str; 1] = ["bbr"];

/// What connections begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) congestion_control: Option<String>,
    pub(crate) initial_window: Option<u32>,
    pub(crate) initial_receive_window: Option<u32>,
    pub(crate) paced: bool,
}

/// What one network namespace gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    /// Its name; none: the agent's own.
    pub(crate) namespace: Option<String>,
    /// By prefix; none is all clients that no prefix holds.
    pub(crate) beginnings: BTreeMap<Option<IpNet>, Beginning>,
    /// Sysctls, by name below `net.ipv4`.
    pub(crate) sysctls: BTreeMap<&'static str, Value>,
}

/// A sysctl's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Flag(bool),
    Number(u64),
    /// The third of three numbers; the first two stay, but are not above it.
    Third(u64),
}

/// What a configuration means here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The agent's own namespace first.
    pub(crate) spaces: Vec<Space>,
    /// The pool of each template, with a router.
    pub(crate) pools: BTreeMap<Name, String>,
    /// The pool of each prefix, with a router.
    pub(crate) map: BTreeMap<Prefix, String>,
    /// The pool of other clients, with a router.
    pub(crate) default_pool: Option<String>,
}

impl Plan {
    /// What `configuration` means with these settings. Templates keep the pools that they had `before`, where they
    /// still can.
    ///
    /// # Errors
    /// [`AgentError::Impossible`], with the template and the knob.
    pub(crate) fn of(
        configuration: &Configuration,
        settings: &Settings,
        before: &BTreeMap<Name, String>,
    ) -> Result<Self, AgentError> {
        let mut plan = Self::default();
        let mut own = Space::default();
        let routed = settings.haproxy.is_some() || settings.forward.is_some();
        if routed {
            plan.pools = choose(configuration, settings, before)
                // keeping a pool must not keep another template from the only one that serves it
                .or_else(|_| choose(configuration, settings, &BTreeMap::new()))?;
            let pool = |name: &Name| plan.pools[name].clone();
            plan.default_pool = Some(pool(&configuration.default));
            let prefixes = configuration.prefixes.iter();
            plan.map = prefixes
                .map(|(prefix, name)| (*prefix, pool(name)))
                .collect();
        }
        for template in used(configuration) {
            let Some(knobs) = configuration.template(template).map(|one| &one.knobs) else {
                continue; // the default: no knob at all
            };
            let at =
                |message: String| AgentError::Impossible(format!("template {template}: {message}"));
            if !routed {
                refuse_listener_knobs(knobs).map_err(at)?;
            }
            if settings.forward.is_some() {
                let pool = pool_of(settings, &plan.pools[template]);
                plan.spaces.push(space_of(knobs, pool).map_err(at)?);
                continue;
            }
            let sysctls = sysctls(knobs);
            if *template == configuration.default {
                own.sysctls = sysctls;
            } else if let Some(name) = sysctls.keys().next() {
                return Err(at(format!(
                    "{name} holds for a namespace, and prefixes share one here; expected [forward] in the agent's settings, \
                     with a pool in a namespace, or the knob in the default template alone"
                )));
            }
        }
        if settings.forward.is_none() {
            own.beginnings = beginnings(configuration, settings.connections)?;
        }
        plan.spaces.insert(0, own);
        Ok(plan)
    }
}

/// The templates that are in force for somebody.
fn used(configuration: &Configuration) -> Vec<&Name> {
    let mut names: Vec<&Name> = configuration.prefixes.values().collect();
    names.push(&configuration.default);
    names.sort();
    names.dedup();
    names
}

fn pool_of<'a>(settings: &'a Settings, name: &str) -> &'a Pool {
    let found = settings.pools.iter().find(|pool| pool.name == name);
    found.expect("pools are chosen from the settings")
}

/// A pool's namespace, where all clients have one template.
fn space_of(knobs: &Knobs, pool: &Pool) -> Result<Space, String> {
    let beginning = beginning(knobs, Connections::Routes)?;
    Ok(Space {
        namespace: pool.namespace.clone(),
        beginnings: BTreeMap::from([(None, beginning)]),
        sysctls: sysctls(knobs),
    })
}

fn beginnings(
    configuration: &Configuration,
    by: Connections,
) -> Result<BTreeMap<Option<IpNet>, Beginning>, AgentError> {
    let of = |name: &Name| -> Result<Beginning, AgentError> {
        let Some(template) = configuration.template(name) else {
            return Ok(Beginning::default());
        };
        beginning(&template.knobs, by)
            .map_err(|message| AgentError::Impossible(format!("template {name}: {message}")))
    };
    let mut found = BTreeMap::new();
    let default = of(&configuration.default)?;
    if default != Beginning::default() {
        found.insert(None, default);
    }
    let prefixes = configuration.prefixes.iter();
    for (prefix, name) in prefixes {
        found.insert(Some(prefix.net()), of(name)?);
    }
    // nothing is set anywhere: nothing is to be set
    if found.values().all(|one| *one == Beginning::default()) {
        found.clear();
    }
    Ok(found)
}

fn beginning(knobs: &Knobs, by: Connections) -> Result<Beginning, String> {
    let scheme = knobs.congestion_control.as_deref();
    let paces = scheme.is_some_and(|scheme| PACES.contains(&scheme));
    match (knobs.pacing, by) {
        (Some(Pacing::Off), _) if paces => {
            return Err("pacing is off, but its congestion control always paces".into());
        }
        (Some(Pacing::On), Connections::Routes) if !paces => {
            return Err(
                "pacing is on, which routes cannot set; expected the congestion control bbr, or connections = \"sock_ops\" \
                 in the agent's settings"
                    .into(),
            );
        }
        _ => {}
    }
    Ok(Beginning {
        congestion_control: knobs.congestion_control.clone(),
        initial_window: knobs.initial_window,
        initial_receive_window: knobs.initial_receive_window,
        paced: knobs.pacing == Some(Pacing::On) && !paces,
    })
}

fn sysctls(knobs: &Knobs) -> BTreeMap<&'static str, Value> {
    let flag = |flag: bool| Value::Flag(flag);
    [
        (
            "tcp_slow_start_after_idle",
            knobs.slow_start_after_idle.map(flag),
        ),
        ("tcp_autocorking", knobs.autocorking.map(flag)),
        ("tcp_rmem", knobs.receive_buffer_bytes.map(Value::Third)),
        ("tcp_wmem", knobs.send_buffer_bytes.map(Value::Third)),
        ("tcp_notsent_lowat", knobs.unsent_bytes.map(Value::Number)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

fn refuse_listener_knobs(knobs: &Knobs) -> Result<(), String> {
    let set = [
        ("http_version", knobs.http_version.is_some()),
        ("tls_version", knobs.tls_version.is_some()),
        ("tls_record_bytes", knobs.tls_record_bytes.is_some()),
        ("keep_alive_s", knobs.keep_alive_s.is_some()),
    ];
    match set.iter().find(|(_, set)| *set) {
        None => Ok(()),
        Some((name, _)) => Err(format!(
            "{name} is a listener's; expected [haproxy] or [forward] with pools in the agent's settings"
        )),
    }
}

#[cfg(test)]
mod tests;
