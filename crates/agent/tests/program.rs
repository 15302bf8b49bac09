//! The program's ends: what it prints, and its exit codes. tests/agent runs it against kernels and routers.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pathcast-agent"));
    program.args(arguments).output().unwrap()
}

#[test]
fn help_names_all_options_and_wrong_ones_end_with_2() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for option in [
        "--manager",
        "--token-file",
        "--dry-run",
        "--uninstall",
        "--space",
    ] {
        assert!(help.contains(option), "{option}");
    }
    for (arguments, said) in [
        (&["--managr"][..], "--help lists the options"),
        (&["--dry-run"], "--manager URL"),
        (
            &["--manager", "http://10.0.0.1", "--token-file", "/no/such"],
            "in clear",
        ),
        (
            &["--config", "/no/such.toml", "--uninstall"],
            "/no/such.toml",
        ),
    ] {
        let done = run(arguments);
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn an_uninstall_without_anything_to_remove_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let done = run(&["--uninstall", "--state", state.to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    assert!(!state.exists());
}
