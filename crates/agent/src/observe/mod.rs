//! What the agent sees of clients, by prefix: conditions of paths from sockets, and completion times from logs.

mod log_line;
mod paths;
mod tail;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use pathcast_control::{Completions, Configuration, Name, Prefix, PrefixReport};

use crate::plan::Plan;
use crate::settings::{Completion, Settings};
use log_line::Line;
use paths::Paths;
use tail::Tail;

/// Clients without a configured prefix are reported by these many bits of IPv4 and IPv6.
const USUAL_BITS: (u8, u8) = (24, 48);
/// Times of one prefix and template that a report keeps for quantiles and sums.
const MOST_TIMES: usize = 100_000;

/// What is in force, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) configuration: Configuration,
    pub(crate) since: SystemTime,
}

/// Collects what is seen between two reports.
pub(crate) struct Observer {
    paths: Paths,
    tails: Vec<Tail>,
    completion: Completion,
    times_ms: BTreeMap<(Prefix, Name, u64), Vec<f64>>,
    /// Lines that were no entries, or not usable.
    pub(crate) bad_lines: u64,
}

impl Observer {
    pub(crate) fn new(settings: &Settings) -> Self {
        let logs = settings.logs.iter();
        Self {
            paths: Paths::new(settings),
            tails: logs.map(|file| Tail::at_the_end(file)).collect(),
            completion: settings.completion,
            times_ms: BTreeMap::new(),
            bad_lines: 0,
        }
    }

    /// Looks at sockets and logs.
    ///
    /// # Errors
    /// The kernel does not list its sockets, or a log cannot be read.
    pub(crate) fn look(&mut self, in_force: &Current, plan: &Plan) -> io::Result<()> {
        for tail in &mut self.tails {
            let completion = self.completion;
            let (times_ms, bad) = (&mut self.times_ms, &mut self.bad_lines);
            tail.read(|line| match Line::read(line, completion) {
                Ok(Some(line)) => note(times_ms, &line, in_force),
                Ok(None) => {}
                Err(_) => *bad += 1,
            })?;
        }
        self.paths.look(in_force, plan)
    }

    /// All that was seen since the last call, by prefix; and what connections have that they should not.
    pub(crate) fn take(&mut self, in_force: &Current) -> (Vec<PrefixReport>, Vec<String>) {
        let (mut reports, wrong) = self.paths.take(in_force);
        for ((prefix, template, version), times_ms) in std::mem::take(&mut self.times_ms) {
            let completions = Completions::of(template, version, &times_ms);
            let report = reports.entry(prefix).or_insert_with(|| PrefixReport {
                prefix,
                flows: 0,
                rtt_ms: None,
                loss: None,
                bandwidth_mbps: None,
                jitter_ms: None,
                completions: Vec::new(),
            });
            report.completions.extend(completions);
        }
        (reports.into_values().collect(), wrong)
    }
}

/// Notes one completion under the template in force, if that was in force all the time.
fn note(times_ms: &mut BTreeMap<(Prefix, Name, u64), Vec<f64>>, line: &Line, in_force: &Current) {
    let began = SystemTime::now()
        .checked_sub(Duration::from_secs_f64(line.since_ms / 1000.0))
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let Some(prefix) = prefix_of(line.client, &in_force.configuration) else {
        return;
    };
    if began < in_force.since {
        return;
    }
    let template = in_force.configuration.template_of(line.client).clone();
    let version = in_force.configuration.version;
    let times = times_ms.entry((prefix, template, version)).or_default();
    if times.len() < MOST_TIMES {
        times.push(line.ms);
    }
}

/// The prefix that a client is reported by: the longest that is configured, or else the usual one.
fn prefix_of(client: IpAddr, configuration: &Configuration) -> Option<Prefix> {
    let client = client.to_canonical();
    let (most, usual) = match client {
        IpAddr::V4(_) => (32, USUAL_BITS.0),
        IpAddr::V6(_) => (128, USUAL_BITS.1),
    };
    let of = |bits: u8| Prefix::new(IpNet::new(client, bits).ok()?.trunc()).ok();
    let configured = |bits: u8| of(bits).filter(|one| configuration.prefixes.contains_key(one));
    (1..=most).rev().find_map(configured).or_else(|| of(usual))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_force(prefixes: &str) -> Current {
        let text = format!(
            r#"{{"format":1,"version":3,"templates":[{{"name":"far","knobs":{{"initial_window":40}}}}],"prefixes":{{{prefixes}}},"default":"default","made_at_ms":1}}"#
        );
        Current {
            configuration: Configuration::read(text.as_bytes()).unwrap(),
            since: SystemTime::now() - Duration::from_secs(10),
        }
    }

    #[test]
    fn clients_are_reported_by_their_longest_prefix() {
        let in_force = in_force(r#""10.1.0.0/16":"far","10.1.2.128/25":"default""#);
        for (client, prefix) in [
            ("10.1.2.200", "10.1.2.128/25"),
            ("10.1.2.3", "10.1.0.0/16"),
            ("::ffff:10.1.2.3", "10.1.0.0/16"),
            ("10.2.3.4", "10.2.3.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ] {
            let found = prefix_of(client.parse().unwrap(), &in_force.configuration).unwrap();
            assert_eq!(found.to_string(), prefix, "{client}");
        }
    }

    #[test]
    fn what_began_before_the_configuration_is_not_counted() {
        let in_force = in_force(r#""10.1.0.0/16":"far""#);
        let mut times_ms = BTreeMap::new();
        for since_ms in [9_000.0, 11_000.0] {
            let line = Line {
                client: "10.1.2.3".parse().unwrap(),
                ms: 50.0,
                since_ms,
            };
            note(&mut times_ms, &line, &in_force);
        }
        let counted: Vec<_> = times_ms.values().map(Vec::len).collect();
        assert_eq!(counted, [1]);
        assert_eq!(times_ms.keys().next().unwrap().1.as_str(), "far");
    }
}
