//! Who the server is: a certificate made for the moment, which the client trusts and no other.

use std::sync::{Arc, Mutex, PoisonError};

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::rustls::client::Resumption;
use noq_proto::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use noq_proto::rustls::server::ServerSessionMemoryCache;
use noq_proto::rustls::{self, ClientConfig, RootCertStore, ServerConfig};

use pathcast_scenario::WebPage;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ED25519, SerialNumber};

use crate::sessions::Sessions;
use crate::{Pair, QuicError, Settings};

/// The name in the certificate.
pub(crate) const SERVER_NAME: &str = "pathcast";

/// What TLS sends beside a certificate: that it is one, and a signature by its key (RFC 8446, 4.4.2 and 4.4.3).
const SIGNATURE_BYTES: u64 = 85;
/// A certificate of ours without anything that fills it.
const BARE_BYTES: u64 = 330;
/// The most that a certificate takes: TLS counts its bytes by 16 bits.
const MOST_BYTES: u64 = 60_000;
/// Certificates of up to so many bytes leave other servers at once, and of noq's only those of up to the second number.
/// Before it knows the client's address, a server may send three times what it got (RFC 9000, section 8.1). nginx and
/// quic-go count what they have sent, and send three datagrams or more; noq counts a full one before it sends it, and
/// sends two.
const AT_ONCE_BYTES: u64 = 3250;
const AT_ONCE_HERE_BYTES: u64 = 1050;
/// Identities that are kept.
const MOST_MADE: usize = 8;
/// Sessions that a generous server gives at once.
const SESSIONS: usize = 64;
/// An extension that no one reads (RFC 5612: for documentation).
const FILLING: [u64; 8] = [1, 3, 6, 1, 4, 1, 32_473, 1];

/// A certificate that signs itself, and its key.
#[derive(Clone)]
pub struct Identity {
    pub(crate) client: Arc<QuicClientConfig>,
    pub(crate) server: Arc<QuicServerConfig>,
    /// The same server where it gives many sessions at once.
    generous: Arc<QuicServerConfig>,
    /// Sessions that clients have of the server.
    sessions: Arc<Sessions>,
}

impl Identity {
    /// A new one, whose handshakes do not depend on those before.
    ///
    /// # Errors
    /// The system has no randomness, or TLS refuses the certificate.
    pub fn new() -> Result<Self, QuicError> {
        Self::make(0, 0)
    }

    /// One of which TLS sends about so many bytes of certificate and signature, as real chains have; at least some 400 and
    /// at most 60,000. A chain that other servers send at once is shortened to what noq does.
    ///
    /// # Errors
    /// As [`Identity::new`].
    pub fn with_certificate_bytes(bytes: u64) -> Result<Self, QuicError> {
        Self::make(bytes, 0)
    }

    /// One that clients with these settings know from before: so many of their connections take requests with the first
    /// packets (0-RTT).
    ///
    /// # Errors
    /// As [`Identity::new`], or the settings are invalid.
    pub fn known(bytes: u64, settings: &Settings, connections: usize) -> Result<Self, QuicError> {
        let identity = Self::make(bytes, connections)?;
        let visited = Self {
            server: Arc::clone(&identity.generous),
            ..identity.clone()
        };
        // each connection uses up a session, and brings many
        let visits = 2 + connections / (SESSIONS / 2);
        for _ in 0..visits {
            if identity.sessions.count() >= connections {
                return Ok(identity);
            }
            Pair::visit(settings, &visited)?;
        }
        let got = identity.sessions.count();
        let why = format!("the server gave {got} sessions, expected {connections}");
        Err(QuicError::Setup(why))
    }

    /// That of all servers of a page, which is loaded so many times.
    ///
    /// # Errors
    /// As [`Identity::known`].
    pub fn of_page(page: &WebPage, loads: u32, settings: &Settings) -> Result<Self, QuicError> {
        let bytes = page.http.certificate_bytes;
        let connections = loads as usize * page.page.connections(page.http.protocol);
        if page.http.early_data {
            return Self::known(bytes, settings, connections);
        }
        // a load takes less time than a certificate: those that were made serve others
        static MADE: Mutex<Vec<(u64, Identity)>> = Mutex::new(Vec::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, identity)) = made.iter().find(|(one, _)| *one == bytes) {
            return Ok(identity.clone());
        }
        let identity = Self::with_certificate_bytes(bytes)?;
        made.truncate(MOST_MADE - 1);
        made.insert(0, (bytes, identity.clone()));
        Ok(identity)
    }

    /// One whose clients may have so many sessions.
    fn make(certificate_bytes: u64, connections: usize) -> Result<Self, QuicError> {
        #[allow(clippy::needless_pass_by_value)] // what map_err gives
        fn refused(error: impl ToString) -> QuicError {
            QuicError::Setup(error.to_string())
        }
        // Ed25519 and a serial number of our own: all certificates and signatures have the same size
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(refused)?;
        let mut params = CertificateParams::new([SERVER_NAME.to_string()]).map_err(refused)?;
        params.serial_number = Some(SerialNumber::from(1));
        let bytes = match certificate_bytes {
            ..=AT_ONCE_BYTES => certificate_bytes.min(AT_ONCE_HERE_BYTES),
            _ => certificate_bytes.min(MOST_BYTES),
        };
        let filling = bytes.saturating_sub(SIGNATURE_BYTES + BARE_BYTES);
        if filling > 0 {
            let filling = vec![0; filling as usize];
            let extension = CustomExtension::from_oid_content(&FILLING, filling);
            params.custom_extensions.push(extension);
        }
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
        let sessions = Arc::new(Sessions::default());
        let keeps_sessions = connections > 0;
        client.resumption = match keeps_sessions {
            false => Resumption::disabled(),
            true => Resumption::store(Arc::clone(&sessions) as Arc<_>),
        };
        client.enable_early_data = keeps_sessions;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(refused)?;
        if keeps_sessions {
            // also those that connections bring while others are used up
            server.session_storage = ServerSessionMemoryCache::new(4 * (connections + SESSIONS));
            server.max_early_data_size = u32::MAX; // all or none, in QUIC (RFC 9001, 4.6.1)
        }
        let mut generous = server.clone();
        generous.send_tls13_tickets = SESSIONS;
        Ok(Self {
            client: Arc::new(QuicClientConfig::try_from(client).map_err(refused)?),
            server: Arc::new(QuicServerConfig::try_from(server).map_err(refused)?),
            generous: Arc::new(QuicServerConfig::try_from(generous).map_err(refused)?),
            sessions,
        })
    }
}
