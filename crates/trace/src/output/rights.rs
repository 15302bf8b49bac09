//! The user identity of a thread.

use std::io;

#[cfg(target_os = "linux")]
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
#[cfg(target_os = "linux")]
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::User;

/// Runs `work` with a user's permissions instead of root's, in the calling thread only.
#[cfg(target_os = "linux")]
pub(super) fn as_user<T>(
    user: Option<User>,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    /// Restores the thread's identity, also when `work` panics.
    struct Before(Uid, Gid, Vec<Gid>);
    impl Drop for Before {
        fn drop(&mut self) {
            let Self(user, group, groups) = self;
            let back = set_thread_res_uid(None, Some(*user), None)
                .and_then(|()| set_thread_res_gid(None, Some(*group), None))
                .and_then(|()| set_thread_groups(groups));
            if back.is_err() {
                std::process::abort(); // never continue with another user's permissions
            }
        }
    }

    let Some((user, group)) = user else {
        return work();
    };
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    let before = Before(geteuid(), getegid(), getgroups()?);
    if let Err(error) = set_thread_groups(&[group]) {
        std::mem::forget(before); // nothing was changed, so nothing to restore
        return Err(error.into());
    }
    set_thread_res_gid(None, Some(group), None)?;
    set_thread_res_uid(None, Some(user), None)?;
    work()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn as_user<T>(
    user: Option<User>,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    match user {
        None => work(),
        Some(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}
