//! Commands of iproute2 and others, as vectors of arguments: no shell reads them.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Runs a command to its end, with `input` on its standard input; gives what it printed.
///
/// # Errors
/// It cannot be started, or fails: then the error has what it said.
pub(crate) fn run(arguments: &[&str], input: Option<&str>) -> io::Result<String> {
    let (program, rest) = arguments
        .split_first()
        .ok_or_else(|| io::Error::other("got no command"))?;
    let mut child = Command::new(program)
        .args(rest)
        .env("LC_ALL", "C")
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("starting {program}: {error}")))?;
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        // a command that ends early says why itself
        let _ = pipe.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.split_whitespace().collect();
    Err(io::Error::other(format!(
        "{}: {}",
        arguments.join(" "),
        said.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_command_as_they_are_and_failures_have_its_words() {
        assert_eq!(
            run(&["printf", "%s", "a; b $(c)"], None).unwrap(),
            "a; b $(c)"
        );
        assert_eq!(run(&["cat"], Some("x\ny")).unwrap(), "x\ny");
        let error = run(&["ls", "/no/such/file"], None).unwrap_err().to_string();
        assert!(error.contains("/no/such/file': No such file"), "{error}");
        assert!(run(&["/no/such/program"], None).is_err());
        assert!(run(&[], None).is_err());
    }
}
