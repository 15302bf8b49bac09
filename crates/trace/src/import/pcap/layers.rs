//! From a captured frame to the IP packet that holds TCP: link headers, tags, tunnels.
//!
//! Numbers: <https://www.tcpdump.org/linktypes.html>,
//! <https://www.iana.org/assignments/ieee-802-numbers>.

use super::segment::{Segment, Skipped, ipv4, ipv6};

/// Deeper nesting of headers is not a packet.
const MAX_LAYERS: usize = 16;

/// A tunnel around segments, readable or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tunnel {
    Mpls,
    Pppoe,
    IpInIp,
    SixInFour,
    EtherIp,
    Gre,
    ErspanI,
    ErspanII,
    ErspanIII,
    ArubaGre,
    Pptp,
    Vxlan,
    Geneve,
    GtpU,
    L2tp,
    Teredo,
    Lisp,
    Tzsp,
    Esp,
    Macsec,
    Capwap,
    WifiProtected,
}

impl Tunnel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpls => "MPLS",
            Self::Pppoe => "PPPoE",
            Self::IpInIp => "IP in IP",
            Self::SixInFour => "6in4",
            Self::EtherIp => "EtherIP",
            Self::Gre => "GRE",
            Self::ErspanI => "ERSPAN type I",
            Self::ErspanII => "ERSPAN type II",
            Self::ErspanIII => "ERSPAN type III",
            Self::ArubaGre => "GRE of Aruba (802.11)",
            Self::Pptp => "PPTP",
            Self::Vxlan => "VXLAN",
            Self::Geneve => "Geneve",
            Self::GtpU => "GTP-U",
            Self::L2tp => "L2TP",
            Self::Teredo => "Teredo",
            Self::Lisp => "LISP",
            Self::Tzsp => "TZSP",
            Self::Esp => "IPsec ESP, encrypted",
            Self::Macsec => "MACsec, encrypted",
            Self::Capwap => "CAPWAP",
            Self::WifiProtected => "802.11, encrypted",
        }
    }
}

/// The next header of a frame.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    EtherType(u16),
    /// IP of the version in its first bits.
    Ip,
    Ppp,
    Llc,
    Wifi,
}

/// A frame while its headers are removed.
struct Frame<'a> {
    bytes: &'a [u8],
    /// Bytes that remain, before the capture truncated the frame.
    wire_bytes: u32,
    /// Whether a header gave the length of all that follows.
    is_measured: bool,
    /// The innermost tunnel.
    tunnel: Option<Tunnel>,
    /// Distinguishes copies of a packet that were captured in different places.
    place: u64,
}

impl<'a> Frame<'a> {
    fn u8(&self, at: usize) -> Result<u8, Skipped> {
        self.bytes.get(at).copied().ok_or(Skipped::Cut)
    }

    fn u16(&self, at: usize) -> Result<u16, Skipped> {
        Ok(u16::from_be_bytes([self.u8(at)?, self.u8(at + 1)?]))
    }

    fn skip(&mut self, count: usize) -> Result<(), Skipped> {
        self.bytes = self.bytes.get(count..).ok_or(Skipped::Cut)?;
        self.wire_bytes = self.wire_bytes.saturating_sub(count as u32);
        Ok(())
    }

    /// Skips `count` bytes of a tunnel's header.
    fn enter(&mut self, tunnel: Tunnel, count: usize) -> Result<(), Skipped> {
        self.tunnel = Some(tunnel);
        self.skip(count)
    }

    fn note(&mut self, bytes: &[u8]) {
        // FNV-1a
        for byte in bytes {
            self.place = (self.place ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn ip_by_version(&self) -> Result<Next, Skipped> {
        match self.u8(0)? >> 4 {
            4 | 6 => Ok(Next::Ip),
            _ => Err(Skipped::Other),
        }
    }

    fn link(&mut self, link: u32) -> Result<Next, Skipped> {
        Ok(match link {
            0 | 108 => {
                self.skip(4)?; // loopback of BSDs
                Next::Ip
            }
            1 => Next::Ethernet,
            9 | 50 => Next::Ppp,
            10 => {
                self.skip(13)?; // FDDI
                Next::Llc
            }
            12 | 14 | 101 | 228 | 229 => Next::Ip,
            51 => Next::EtherType(0x8864),
            104 => {
                let kind = self.u16(2)?; // HDLC of Cisco
                self.skip(4)?;
                Next::EtherType(kind)
            }
            105 => Next::Wifi,
            113 => {
                let kind = self.u16(14)?;
                self.skip(16)?;
                Next::EtherType(kind)
            }
            127 => {
                let length = u16::from_le_bytes([self.u8(2)?, self.u8(3)?]); // radiotap
                self.skip(usize::from(length))?;
                Next::Wifi
            }
            276 => {
                let kind = self.u16(0)?;
                self.skip(20)?;
                Next::EtherType(kind)
            }
            other => return Err(Skipped::Link(other)),
        })
    }

    fn ethernet(&mut self) -> Result<Next, Skipped> {
        let addresses = self.bytes.get(..12).ok_or(Skipped::Cut)?;
        self.note(addresses);
        self.skip(12)?;
        let kind = self.u16(0)?;
        self.skip(2)?;
        Ok(Next::EtherType(kind))
    }

    fn ether_type(&mut self, kind: u16) -> Result<Next, Skipped> {
        Ok(match kind {
            0x0800 | 0x86dd => Next::Ip,
            // VLAN tags; the tag of virtual machines has 2 bytes more before the same content
            0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x8926 => {
                let tag = self.bytes.get(..2).ok_or(Skipped::Cut)?;
                self.note(tag);
                self.skip(if kind == 0x8926 { 4 } else { 2 })?;
                let kind = self.u16(0)?;
                self.skip(2)?;
                Next::EtherType(kind)
            }
            0x88e7 => {
                self.skip(4)?; // 802.1ah
                Next::Ethernet
            }
            0x8847 | 0x8848 => {
                while self.u8(2)? & 1 == 0 {
                    self.skip(4)?;
                }
                self.enter(Tunnel::Mpls, 4)?;
                match self.u8(0)? >> 4 {
                    4 | 6 => Next::Ip,
                    0 => {
                        self.skip(4)?; // control word of a pseudowire (RFC 4385)
                        Next::Ethernet
                    }
                    1 => return Err(Skipped::Other),
                    _ => Next::Ethernet,
                }
            }
            0x8864 => {
                let length = u32::from(self.u16(4)?);
                self.enter(Tunnel::Pppoe, 6)?;
                // access networks count the padding of short frames in the IP header
                self.wire_bytes = self.wire_bytes.min(length);
                self.is_measured = true;
                Next::Ppp
            }
            0x6558 => Next::Ethernet,
            0x88e5 => return Err(Skipped::Hidden(Tunnel::Macsec)),
            0..=1500 => Next::Llc,
            _ => return Err(Skipped::Other),
        })
    }

    fn ppp(&mut self) -> Result<Next, Skipped> {
        if self.bytes.starts_with(&[0xff, 3]) {
            self.skip(2)?;
        }
        // a protocol with an odd first byte is compressed to that byte
        let kind = match self.u8(0)? {
            short if short & 1 == 1 => {
                self.skip(1)?;
                u16::from(short)
            }
            _ => {
                let kind = self.u16(0)?;
                self.skip(2)?;
                kind
            }
        };
        match kind {
            0x0021 | 0x0057 => Ok(Next::Ip),
            0x0281 => Ok(Next::EtherType(0x8847)),
            _ => Err(Skipped::Other),
        }
    }

    fn llc(&mut self) -> Result<Next, Skipped> {
        match (self.u8(0)?, self.u8(1)?, self.u8(2)?) {
            (0xaa, 0xaa, 3) => {
                let kind = self.u16(6)?;
                self.skip(8)?;
                Ok(Next::EtherType(kind))
            }
            (6, 6, 3) => {
                self.skip(3)?;
                Ok(Next::Ip)
            }
            _ => Err(Skipped::Other),
        }
    }

    /// Reads an 802.11 frame that carries data.
    fn wifi(&mut self) -> Result<Next, Skipped> {
        let (control, flags) = (self.u8(0)?, self.u8(1)?);
        // data frames, except the subtypes without data
        if control & 0x0f != 8 || control & 0x40 != 0 {
            return Err(Skipped::Other);
        }
        if flags & 0x40 != 0 {
            return Err(Skipped::Hidden(Tunnel::WifiProtected));
        }
        let addresses = if flags & 3 == 3 { 30 } else { 24 };
        let quality = if control & 0x80 != 0 { 2 } else { 0 };
        let throughput = if quality > 0 && flags & 0x80 != 0 {
            4
        } else {
            0
        };
        self.skip(addresses + quality + throughput)?;
        Ok(Next::Llc)
    }

    fn gre(&mut self) -> Result<Next, Skipped> {
        let (flags, kind) = (self.u16(0)?, self.u16(2)?);
        let has = |bit: u16| usize::from(flags & bit != 0);
        if flags & 7 == 1 {
            // PPTP (RFC 2637)
            self.enter(Tunnel::Pptp, 8 + 4 * (has(0x1000) + has(0x80)))?;
            return Ok(Next::Ppp);
        }
        if flags & 7 != 0 || flags & 0x4000 != 0 {
            return Err(Skipped::Hidden(Tunnel::Gre));
        }
        let header = 4 + 4 * (has(0x8000) + has(0x2000) + has(0x1000));
        self.enter(Tunnel::Gre, header)?;
        Ok(match kind {
            0x88be if flags & 0x1000 == 0 => {
                self.tunnel = Some(Tunnel::ErspanI);
                Next::Ethernet
            }
            0x88be => {
                self.enter(Tunnel::ErspanII, 8)?;
                Next::Ethernet
            }
            0x22eb => {
                self.tunnel = Some(Tunnel::ErspanIII);
                let (frame, more) = ((self.u16(10)? >> 10) & 0x1f, self.u16(10)? & 1);
                self.skip(12 + 8 * usize::from(more))?;
                match frame {
                    0 => Next::Ethernet,
                    2 => Next::Ip,
                    _ => return Err(Skipped::Hidden(Tunnel::ErspanIII)),
                }
            }
            0x8200..=0x83ff => {
                self.tunnel = Some(Tunnel::ArubaGre);
                Next::Wifi
            }
            0x880b => Next::Ppp,
            0x883e => {
                if self.u8(0)? >> 4 != 4 {
                    self.skip(4)?; // WCCP's redirection
                }
                Next::Ip
            }
            other => Next::EtherType(other),
        })
    }

    /// Recognizes tunnels in UDP by the destination port.
    fn udp(&mut self) -> Result<Next, Skipped> {
        let port = self.u16(2)?;
        if !matches!(
            port,
            2152 | 3544 | 4341 | 4789 | 4790 | 5246 | 5247 | 6081 | 6635 | 8472 | 1701 | 37008
        ) {
            return Err(Skipped::Other);
        }
        self.skip(8)?;
        match port {
            4789 | 8472 if self.u8(0)? & 8 != 0 => {
                self.enter(Tunnel::Vxlan, 8)?;
                Ok(Next::Ethernet)
            }
            4790 => {
                let kind = self.u8(3)?;
                self.enter(Tunnel::Vxlan, 8)?;
                match kind {
                    1 | 2 => Ok(Next::Ip),
                    3 => Ok(Next::Ethernet),
                    _ => Err(Skipped::Other),
                }
            }
            6081 if self.u8(0)? >> 6 == 0 => {
                let options = usize::from(self.u8(0)? & 0x3f) * 4;
                let kind = self.u16(2)?;
                self.enter(Tunnel::Geneve, 8 + options)?;
                Ok(Next::EtherType(kind))
            }
            2152 => self.gtp(),
            1701 => self.l2tp(),
            3544 => {
                let origin = if self.u16(0)? == 0 { 8 } else { 0 };
                self.enter(Tunnel::Teredo, origin)?;
                self.ip_by_version()
            }
            4341 => {
                self.enter(Tunnel::Lisp, 8)?;
                self.ip_by_version()
            }
            6635 => Ok(Next::EtherType(0x8847)),
            37008 => self.tzsp(),
            5246 | 5247 => Err(Skipped::Hidden(Tunnel::Capwap)),
            _ => Err(Skipped::Other),
        }
    }

    /// Reads user data of mobile networks (3GPP TS 29.281).
    fn gtp(&mut self) -> Result<Next, Skipped> {
        let (flags, kind) = (self.u8(0)?, self.u8(1)?);
        if flags & 0xf0 != 0x30 || kind != 0xff {
            return Err(Skipped::Other);
        }
        if flags & 7 == 0 {
            self.enter(Tunnel::GtpU, 8)?;
            return self.ip_by_version();
        }
        let mut extension = self.u8(11)?;
        self.enter(Tunnel::GtpU, 12)?;
        while extension != 0 {
            let length = usize::from(self.u8(0)?) * 4;
            if length == 0 {
                return Err(Skipped::Malformed);
            }
            extension = self.u8(length - 1)?;
            self.skip(length)?;
        }
        self.ip_by_version()
    }

    fn l2tp(&mut self) -> Result<Next, Skipped> {
        let flags = self.u16(0)?;
        if flags & 0x8000 != 0 || flags & 0xf != 2 {
            return Err(Skipped::Other);
        }
        let has = |bit: u16| usize::from(flags & bit != 0);
        let mut header = 6 + 2 * has(0x4000) + 4 * has(0x0800);
        if flags & 0x0200 != 0 {
            header += 2 + usize::from(self.u16(header)?);
        }
        self.enter(Tunnel::L2tp, header)?;
        Ok(Next::Ppp)
    }

    /// Reads the format of sniffing access points.
    fn tzsp(&mut self) -> Result<Next, Skipped> {
        let kind = self.u16(2)?;
        self.enter(Tunnel::Tzsp, 4)?;
        loop {
            match self.u8(0)? {
                0 => self.skip(1)?,
                1 => {
                    self.skip(1)?;
                    break;
                }
                _ => self.skip(2 + usize::from(self.u8(1)?))?,
            }
        }
        match kind {
            1 => Ok(Next::Ethernet),
            18 => Ok(Next::Wifi),
            _ => Err(Skipped::Other),
        }
    }

    /// Reads an IP packet: the segment in it, or its other content.
    fn ip(&mut self) -> Result<Outcome, Skipped> {
        let version = self.u8(0)? >> 4;
        let found = match version {
            4 => ipv4(self.bytes, self.wire_bytes, self.is_measured)?,
            6 => ipv6(self.bytes, self.wire_bytes, self.is_measured)?,
            _ => return Err(Skipped::Other),
        };
        let (protocol, header_bytes) = match found {
            Carried::Segment(segment) => return Ok(Outcome::Segment(segment)),
            Carried::Other {
                protocol,
                header_bytes,
            } => (protocol, header_bytes),
        };
        self.skip(header_bytes)?;
        Ok(Outcome::Next(match protocol {
            4 => {
                self.tunnel = Some(Tunnel::IpInIp);
                Next::Ip
            }
            41 => {
                let tunnel = match version {
                    4 => Tunnel::SixInFour,
                    _ => Tunnel::IpInIp,
                };
                self.tunnel = Some(tunnel);
                Next::Ip
            }
            17 => self.udp()?,
            47 => self.gre()?,
            97 => {
                self.enter(Tunnel::EtherIp, 2)?;
                Next::Ethernet
            }
            137 => Next::EtherType(0x8847),
            50 => return Err(Skipped::Hidden(Tunnel::Esp)),
            _ => return Err(Skipped::Other),
        }))
    }
}

/// The content of an IP packet.
pub enum Carried {
    Segment(Segment),
    Other { protocol: u8, header_bytes: usize },
}

enum Outcome {
    Segment(Segment),
    Next(Next),
}

/// Removes headers down to a TCP segment, and returns it with its innermost tunnel. `wire_bytes` is
/// the frame's length before the capture truncated it.
///
/// # Errors
/// The reason why there is no segment.
pub fn parse(
    link: u32,
    bytes: &[u8],
    wire_bytes: u32,
) -> Result<(Segment, Option<Tunnel>), Skipped> {
    let mut frame = Frame {
        bytes,
        wire_bytes,
        is_measured: false,
        tunnel: None,
        place: 0xcbf2_9ce4_8422_2325,
    };
    let mut next = frame.link(link)?;
    for _ in 0..MAX_LAYERS {
        let outcome = match next {
            Next::Ethernet => frame.ethernet(),
            Next::EtherType(kind) => frame.ether_type(kind),
            Next::Ppp => frame.ppp(),
            Next::Llc => frame.llc(),
            Next::Wifi => frame.wifi(),
            Next::Ip => match frame.ip() {
                Ok(Outcome::Segment(mut segment)) => {
                    segment.packet.place = frame.place ^ u64::from(segment.packet.ttl);
                    return Ok((segment, frame.tunnel));
                }
                Ok(Outcome::Next(next)) => Ok(next),
                Err(why) => Err(why),
            },
        };
        next = match (outcome, frame.tunnel) {
            (Ok(next), _) => next,
            // a port alone suggested the tunnel, so contradictory headers are not damage; report
            // the tunnel as unreadable
            (Err(Skipped::Malformed | Skipped::Cut), Some(tunnel)) => {
                return Err(Skipped::Hidden(tunnel));
            }
            (Err(why), _) => return Err(why),
        };
    }
    Err(Skipped::Malformed)
}
