//! Reads what tracefs says of a tracepoint, mounted or not.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where tracefs is mounted on most machines.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The `id` and the `format` of `event`, such as `tcp/tcp_probe`.
///
/// # Errors
/// Why neither a mounted tracefs nor one of our own has the event, in words.
pub(crate) fn read_event(event: &str) -> Result<(u64, String), String> {
    let mut trouble = Vec::new();
    for place in MOUNT_POINTS {
        match open_directory(place).and_then(|root| read_event_below(&root, event)) {
            Ok(found) => return Ok(found),
            Err(error) => trouble.push(format!("{place}: {error}")),
        }
    }
    // a mount outside the file tree: other processes do not see it, and it disappears with the last
    // descriptor, so nothing needs to be undone
    match detached_tracefs().and_then(|root| read_event_below(&root, event)) {
        Ok(found) => return Ok(found),
        Err(error) => trouble.push(format!("mounting tracefs for ourselves: {error}")),
    }
    Err(format!(
        "no event {event} in tracefs ({})",
        trouble.join("; ")
    ))
}

fn open_directory(path: &str) -> io::Result<OwnedFd> {
    Ok(open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn detached_tracefs() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?)
}

fn read_event_below(root: &OwnedFd, event: &str) -> io::Result<(u64, String)> {
    let read = |name: &str| -> io::Result<String> {
        let path = format!("events/{event}/{name}");
        let mut file = File::from(openat(
            root,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    let id = read("id")?;
    let id = id
        .trim()
        .parse()
        .map_err(|_| io::Error::other(format!("id is {id:?}, expected a number")))?;
    Ok((id, read("format")?))
}
