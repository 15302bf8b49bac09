//! The program `pathcast-serve`, which needs no Python.

use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pathcast-serve");

#[test]
fn it_says_how_it_is_used_and_what_is_wrong() {
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("--state DIR")
    );
    let wrong = Command::new(PROGRAM)
        .args(["--listen", "here"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8(wrong.stderr)
            .unwrap()
            .contains("127.0.0.1:8080")
    );
}
