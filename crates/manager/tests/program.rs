//! The program's options.

mod common;

use std::process::Command;

use common::PROGRAM;

#[test]
fn it_says_how_it_is_used_and_what_is_wrong() {
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("--state URL")
    );
    for (option, value, said) in [
        ("--listen", "here", "127.0.0.1:8090"),
        ("--state", "mysql://x", "sqlite:///FILE"),
        ("--state", "sqlite://:memory:", "expected sqlite:///FILE"),
        ("--listen", "0.0.0.0:1", "other machines"),
        ("--nothing", "1", "--help"),
    ] {
        let wrong = Command::new(PROGRAM)
            .args([option, value])
            .output()
            .unwrap();
        let text = String::from_utf8(wrong.stderr).unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
}
