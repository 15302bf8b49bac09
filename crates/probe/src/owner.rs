//! To whom a socket belongs: processes and cgroups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::statfs;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::ProbeError;

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it calls itself, in up to 15 letters.
    pub name: String,
}

impl Process {
    pub(crate) fn of(pid: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            pid,
            name: name.trim_end().to_string(),
        }
    }
}

/// The numbers of the sockets that a process has open.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub(crate) fn sockets_of(pid: u32) -> io::Result<BTreeSet<u32>> {
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        inodes.extend(target.ok().as_deref().and_then(socket_inode));
    }
    Ok(inodes)
}

/// `socket:[12345]`
fn socket_inode(target: &Path) -> Option<u32> {
    let text = target.to_str()?;
    text.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// The processes that hold these sockets, of those that we may look at; of several, the first.
pub(crate) fn processes_of(inodes: &BTreeSet<u32>) -> BTreeMap<u32, Process> {
    let mut found = BTreeMap::new();
    let Ok(processes) = fs::read_dir("/proc") else {
        return found;
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for pid in pids {
        let Ok(sockets) = sockets_of(pid) else {
            continue;
        };
        for inode in sockets.intersection(inodes) {
            found.entry(*inode).or_insert_with(|| Process::of(pid));
        }
        if found.len() == inodes.len() {
            break;
        }
    }
    found
}

/// Does `work` in the network namespace of process `pid`, or, without one, where the caller is.
///
/// # Errors
/// There is no such process, or its namespace may not be entered, which needs `CAP_SYS_ADMIN`.
pub(crate) fn in_namespace_of<T: Send>(
    pid: Option<u32>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, ProbeError> {
    let asking = |source| ProbeError::Diag { source };
    let Some(pid) = pid else {
        return work().map_err(asking);
    };
    let name = format!("/proc/{pid}/ns/net");
    let wrong = |source: io::Error| ProbeError::Process { pid, source };
    let theirs = fs::read_link(&name).map_err(wrong)?;
    if fs::read_link("/proc/thread-self/ns/net").is_ok_and(|ours| ours == theirs) {
        return work().map_err(asking);
    }
    let namespace = File::open(&name).map_err(wrong)?;
    // a thread that changes its namespace is never used for anything else
    thread::scope(|scope| {
        let helper = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|errno| wrong(errno.into()))?;
            work().map_err(asking)
        });
        helper
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A cgroup of version 2 and all below it.
#[derive(Clone, Debug)]
pub(crate) enum Cgroup {
    Folder(PathBuf),
    /// Known by its number only.
    Number(u64),
}

impl Cgroup {
    /// The cgroup that `text` names.
    ///
    /// # Errors
    /// No cgroup has this name.
    pub(crate) fn find(text: &str) -> Result<Self, ProbeError> {
        if let Ok(number) = text.parse() {
            return Ok(Self::Number(number));
        }
        let wrong = |why: String| ProbeError::Selection(format!("cgroup {text}: {why}"));
        let below = text.trim_start_matches('/');
        let places = mounts().into_iter().map(|mount| mount.join(below));
        for folder in [PathBuf::from(text)].into_iter().chain(places) {
            if folder.is_dir() && is_cgroup(&folder) {
                return Ok(Self::Folder(folder));
            }
        }
        Err(wrong(
            "is not there; expected a folder of a cgroup2 file system, a path within one, or the \
             number of a cgroup"
                .into(),
        ))
    }

    /// The numbers of the group and of all below it.
    pub(crate) fn numbers(&self) -> BTreeSet<u64> {
        let mut numbers = BTreeSet::new();
        match self {
            Self::Number(number) => _ = numbers.insert(*number),
            Self::Folder(folder) => {
                let mut folders = vec![folder.clone()];
                while let Some(folder) = folders.pop() {
                    // a group's number is that of its folder (kernfs)
                    numbers.extend(fs::metadata(&folder).map(|data| data.ino()).ok());
                    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
                    let is_folder = |kind: fs::FileType| kind.is_dir();
                    folders.extend(
                        entries
                            .filter(|entry| entry.file_type().is_ok_and(is_folder))
                            .map(|entry| entry.path()),
                    );
                }
            }
        }
        numbers
    }
}

fn is_cgroup(folder: &Path) -> bool {
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    statfs(folder).is_ok_and(|statistics| statistics.f_type as u64 == CGROUP2_SUPER_MAGIC)
}

/// Where cgroup2 is mounted.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_socket_of_ours_is_found_with_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode = socket_inode(&link).unwrap();
        let pid = std::process::id();
        assert!(sockets_of(pid).unwrap().contains(&inode));
        let found = processes_of(&BTreeSet::from([inode]));
        assert_eq!(found[&inode], Process::of(pid));
        assert!(!found[&inode].name.is_empty());
    }

    #[test]
    fn what_is_no_socket_has_no_number() {
        for text in [
            "/dev/null",
            "socket:[]",
            "socket:[x]",
            "pipe:[7]",
            "socket:[99999999999]",
        ] {
            assert_eq!(socket_inode(Path::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_process_or_a_cgroup_that_is_not_there_is_told() {
        let error = in_namespace_of(Some(u32::MAX), || Ok(()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("process 4294967295"), "{error}");
        for text in ["/no/such/group", "/tmp"] {
            let error = Cgroup::find(text).unwrap_err().to_string();
            assert!(
                error.contains(text) && error.contains("expected a folder"),
                "{error}"
            );
        }
        assert_eq!(Cgroup::find("17").unwrap().numbers(), BTreeSet::from([17]));
    }
}
