//! A device whose packets we read and write, in whichever way the machine lets us.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::NetnsError;
use crate::statistics::Statistics;
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
    statistics: Statistics,
}

enum Carrier {
    Tun(Tun),
    Veth(Veth),
}

/// Devices whose names differ by a number only.
const MOST_OF_A_NAME: u32 = 1000;

impl Device {
    /// Creates a device in the calling thread's network namespace, for packets of up to `mtu` bytes. In
    /// its name, `%d` becomes the least number that no device there has. It goes when it is dropped.
    ///
    /// Without a `kind`, it is a TUN device if there can be one, else a veth pair.
    ///
    /// # Errors
    /// The process lacks privileges, or the machine such devices.
    pub fn create(kind: Option<DeviceKind>, name: &str, mtu: u32) -> Result<Self, NetnsError> {
        match kind {
            Some(DeviceKind::Tun) => Self::tun(name),
            Some(DeviceKind::Veth) => Self::veth(name, mtu),
            None => Self::tun(name).or_else(|no_tun| {
                // a kernel without veth pairs is asked for what is easier to have
                Self::veth(name, mtu).map_err(|error| match error {
                    NetnsError::NotPermitted { .. } => error,
                    _ => no_tun,
                })
            }),
        }
    }

    fn tun(name: &str) -> Result<Self, NetnsError> {
        let (tun, name) = Tun::create_named(name)?;
        Self::of(Carrier::Tun(tun), name)
    }

    fn veth(pattern: &str, mtu: u32) -> Result<Self, NetnsError> {
        for number in 0..MOST_OF_A_NAME {
            let name = pattern.replace("%d", &number.to_string());
            match Veth::create(&name, mtu) {
                Ok(veth) => return Self::of(Carrier::Veth(veth), name),
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

    fn of(carrier: Carrier, name: String) -> Result<Self, NetnsError> {
        let statistics = Statistics::of(&name)
            .map_err(|error| NetnsError::from_io("opening a device's statistics", error))?;
        Ok(Self {
            carrier,
            name,
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
    /// What the kernel says: this is no packet, or the device is not up.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.write(packet),
            Carrier::Veth(veth) => veth.write(packet),
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
