//! Forwarding by source prefix at layer 4, by nftables: the first packet of a connection chooses the pool, and the
//! kernel's connection tracking keeps all later ones with it. Maps change in one transaction.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::hands::Hands;
use crate::plan::{Plan, disjoint};
use crate::settings::{Forward, Settings};

/// Our table; nothing else is touched.
const TABLE: &str = "pathcast_agent";

/// The address of a pool in a family.
fn address(settings: &Settings, pool: &str, v6: bool) -> Option<IpAddr> {
    let pool = settings.pools.iter().find(|one| one.name == pool)?;
    pool.addresses
        .iter()
        .copied()
        .find(|one| one.is_ipv6() == v6)
}

/// Source prefixes without overlaps, and the address of the pool of each.
fn elements(plan: &Plan, settings: &Settings, v6: bool) -> Vec<(IpNet, IpAddr)> {
    let of_family = plan.map.iter().filter(|(prefix, _)| prefix.is_v6() == v6);
    let found: BTreeMap<IpNet, IpAddr> = of_family
        .filter_map(|(prefix, pool)| Some((prefix.net(), address(settings, pool, v6)?)))
        .collect();
    disjoint(&found)
}

/// One transaction that makes the kernel forward as planned.
fn rules(plan: &Plan, settings: &Settings, forward: &Forward) -> String {
    let list = |items: Vec<String>| items.join(", ");
    let ports = list(forward.ports.iter().map(u16::to_string).collect());
    let mut text = format!("add table inet {TABLE}\n");
    let _ = writeln!(
        text,
        "add chain inet {TABLE} prerouting {{ type nat hook prerouting priority dstnat; policy accept; }}"
    );
    for (ip, kind) in [("ip", "ipv4_addr"), ("ip6", "ipv6_addr")] {
        let map = format!("pools_{ip}");
        let _ = writeln!(
            text,
            "add map inet {TABLE} {map} {{ type {kind} : {kind}; flags interval; }}"
        );
    }
    let _ = writeln!(text, "flush chain inet {TABLE} prerouting");
    for (v6, ip) in [(false, "ip"), (true, "ip6")] {
        let map = format!("pools_{ip}");
        let _ = writeln!(text, "flush map inet {TABLE} {map}");
        let elements = elements(plan, settings, v6);
        if !elements.is_empty() {
            let elements = list(
                elements
                    .iter()
                    .map(|(net, to)| format!("{net} : {to}"))
                    .collect(),
            );
            let _ = writeln!(text, "add element inet {TABLE} {map} {{ {elements} }}");
        }
        let addresses = forward.addresses.iter().filter(|one| one.is_ipv6() == v6);
        let addresses = list(addresses.map(IpAddr::to_string).collect());
        let default = plan.default_pool.as_deref();
        let default = default.and_then(|pool| address(settings, pool, v6));
        if let (false, Some(default)) = (addresses.is_empty(), default) {
            let rule = format!("add rule inet {TABLE} prerouting {ip} daddr {{ {addresses} }}");
            let port = format!("tcp dport {{ {ports} }}");
            let _ = writeln!(text, "{rule} {port} dnat {ip} to {ip} saddr map @{map}");
            let _ = writeln!(text, "{rule} {port} dnat {ip} to {default}");
        }
    }
    text
}

/// Makes the kernel forward as planned, in one transaction.
pub(crate) fn commit(
    hands: &Hands,
    plan: &Plan,
    settings: &Settings,
    forward: &Forward,
) -> io::Result<()> {
    hands.change(&["nft", "-f", "-"], Some(&rules(plan, settings, forward)))
}

/// Checks that the kernel would take the plan; changes nothing.
pub(crate) fn check(
    hands: &Hands,
    plan: &Plan,
    settings: &Settings,
    forward: &Forward,
) -> io::Result<()> {
    if hands.dry {
        return Ok(()); // it is printed when it is done
    }
    hands.change(
        &["nft", "-c", "-f", "-"],
        Some(&rules(plan, settings, forward)),
    )
}

/// Whether our table is there.
pub(crate) fn is_there(hands: &Hands) -> io::Result<bool> {
    let text = hands.look(&["nft", "list", "tables"])?;
    let ours = format!("table inet {TABLE}");
    Ok(text.lines().any(|line| line.trim() == ours))
}

/// Removes our table. Open connections go on where another nat chain is there, which keeps the kernel translating
/// addresses: the operator's own for the default pool.
pub(crate) fn remove(hands: &Hands) -> io::Result<()> {
    if !is_there(hands)? {
        return Ok(());
    }
    hands.change(&["nft", "delete", "table", "inet", TABLE], None)
}

/// What differs between the maps in use and the plan.
pub(crate) fn differences(
    hands: &Hands,
    plan: &Plan,
    settings: &Settings,
) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for (v6, ip) in [(false, "ip"), (true, "ip6")] {
        let map = format!("pools_{ip}");
        let text = match hands.look(&["nft", "-j", "list", "map", "inet", TABLE, &map]) {
            Ok(text) => text,
            Err(error) => {
                found.push(error.to_string());
                continue;
            }
        };
        let mut expected: Vec<String> = elements(plan, settings, v6)
            .iter()
            .map(|(net, to)| format!("{net} {to}"))
            .collect();
        expected.sort();
        let there = in_map(&text)?;
        if there != expected {
            found.push(format!(
                "nft's map {map} has {} entries, expected {} with the configuration's pools",
                there.len(),
                expected.len()
            ));
        }
    }
    Ok(found)
}

/// The elements of a map as `nft -j list map` shows it: prefix and address, sorted.
fn in_map(text: &str) -> io::Result<Vec<String>> {
    let shown: Value = serde_json::from_str(text)?;
    let maps = shown["nftables"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for element in maps
        .filter_map(|one| one["map"]["elem"].as_array())
        .flatten()
    {
        let key = &element[0];
        let prefix = &key["prefix"];
        let host = |address: &str| address.parse::<IpAddr>().ok().map(IpNet::from);
        let net = match key.as_str() {
            Some(address) => host(address),
            None => prefix["addr"].as_str().and_then(|address| {
                let bits = u8::try_from(prefix["len"].as_u64()?).ok()?;
                IpNet::new(address.parse().ok()?, bits).ok()
            }),
        };
        let to = element[1].as_str();
        match (net, to) {
            (Some(net), Some(to)) => found.push(format!("{net} {to}")),
            _ => found.push(element.to_string()),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transaction_has_disjoint_prefixes_and_the_default_last() {
        let settings: Settings = toml::from_str(
            "[[pool]]\nname = \"a\"\naddresses = [\"10.200.0.1\"]\n[[pool]]\nname = \"b\"\naddresses = [\"10.200.0.2\"]\n\
             [forward]\naddresses = [\"10.9.0.1\"]\nports = [80, 443]\n",
        )
        .unwrap();
        let map = [("10.1.0.0/16", "b"), ("10.1.0.0/17", "a")];
        let plan = Plan {
            map: map
                .iter()
                .map(|(net, pool)| (net.parse().unwrap(), (*pool).into()))
                .collect(),
            default_pool: Some("a".into()),
            ..Plan::default()
        };
        let text = rules(&plan, &settings, settings.forward.as_ref().unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            text.contains("{ 10.1.0.0/17 : 10.200.0.1, 10.1.128.0/17 : 10.200.0.2 }"),
            "{text}"
        );
        let rule = "add rule inet pathcast_agent prerouting ip daddr { 10.9.0.1 } tcp dport { 80, 443 } dnat ip to";
        let at = |end: &str| {
            lines
                .iter()
                .position(|line| *line == format!("{rule} {end}"))
        };
        assert!(at("ip saddr map @pools_ip") < at("10.200.0.1"), "{text}");
        assert!(
            at("10.200.0.1").is_some() && !text.contains("ip6 daddr"),
            "{text}"
        );
    }

    #[test]
    fn shown_elements_are_prefixes_and_hosts() {
        let text = r#"{"nftables":[{"metainfo":{}},{"map":{"elem":[["10.9.1.7","10.200.0.2"],
            [{"prefix":{"addr":"10.9.2.0","len":24}},"10.200.0.3"]]}}]}"#;
        assert_eq!(
            in_map(text).unwrap(),
            ["10.9.1.7/32 10.200.0.2", "10.9.2.0/24 10.200.0.3"]
        );
    }
}
