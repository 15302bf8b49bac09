//! TLS towards the manager: whose certificates it must have, and the agent's own.

use std::fs;
use std::path::Path;

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::error::AgentError;
use crate::settings::Settings;

/// What the settings say of TLS.
///
/// # Errors
/// [`AgentError::File`] if a file cannot be read, [`AgentError::Settings`] if it has no certificate or key.
pub(crate) fn config(settings: &Settings) -> Result<TlsConfig, AgentError> {
    let mut tls = TlsConfig::builder();
    if let Some(file) = &settings.ca_file {
        tls = tls.root_certs(RootCerts::new_with_certs(&certificates(file)?));
    }
    if let (Some(chain), Some(key)) = (&settings.certificate, &settings.key) {
        let own = ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?);
        tls = tls.client_cert(Some(own));
    }
    Ok(tls.build())
}

fn items(file: &Path, expected: &str) -> Result<Vec<PemItem<'static>>, AgentError> {
    let text = fs::read(file).map_err(|source| AgentError::File {
        file: file.into(),
        source,
    })?;
    let read: Result<Vec<_>, _> = parse_pem(&text).collect();
    read.map_err(|error| lacks(file, &error.to_string(), expected))
}

fn lacks(file: &Path, got: &str, expected: &str) -> AgentError {
    AgentError::Settings(format!(
        "{}: {got}; expected {expected} in PEM",
        file.display()
    ))
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>, AgentError> {
    let found: Vec<_> = (items(file, "a certificate")?.into_iter())
        .filter_map(|item| match item {
            PemItem::Certificate(one) => Some(one),
            _ => None,
        })
        .collect();
    match found.is_empty() {
        true => Err(lacks(file, "got none", "a certificate")),
        false => Ok(found),
    }
}

fn private_key(file: &Path) -> Result<PrivateKey<'static>, AgentError> {
    let mut items = items(file, "a private key")?.into_iter();
    let found = items.find_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    found.ok_or_else(|| lacks(file, "got none", "a private key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_certificates_or_keys_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("some.pem");
        fs::write(&file, "no PEM\n").unwrap();
        for (settings, said) in [
            (
                Settings {
                    ca_file: Some(file.clone()),
                    ..Settings::default()
                },
                "expected a certificate",
            ),
            (
                Settings {
                    certificate: Some("/no/such.pem".into()),
                    key: Some(file.clone()),
                    ..Settings::default()
                },
                "/no/such.pem",
            ),
        ] {
            let error = config(&settings).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(private_key(&file).is_err());
    }
}
