//! A device whose packets we read and write, in whichever way the machine lets us.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::NetnsError;
use crate::interface::Shape;
use crate::statistics::Statistics;
use crate::super_packet::{Join, SUPER_PACKET_BYTES, Segments};
use crate::tun::Tun;
use crate::veth::Veth;

/// How packets get from the kernel to us and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A TUN device: the cheaper one. Needs `/dev/net/tun`.
    Tun,
    /// A veth pair with a packet socket at its other end. Needs nothing but a namespace of one's own.
    Veth,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tun => "tun",
            Self::Veth => "veth",
        })
    }
}

/// A device in some namespace. Reading and writing never wait.
pub struct Device {
    carrier: Carrier,
    name: String,
    mtu: usize,
    statistics: Statistics,
}

/// Room for one super-packet.
pub struct SuperBuffer(Box<[u8]>);

impl Default for SuperBuffer {
    fn default() -> Self {
        Self(vec![0xff; SUPER_PACKET_BYTES].into()) // written, not just mapped
    }
}

enum Carrier {
    Tun(Tun),
    Veth(Veth),
}

/// Devices whose names differ by a number only.
const MOST_OF_A_NAME: u32 = 1000;

impl Device {
    /// Creates a device in the calling thread's network namespace, for packets of up to the shape's MTU. In
    /// its name, `%d` becomes the least number that no device there has. It goes when it is dropped.
    ///
    /// Without a `kind`, it is a TUN device if there can be one, else a veth pair.
    ///
    /// A TUN device carries super-packets if the shape has them and the kernel can; see
    /// [`Device::super_packets`]. A veth pair never does.
    ///
    /// # Errors
    /// The process lacks privileges, or the machine such devices.
    pub fn create(kind: Option<DeviceKind>, name: &str, shape: Shape) -> Result<Self, NetnsError> {
        let mtu = shape.mtu;
        match kind {
            Some(DeviceKind::Tun) => Self::tun(name, shape),
            Some(DeviceKind::Veth) => Self::veth(name, mtu),
            None => Self::tun(name, shape).or_else(|no_tun| {
                // a kernel without veth pairs is asked for what is easier to have
                Self::veth(name, mtu).map_err(|error| match error {
                    NetnsError::NotPermitted { .. } => error,
                    _ => no_tun,
                })
            }),
        }
    }

    fn tun(name: &str, shape: Shape) -> Result<Self, NetnsError> {
        let plain = || Tun::create_named(name, false);
        let (tun, name) = match shape.super_packets {
            true => Tun::create_named(name, true).or_else(|_| plain())?,
            false => plain()?,
        };
        Self::of(Carrier::Tun(tun), name, shape.mtu)
    }

    fn veth(pattern: &str, mtu: u32) -> Result<Self, NetnsError> {
        for number in 0..MOST_OF_A_NAME {
            let name = pattern.replace("%d", &number.to_string());
            match Veth::create(&name, mtu) {
                Ok(veth) => return Self::of(Carrier::Veth(veth), name, mtu),
                Err(NetnsError::Kernel { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists && name != pattern => {}
                Err(error) => return Err(error),
            }
        }
        let taken = io::Error::other(format!("all of {MOST_OF_A_NAME} names are taken"));
        Err(NetnsError::from_io(
            format!("creating the veth pair {pattern}"),
            taken,
        ))
    }

    fn of(carrier: Carrier, name: String, mtu: u32) -> Result<Self, NetnsError> {
        let statistics = Statistics::of(&name)
            .map_err(|error| NetnsError::from_io("opening a device's statistics", error))?;
        Ok(Self {
            carrier,
            name,
            mtu: mtu as usize,
            statistics,
        })
    }

    /// How it carries packets.
    pub const fn kind(&self) -> DeviceKind {
        match self.carrier {
            Carrier::Tun(_) => DeviceKind::Tun,
            Carrier::Veth(_) => DeviceKind::Veth,
        }
    }

    /// Its name in its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it carries super-packets: then [`Device::read_super`] replaces [`Device::read`].
    pub const fn super_packets(&self) -> bool {
        match &self.carrier {
            Carrier::Tun(tun) => tun.super_packets(),
            Carrier::Veth(_) => false,
        }
    }

    /// The next packets that the kernel sent into a device with super-packets, if there are any.
    ///
    /// # Errors
    /// What the kernel says: the device is not up; or what is wrong with what it gave.
    #[inline]
    pub fn read_super<'b>(&self, buffer: &'b mut SuperBuffer) -> io::Result<Option<Segments<'b>>> {
        let Some(size) = self.read(&mut buffer.0)? else {
            return Ok(None);
        };
        let segments = Segments::of(&mut buffer.0[..size], self.mtu);
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        segments.map(Some).map_err(invalid)
    }

    /// The next packet that the kernel sent into the device, if there is one.
    ///
    /// # Errors
    /// What the kernel says: the device is not up; or the packet does not fit.
    #[inline]
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.read(packet),
            Carrier::Veth(veth) => veth.read(packet),
        }
    }

    /// Gives the kernel a packet that came out of the device.
    ///
    /// # Errors
    /// The kernel refuses: this is not a packet, or the device is not up.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.write(packet),
            Carrier::Veth(veth) => veth.write(packet),
        }
    }

    /// The same for a packet whose checksum is the sum of its pseudo header, as [`Segments`] gives them; for
    /// devices with super-packets.
    ///
    /// # Errors
    /// As [`Device::write`], or the device accepts no such packet.
    #[inline]
    pub fn write_unsummed(&self, packet: &[u8]) -> io::Result<()> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.write_unsummed(packet),
            Carrier::Veth(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Gives the kernel the packets that were joined, in their order, as one; for devices with super-packets.
    ///
    /// # Errors
    /// As [`Device::write`]; or the device takes no super-packets.
    pub fn write_joined<'p>(
        &self,
        join: &mut Join,
        packets: impl Iterator<Item = &'p [u8]>,
    ) -> io::Result<()> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.write_joined(join, packets),
            Carrier::Veth(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Packets that the device itself dropped, in either direction. To be asked once, at the end.
    ///
    /// # Errors
    /// The statistics cannot be read.
    pub fn drops(&self) -> Result<u64, NetnsError> {
        let of_carrier = match &self.carrier {
            Carrier::Tun(_) => Ok(0),
            Carrier::Veth(veth) => veth.drops(),
        };
        of_carrier
            .and_then(|drops| Ok(drops + self.statistics.drops()?))
            .map_err(|error| NetnsError::from_io("reading a device's statistics", error))
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.as_fd(),
            Carrier::Veth(veth) => veth.as_fd(),
        }
    }
}
