//! kill -9 at random moments: what agents saw is there, and it is consistent. PATHCAST_KILLS sets how often; 10 without it.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::{Agent, MODEL, Manager, QUICK, sqlite};
use pathcast_control::{Configuration, Name, Prefix, Version};

/// The map by all changes of the history.
fn replayed(manager: &Manager) -> (u64, BTreeMap<Prefix, Name>) {
    let mut versions: Vec<Version> = Vec::new();
    let mut before = u64::MAX >> 1;
    loop {
        let path = format!("/v1/history?slots=true&limit=1000&before={before}");
        let (status, mut page) = manager.json("GET", &path, "");
        assert_eq!(status, 200, "{page}");
        let page = page["versions"].as_array_mut().unwrap();
        let read = page.iter_mut().map(|one| {
            one.as_object_mut().unwrap().remove("change_count");
            serde_json::from_value(one.take()).unwrap()
        });
        versions.extend(read);
        match versions.last() {
            Some(last) if last.version > 1 && before != last.version => before = last.version,
            _ => break,
        }
    }
    let mut map = BTreeMap::new();
    for (number, version) in (1..).zip(versions.iter().rev()) {
        assert_eq!(version.version, number, "no version is missing");
        for change in &version.changes {
            assert_eq!(
                map.get(&change.prefix),
                change.before.as_ref(),
                "version {number}"
            );
            match &change.after {
                Some(name) => map.insert(change.prefix, name.clone()),
                None => map.remove(&change.prefix),
            };
        }
    }
    (versions.first().map_or(0, |newest| newest.version), map)
}

/// Reports and operates until the manager is gone. The last sequence that was answered.
fn drive(manager: &Manager, agent: &mut Agent, seen: &AtomicU64, over: &AtomicBool) -> u64 {
    let names: Vec<String> = (0..20).map(|i| format!("10.0.{i}.0/24")).collect();
    let prefixes: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut answered, mut configuration) = (0, Configuration::empty());
    while !over.load(Relaxed) {
        let path = format!(
            "/v1/configuration?agent={}&have={}",
            agent.name, configuration.version
        );
        let Some((status, _, body)) =
            manager.try_request("GET", &path, &agent.authorization(), b"")
        else {
            break;
        };
        if status == 200
            && let Ok(read) = Configuration::read(&body)
        {
            configuration = read;
            seen.fetch_max(configuration.version, Relaxed);
        }
        let report = agent.report(&prefixes, 0.05, &configuration);
        if agent.send(manager, &report) == Some(200) {
            answered = report.sequence;
        }
        let template = if agent.sequence.is_multiple_of(2) {
            "lossy"
        } else {
            "default"
        };
        let pin = format!(
            r#"{{"prefix":"10.1.{}.0/24","template":"{template}"}}"#,
            agent.sequence % 5
        );
        let _ = manager.try_request("POST", "/v1/pin", "", pin.as_bytes());
    }
    answered
}

#[test]
fn a_kill_at_any_moment_leaves_a_consistent_configuration() {
    let kills = std::env::var("PATHCAST_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, QUICK).unwrap();
    let state = sqlite(folder.path());
    let (mut agent, mut random, mut last) = (None, 0x1234_5678_u64, None);
    let mut versions = 0;
    for kill in 0..kills {
        let manager = Manager::start(&state, Some(&config));
        let agent: &mut Agent = agent.get_or_insert_with(|| {
            assert_eq!(manager.json("PUT", "/v1/model", MODEL).0, 200);
            manager.agent("edge")
        });
        let (version, map) = replayed(&manager);
        let configuration = manager.configuration(agent, u64::MAX, 0).unwrap();
        assert_eq!(configuration.version, version);
        assert_eq!(configuration.prefixes, map, "kill {kill}");
        if let Some((seen, answered)) = last {
            assert!(
                version >= seen,
                "kill {kill}: agents saw version {seen}, it has {version}"
            );
            let mut again = agent.clone();
            again.sequence = answered - 1;
            let replay = again.report(&[], 0.0, &configuration);
            assert_eq!(
                again.send(&manager, &replay),
                Some(409),
                "a report counts once"
            );
        }
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let run = Duration::from_micros(20_000 + (random >> 33) % 700_000);
        let (seen, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let answered = std::thread::scope(|scope| {
            let driver = scope.spawn(|| drive(&manager, agent, &seen, &over));
            std::thread::sleep(run);
            // the process alone, so that the driver finds out by itself
            let id = manager.id();
            let killed = std::process::Command::new("kill")
                .args(["-9", &id.to_string()])
                .status()
                .unwrap();
            assert!(killed.success());
            over.store(true, Relaxed);
            driver.join().unwrap()
        });
        manager.kill();
        versions = seen.load(Relaxed).max(versions);
        last = (answered > 0).then_some((seen.load(Relaxed), answered));
    }
    println!("{kills} kills, {versions} versions");
    assert!(versions > kills / 2, "{versions} versions");
}
