//! Schemes that the kernel has as modules.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use rustix::system::uname;

/// The program that the kernel itself would load modules with; empty if that is switched off, absent if
/// the kernel has no modules.
const LOADER: &str = "/proc/sys/kernel/modprobe";

/// Loads the module of a scheme if this is root and the running kernel has modules. Gives whether there
/// was one; the kernel knows whether it took it.
pub(crate) fn load(scheme: &str) -> bool {
    if !geteuid().is_root() {
        return false;
    }
    let release = uname().release().to_string_lossy().into_owned();
    let modules = Path::new("/lib/modules").join(release);
    let loader = fs::read_to_string(LOADER).unwrap_or_default();
    let loader = PathBuf::from(loader.trim_end());
    modules.is_dir() && !loader.as_os_str().is_empty() && load_with(&loader, scheme)
}

/// Runs a `modprobe` for the module of a scheme; whether it says that all went well.
fn load_with(loader: &Path, scheme: &str) -> bool {
    Command::new(loader)
        .args(arguments(scheme))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// No word of these is an option but the first, whatever the scheme's name is.
fn arguments(scheme: &str) -> [OsString; 3] {
    ["--quiet".into(), "--".into(), module(scheme).into()]
}

/// The module that the kernel itself looks for.
pub(crate) fn module(scheme: &str) -> String {
    format!("tcp_{scheme}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that writes its arguments, one a line, and ends with `code`.
    fn loader(folder: &Path, code: i32) -> PathBuf {
        let program = folder.join(format!("loader-{code}"));
        let seen = folder.join("seen");
        let text = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" > {}\nexit {code}\n",
            seen.display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    // one test: a program that was just written cannot be run while another thread starts one
    #[test]
    fn the_module_is_one_argument_after_the_options_and_a_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load_with(&loader(folder.path(), 0), "vegas"));
        let seen = fs::read_to_string(folder.path().join("seen")).unwrap();
        assert_eq!(seen, "--quiet\n--\ntcp_vegas\n");

        assert!(!load_with(&loader(folder.path(), 1), "vegas"));
        assert!(!load_with(&folder.path().join("none"), "vegas"));
    }
}
