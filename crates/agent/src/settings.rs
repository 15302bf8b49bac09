//! Settings of an agent: a file in TOML, and options above it.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use pathcast_control::report::check_agent;
use pathcast_control::{HttpVersion, TlsVersion};
use serde::Deserialize;

use crate::error::AgentError;

/// How connections get their congestion control and windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    /// By attributes of routes.
    #[default]
    Routes,
    /// By a BPF program that looks the client up in a trie of prefixes.
    SockOps,
}

/// Which completion times are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// Those of requests, as the server times them.
    #[default]
    Requests,
    /// Those of page loads, as browsers time them and send them in a beacon.
    Loads,
}

/// What an agent works with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The agent's name; default: the host's.
    pub name: String,
    /// Folder of what it keeps, made if it is not there. Default: `/var/lib/pathcast-agent`.
    pub state: PathBuf,
    /// Ports of the servers, whose connections are measured. Default: 80 and 443.
    pub ports: Vec<u16>,
    /// Seconds between reports: 1 to 300. Default: 5.
    pub report_every_s: f64,
    /// How connections of this namespace get their settings. Default: by routes.
    pub connections: Connections,
    /// Folder of the cgroup (version 2) that the servers run in: for `sock_ops`.
    pub cgroup: Option<PathBuf>,
    /// The routing tables that are ours: this one and the next. Default: 5201.
    pub table: u32,
    /// Priority of our routing rules. Default: 32000, just before the main table's 32766.
    pub rule: u32,
    /// File of the authorities' certificates (PEM) that sign the manager's; default: Mozilla's.
    pub ca_file: Option<PathBuf>,
    /// The agent's own certificate chain (PEM), if the manager asks for one (mTLS); default: none.
    pub certificate: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
    /// Pools of servers that a router chooses from.
    #[serde(rename = "pool")]
    pub pools: Vec<Pool>,
    /// HAProxy as the router.
    pub haproxy: Option<Haproxy>,
    /// The kernel as the router.
    pub forward: Option<Forward>,
    /// Logs of servers, in lines of JSON.
    pub logs: Vec<PathBuf>,
    /// Which completion times are taken from the logs. Default: requests.
    pub completion: Completion,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: String::new(),
            state: "/var/lib/pathcast-agent".into(),
            ports: vec![80, 443],
            report_every_s: 5.0,
            connections: Connections::Routes,
            cgroup: None,
            table: 5201,
            rule: 32_000,
            ca_file: None,
            certificate: None,
            key: None,
            pools: Vec::new(),
            haproxy: None,
            forward: None,
            logs: Vec::new(),
            completion: Completion::Requests,
        }
    }
}

/// A pool of servers with one configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Its name; with HAProxy, that of the backend.
    pub name: String,
    /// The network namespace of its servers, by its name in `ip netns list`.
    pub namespace: Option<String>,
    /// The servers' address, for forwarding: one of IPv4 and one of IPv6 at most.
    pub addresses: Vec<IpAddr>,
    /// Whether it serves clients that no prefix holds. One pool does.
    pub default: bool,
    /// The version of HTTP that its servers offer.
    pub http_version: Option<HttpVersion>,
    /// The version of TLS that its servers offer.
    pub tls_version: Option<TlsVersion>,
    /// Size of its servers' TLS records, bytes.
    pub tls_record_bytes: Option<u32>,
    /// How long its servers keep idle connections, seconds.
    pub keep_alive_s: Option<u32>,
}

/// HAProxy in TCP mode, whose map has the pool of each prefix.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Haproxy {
    /// Its runtime API (`stats socket PATH level admin`).
    pub socket: PathBuf,
    /// The map, as its configuration names it.
    pub map: PathBuf,
}

/// Forwarding at layer 4 by nftables.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// The addresses that clients connect to.
    pub addresses: Vec<IpAddr>,
    /// The ports that clients connect to.
    pub ports: Vec<u16>,
}

impl Settings {
    /// Reads and checks a file of settings; none: the defaults.
    ///
    /// # Errors
    /// [`AgentError::File`] if it cannot be read, [`AgentError::Settings`] if a key is unknown or a value out of range.
    pub fn read(file: Option<&Path>) -> Result<Self, AgentError> {
        let mut settings: Self = match file {
            None => Self::default(),
            Some(file) => {
                let text = fs::read_to_string(file).map_err(|source| AgentError::File {
                    file: file.into(),
                    source,
                })?;
                toml::from_str(&text).map_err(|error| {
                    AgentError::Settings(format!(
                        "{}: {}",
                        file.display(),
                        error.to_string().trim()
                    ))
                })?
            }
        };
        if settings.name.is_empty() {
            let host = rustix::system::uname();
            settings.name = host.nodename().to_string_lossy().to_lowercase();
        }
        let at = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
        settings
            .check()
            .map_err(|message| AgentError::Settings(format!("{at}{message}")))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        check_agent(&self.name).map_err(|error| format!("name: {error}"))?;
        if !(1.0..=300.0).contains(&self.report_every_s) {
            return Err(format!(
                "report_every_s is {}, expected 1 to 300",
                self.report_every_s
            ));
        }
        // 253 to 255 are the kernel's (iproute2's rt_tables), and rules end with main's
        if !(256..u32::MAX).contains(&self.table) {
            return Err(format!("table is {}, expected 256 or more", self.table));
        }
        if !(1..32_766).contains(&self.rule) {
            return Err(format!("rule is {}, expected 1 to 32765", self.rule));
        }
        if self.connections == Connections::SockOps && self.cgroup.is_none() {
            return Err("connections is sock_ops, expected cgroup beside it".into());
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err("certificate and key go together, one is missing".into());
        }
        if self.haproxy.is_some() && self.forward.is_some() {
            return Err("got haproxy and forward, expected one router".into());
        }
        let routed = self.haproxy.is_some() || self.forward.is_some();
        if routed && self.pools.iter().filter(|pool| pool.default).count() != 1 {
            return Err("expected one pool with default = true beside a router".into());
        }
        if let Some(haproxy) = &self.haproxy {
            check_map(&haproxy.map)?;
        }
        for pool in &self.pools {
            self.check_pool(pool)?;
        }
        Ok(())
    }

    fn check_pool(&self, pool: &Pool) -> Result<(), String> {
        let named = |name: &str| {
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            (1..=64).contains(&name.len())
                && !name.starts_with(['-', '.'])
                && name.bytes().all(fits)
        };
        let at = format!("pool {:?}", pool.name);
        if !named(&pool.name) || !pool.namespace.as_deref().is_none_or(named) {
            return Err(format!(
                "{at}: expected names of 1 to 64 letters, digits, -, _ or ."
            ));
        }
        if self
            .pools
            .iter()
            .filter(|one| one.name == pool.name)
            .count()
            > 1
        {
            return Err(format!("{at} occurs twice, expected it once"));
        }
        if let Some(forward) = &self.forward {
            for v6 in [false, true] {
                let here = forward.addresses.iter().any(|one| one.is_ipv6() == v6);
                let there = pool
                    .addresses
                    .iter()
                    .filter(|one| one.is_ipv6() == v6)
                    .count();
                if here && there != 1 {
                    let family = if v6 { "IPv6" } else { "IPv4" };
                    return Err(format!(
                        "{at}: got {there} addresses of {family}, expected one, as forward has some"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The runtime API takes words: the map's name must be one.
fn check_map(map: &Path) -> Result<(), String> {
    let text = map.to_string_lossy();
    let odd = |c: char| {
        c.is_whitespace() || c.is_control() || matches!(c, ';' | '\\' | '"' | '\'' | '#' | '<')
    };
    match map.is_absolute() && !text.contains(odd) {
        true => Ok(()),
        false => Err(format!(
            "haproxy.map is {text:?}, expected an absolute path without spaces, quotes or any of ;\\#<"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, AgentError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        fs::write(&file, text).unwrap();
        Settings::read(Some(&file))
    }

    #[test]
    fn the_settings_of_the_docs_are_read() {
        let settings = read(include_str!("../../../examples/agent/agent.toml")).unwrap();
        assert_eq!(settings.name, "edge-1");
        assert_eq!(settings.pools.len(), 2);
        assert!(settings.haproxy.is_some());
        assert!(!Settings::read(None).unwrap().name.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_expected() {
        let pool = "[[pool]]\nname = \"a\"\ndefault = true\n";
        for (text, said) in [
            ("color = 1".into(), "unknown field"),
            ("name = \"Edge 1\"".into(), "lower-case"),
            ("report_every_s = 0.1".into(), "1 to 300"),
            ("table = 254".into(), "256 or more"),
            ("rule = 32766".into(), "1 to 32765"),
            ("connections = \"sock_ops\"".into(), "cgroup"),
            (
                "[haproxy]\nsocket = \"/s\"\nmap = \"/m\"".into(),
                "one pool with default",
            ),
            (
                format!("{pool}[haproxy]\nsocket = \"/s\"\nmap = \"/m n\""),
                "absolute path",
            ),
            (
                format!("{pool}[forward]\naddresses = [\"10.0.0.1\"]\nports = [443]"),
                "addresses of IPv4",
            ),
            (format!("{pool}{pool}"), "twice"),
            ("[[pool]]\nname = \"../a\"".into(), "letters"),
        ] as [(String, &str); 11]
        {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
