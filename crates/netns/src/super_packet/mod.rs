//! Super-packets: up to 64 KiB of one flow that cross a TUN device in one call, as a network card with
//! segmentation offload takes them.
//!
//! [`Segments`] splits one into the packets that the path carries, as the kernel's own segmentation would
//! (`tcp_gso_segment`, `udp_gso_segment`). [`Join`] makes one of consecutive packets, as the kernel's
//! receive offload would (`tcp_gro_receive`). Neither allocates.

mod checksum;
mod join;
mod layout;
mod split;
#[cfg(test)]
mod tests;
mod virtio;

pub use join::Join;
pub use split::{Segment, Segments};

pub(crate) use join::MOST_JOINED;
pub(crate) use split::SUPER_PACKET_BYTES;
pub(crate) use virtio::{HEADER_BYTES, VirtioHeader, unsummed_header};
