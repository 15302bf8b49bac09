//! Netlink messages and their attributes (netlink(7)): written, and read without trust.

/// `struct nlmsghdr`: length, kind, flags, number, port.
const HEADER_BYTES: usize = 16;
/// `struct nlattr`: length, name.
const ATTRIBUTE_BYTES: usize = 4;
/// Flags in an attribute's name: nested, in network byte order.
const NAME_MASK: u16 = 0x3fff;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_DUMP: u16 = 0x300;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) number: u32,
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    /// The error code in the kernel's answer, if the message is one; 0 means success.
    pub(crate) fn error(&self) -> Option<i32> {
        (self.kind == NLMSG_ERROR).then(|| u32_at(self.body, 0).map_or(0, |code| code as i32))
    }
}

/// A message of one request.
pub(crate) fn request(kind: u16, flags: u16, number: u32, body: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + body.len();
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

/// The messages in `bytes`; what is cut short ends them.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let body = rest.get(HEADER_BYTES..length)?;
        let (kind, number) = (u16_at(rest, 4)?, u32_at(rest, 8)?);
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(Message { kind, number, body })
    })
}

/// The attributes in `bytes`, by name; what is cut short ends them.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        let name = u16_at(rest, 2)? & NAME_MASK;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((name, value))
    })
}

const fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut bytes = request(20, NLM_F_DUMP, 7, &[1, 2, 3, 4, 5]);
        bytes.extend([0; 3]); // to the next multiple of four
        bytes.extend(request(NLMSG_ERROR, 0, 8, &(-2i32).to_ne_bytes()));
        let read: Vec<_> = messages(&bytes).collect();
        assert_eq!((read[0].kind, read[0].number), (20, 7));
        assert_eq!(read[0].body, [1, 2, 3, 4, 5]);
        assert_eq!((read[0].error(), read[1].error()), (None, Some(-2)));
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn attributes_are_aligned_and_a_length_of_less_than_a_header_ends_them() {
        let mut bytes = Vec::new();
        bytes.extend(6u16.to_ne_bytes());
        bytes.extend((4u16 | 0x8000).to_ne_bytes());
        bytes.extend([b'x', 0, 0, 0]);
        bytes.extend(4u16.to_ne_bytes());
        bytes.extend(9u16.to_ne_bytes());
        bytes.extend([3, 0, 1, 0, 1, 1, 1, 1]);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(4, &b"x\0"[..]), (9, &[][..])]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER_BYTES);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / ATTRIBUTE_BYTES);
        }
    }
}
