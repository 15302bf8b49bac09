//! Network namespaces, without names or with those of ip-netns(8).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sys::unshare_network;

/// Where ip-netns(8) mounts the namespaces that have names.
const NAMED: &str = "/run/netns";

/// A network namespace. One that was created here lives as long as this descriptor, its sockets and its
/// devices: it is mounted nowhere, so that it goes with the process.
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// A new namespace with nothing in it but a loopback device that is down.
    ///
    /// # Errors
    /// What the kernel says, mostly that it is not permitted.
    pub fn create() -> io::Result<Self> {
        on_own_thread(|| {
            unshare_network()?;
            Ok(Self {
                fd: File::open("/proc/thread-self/ns/net")?.into(),
            })
        })
    }

    /// The namespace that `ip netns add` made under this name.
    ///
    /// # Errors
    /// There is none, or the name is not one of a file.
    pub fn named(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            let why = format!("got the namespace {name:?}, expected a name as ip netns list shows");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let file = File::open(Path::new(NAMED).join(name))?;
        Ok(Self { fd: file.into() })
    }

    /// Runs `work` inside, on a thread of its own: the calling thread stays where it is.
    ///
    /// # Errors
    /// The kernel refuses to enter the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_own_thread(|| {
            move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A thread that changes its namespace is never used for anything else.
fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let helper = thread::Builder::new()
            .name("pathcast-netns".into())
            .spawn_scoped(scope, work)?;
        helper
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_a_path() {
        for name in ["", "..", "a/b", "/proc/self/ns/net"] {
            let error = Namespace::named(name).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        let error = Namespace::named("no-such-namespace").err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
