//! User namespaces, in which a process without privileges may configure its own networks.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};

use crate::error::NetnsError;
use crate::interface::switch_on_loopback;
use crate::sys::unshare_user_and_network;

/// Moves this process permanently into its own user namespace and network namespace. There it may make
/// namespaces, devices and routes, whatever its user outside. Its user and group stay the same, and all
/// others appear as `nobody`. A command that it starts has no privileges, unless it is uid 0.
///
/// # Errors
/// The machine does not let this user make user namespaces (with the reason, if it is known), or this
/// process has more than one thread.
pub fn enter_user_namespace() -> Result<(), NetnsError> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let enter = || -> io::Result<()> {
        unshare_user_and_network()?;
        // who may not set groups may map one of them (user_namespaces(7))
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        switch_on_loopback()
    };
    enter().map_err(|source| NetnsError::NoUserNamespace {
        why: why_not(|file| fs::read_to_string(file).ok()),
        source,
    })
}

/// Whether this process is in another user namespace than the machine's first.
pub fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let numbers = map.split_whitespace().map(str::parse::<u32>);
    // the first maps all users to themselves
    !matches!(
        numbers.collect::<Vec<_>>()[..],
        [Ok(0), Ok(0), Ok(u32::MAX)]
    ) && !map.is_empty()
}

/// What keeps this user from making user namespaces, by the settings that `read` gives.
fn why_not(read: impl Fn(&str) -> Option<String>) -> String {
    let settings = [
        ("user.max_user_namespaces", "0", "10000"),
        ("user.max_net_namespaces", "0", "10000"),
        // Debian's and Arch's
        ("kernel.unprivileged_userns_clone", "0", "1"),
        // Ubuntu's
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ];
    let of = |name: &str| read(&format!("/proc/sys/{}", name.replace('.', "/")));
    let in_the_way = settings.iter().filter_map(|(name, value, wanted)| {
        let found = of(name)?;
        (found.trim() == *value)
            .then(|| format!("{name} is {value} (root can set it: sysctl -w {name}={wanted})"))
    });
    let found: Vec<String> = in_the_way.collect();
    if !found.is_empty() {
        return found.join(", ");
    }
    match of("user.max_user_namespaces") {
        None => "this kernel has no user namespaces (CONFIG_USER_NS)".into(),
        Some(_) => "no setting of the kernel forbids it: a container or a chroot may (docker run \
             --security-opt seccomp=unconfined)"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_is_in_the_way_is_named_with_what_to_do() {
        let why = |settings: &[(&str, &str)]| {
            why_not(|file| {
                let found = settings.iter().find(|(name, _)| file.ends_with(name));
                found.map(|(_, value)| format!("{value}\n"))
            })
        };
        let allowed = ("user/max_user_namespaces", "96365");
        for (file, value, said) in [
            (
                "user/max_user_namespaces",
                "0",
                "user.max_user_namespaces is 0",
            ),
            (
                "kernel/unprivileged_userns_clone",
                "0",
                "sysctl -w kernel.unprivileged_userns_clone=1",
            ),
            (
                "kernel/apparmor_restrict_unprivileged_userns",
                "1",
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            ),
        ] {
            let text = why(&[(file, value), allowed]);
            assert!(text.contains(said), "{text}");
        }
        assert!(why(&[]).contains("CONFIG_USER_NS"));
        let unknown = why(&[allowed, ("kernel/unprivileged_userns_clone", "1")]);
        assert!(unknown.contains("seccomp"), "{unknown}");
    }
}
