//! Prefixes without overlaps, for maps of intervals.

use std::collections::BTreeMap;

use ipnet::IpNet;

/// The same look-up, longest prefix first, by prefixes of which none holds another.
pub(crate) fn disjoint<T: Clone + PartialEq>(prefixes: &BTreeMap<IpNet, T>) -> Vec<(IpNet, T)> {
    // in this order, what a prefix holds follows it
    let mut sorted: Vec<(IpNet, &T)> = prefixes.iter().map(|(net, of)| (*net, of)).collect();
    sorted.sort_by_key(|(net, _)| (net.network(), net.prefix_len()));
    let mut found = Vec::new();
    let mut rest = &sorted[..];
    while let Some(((outer, of), more)) = rest.split_first() {
        let held = more
            .iter()
            .take_while(|(net, _)| outer.contains(net))
            .count();
        split(*outer, Some(*of), &more[..held], &mut found);
        rest = &more[held..];
    }
    found
}

/// Adds what `net` maps to, where `inside` are the longer prefixes in it, in order.
fn split<T: Clone>(
    net: IpNet,
    of: Option<&T>,
    inside: &[(IpNet, &T)],
    found: &mut Vec<(IpNet, T)>,
) {
    // the prefix itself may be among them, as half of a larger one
    let (of, inside) = match inside.split_first() {
        Some(((same, own), rest)) if *same == net => (Some(*own), rest),
        _ => (of, inside),
    };
    if inside.is_empty() {
        found.extend(of.map(|of| (net, of.clone())));
        return;
    }
    // a host has no longer prefix in it
    let Ok(halves) = net.subnets(net.prefix_len() + 1) else {
        return;
    };
    let mut rest = inside;
    for half in halves {
        let held = rest
            .iter()
            .take_while(|(net, _)| half.contains(net))
            .count();
        split(half, of, &rest[..held], found);
        rest = &rest[held..];
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn map(pairs: &[(&str, u8)]) -> BTreeMap<IpNet, u8> {
        let pairs = pairs.iter();
        pairs.map(|(net, of)| (net.parse().unwrap(), *of)).collect()
    }

    #[test]
    fn a_hole_is_cut_out_of_what_holds_it() {
        let found = disjoint(&map(&[
            ("10.0.0.0/8", 1),
            ("10.64.0.0/10", 2),
            ("2001:db8::/32", 3),
        ]));
        let shown: Vec<String> = found
            .iter()
            .map(|(net, of)| format!("{net} {of}"))
            .collect();
        assert_eq!(
            shown,
            [
                "10.0.0.0/10 1",
                "10.64.0.0/10 2",
                "10.128.0.0/9 1",
                "2001:db8::/32 3"
            ]
        );
    }

    #[test]
    fn look_ups_stay_the_same_and_nothing_overlaps() {
        // a multiplicative generator: any overlap of prefixes of a /16 comes up
        let mut state = 12_345_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut prefixes = BTreeMap::new();
            for _ in 0..8 {
                let address = Ipv4Addr::from_bits(0x0a01_0000 | next(0x1_0000) as u32);
                let net = IpNet::new(address.into(), 16 + next(17) as u8)
                    .unwrap()
                    .trunc();
                prefixes.insert(net, next(3));
            }
            let found = disjoint(&prefixes);
            for _ in 0..500 {
                let address: IpAddr =
                    Ipv4Addr::from_bits(0x0a01_0000 | next(0x1_0000) as u32).into();
                let holding = prefixes.iter().filter(|(net, _)| net.contains(&address));
                let longest = holding
                    .max_by_key(|(net, _)| net.prefix_len())
                    .map(|(_, of)| *of);
                let here: Vec<u64> = found
                    .iter()
                    .filter(|(net, _)| net.contains(&address))
                    .map(|(_, of)| *of)
                    .collect();
                assert_eq!(
                    here,
                    longest.into_iter().collect::<Vec<_>>(),
                    "{address} {prefixes:?}"
                );
            }
        }
    }
}
