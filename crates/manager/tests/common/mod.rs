//! A manager in another process, and what asks it.
#![allow(dead_code)] // each test uses a part

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pathcast_control::{Applied, Completions, Configuration, PrefixReport, Report, Secret};
use serde_json::Value;

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pathcast-manager");

/// Guardrails that need no patience.
pub const QUICK: &str = "[guardrails]\nshadow_s = 0\nslot_s = 1\ncanary = 1.0\nhold_out = 0.0\nleast_reports = 1\n\
    least_flows = 1\nagreeing_reports = 1\n";

/// A tree with one question.
pub const MODEL: &str = r#"{"format":1,"templates":[{"name":"lossy","knobs":{"congestion_control":"bbr"}}],
    "features":["loss"],"tree":{"feature":"loss","threshold":0.01,"below":{"template":"default"},
    "otherwise":{"template":"lossy"}}}"#;

/// A running manager; it is killed at the end.
pub struct Manager {
    process: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Manager {
    /// Starts one, and waits until it listens.
    pub fn start(state: &str, config: Option<&Path>) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["--listen", "127.0.0.1:0", "--state", state]);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it ends before it listens").unwrap();
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if event["event"] == "started" {
                break event["listen"].as_str().unwrap().parse().unwrap();
            }
        };
        // the pipe must not fill
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// kill -9, if it still runs.
    pub fn kill(mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Status, head and body of a response; none if the connection breaks.
    pub fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<(u16, String, Vec<u8>)> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(10)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(40)))
            .ok()?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok()?;
        let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8(all[..end].to_vec()).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, head.to_lowercase(), all[end + 4..].to_vec()))
    }

    /// The same; the manager must answer.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> (u16, String, Vec<u8>) {
        self.try_request(method, path, headers, body)
            .expect("an answer")
    }

    /// Status and JSON of an operator's request.
    pub fn json(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, _, body) = self.request(method, path, "", body.as_bytes());
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// A new agent.
    pub fn agent(&self, name: &str) -> Agent {
        let (status, added) = self.json("POST", "/v1/agents", &format!(r#"{{"name":"{name}"}}"#));
        assert_eq!(status, 200, "{added}");
        let secret = added["token"].as_str().unwrap().parse().unwrap();
        Agent {
            name: name.into(),
            secret,
            sequence: 0,
        }
    }

    /// The configuration that an agent gets, verified.
    pub fn configuration(&self, agent: &Agent, have: u64, wait: u64) -> Option<Configuration> {
        let path = format!(
            "/v1/configuration?agent={}&have={have}&wait={wait}",
            agent.name
        );
        let (status, head, body) = self.request("GET", &path, &agent.authorization(), b"");
        if status == 304 {
            return None;
        }
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let signature = head
            .lines()
            .find_map(|line| line.strip_prefix("pathcast-signature: "))
            .unwrap();
        agent.secret.verify(&body, signature).unwrap();
        Some(Configuration::read(&body).unwrap())
    }
}

/// An agent.
#[derive(Clone)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its secret.
    pub secret: Secret,
    /// Its last report.
    pub sequence: u64,
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    u64::try_from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    )
    .unwrap()
}

impl Agent {
    /// The header with its secret.
    pub fn authorization(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.secret.reveal())
    }

    /// The headers of a report.
    pub fn headers(&self, body: &[u8]) -> String {
        format!(
            "{}Pathcast-Signature: {}\r\n",
            self.authorization(),
            self.secret.sign(body)
        )
    }

    /// Its next report, of these prefixes with a loss, under a configuration.
    pub fn report(
        &mut self,
        prefixes: &[&str],
        loss: f64,
        configuration: &Configuration,
    ) -> Report {
        self.sequence += 1;
        let of = |text: &&str| {
            let prefix: pathcast_control::Prefix = text.parse().unwrap();
            let name = configuration
                .prefixes
                .get(&prefix)
                .unwrap_or(&configuration.default)
                .clone();
            let ms = if name.is_default() { 1000.0 } else { 800.0 };
            let spread = 1.0 + 0.1 * f64::from(u32::try_from(self.sequence % 7).unwrap());
            let times = [ms, ms * 1.3, ms / 1.2 * spread, ms * 0.9, ms * 1.1];
            PrefixReport {
                prefix,
                flows: 10,
                rtt_ms: Some(80.0),
                loss: Some(loss),
                bandwidth_mbps: Some(5.0),
                jitter_ms: None,
                completions: vec![Completions::of(name, configuration.version, &times).unwrap()],
            }
        };
        Report {
            format: 1,
            agent: self.name.clone(),
            boot: "00112233445566778899".into(),
            sequence: self.sequence,
            sent_at_ms: now_ms(),
            applied: Applied {
                version: configuration.version,
                ok: true,
                errors: vec![],
            },
            prefixes: prefixes.iter().map(of).collect(),
        }
    }

    /// Sends a report: the status.
    pub fn send(&self, manager: &Manager, report: &Report) -> Option<u16> {
        let body = report.to_json();
        let answer = manager.try_request("POST", "/v1/reports", &self.headers(&body), &body)?;
        Some(answer.0)
    }
}

/// A URL of SQLite in a folder.
pub fn sqlite(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("state.sqlite").display())
}
