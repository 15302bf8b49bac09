//! Chooses a pool for each template.

use std::collections::{BTreeMap, BTreeSet};

use pathcast_control::{Configuration, Knobs, Name};

use super::used;
use crate::error::AgentError;
use crate::settings::{Pool, Settings};

/// The pool of each template in use. Templates that need no pool of their own may share one.
pub(super) fn choose(
    configuration: &Configuration,
    settings: &Settings,
    before: &BTreeMap<Name, String>,
) -> Result<BTreeMap<Name, String>, AgentError> {
    let mut chosen = BTreeMap::new();
    let mut owned = BTreeSet::new();
    let default = settings.pools.iter().find(|pool| pool.default);
    let default = default.expect("settings with a router have one");
    let (plain, templates): (Vec<&Name>, Vec<&Name>) = used(configuration)
        .into_iter()
        .partition(|name| configuration.template(name).is_none());
    for name in plain {
        chosen.insert(name.clone(), default.name.clone());
        owned.insert(default.name.as_str());
    }
    // those that keep theirs come first, so that nobody else takes it
    let (kept, new): (Vec<&Name>, Vec<&Name>) = templates
        .into_iter()
        .partition(|name| before.contains_key(*name));
    // then those that fewer pools serve
    let choices = |name: &&Name| {
        let knobs = configuration.template(name).map(|one| &one.knobs);
        let pools = settings.pools.iter();
        pools
            .filter(|pool| knobs.is_some_and(|knobs| serves(pool, knobs)))
            .count()
    };
    let mut new = new;
    new.sort_by_key(choices);
    for name in kept.into_iter().chain(new) {
        let knobs = configuration.template(name).map(|one| &one.knobs);
        let knobs = knobs.expect("these have one");
        let own = settings.forward.is_some();
        let free = |pool: &&Pool| {
            serves(pool, knobs)
                && (!own
                    || (pool.namespace.is_some()
                        && !pool.default
                        && !owned.contains(pool.name.as_str())))
        };
        let was = |pool: &&Pool| before.get(name) == Some(&pool.name);
        // a pool that others had keeps their connections for a while: rather one that nobody had
        let fresh = |pool: &&Pool| !before.values().any(|name| *name == pool.name);
        let pools = || settings.pools.iter().filter(free);
        let found = pools()
            .find(was)
            .or_else(|| pools().find(|pool| !own && pool.default))
            .or_else(|| pools().find(fresh))
            .or_else(|| pools().next());
        let pool = found.ok_or_else(|| impossible(name, knobs, own))?;
        owned.insert(pool.name.as_str());
        chosen.insert(name.clone(), pool.name.clone());
    }
    Ok(chosen)
}

/// Whether a pool's servers have what a template says of servers.
fn serves(pool: &Pool, knobs: &Knobs) -> bool {
    fn fits<T: PartialEq + Copy>(asked: Option<T>, has: Option<T>) -> bool {
        asked.is_none() || asked == has
    }
    fits(knobs.http_version, pool.http_version)
        && fits(knobs.tls_version, pool.tls_version)
        && fits(knobs.tls_record_bytes, pool.tls_record_bytes)
        && fits(knobs.keep_alive_s, pool.keep_alive_s)
}

fn impossible(name: &Name, knobs: &Knobs, own: bool) -> AgentError {
    let asked = serde_json::to_string(knobs).unwrap_or_default();
    let expected = match own {
        true => "one in a namespace, with such servers, that no other template has",
        false => "one with such servers",
    };
    AgentError::Impossible(format!(
        "template {name} asks for {asked}, and there is no pool for it; expected {expected}, as [[pool]] in the agent's \
         settings"
    ))
}
