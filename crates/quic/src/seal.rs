//! Reads packets just before they are sealed: their content, and the seal that identifies them later.
//!
//! A packet ends with the tag of its authenticated encryption. It does not change in transit, and two
//! packets have the same with a probability of 2^-64. So the end of the tag identifies the packet among
//! those that crossed the path.

use noq_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
    UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, ConnectionId, PathId, Side, TransportError};

use bytes::BytesMut;
use std::any::Any;
use std::sync::Arc;

use crate::frames::stream_bytes;
use crate::ledger::SharedLedger;

/// How many bytes of a packet's end are its seal.
pub const SEAL_BYTES: usize = 8;

/// The seal of a packet, by its bytes; what is too short to have one has the seal 0.
pub fn seal_of(packet: &[u8]) -> u64 {
    packet
        .last_chunk::<SEAL_BYTES>()
        .map_or(0, |seal| u64::from_be_bytes(*seal))
}

/// Whether packets of data are encrypted and authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seal {
    /// By the keys of TLS.
    Closed,
    /// They are not, and neither are the headers: for two ends in one process. Their size is the same. Content of the
    /// handshake's packets is closed all the same.
    Open,
}

/// A client's or a server's TLS whose packets are written down.
pub(crate) struct Noting<C: ?Sized> {
    pub(crate) ledger: SharedLedger,
    pub(crate) seal: Seal,
    pub(crate) inner: Arc<C>,
}

impl<C: crypto::ClientConfig + ?Sized> crypto::ClientConfig for Noting<C> {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.inner.start_session(version, server_name, params)?;
        Ok(NotingSession::over(inner, &self.ledger, self.seal))
    }
}

impl<C: crypto::ServerConfig + ?Sized> crypto::ServerConfig for Noting<C> {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.inner.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(&self, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let inner = self.inner.start_session(version, params);
        NotingSession::over(inner, &self.ledger, self.seal)
    }
}

struct NotingSession {
    inner: Box<dyn Session>,
    ledger: SharedLedger,
    seal: Seal,
    /// How often keys of data were replaced.
    generation: u64,
}

impl NotingSession {
    fn over(inner: Box<dyn Session>, ledger: &SharedLedger, seal: Seal) -> Box<dyn Session> {
        Box::new(Self {
            inner,
            ledger: ledger.clone(),
            seal,
            generation: 0,
        })
    }

    fn noting(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let open = |inner| -> Box<dyn PacketKey> {
            let generation = self.generation;
            match self.seal {
                Seal::Closed => inner,
                Seal::Open => Box::new(OpenKey { inner, generation }),
            }
        };
        let local = NotingKey {
            inner: open(keys.local),
            ledger: self.ledger.clone(),
        };
        KeyPair {
            local: Box::new(local),
            remote: open(keys.remote),
        }
    }
}

impl Session for NotingSession {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.inner.write_handshake(buf)?;
        let packet = self.noting(packet);
        let header = match self.seal {
            Seal::Closed => header,
            Seal::Open => KeyPair {
                local: OpenHeader::like(&*header.local),
                remote: OpenHeader::like(&*header.remote),
            },
        };
        Some(Keys { header, packet })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        self.generation += 1;
        Some(self.noting(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// Whether a packet is one of the handshake, by its first byte.
fn has_long_header(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first & 0x80 != 0)
}

/// A key that leaves packets of data open. In place of the tag is the key's generation, for what was sealed
/// with one key must not open with another.
struct OpenKey {
    inner: Box<dyn PacketKey>,
    generation: u64,
}

impl OpenKey {
    fn tag(&self) -> impl Iterator<Item = u8> {
        let generation = self.generation.to_be_bytes().into_iter();
        generation.chain(std::iter::repeat(0)).take(self.tag_len())
    }
}

impl PacketKey for OpenKey {
    fn encrypt(&self, path_id: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        if has_long_header(buf) {
            return self.inner.encrypt(path_id, packet, buf, header_len);
        }
        let end = buf.len() - self.tag_len();
        let places = buf[end..].iter_mut();
        places
            .zip(self.tag())
            .for_each(|(place, byte)| *place = byte);
    }

    fn decrypt(
        &self,
        path_id: PathId,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        if has_long_header(header) {
            return self.inner.decrypt(path_id, packet, header, payload);
        }
        let end = payload.len().checked_sub(self.tag_len());
        let end = end.ok_or(CryptoError)?;
        if !payload[end..].iter().copied().eq(self.tag()) {
            return Err(CryptoError);
        }
        payload.truncate(end);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

/// A key that leaves the headers of packets open.
struct OpenHeader {
    sample_size: usize,
}

impl OpenHeader {
    fn like(key: &dyn HeaderKey) -> Box<dyn HeaderKey> {
        let sample_size = key.sample_size();
        Box::new(Self { sample_size })
    }
}

impl HeaderKey for OpenHeader {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        self.sample_size
    }
}

struct NotingKey {
    inner: Box<dyn PacketKey>,
    ledger: SharedLedger,
}

impl PacketKey for NotingKey {
    fn encrypt(&self, path_id: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        // the handshake's carry no streams
        if has_long_header(buf) {
            return self.inner.encrypt(path_id, packet, buf, header_len);
        }
        let mut ledger = self.ledger.lock();
        let end = buf.len().saturating_sub(self.inner.tag_len());
        let open = buf.get(header_len..end).unwrap_or_default();
        ledger.begin_packet(packet);
        if stream_bytes(open, |stream, bytes| ledger.stream_bytes(stream, bytes)).is_err() {
            ledger.unreadable();
        }
        self.inner.encrypt(path_id, packet, buf, header_len);
        ledger.end_packet(seal_of(buf));
    }

    fn decrypt(
        &self,
        path_id: PathId,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(path_id, packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}
