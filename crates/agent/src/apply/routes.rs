//! What connections begin with, by routes: a table of our own beside the main one, which stays as it is.
//!
//! Two tables take turns. The one that is not in use is filled; then a rule makes it the one in use. The routes have
//! the next hops of the main table's. The commands are those of ip(8), because a dry run prints them as they are.

use std::collections::BTreeMap;
use std::io;

use ipnet::IpNet;
use serde::Deserialize;

use crate::hands::Hands;
use crate::plan::Beginning;

/// What our routes are marked with (rtm_protocol): above the kernel's and the routing daemons'.
const PROTOCOL: &str = "201";

/// Where our routes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(crate) first: u32,
    pub(crate) rule: u32,
}

/// A route of the main table, as `ip -json route` shows it.
#[derive(Clone, Debug, Deserialize)]
struct Route {
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: String,
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    prefsrc: Option<String>,
    scope: Option<String>,
    #[serde(default)]
    metric: u32,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    metrics: Vec<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    nexthops: Vec<Hop>,
}

#[derive(Clone, Debug, Deserialize)]
struct Via {
    family: String,
    host: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Hop {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    #[serde(default)]
    weight: u32,
    #[serde(default)]
    flags: Vec<String>,
}

/// What a namespace's tables are to hold, by family: lines of `ip -batch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) v4: Vec<String>,
    pub(crate) v6: Vec<String>,
}

/// The command `ip` for a namespace and a family.
fn ip<'a>(namespace: Option<&'a str>, v6: bool, rest: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["ip"];
    if let Some(name) = namespace {
        arguments.extend(["-n", name]);
    }
    arguments.push(if v6 { "-6" } else { "-4" });
    arguments.extend(rest);
    arguments
}

impl Lines {
    /// The routes for these beginnings with the main table's next hops of now.
    pub(crate) fn of(
        hands: &Hands,
        namespace: Option<&str>,
        beginnings: &BTreeMap<Option<IpNet>, Beginning>,
    ) -> io::Result<Self> {
        let lines = |v6: bool| -> io::Result<Vec<String>> {
            if beginnings.is_empty() {
                return Ok(Vec::new());
            }
            let show = ip(namespace, v6, &["-json", "route", "show", "table", "main"]);
            let text = hands.look(&show)?;
            let main: Vec<Route> = match text.trim() {
                "" => Vec::new(),
                text => serde_json::from_str(text)?,
            };
            lines(&main, beginnings, v6)
        };
        Ok(Self {
            v4: lines(false)?,
            v6: lines(true)?,
        })
    }

    fn of_family(&self, v6: bool) -> &[String] {
        if v6 { &self.v6 } else { &self.v4 }
    }
}

/// Our routes, given the main table's.
fn lines(
    main: &[Route],
    beginnings: &BTreeMap<Option<IpNet>, Beginning>,
    v6: bool,
) -> io::Result<Vec<String>> {
    let all: IpNet = if v6 { "::/0" } else { "0.0.0.0/0" }
        .parse()
        .expect("it is one");
    let of_family = |net: &IpNet| matches!(net, IpNet::V6(_)) == v6;
    let mut asked: BTreeMap<IpNet, &Beginning> = BTreeMap::new();
    for (net, beginning) in beginnings {
        let net = net.unwrap_or(all);
        if of_family(&net) {
            asked.insert(net, beginning);
        }
    }
    // of several routes to the same network, that with the least metric holds
    let mut routes: BTreeMap<IpNet, &Route> = BTreeMap::new();
    for route in main {
        let Some(net) = network(&route.dst, all) else {
            return Err(odd("destination", &route.dst));
        };
        let first = routes.entry(net).or_insert(route);
        if route.metric < first.metric {
            *first = route;
        }
    }
    let longest_asked = |net: &IpNet| {
        let holding = asked.iter().filter(|(outer, _)| outer.contains(net));
        holding
            .max_by_key(|(outer, _)| outer.prefix_len())
            .map(|(_, one)| *one)
    };
    let covering = |net: &IpNet| {
        let holding = routes.iter().filter(|(outer, _)| outer.contains(net));
        holding
            .max_by_key(|(outer, _)| outer.prefix_len())
            .map(|(_, route)| *route)
    };
    let mut found: BTreeMap<IpNet, (&Route, &Beginning)> = BTreeMap::new();
    for (net, beginning) in &asked {
        // without a route, there are no such clients
        if let Some(route) = covering(net) {
            found.insert(*net, (route, beginning));
        }
    }
    for (net, route) in &routes {
        let link_local = matches!(net, IpNet::V6(v6) if v6.network().is_unicast_link_local());
        if let Some(beginning) = longest_asked(net).filter(|_| !link_local) {
            found.insert(*net, (route, beginning));
        }
    }
    let mut lines = Vec::with_capacity(found.len());
    for (net, (route, beginning)) in found {
        lines.push(line(net, route, beginning)?);
    }
    Ok(lines)
}

fn network(text: &str, all: IpNet) -> Option<IpNet> {
    match text {
        "default" => Some(all),
        _ => text
            .parse()
            .ok()
            .or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?))),
    }
}

fn odd(what: &str, got: &str) -> io::Error {
    io::Error::other(format!(
        "ip route show: got the {what} {got:?}, expected a word of ip(8)"
    ))
}

/// A word for `ip -batch`, which splits at spaces and knows quotes and comments.
fn word<'a>(what: &str, text: &'a str) -> io::Result<&'a str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.:@/-".contains(c);
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text),
        false => Err(odd(what, text)),
    }
}

/// A route as ip(8) takes it, without the table.
fn line(net: IpNet, route: &Route, beginning: &Beginning) -> io::Result<String> {
    let mut words: Vec<String> = Vec::new();
    let kind = route.kind.as_deref().unwrap_or("unicast");
    words.push(word("type", kind)?.into());
    words.push(net.to_string());
    let mut hop =
        |gateway: &Option<String>, via: &Option<Via>, dev: &Option<String>, flags: &[String]| {
            if let Some(gateway) = gateway {
                words.extend(["via".into(), word("gateway", gateway)?.into()]);
            }
            if let Some(via) = via {
                words.extend(["via".into(), word("family", &via.family)?.into()]);
                words.push(word("gateway", &via.host)?.into());
            }
            if let Some(dev) = dev {
                words.extend(["dev".into(), word("device", dev)?.into()]);
            }
            if flags.iter().any(|flag| flag == "onlink") {
                words.push("onlink".into());
            }
            Ok::<(), io::Error>(())
        };
    if route.nexthops.is_empty() {
        hop(&route.gateway, &route.via, &route.dev, &route.flags)?;
    }
    words.extend(["proto".into(), PROTOCOL.into()]);
    for (name, value) in [("src", &route.prefsrc), ("scope", &route.scope)] {
        if let Some(value) = value {
            words.extend([name.into(), word(name, value)?.into()]);
        }
    }
    if kind == "unicast" {
        words.extend(attributes(route, beginning)?);
    }
    for one in &route.nexthops {
        words.push("nexthop".into());
        let mut hop = Vec::new();
        if let Some(gateway) = &one.gateway {
            hop.extend(["via", word("gateway", gateway)?]);
        }
        if let Some(via) = &one.via {
            hop.extend([
                "via",
                word("family", &via.family)?,
                word("gateway", &via.host)?,
            ]);
        }
        if let Some(dev) = &one.dev {
            hop.extend(["dev", word("device", dev)?]);
        }
        words.extend(hop.into_iter().map(String::from));
        words.extend(["weight".into(), one.weight.max(1).to_string()]);
        if one.flags.iter().any(|flag| flag == "onlink") {
            words.push("onlink".into());
        }
    }
    Ok(words.join(" "))
}

/// The attributes of a route: the main table's, and ours in their place.
fn attributes(route: &Route, beginning: &Beginning) -> io::Result<Vec<String>> {
    let mut words = Vec::new();
    let ours = [
        ("initcwnd", beginning.initial_window),
        ("initrwnd", beginning.initial_receive_window),
    ];
    for (name, value) in ours {
        if let Some(value) = value {
            words.extend([name.into(), value.to_string()]);
        }
    }
    if let Some(scheme) = &beginning.congestion_control {
        let scheme = word("congestion control", scheme)?;
        words.extend(["congctl".into(), "lock".into(), scheme.into()]);
    }
    for (name, value) in route.metrics.iter().flatten() {
        let set = match name.as_str() {
            "initcwnd" => beginning.initial_window.is_some(),
            "initrwnd" => beginning.initial_receive_window.is_some(),
            _ => false,
        };
        let value = value.as_u64().map(|value| value.to_string());
        match (name.as_str(), value) {
            (
                "mtu" | "advmss" | "window" | "hoplimit" | "quickack" | "initcwnd" | "initrwnd",
                Some(value),
            ) if !set => {
                words.extend([name.clone(), value]);
            }
            ("rto_min", Some(value)) => words.extend([name.clone(), format!("{value}ms")]),
            ("ecn", None) => words.extend(["features".into(), "ecn".into()]),
            _ => {}
        }
    }
    let theirs = route
        .metrics
        .iter()
        .find_map(|one| one.get("congestion")?.as_str());
    if let (None, Some(scheme)) = (&beginning.congestion_control, theirs) {
        words.extend(["congctl".into(), word("congestion control", scheme)?.into()]);
    }
    Ok(words)
}

impl Tables {
    /// The table in use for a family; none if no rule of ours is there.
    pub(crate) fn in_use(
        self,
        hands: &Hands,
        namespace: Option<&str>,
        v6: bool,
    ) -> io::Result<Vec<u32>> {
        #[derive(Deserialize)]
        struct Rule {
            priority: u32,
            table: Option<String>,
        }
        let text = hands.look(&ip(namespace, v6, &["-json", "-N", "rule", "show"]))?;
        let rules: Vec<Rule> = match text.trim() {
            "" => Vec::new(),
            text => serde_json::from_str(text)?,
        };
        let ours = rules.iter().filter(|rule| rule.priority == self.rule);
        let tables = ours.filter_map(|rule| rule.table.as_deref()?.parse().ok());
        Ok(tables
            .filter(|table| (self.first..=self.first + 1).contains(table))
            .collect())
    }

    /// Fills the table that is not in use; gives its number. Nothing uses it yet.
    pub(crate) fn prepare(
        self,
        hands: &Hands,
        namespace: Option<&str>,
        lines: &Lines,
        v6: bool,
    ) -> io::Result<u32> {
        let used = self.in_use(hands, namespace, v6)?;
        let table = if used.contains(&self.first) {
            self.first + 1
        } else {
            self.first
        };
        self.flush(hands, namespace, v6, table)?;
        let mut batch = String::new();
        for line in lines.of_family(v6) {
            batch += &format!("route add {line} table {table}\n");
        }
        if !batch.is_empty() {
            hands.change(&ip(namespace, v6, &["-batch", "-"]), Some(&batch))?;
        }
        Ok(table)
    }

    /// Makes `table` the one in use, or none; gives the tables that were.
    pub(crate) fn switch(
        self,
        hands: &Hands,
        namespace: Option<&str>,
        v6: bool,
        table: Option<u32>,
    ) -> io::Result<Vec<u32>> {
        let rule = self.rule.to_string();
        let used = self.in_use(hands, namespace, v6)?;
        let change = |what: &str, table: u32| {
            let table = table.to_string();
            let words = ["rule", what, "pref", &rule, "lookup", &table];
            hands.change(&ip(namespace, v6, &words), None)
        };
        if let Some(table) = table.filter(|table| !used.contains(table)) {
            change("add", table)?;
        }
        for old in used.iter().filter(|old| Some(**old) != table) {
            change("del", *old)?;
        }
        Ok(used)
    }

    /// Empties one of the tables.
    pub(crate) fn flush(
        self,
        hands: &Hands,
        namespace: Option<&str>,
        v6: bool,
        table: u32,
    ) -> io::Result<()> {
        if self.routes(hands, namespace, v6, table)?.is_empty() {
            return Ok(());
        }
        let table = table.to_string();
        hands.change(
            &ip(namespace, v6, &["route", "flush", "table", &table]),
            None,
        )
    }

    /// The routes of one of the tables, as ip(8) takes them; a table that was never used has none.
    fn routes(
        self,
        hands: &Hands,
        namespace: Option<&str>,
        v6: bool,
        table: u32,
    ) -> io::Result<Vec<Route>> {
        let table = table.to_string();
        let show = ip(namespace, v6, &["-json", "route", "show", "table", &table]);
        match hands.look(&show) {
            Ok(text) if text.trim().is_empty() => Ok(Vec::new()),
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.to_string().contains("does not exist") => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// What differs between the table in use and the beginnings asked for, one line each.
    pub(crate) fn differences(
        self,
        hands: &Hands,
        namespace: Option<&str>,
        lines: &Lines,
    ) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for v6 in [false, true] {
            let expected = lines.of_family(v6);
            let used = self.in_use(hands, namespace, v6)?;
            let table = match (used.as_slice(), expected.is_empty()) {
                ([], true) => continue,
                ([table], false) => *table,
                (tables, _) => {
                    found.push(format!("rules look up tables {tables:?}, expected one"));
                    continue;
                }
            };
            let nothing = Beginning::default();
            let all: IpNet = if v6 { "::/0" } else { "0.0.0.0/0" }
                .parse()
                .expect("it is one");
            let mut there = BTreeMap::new();
            for route in self.routes(hands, namespace, v6, table)? {
                let net = network(&route.dst, all).ok_or_else(|| odd("destination", &route.dst))?;
                there.insert(net.to_string(), attributes(&route, &nothing)?);
            }
            for line in expected {
                let words: Vec<&str> = line.split(' ').collect();
                let here = words.get(1).and_then(|net| there.get(*net));
                let kept = |attribute: &String| words.contains(&attribute.as_str());
                let names = ["initcwnd", "initrwnd", "congctl"];
                let asked = words.iter().filter(|word| names.contains(word)).count();
                let has = here.map(|has| {
                    let set = has.iter().filter(|one| names.contains(&one.as_str()));
                    set.count()
                });
                let same = here.is_some_and(|has| has.iter().all(kept)) && has == Some(asked);
                if !same {
                    let has = here.map_or_else(|| "no route".into(), |has| has.join(" "));
                    found.push(format!("table {table}: expected {line}; got {has}"));
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = r#"[
      {"dst":"default","gateway":"192.0.2.1","dev":"eth0","metric":100,"flags":[]},
      {"dst":"default","gateway":"192.0.2.9","dev":"eth1","metric":200,"flags":[]},
      {"dst":"10.1.2.0/24","gateway":"192.0.2.2","dev":"eth0","flags":["onlink"],"metrics":[{"mtu":1400,"initcwnd":7}]},
      {"type":"unreachable","dst":"10.1.3.0/24","flags":[]},
      {"dst":"10.1.4.0/24","flags":[],"nexthops":[{"gateway":"192.0.2.3","dev":"eth0","weight":2,"flags":[]},
        {"via":{"family":"inet6","host":"fe80::1"},"dev":"eth1","weight":1,"flags":[]}]},
      {"dst":"192.0.2.0/24","dev":"eth0","scope":"link","prefsrc":"192.0.2.7","flags":[]}]"#;

    fn routed(asked: &[(Option<&str>, Beginning)], v6: bool) -> Vec<String> {
        let main: Vec<Route> = serde_json::from_str(MAIN).unwrap();
        let asked = asked.iter().cloned();
        let asked = asked.map(|(net, one)| (net.map(|net| net.parse().unwrap()), one));
        lines(&main, &asked.collect(), v6).unwrap()
    }

    fn window(packets: u32) -> Beginning {
        Beginning {
            initial_window: Some(packets),
            ..Beginning::default()
        }
    }

    #[test]
    fn routes_inside_a_prefix_keep_their_next_hops() {
        let found = routed(&[(Some("10.1.0.0/16"), window(40))], false);
        assert_eq!(
            found,
            [
                "unicast 10.1.0.0/16 via 192.0.2.1 dev eth0 proto 201 initcwnd 40",
                "unicast 10.1.2.0/24 via 192.0.2.2 dev eth0 onlink proto 201 initcwnd 40 mtu 1400",
                "unreachable 10.1.3.0/24 proto 201",
                "unicast 10.1.4.0/24 proto 201 initcwnd 40 nexthop via 192.0.2.3 dev eth0 weight 2 nexthop via inet6 fe80::1 dev eth1 weight 1",
            ]
        );
        assert!(routed(&[(Some("10.1.0.0/16"), window(40))], true).is_empty());
    }

    #[test]
    fn a_prefix_within_another_is_cut_out_and_the_default_holds_for_the_rest() {
        let bbr = Beginning {
            congestion_control: Some("bbr".into()),
            ..Beginning::default()
        };
        let asked = [(None, bbr), (Some("10.1.2.128/25"), Beginning::default())];
        let found = routed(&asked, false);
        assert_eq!(
            found[0],
            "unicast 0.0.0.0/0 via 192.0.2.1 dev eth0 proto 201 congctl lock bbr"
        );
        let cut = found
            .iter()
            .find(|line| line.contains("10.1.2.128/25"))
            .unwrap();
        assert_eq!(
            cut,
            "unicast 10.1.2.128/25 via 192.0.2.2 dev eth0 onlink proto 201 initcwnd 7 mtu 1400"
        );
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn words_that_a_batch_would_split_are_refused() {
        let main = r#"[{"dst":"default","dev":"a b","flags":[]}]"#;
        let main: Vec<Route> = serde_json::from_str(main).unwrap();
        let asked = BTreeMap::from([(None, window(4))]);
        assert!(
            lines(&main, &asked, false)
                .unwrap_err()
                .to_string()
                .contains("device")
        );
    }
}
