//! TLS: the service's certificate, and those of its clients.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::Access;
use crate::error::WebError;

/// What accepts connections by TLS, if the configuration has a certificate.
///
/// # Errors
/// [`WebError`] if a file cannot be read, or does not fit.
pub fn acceptor(access: &Access) -> Result<Option<TlsAcceptor>, WebError> {
    let (Some(certificate), Some(key)) = (&access.certificate, &access.key) else {
        return Ok(None);
    };
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?;
    let builder = match &access.client_authorities {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for one in certificates(file)? {
                roots.add(one).map_err(|error| wrong(file, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| wrong(file, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, WebError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(file, &error))?;
    let read: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(file, &error))?;
    match read.is_empty() {
        true => Err(wrong(file, &"has no certificate in PEM")),
        false => Ok(read),
    }
}

fn wrong(file: &Path, error: &dyn std::fmt::Display) -> WebError {
    WebError(format!("{}: {error}", file.display()))
}
