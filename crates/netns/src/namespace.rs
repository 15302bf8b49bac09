//! Network namespaces without names.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sys::unshare_network;

/// A network namespace that lives as long as this descriptor, its sockets and its devices: it is
/// mounted nowhere, so that it goes with the process.
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
