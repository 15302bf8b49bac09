//! The largest buffer that the kernel's receivers grow to, for flows with `receive_window = "auto"`.

use std::fs;

use pathcast_netns::Host;
use pathcast_scenario::{ReceiveWindow, Scenario, Transport};

use crate::error::EmulatorError;

/// The largest buffer that a scenario's flows ask for, if any do.
///
/// # Errors
/// In words: they do not all ask for the same. Fixed windows are a matter of each socket.
pub(crate) fn largest_buffer(scenario: &Scenario) -> Result<Option<u64>, String> {
    let mut common: Option<ReceiveWindow> = None;
    for spec in &scenario.flows {
        let Transport::Tcp { receive_window, .. } = spec.transport else {
            continue;
        };
        if !matches!(receive_window, ReceiveWindow::Fixed { .. })
            && *common.get_or_insert(receive_window) != receive_window
        {
            return Err(
                "flows that differ in how far an automatic receive_window grows, or have none, expected \
                 one value: it is a setting of a host"
                    .into(),
            );
        }
    }
    Ok(common.and_then(ReceiveWindow::auto_buffer_bytes))
}

/// Lets the receivers of `host` grow their buffers to `bytes`, from the kernel's own beginning. Notes what the kernel
/// refuses.
pub(crate) fn limit(host: &mut Host, bytes: u64) -> Result<(), EmulatorError> {
    set(host, "net/ipv4/tcp_rmem", &format!("4096 131072 {bytes}"))
}

/// Sets the sysctl `key` of `host`. Notes what the kernel refuses.
pub(crate) fn set(host: &mut Host, key: &str, value: &str) -> Result<(), EmulatorError> {
    let written = host
        .namespace
        .run(|| fs::write(format!("/proc/sys/{key}"), value))
        .map_err(|error| EmulatorError::from_io("entering a network namespace", error))?;
    if let Err(error) = written {
        let name = key.replace('/', ".");
        host.refused.push(format!("{name}={value}: {error}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_flows(windows: &[&str]) -> Result<Option<u64>, String> {
        let flows: String = windows
            .iter()
            .map(|window| format!("[[flows]]\nscheme = 'cubic'\n{window}\n"))
            .collect();
        let text = format!("[links.a]\ndelay = '1 ms'\n{flows}");
        largest_buffer(&Scenario::parse(&text, "test.toml").unwrap())
    }

    #[test]
    fn flows_that_leave_their_buffer_to_the_kernel_have_one_limit() {
        const AUTO: &str = "receive_window = 'auto'";
        const SMALL: &str = "receive_window = { kind = 'auto', buffer = '1 MB' }";
        const FIXED: &str = "receive_window = '1 MB'";
        assert_eq!(of_flows(&["", FIXED]), Ok(None));
        assert_eq!(of_flows(&[AUTO, FIXED, AUTO]), Ok(Some(32 << 20)));
        assert_eq!(of_flows(&[FIXED, SMALL]), Ok(Some(1_000_000)));
        for differ in [&[AUTO, SMALL], &[AUTO, ""]] {
            let told = of_flows(differ).unwrap_err();
            assert!(told.contains("setting of a host"), "{told}");
        }
    }
}
