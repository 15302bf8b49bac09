//! Sessions of TLS that a client has from before, so that it asks with its first packets (0-RTT).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use noq_proto::rustls::NamedGroup;
use noq_proto::rustls::client::{
    ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use noq_proto::rustls::pki_types::ServerName;

/// What a client remembers of the one server. Each session serves one connection (RFC 8446, appendix C.4).
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    sessions: VecDeque<Tls13ClientSessionValue>,
    group: Option<NamedGroup>,
}

impl Sessions {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections may begin with one.
    pub(crate) fn count(&self) -> usize {
        self.kept().sessions.len()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.kept().sessions.push_back(session);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept().sessions.pop_front()
    }
}
