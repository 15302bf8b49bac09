//! All that the agent does to the machine goes through here: done, or printed in a dry run.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcast_netns::Namespace;

use crate::ip::run;

/// Patience with HAProxy.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer of HAProxy that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Does things, or prints what it would do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hands {
    /// Whether nothing is changed, and each change is printed.
    pub(crate) dry: bool,
}

impl Hands {
    /// Runs a command that changes something.
    pub(crate) fn change(&self, arguments: &[&str], input: Option<&str>) -> io::Result<()> {
        if self.dry {
            println!("{}", arguments.join(" "));
            for line in input.unwrap_or("").lines() {
                println!("    {line}");
            }
            return Ok(());
        }
        run(arguments, input).map(drop)
    }

    /// Runs a command that only looks.
    pub(crate) fn look(&self, arguments: &[&str]) -> io::Result<String> {
        run(arguments, None)
    }

    /// Sets a sysctl below `net.ipv4`, in a namespace by its name or in our own.
    pub(crate) fn set_sysctl(
        &self,
        namespace: Option<&str>,
        name: &str,
        value: &str,
    ) -> io::Result<()> {
        if self.dry {
            let inside = namespace.map(|name| format!("ip netns exec {name} "));
            println!(
                "{}sysctl -w net.ipv4.{name}=\"{value}\"",
                inside.unwrap_or_default()
            );
            return Ok(());
        }
        inside(namespace, || fs::write(sysctl_file(name), value))
    }

    /// A sysctl below `net.ipv4`; its numbers one space apart.
    pub(crate) fn sysctl(&self, namespace: Option<&str>, name: &str) -> io::Result<String> {
        let text = inside(namespace, || fs::read_to_string(sysctl_file(name)))?;
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Writes a file: complete, or not at all.
    pub(crate) fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        if self.dry {
            println!("write {}:", file.display());
            for line in text.lines() {
                println!("    {line}");
            }
            return Ok(());
        }
        write_whole(file, text.as_bytes())
    }

    /// A command of HAProxy's runtime API that changes something; gives its answer.
    pub(crate) fn haproxy(&self, socket: &Path, command: &str) -> io::Result<String> {
        if self.dry {
            println!("haproxy {}: {}", socket.display(), command.trim_end());
            return Ok(String::new());
        }
        ask_haproxy(socket, command)
    }
}

/// Sends one command to HAProxy's runtime API; gives its answer.
pub(crate) fn ask_haproxy(socket: &Path, command: &str) -> io::Result<String> {
    let at = |error: io::Error| {
        let command = command.lines().next().unwrap_or("");
        io::Error::new(
            error.kind(),
            format!("haproxy {}: {command}: {error}", socket.display()),
        )
    };
    let ask = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // in one piece: it may answer and close as soon as it has a line
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut bytes = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_string())
    };
    ask().map_err(at)
}

fn sysctl_file(name: &str) -> PathBuf {
    Path::new("/proc/sys/net/ipv4").join(name)
}

/// Runs `work` in a namespace by its name, or in our own.
pub(crate) fn inside<T: Send>(
    namespace: Option<&str>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    match namespace {
        None => work(),
        Some(name) => Namespace::named(name)
            .and_then(|namespace| namespace.run(work))
            .map_err(|error| io::Error::new(error.kind(), format!("namespace {name}: {error}")))?,
    }
}

/// Writes a file under a temporary name and renames it; what was written stays after a crash.
pub(crate) fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary.persist(file)?;
    fs::File::open(folder)?.sync_all()
}
