//! Who the server is: a certificate made for the moment, which the client trusts and no other.

use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::rustls::client::Resumption;
use noq_proto::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use noq_proto::rustls::{self, ClientConfig, RootCertStore, ServerConfig};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};

use crate::QuicError;

/// The name in the certificate.
pub(crate) const SERVER_NAME: &str = "pathcast";

/// A certificate that signs itself, and its key.
#[derive(Clone)]
pub struct Identity {
    pub(crate) client: Arc<QuicClientConfig>,
    pub(crate) server: Arc<QuicServerConfig>,
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// The system has no randomness, or TLS refuses the certificate.
    pub fn new() -> Result<Self, QuicError> {
        #[allow(clippy::needless_pass_by_value)] // what map_err gives
        fn refused(error: impl ToString) -> QuicError {
            QuicError::Setup(error.to_string())
        }
        // Ed25519 and a serial number of our own: all certificates and signatures have the same size
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(refused)?;
        let mut params = CertificateParams::new([SERVER_NAME.to_string()]).map_err(refused)?;
        params.serial_number = Some(SerialNumber::from(1));
        let made = params.self_signed(&key).map_err(refused)?;
        let certificate: CertificateDer<'static> = made.der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(refused)?;

        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(refused)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = [&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(refused)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // the handshake of a connection does not depend on those before it
        client.resumption = Resumption::disabled();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(refused)?;
        Ok(Self {
            client: Arc::new(QuicClientConfig::try_from(client).map_err(refused)?),
            server: Arc::new(QuicServerConfig::try_from(server).map_err(refused)?),
        })
    }
}
