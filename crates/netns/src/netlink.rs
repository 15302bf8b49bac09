//! Requests to the kernel's rtnetlink, and its answers (rtnetlink(7), netlink(7)).

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// Replace an existing object.
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
/// Fail if there is one already.
pub(crate) const NLM_F_EXCL: u16 = 0x200;
/// Create the object if it does not exist.
pub(crate) const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;

/// Appends an attribute to a message: length, name, value, and padding to four bytes.
pub(crate) fn attribute(message: &mut Vec<u8>, name: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("attributes are short");
    message.extend(length.to_ne_bytes());
    message.extend(name.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Sends a request and waits for the kernel's answer.
pub(crate) fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let (netlink, raw) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(netlink, raw, SocketFlags::CLOEXEC, None)?; // protocol 0: rtnetlink
    // struct nlmsghdr: length, kind, flags, number, port
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 4096];
    let (_, size) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let unexpected = || io::Error::other("got no acknowledgment from rtnetlink");
    let answer = answer.get(..size).ok_or_else(unexpected)?;
    let is_error = answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes());
    let code = answer.get(16..20).filter(|_| is_error);
    let code = code.and_then(|bytes| bytes.try_into().ok());
    match code.map(i32::from_ne_bytes).ok_or_else(unexpected)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_begin_at_multiples_of_four_and_tell_their_length_without_the_padding() {
        let mut message = Vec::new();
        attribute(&mut message, 3, b"lo\0");
        attribute(&mut message, 4, &7u32.to_ne_bytes());
        let length = |at: usize| u16::from_ne_bytes([message[at], message[at + 1]]);
        assert_eq!((length(0), length(8)), (7, 8));
        assert_eq!(&message[4..8], b"lo\0\0");
        assert_eq!(message.len(), 16);
    }
}
