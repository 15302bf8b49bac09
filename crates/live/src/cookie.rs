//! Proof that a client receives at the address from which it says hello, which costs the server no memory.
//!
//! A first hello is answered by a cookie: the time and a MAC over time and address, by a secret that the server has
//! for itself. A hello that holds it, under the shared key, is of that address and of the last seconds. What was
//! recorded of a client is neither from another address, or later (as DTLS 1.3, RFC 9147, section 5.1, and the
//! retry of QUIC, RFC 9000, section 8.1).

use std::net::{IpAddr, SocketAddr};

use blake2::Blake2sMac256;
use blake2::digest::Mac;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::LiveError;

/// Of a MAC, as it is sent.
pub(crate) const MAC_BYTES: usize = 16;
pub(crate) const COOKIE_BYTES: usize = 8 + MAC_BYTES;
/// How long a client may take to say hello again: as long as it asks at all.
const LIFETIME_NS: u64 = 10_000_000_000;

/// What a client shows to prove its address; zeros before it has one.
pub(crate) type Cookie = [u8; COOKIE_BYTES];

/// A MAC over `parts`, one behind the other, by a key of 32 bytes.
pub(crate) fn mac(key: &[u8; 32], parts: &[&[u8]]) -> Blake2sMac256 {
    let mut mac = Blake2sMac256::new_from_slice(key).expect("BLAKE2s has keys of 32 bytes");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// The first bytes of a MAC.
pub(crate) fn cut(mac: Blake2sMac256) -> [u8; MAC_BYTES] {
    let whole = mac.finalize().into_bytes();
    whole[..MAC_BYTES].try_into().expect("it has 32 bytes")
}

/// Makes cookies and knows them again.
pub(crate) struct Cookies {
    secret: [u8; 32],
}

impl Cookies {
    /// With a new secret.
    pub(crate) fn new() -> Result<Self, LiveError> {
        let mut secret = [0; 32];
        getrandom(&mut secret, GetRandomFlags::empty())
            .map_err(|errno| LiveError::from_io("drawing a random secret", errno))?;
        Ok(Self { secret })
    }

    fn mac(&self, from: SocketAddr, time: [u8; 8]) -> Blake2sMac256 {
        let address = match from.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let parts: [&[u8]; 3] = [&address.octets(), &from.port().to_le_bytes(), &time];
        mac(&self.secret, &parts)
    }

    /// A cookie for `from`, at this time of the server's monotonic clock.
    pub(crate) fn make(&self, from: SocketAddr, now_ns: u64) -> Cookie {
        let time = now_ns.to_le_bytes();
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..8].copy_from_slice(&time);
        cookie[8..].copy_from_slice(&cut(self.mac(from, time)));
        cookie
    }

    /// Whether it was made for `from`, not long before `now_ns`.
    pub(crate) fn holds(&self, cookie: &Cookie, from: SocketAddr, now_ns: u64) -> bool {
        let (time, tag) = cookie.split_first_chunk::<8>().expect("it is longer");
        let age_ns = now_ns.checked_sub(u64::from_le_bytes(*time));
        age_ns.is_some_and(|age_ns| age_ns <= LIFETIME_NS)
            && self.mac(from, *time).verify_truncated_left(tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_at_its_address_for_a_while_only() {
        let cookies = Cookies::new().unwrap();
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let from = at("192.0.2.1:5000");
        let cookie = cookies.make(from, 7_000);
        assert!(cookies.holds(&cookie, from, 7_000));
        assert!(cookies.holds(&cookie, from, 7_000 + LIFETIME_NS));
        assert!(!cookies.holds(&cookie, from, 7_001 + LIFETIME_NS));
        assert!(
            !cookies.holds(&cookie, from, 6_999),
            "it is from the future"
        );
        for other in ["192.0.2.2:5000", "192.0.2.1:5001", "[2001:db8::1]:5000"] {
            assert!(!cookies.holds(&cookie, at(other), 7_000), "{other}");
        }
        for at in 0..COOKIE_BYTES {
            let mut forged = cookie;
            forged[at] ^= 1;
            assert!(!cookies.holds(&forged, from, 8_000), "byte {at}");
        }
        assert!(!cookies.holds(&[0; COOKIE_BYTES], from, 0));
        assert!(!Cookies::new().unwrap().holds(&cookie, from, 7_000));
    }
}
