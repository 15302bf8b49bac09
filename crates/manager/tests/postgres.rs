//! The state in a real PostgreSQL, which the test starts in a temporary folder.

mod common;

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{MODEL, Manager};
use pathcast_control::Configuration;

/// The user `nobody`: PostgreSQL refuses root.
const NOBODY: u32 = 65_534;

struct Server {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/");
    command
}

fn found(name: &str) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|file| file.exists())
}

/// A server, or why there is none.
fn server() -> Result<Server, String> {
    let postgres =
        found("postgres").ok_or("there is no postgres; install the package postgresql")?;
    let initdb = found("initdb").ok_or("there is no initdb; install the package postgresql")?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data).map_err(|error| error.to_string())?;
    if is_root() {
        for one in [folder.path(), &data] {
            chown(one, Some(NOBODY), Some(NOBODY)).map_err(|error| error.to_string())?;
        }
    }
    let made = unprivileged(&initdb)
        .arg("-D")
        .arg(&data)
        .args([
            "--auth=trust",
            "--username=pathcast",
            "--no-sync",
            "--encoding=UTF8",
        ])
        .status()
        .map_err(|error| error.to_string())?;
    if !made.success() {
        return Err(format!("initdb ends with {made}"));
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|one| one.local_addr())
        .map_err(|error| error.to_string())?
        .port();
    let process = unprivileged(&postgres)
        .arg("-D")
        .arg(&data)
        .args([
            "-p",
            &port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
        ])
        .args(["-c", "unix_socket_directories="])
        .spawn()
        .map_err(|error| error.to_string())?;
    let server = Server {
        process,
        folder,
        port,
    };
    let begin = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begin.elapsed() > Duration::from_secs(60) {
            return Err("postgres does not listen within a minute".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    Ok(server)
}

#[test]
fn the_state_survives_in_postgresql_and_a_second_manager_takes_over() {
    let server = match server() {
        Ok(server) => server,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let url = format!("postgresql://pathcast@127.0.0.1:{}/postgres", server.port);
    let first = Manager::start(&url, None);
    let mut agent = first.agent("edge");
    assert_eq!(first.json("PUT", "/v1/model", MODEL).0, 200);
    let report = agent.report(
        &["10.0.0.0/24", "2001:db8::/48"],
        0.05,
        &Configuration::empty(),
    );
    assert_eq!(agent.send(&first, &report), Some(200));
    let pin = r#"{"prefix":"10.9.0.0/16","template":"lossy"}"#;
    assert_eq!(first.json("POST", "/v1/pin", pin).0, 200);
    let configuration = first.configuration(&agent, 0, 5).unwrap();
    // a second one waits for the first one's lock, and takes over when that is killed
    let waiting = std::thread::spawn({
        let url = url.clone();
        move || Manager::start(&url, None)
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(!waiting.is_finished(), "two managers at a time");
    first.kill();
    let second = waiting.join().unwrap();
    assert_eq!(second.configuration(&agent, 0, 5).unwrap(), configuration);
    assert_eq!(
        agent.send(&second, &report),
        Some(409),
        "a report counts once, whoever takes it"
    );
    let next = agent.report(&["10.0.0.0/24"], 0.05, &configuration);
    assert_eq!(agent.send(&second, &next), Some(200));
    let (_, history) = second.json("GET", "/v1/history", "");
    assert_eq!(history["versions"][0]["version"], configuration.version);
    assert!(server.folder.path().exists());
}
