//! Agents and operators against a manager over real sockets.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use common::{MODEL, Manager, QUICK, now_ms, sqlite};
use pathcast_control::{Configuration, Delta, Secret, Tracked};

fn started(folder: &std::path::Path) -> Manager {
    let config = folder.join("config.toml");
    std::fs::write(&config, QUICK).unwrap();
    Manager::start(&sqlite(folder), Some(&config))
}

#[test]
fn a_report_counts_once_and_only_from_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let manager = started(folder.path());
    let (mut agent, other) = (manager.agent("edge-1"), manager.agent("edge-2"));
    let empty = Configuration::empty();
    let report = agent.report(&["10.0.0.0/24"], 0.05, &empty);
    assert_eq!(agent.send(&manager, &report), Some(200));
    assert_eq!(agent.send(&manager, &report), Some(409), "replayed");
    let mut old = agent.report(&["10.0.0.0/24"], 0.05, &empty);
    old.sent_at_ms = now_ms() - 61_000;
    assert_eq!(agent.send(&manager, &old), Some(409), "old");
    assert_eq!(
        other.send(&manager, &agent.report(&[], 0.0, &empty)),
        Some(403),
        "of another agent"
    );
    let body = agent.report(&[], 0.0, &empty).to_json();
    let post = |headers: &str, body: &[u8]| manager.request("POST", "/v1/reports", headers, body).0;
    assert_eq!(post("", &body), 401, "no token");
    let unknown = format!(
        "Authorization: Bearer {}\r\n",
        Secret::new([3; 32]).reveal()
    );
    assert_eq!(post(&unknown, &body), 401, "unknown token");
    assert_eq!(post(&agent.authorization(), &body), 401, "no signature");
    let signed = agent.headers(&body);
    let mut changed = body.clone();
    changed[2] ^= 1;
    assert_eq!(post(&signed, &changed), 401, "changed on the way");
    let newer = String::from_utf8(body.clone())
        .unwrap()
        .replace("\"format\":1", "\"format\":2,\"new\":1");
    assert_eq!(
        post(&agent.headers(newer.as_bytes()), newer.as_bytes()),
        400,
        "a newer format"
    );
    assert_eq!(
        post(&signed, &body),
        200,
        "all of that left the agent's state as it was"
    );
    let (_, _, text) = manager.request("GET", "/metrics", "", b"");
    let text = String::from_utf8(text).unwrap();
    for line in [
        "pathcast_manager_reports_total 2",
        "refused_total{reason=\"sequence\"} 1",
        "refused_total{reason=\"time\"} 1",
        "refused_total{reason=\"agent\"} 1",
        "refused_total{reason=\"token\"} 2",
        "refused_total{reason=\"signature\"} 2",
        "refused_total{reason=\"body\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(manager.json("DELETE", "/v1/agents/edge-1", "").0, 200);
    assert_eq!(
        agent.send(&manager, &agent.clone().report(&[], 0.0, &empty)),
        Some(401),
        "removed"
    );
    let mode = std::fs::metadata(folder.path().join("state.sqlite"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn conditions_become_a_trial_and_its_template_is_promoted() {
    let folder = tempfile::tempdir().unwrap();
    let manager = started(folder.path());
    let mut agent = manager.agent("edge");
    assert_eq!(manager.json("PUT", "/v1/model", MODEL).0, 200);
    let names: Vec<String> = (0..60).map(|i| format!("10.0.{i}.0/24")).collect();
    let prefixes: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut configuration = Configuration::empty();
    let begin = Instant::now();
    let stage = loop {
        let report = agent.report(&prefixes, 0.05, &configuration);
        assert_eq!(agent.send(&manager, &report), Some(200));
        if let Some(newer) = manager.configuration(&agent, configuration.version, 1) {
            assert!(newer.version > configuration.version);
            configuration = newer;
        }
        let (_, trials) = manager.json("GET", "/v1/trials", "");
        let stage = trials["trials"][0]["stage"]
            .as_str()
            .unwrap_or("")
            .to_string();
        if !matches!(stage.as_str(), "" | "shadow" | "canary") {
            break stage;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{trials}");
    };
    assert_eq!(stage, "promoted");
    while configuration.prefixes.len() < 60 {
        configuration = manager
            .configuration(&agent, configuration.version, 10)
            .expect("the promotion is a version");
    }
    assert!(
        configuration
            .prefixes
            .values()
            .all(|name| name.as_str() == "lossy")
    );
    let (_, trials) = manager.json("GET", "/v1/trials", "");
    let gain = &trials["trials"][0]["gain"];
    assert!(
        gain["high"].as_f64().unwrap() < 0.0 && gain["mean"].as_f64().unwrap() < -0.1,
        "{gain}"
    );
    let (_, found) = manager.json("GET", "/v1/prefixes?client=10.0.7.9", "");
    assert_eq!(found["prefixes"][0]["state"], "placed");
    assert_eq!(found["prefixes"][0]["conditions"]["rtt_ms"], 80.0);
    // an operator takes it back
    let id = trials["trials"][0]["id"].as_u64().unwrap();
    assert_eq!(
        manager
            .json("POST", &format!("/v1/trials/{id}/revert"), "")
            .0,
        200
    );
    let reverted = manager
        .configuration(&agent, configuration.version, 10)
        .unwrap();
    assert!(reverted.prefixes.is_empty());
    assert_eq!(
        manager
            .json("POST", &format!("/v1/trials/{id}/revert"), "")
            .0,
        409
    );
}

#[test]
fn an_operator_pins_and_reverts_with_history() {
    let folder = tempfile::tempdir().unwrap();
    let manager = started(folder.path());
    let agent = manager.agent("edge");
    let templates = r#"[{"name":"far","knobs":{"initial_window":40}}]"#;
    assert_eq!(manager.json("POST", "/v1/templates", templates).0, 200);
    let other = templates.replace("40", "20");
    assert_eq!(
        manager.json("POST", "/v1/templates", &other).0,
        409,
        "a name keeps its knobs"
    );
    for (body, status) in [
        (r#"{"prefix":"10.0.0.0/24","template":"far"}"#, 200),
        (r#"{"prefix":"10.0.0.0/8","template":"far"}"#, 200),
        (r#"{"prefix":"2001:db8::/48","template":"far"}"#, 200),
        (r#"{"prefix":"10.0.0.1/24","template":"far"}"#, 400),
        (r#"{"prefix":"0.0.0.0/0","template":"far"}"#, 400),
        (r#"{"prefix":"::ffff:10.0.0.0/120","template":"far"}"#, 400),
        (r#"{"prefix":"10.0.1.0/24","template":"near"}"#, 409),
    ] {
        let (got, answer) = manager.json("POST", "/v1/pin", body);
        assert_eq!(got, status, "{body}: {answer}");
    }
    let configuration = manager.configuration(&agent, 0, 0).unwrap();
    assert_eq!(
        (configuration.version, configuration.prefixes.len()),
        (3, 3)
    );
    assert_eq!(manager.configuration(&agent, 3, 0), None, "304");
    let (_, diff) = manager.json("GET", "/v1/diff?from=1&to=3", "");
    assert_eq!(diff["changes"].as_array().unwrap().len(), 2);
    assert_eq!(
        manager.json("POST", "/v1/revert", r#"{"version":1}"#).0,
        200
    );
    let reverted = manager.configuration(&agent, 3, 5).unwrap();
    assert_eq!((reverted.version, reverted.prefixes.len()), (4, 1));
    assert_eq!(manager.json("GET", "/v1/status", "").1["is_frozen"], true);
    assert_eq!(manager.json("POST", "/v1/resume", "").0, 200);
    let (_, history) = manager.json("GET", "/v1/history", "");
    assert_eq!(history["versions"][0]["cause"], "operator");
    assert_eq!(
        manager
            .json("POST", "/v1/unpin", r#"{"prefix":"10.0.0.0/24"}"#)
            .0,
        200
    );
    assert_eq!(
        manager
            .json("POST", "/v1/unpin", r#"{"prefix":"10.0.0.0/24"}"#)
            .0,
        409
    );
    let model = MODEL.replace("\"format\":1", "\"format\":2");
    assert_eq!(
        manager.json("PUT", "/v1/model", &model).0,
        400,
        "a newer format"
    );
    for path in ["/readyz", "/healthz", "/"] {
        assert_eq!(manager.request("GET", path, "", b"").0, 200, "{path}");
    }
    let elsewhere = "Origin: http://example.org\r\n";
    assert_eq!(
        manager.request("POST", "/v1/resume", elsewhere, b"").0,
        403,
        "of another site"
    );
}

#[test]
fn an_agent_that_says_what_it_has_gets_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let manager = started(folder.path());
    assert_eq!(manager.json("PUT", "/v1/model", MODEL).0, 200);
    let agent = manager.agent("edge");
    let pin = |number: u8| {
        let body = format!(r#"{{"prefix":"10.0.{number}.0/24","template":"lossy"}}"#);
        assert_eq!(manager.json("POST", "/v1/pin", &body).0, 200);
    };
    (0..40).for_each(pin);
    let whole = || Tracked::of(manager.configuration(&agent, u64::MAX, 0).unwrap());
    let before = whole();
    pin(200);
    assert_eq!(
        manager
            .json("POST", "/v1/unpin", r#"{"prefix":"10.0.0.0/24"}"#)
            .0,
        200
    );
    let have = before.configuration().version;
    let ask = |digest: &str| {
        let path = format!("/v1/configuration?agent=edge&have={have}{digest}");
        let (status, head, body) = manager.request("GET", &path, &agent.authorization(), b"");
        assert_eq!(status, 200);
        let signature = head
            .lines()
            .find_map(|line| line.strip_prefix("pathcast-signature: "));
        agent.secret.verify(&body, signature.unwrap()).unwrap();
        (head.contains("pathcast.delta"), body)
    };
    let (is_delta, body) = ask(&format!("&digest={}", before.digest()));
    assert!(is_delta && body.len() < 600, "{}", body.len());
    let after = before.changed_by(Delta::read(&body).unwrap()).unwrap();
    assert_eq!(after.configuration(), whole().configuration());
    // an agent of before asks without a digest; one that has drifted has another
    for digest in ["", "&digest=00"] {
        let (is_delta, body) = ask(digest);
        assert!(!is_delta);
        assert_eq!(&Configuration::read(&body).unwrap(), after.configuration());
    }
    let (_, _, metrics) = manager.request("GET", "/metrics", "", b"");
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(
        metrics.contains(r#"manager_configurations_total{kind="delta"} 1"#),
        "{metrics}"
    );
}

#[test]
fn a_second_manager_does_not_get_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let _manager = started(folder.path());
    let second = std::process::Command::new(common::PROGRAM)
        .args(["--listen", "127.0.0.1:0", "--state", &sqlite(folder.path())])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(
        String::from_utf8(second.stderr)
            .unwrap()
            .contains("another manager has it")
    );
}
