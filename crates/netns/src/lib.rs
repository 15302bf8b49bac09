//! The hosts of a testbed: network namespaces with devices whose packets we read and write.
//!
//! A [`Namespace`] that is created has no name and is mounted nowhere; a [`Device`], be it a [`Tun`] device or a
//! [`Veth`] pair, lives as long as its descriptor. So nothing is left of either when the process ends,
//! however it ends. A [`Host`] is both together, with its addresses and settings of TCP.
//! [`enter_user_namespace`] gives a process without privileges those that all this needs.

mod device;
mod error;
mod headers;
mod host;
mod interface;
mod link;
mod namespace;
mod netlink;
pub mod route;
mod sequence;
mod socket;
mod statistics;
mod super_packet;
// unshare, packet sockets and the ioctls of TUN devices and interfaces have no safe wrapper in the
// libraries we use; all of them are called from here and nowhere else
#[allow(unsafe_code)]
#[warn(clippy::undocumented_unsafe_blocks)]
mod sys;
mod tun;
mod user;
mod veth;

pub use device::{Device, DeviceKind, SuperBuffer};
pub use error::NetnsError;
pub use headers::{Headers, Protocol, read_headers};
pub use host::{Host, Settings, set_sysctls};
pub use interface::{Shape, configure, index, ipv4_address, switch_on_loopback};
pub use namespace::Namespace;
pub use sequence::PayloadCount;
pub use socket::{limit_receive_window, renew_receive_window, set_receive_buffer};
pub use super_packet::{Join, Segment, Segments};
pub use sys::{pace, set_tcp_option};
pub use tun::Tun;
pub use user::{enter_user_namespace, in_user_namespace};
pub use veth::Veth;
