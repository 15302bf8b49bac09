//! Whether a request may be answered.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;

use crate::access::{Asker, Rates, Role, Tokens, is_local};
use crate::body::problem;
use crate::config::{Access, Limits};
use crate::error::WebError;
use crate::listen::Peer;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is for another machine, or from a page of another site.
    Site,
    /// It has no valid token.
    Token,
    /// Its token may only read.
    Role,
    /// Too many come.
    Rate,
}

/// Checks where requests are for, tokens and rates.
#[derive(Debug)]
pub struct Gate {
    tokens: Option<Tokens>,
    /// Only names of this machine lead here.
    is_local: bool,
    rates: Rates,
}

/// A header's text.
pub fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The refusal of a request without a valid token.
pub fn unauthorized() -> Response {
    let message = "no valid token, expected Authorization: Bearer TOKEN";
    let mut response = problem(StatusCode::UNAUTHORIZED, message);
    let scheme = HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}

impl Gate {
    /// Reads the tokens.
    ///
    /// # Errors
    /// [`WebError`] if they are invalid.
    pub fn new(access: &Access, limits: &Limits, listen: SocketAddr) -> Result<Self, WebError> {
        let tokens = access.tokens.as_deref().map(Tokens::read).transpose()?;
        Ok(Self {
            is_local: listen.ip().is_loopback() && tokens.is_none(),
            rates: Rates::new(limits.requests_per_s),
            tokens,
        })
    }

    /// Lets a request pass; `is_open`: it needs no token.
    ///
    /// # Errors
    /// Why not, and the response that says so.
    pub fn admit(&self, request: &Request, is_open: bool) -> Result<(), (Reason, Response)> {
        let headers = request.headers();
        let refuse = |reason, message| Err((reason, problem(StatusCode::FORBIDDEN, message)));
        let host = text(headers, header::HOST);
        if self.is_local && !request.uri().host().or(host).is_some_and(is_local) {
            let message = "the header Host names another machine, expected localhost";
            return refuse(Reason::Site, message);
        }
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        let mut asker = Asker::Address(peer.unwrap_or(IpAddr::from([0, 0, 0, 0])));
        if let Some(tokens) = self.tokens.as_ref().filter(|_| !is_open) {
            let known = text(headers, header::AUTHORIZATION).and_then(|one| tokens.role(one));
            let Some((role, known)) = known else {
                return Err((Reason::Token, unauthorized()));
            };
            if role == Role::Read && is_change(request) {
                let message = "the token may only read; expected one with write";
                return refuse(Reason::Role, message);
            }
            asker = known;
        }
        if !self.rates.allow(asker) {
            let message = "too many requests; limits.requests_per_s has the rate";
            let mut response = problem(StatusCode::TOO_MANY_REQUESTS, message);
            let after = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, after);
            return Err((Reason::Rate, response));
        }
        Ok(())
    }

    /// Refuses changes that a page of another site sends: it may send, but cannot hide where it is from.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn same_site(&self, request: &Request) -> Result<(), (Reason, Response)> {
        let headers = request.headers();
        let origin = text(headers, header::ORIGIN).and_then(|origin| origin.split_once("://"));
        let host = text(headers, header::HOST).or(request.uri().host());
        if is_change(request) && origin.is_some_and(|(_, origin)| Some(origin) != host) {
            let message = "the header Origin names another site, expected this one";
            return Err((Reason::Site, problem(StatusCode::FORBIDDEN, message)));
        }
        Ok(())
    }
}

fn is_change(request: &Request) -> bool {
    !matches!(*request.method(), Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/v1/status");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn requests_are_refused_by_site_token_role_and_rate() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 1));
        let limits = Limits {
            requests_per_s: 2.0,
            ..Limits::default()
        };
        let gate = Gate::new(&Access::default(), &limits, listen).unwrap();
        let why =
            |gate: &Gate, request: &Request| gate.admit(request, false).err().map(|one| one.0);
        let here = request("GET", &[("Host", "localhost:1")]);
        let elsewhere = request("GET", &[("Host", "evil.example")]);
        assert_eq!(why(&gate, &elsewhere), Some(Reason::Site));
        let each = [0; 3].map(|_| why(&gate, &here));
        assert_eq!(each, [None, None, Some(Reason::Rate)]);

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abcdefghijklmnop read\n").unwrap();
        let access = Access {
            tokens: Some(file.path().into()),
            ..Access::default()
        };
        let gate = Gate::new(&access, &Limits::default(), listen).unwrap();
        let token = ("Authorization", "Bearer abcdefghijklmnop");
        assert_eq!(why(&gate, &here), Some(Reason::Token));
        assert!(gate.admit(&here, true).is_ok());
        assert_eq!(why(&gate, &request("GET", &[token])), None);
        assert_eq!(why(&gate, &request("POST", &[token])), Some(Reason::Role));
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 1));
        let gate = Gate::new(&Access::default(), &Limits::default(), listen).unwrap();
        let from = |method, origin| {
            let headers = [("Host", "localhost:1"), ("Origin", origin)];
            gate.same_site(&request(method, &headers)).is_ok()
        };
        assert!(from("POST", "http://localhost:1") && from("GET", "http://evil.example"));
        assert!(!from("POST", "http://evil.example"));
        assert!(
            gate.same_site(&request("POST", &[("Host", "localhost:1")]))
                .is_ok()
        );
    }
}
