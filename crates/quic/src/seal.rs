//! Looks at packets just before they are sealed: what is in them, and by what they are known later.
//!
//! A packet ends with the tag of its authenticated encryption. Nobody on the way changes it, and no
//! two packets have the same but by a chance of 2^-64, so its end is a name by which the packet is found
//! again among those that crossed the path.

use noq_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, KeyPair, Keys, PacketKey, Session,
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

/// A client's or a server's TLS whose packets are written down.
pub(crate) struct Noting<C: ?Sized> {
    pub(crate) ledger: SharedLedger,
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
        Ok(NotingSession::over(inner, &self.ledger))
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
        NotingSession::over(self.inner.start_session(version, params), &self.ledger)
    }
}

struct NotingSession {
    inner: Box<dyn Session>,
    ledger: SharedLedger,
}

impl NotingSession {
    fn over(inner: Box<dyn Session>, ledger: &SharedLedger) -> Box<dyn Session> {
        let ledger = ledger.clone();
        Box::new(Self { inner, ledger })
    }

    fn noting(&self, inner: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
        let ledger = self.ledger.clone();
        Box::new(NotingKey { inner, ledger })
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

    fn early_crypto(&self) -> Option<(Box<dyn crypto::HeaderKey>, Box<dyn PacketKey>)> {
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
        let mut keys = self.inner.write_handshake(buf)?;
        keys.packet.local = self.noting(keys.packet.local);
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let mut keys = self.inner.next_1rtt_keys()?;
        keys.local = self.noting(keys.local);
        Some(keys)
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

struct NotingKey {
    inner: Box<dyn PacketKey>,
    ledger: SharedLedger,
}

impl PacketKey for NotingKey {
    fn encrypt(&self, path_id: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        // long headers are the handshake's, and carry no streams
        let short = buf.first().is_some_and(|first| first & 0x80 == 0);
        if !short {
            return self.inner.encrypt(path_id, packet, buf, header_len);
        }
        let mut ledger = self.ledger.lock();
        let end = buf.len().saturating_sub(self.inner.tag_len());
        let open = buf.get(header_len..end).unwrap_or_default();
        ledger.begin_packet(packet);
        if stream_bytes(open, |bytes| ledger.stream_bytes(bytes)).is_err() {
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
