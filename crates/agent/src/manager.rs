//! The manager, as the agent sees it: a client of HTTP.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pathcast_control::delta::CONTENT_TYPE;
use pathcast_control::{Configuration, Delta, Report, SIGNATURE_HEADER, Secret, Tracked};
use ureq::http::Uri;

use crate::error::AgentError;
use crate::settings::Settings;
use crate::tls;

/// Largest configuration: a million prefixes have about 40 MB.
const MOST_BYTES: u64 = 128 << 20;
/// Patience beyond the time that the manager may wait for something new.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks the manager, and reports to it.
#[derive(Clone)]
pub(crate) struct Manager {
    client: ureq::Agent,
    url: String,
    secret: Secret,
    name: String,
}

fn wrong(message: impl Into<String>) -> AgentError {
    AgentError::Settings(message.into())
}

/// Reads a token file: one line of 64 hexadecimal digits that only its owner may read.
fn read_secret(file: &Path) -> Result<Secret, AgentError> {
    use std::os::unix::fs::PermissionsExt;
    let at = |source| AgentError::File {
        file: file.into(),
        source,
    };
    let mode = fs::metadata(file).map_err(at)?.permissions().mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o777;
        return Err(wrong(format!(
            "{}: its mode is {mode:o}, expected 600: chmod 600 {}",
            file.display(),
            file.display()
        )));
    }
    let text = fs::read_to_string(file).map_err(at)?;
    text.trim()
        .parse()
        .map_err(|error| wrong(format!("{}: {error}", file.display())))
}

/// Checks the manager's URL: beyond this machine, it must be HTTPS.
fn check_url(text: &str) -> Result<String, AgentError> {
    let bad = |why: &str| {
        wrong(format!(
            "--manager is {text:?}, {why}; expected such as https://manager.example.net or http://127.0.0.1:8090"
        ))
    };
    let url: Uri = text.parse().map_err(|_| bad("which is no URL"))?;
    let host = url.host().ok_or_else(|| bad("which has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let local = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    if url.path() != "/" || url.query().is_some() {
        return Err(bad("which has a path"));
    }
    match url.scheme_str() {
        Some("https") => {}
        Some("http") if local => {}
        Some("http") => return Err(bad("which sends the token in clear over a network")),
        _ => return Err(bad("which is neither http nor https")),
    }
    Ok(text.trim_end_matches('/').into())
}

impl Manager {
    /// The manager at a URL, with the secret in a file.
    ///
    /// # Errors
    /// [`AgentError::Settings`] or [`AgentError::File`], if the URL, the file or the certificates are wrong.
    pub(crate) fn new(
        url: &str,
        token_file: &Path,
        settings: &Settings,
    ) -> Result<Self, AgentError> {
        let url = check_url(url)?;
        let secret = read_secret(token_file)?;
        let config = ureq::Agent::config_builder()
            .tls_config(tls::config(settings)?)
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("pathcast-agent/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            client: config.into(),
            url,
            secret,
            name: settings.name.clone(),
        })
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.secret.reveal())
    }

    /// The newest configuration and its text, if it is another than version `have`; waits up to `wait` for one. With a
    /// `base` of that version the manager may send what changed alone.
    ///
    /// # Errors
    /// [`AgentError::Manager`] if there is no answer, or a refusal. [`AgentError::Configuration`] if the manager's
    /// signature is wrong, or what it signed is no configuration of a known format.
    pub(crate) fn configuration(
        &self,
        have: u64,
        base: Option<&Tracked>,
        wait: Duration,
    ) -> Result<Option<(Tracked, String)>, AgentError> {
        let base = base.filter(|base| base.configuration().version == have);
        let mut url = format!(
            "{}/v1/configuration?agent={}&have={have}&wait={}",
            self.url,
            self.name,
            wait.as_secs()
        );
        if let Some(base) = base {
            url += &format!("&digest={}", base.digest());
        }
        let failed = |error: ureq::Error| AgentError::Manager(format!("{}: {error}", self.url));
        let request = self
            .client
            .get(&url)
            .config()
            .timeout_global(Some(wait + PATIENCE))
            .build();
        let mut response = request
            .header("Authorization", self.authorization())
            .call()
            .map_err(failed)?;
        let status = response.status().as_u16();
        if status == 304 {
            return Ok(None);
        }
        let header = |name: &str| {
            let value = response.headers().get(name);
            let text = value.and_then(|value| value.to_str().ok());
            text.unwrap_or("").to_string()
        };
        let signature = header(SIGNATURE_HEADER);
        let is_delta = header("content-type") == CONTENT_TYPE;
        let body = response
            .body_mut()
            .with_config()
            .limit(MOST_BYTES)
            .read_to_vec()
            .map_err(failed)?;
        if status != 200 {
            return Err(self.refusal(status, &body));
        }
        self.secret.verify(&body, &signature)?;
        if let (true, Some(base)) = (is_delta, base) {
            let found = base.changed_by(Delta::read(&body)?)?;
            let text = found.configuration().to_json();
            let text =
                String::from_utf8(text).map_err(|error| AgentError::Manager(error.to_string()))?;
            return Ok(Some((found, text)));
        }
        let configuration = Configuration::read(&body)?;
        let text =
            String::from_utf8(body).map_err(|error| AgentError::Manager(error.to_string()))?;
        Ok(Some((Tracked::of(configuration), text)))
    }

    /// Sends a report.
    ///
    /// # Errors
    /// [`AgentError::Manager`] if there is no answer, or a refusal.
    pub(crate) fn report(&self, report: &Report) -> Result<(), AgentError> {
        let body = report.to_json();
        let url = format!("{}/v1/reports", self.url);
        let failed = |error: ureq::Error| AgentError::Manager(format!("{}: {error}", self.url));
        let request = self
            .client
            .post(&url)
            .config()
            .timeout_global(Some(PATIENCE))
            .build();
        let mut response = request
            .header("Authorization", self.authorization())
            .header("Content-Type", "application/json")
            .header(SIGNATURE_HEADER, self.secret.sign(&body))
            .send(&body[..])
            .map_err(failed)?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(());
        }
        let body = response
            .body_mut()
            .with_config()
            .limit(1 << 16)
            .read_to_vec();
        Err(self.refusal(status, &body.unwrap_or_default()))
    }

    fn refusal(&self, status: u16, body: &[u8]) -> AgentError {
        let said: String = String::from_utf8_lossy(body).chars().take(300).collect();
        let advice = match status {
            401 | 403 => "; is this agent known there, and the token file its own?",
            409 => "; are the clocks the same, and is there one agent of this name?",
            _ => "",
        };
        AgentError::Manager(format!(
            "{}: status {status}: {}{advice}",
            self.url,
            said.trim()
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_cross_no_network_in_clear() {
        for (url, said) in [
            ("http://10.0.0.1:80", "in clear"),
            ("http://localhost.example.net", "in clear"),
            ("ftp://127.0.0.1", "neither"),
            ("https://manager.example.net/path", "has a path"),
            ("127.0.0.1:8090", "expected such as"),
            ("", "no URL"),
        ] {
            let error = check_url(url).unwrap_err().to_string();
            assert!(error.contains(said), "{url}: {error}");
        }
        for url in [
            "https://manager.example.net",
            "http://127.0.0.1:8090/",
            "http://[::1]:8090",
        ] {
            assert_eq!(check_url(url).unwrap(), url.trim_end_matches('/'));
        }
    }

    #[test]
    fn a_token_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, format!("{}\n", "0f".repeat(32))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_secret(&file).err().unwrap().to_string();
        assert!(error.contains("640"), "{error}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_secret(&file).unwrap().reveal(), "0f".repeat(32));
        fs::write(&file, "0f").unwrap();
        assert!(read_secret(&file).is_err());
    }
}
