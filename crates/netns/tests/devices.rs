//! What devices believe of the kernel. These tests need root, and that of TUN devices /dev/net/tun;
//! elsewhere they say so and pass, except where `CI=true` and both are there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pathcast_netns::{DeviceKind, Host, Settings, Shape, SuperBuffer, index};

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MTU: usize = 1500;
/// Ports of datagrams that are looked at; nothing else uses them in a new namespace.
const PORT: u16 = 4711;

/// A host with a device of this kind; `None` if there can be none here.
fn host(kind: DeviceKind, address: IpAddr) -> Option<Host> {
    host_of(kind, address, SHAPE)
}

const SHAPE: Shape = Shape {
    mtu: MTU as u32,
    super_packets: false,
    prefix_v4: 16,
    prefix_v6: 64,
};

fn host_of(kind: DeviceKind, address: IpAddr, shape: Shape) -> Option<Host> {
    let settings = Settings {
        buffer_bytes: 1 << 20,
        slow_start_after_idle: true,
    };
    match Host::create(Some(kind), &[address], shape, &settings) {
        Ok(host) => Some(host),
        Err(error) => {
            let must = std::env::var("CI").is_ok_and(|ci| ci == "true")
                && rustix::process::geteuid().is_root()
                && Path::new("/dev/net/tun").exists();
            assert!(!must, "root and /dev/net/tun are here, but: {error}");
            println!("skipped, there can be no {kind} device here: {error}");
            None
        }
    }
}

fn hosts() -> Vec<Host> {
    let kinds = [DeviceKind::Tun, DeviceKind::Veth];
    kinds
        .into_iter()
        .filter_map(|kind| host(kind, NEAR.into()))
        .collect()
}

fn socket(host: &Host, address: IpAddr) -> UdpSocket {
    let bound = host.namespace.run(|| UdpSocket::bind((address, PORT)));
    let socket = bound.unwrap().unwrap();
    let timeout = Some(Duration::from_secs(5));
    socket.set_read_timeout(timeout).unwrap();
    socket
}

/// The next packet for [`PORT`]; the kernel's own are passed over.
fn next_datagram(host: &Host) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let mut packet = [0; MTU];
        match host.device.read(&mut packet).unwrap() {
            Some(size) if port_of(&packet[..size]) == Some(PORT) => return packet[..size].into(),
            Some(_) => {}
            None => sleep(Duration::from_millis(1)),
        }
    }
    panic!("nothing came out of the device");
}

fn port_of(packet: &[u8]) -> Option<u16> {
    let (protocol, at) = match packet.first()? >> 4 {
        4 => (packet.get(9)?, 20),
        _ => (packet.get(6)?, 40),
    };
    let port = packet.get(at + 2..at + 4)?;
    (*protocol == 17).then(|| u16::from_be_bytes(port.try_into().unwrap()))
}

/// The one's complement sum of RFC 1071; 0xffff over anything that holds its own checksum.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sums over the header of IP, if it has one of its own, and over UDP with its pseudo header.
fn sums(packet: &[u8]) -> [u16; 2] {
    let length = (packet.len() as u16).to_be_bytes();
    match packet[0] >> 4 {
        4 => {
            let udp = ((packet.len() - 20) as u16).to_be_bytes();
            let pseudo: [&[u8]; 4] = [&packet[12..20], &[0, 17], &udp, &packet[20..]];
            assert_eq!(packet[2..4], length);
            [sum(&[&packet[..20]]), sum(&pseudo)]
        }
        _ => {
            let udp = ((packet.len() - 40) as u16).to_be_bytes();
            let pseudo: [&[u8]; 4] = [&packet[8..40], &[0, 17], &udp, &packet[40..]];
            [0xffff, sum(&pseudo)]
        }
    }
}

/// The packet with its ends exchanged, as its answer.
fn answer(packet: &[u8]) -> Vec<u8> {
    let mut answer = packet.to_vec();
    let (from, size, ports) = if packet[0] >> 4 == 4 {
        (12, 4, 20)
    } else {
        (8, 16, 40)
    };
    answer[from..from + size].copy_from_slice(&packet[from + size..from + 2 * size]);
    answer[from + size..from + 2 * size].copy_from_slice(&packet[from..from + size]);
    answer[ports..ports + 2].copy_from_slice(&packet[ports + 2..ports + 4]);
    answer[ports + 2..ports + 4].copy_from_slice(&packet[ports..ports + 2]);
    answer // the sums stay what they are
}

/// Sends datagrams and answers them until one gets in. The kernel may bring a new device's addresses up in the
/// background, and until then drops what comes for them (`Ip6InAddrErrors`, or the device's own count).
fn settle(host: &Host, socket: &UdpSocket, far: IpAddr) {
    let patience = socket.read_timeout().unwrap();
    let briefly = Some(Duration::from_millis(50));
    socket.set_read_timeout(briefly).unwrap();
    let answered = (0..100).any(|_| {
        socket.send_to(&[0], SocketAddr::new(far, PORT)).unwrap();
        host.device.write(&answer(&next_datagram(host))).unwrap();
        socket.recv_from(&mut [0; MTU]).is_ok()
    });
    assert!(answered, "nothing gets in");
    socket.set_read_timeout(patience).unwrap();
}

#[test]
fn packets_come_out_whole_with_their_checksums_and_go_in_likewise() {
    let far_v6: IpAddr = "fd77::2".parse().unwrap();
    for kind in [DeviceKind::Tun, DeviceKind::Veth] {
        for (near, far) in [
            (NEAR.into(), FAR.into()),
            ("fd77::1".parse().unwrap(), far_v6),
        ] {
            let Some(host) = host(kind, near) else {
                continue;
            };
            assert_eq!(host.device.kind(), kind);
            let socket = socket(&host, near);
            settle(&host, &socket, far);
            let dropped_before = host.device.drops().unwrap();
            let headers = if near.is_ipv4() { 28 } else { 48 };
            for size in [1, 100, MTU - headers] {
                let payload: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
                let to = SocketAddr::new(far, PORT);
                socket.send_to(&payload, to).unwrap();
                let packet = next_datagram(&host);
                assert_eq!(packet[headers..], payload, "{kind}");
                assert_eq!(sums(&packet), [0xffff; 2], "{kind}");

                host.device.write(&answer(&packet)).unwrap();
                let mut received = [0; MTU];
                let (size, from) = socket.recv_from(&mut received).unwrap();
                assert_eq!((&received[..size], from), (&payload[..], to), "{kind}");
            }
            assert_eq!(host.device.drops().unwrap(), dropped_before, "{kind}");
        }
    }
}

#[test]
fn a_wrong_checksum_does_not_get_in() {
    for host in hosts() {
        let socket = socket(&host, NEAR.into());
        settle(&host, &socket, FAR.into());
        socket.send_to(b"broken", (FAR, PORT)).unwrap();
        let mut broken = answer(&next_datagram(&host));
        *broken.last_mut().unwrap() ^= 1;
        host.device.write(&broken).unwrap();
        socket.send_to(b"whole", (FAR, PORT)).unwrap();
        host.device.write(&answer(&next_datagram(&host))).unwrap();
        let mut received = [0; MTU];
        let (size, _) = socket.recv_from(&mut received).unwrap();
        assert_eq!(&received[..size], b"whole", "{}", host.device.kind());
    }
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    const SENT: u64 = 40_000; // a TUN device holds 30,000, a veth pair 8,192
    for host in hosts() {
        let socket = socket(&host, NEAR.into());
        for _ in 0..SENT {
            // a full TUN device returns an error to the sender
            let _ = socket.send_to(b"x", (FAR, PORT));
        }
        let mut held = 0;
        let mut packet = [0; MTU];
        while let Some(size) = host.device.read(&mut packet).unwrap() {
            held += u64::from(port_of(&packet[..size]) == Some(PORT));
        }
        let drops = host.device.drops().unwrap();
        assert!(drops > 5_000, "{}: {drops}", host.device.kind());
        let all = held + drops;
        assert!(all.abs_diff(SENT) < 10, "{held} + {drops} of {SENT}");
    }
}

#[test]
fn an_interface_goes_with_its_device() {
    for host in hosts() {
        let Host {
            namespace, device, ..
        } = host;
        let name = device.name().to_string();
        let exists = || namespace.run(|| index(&name).is_ok()).unwrap();
        assert!(exists());
        drop(device);
        // the kernel takes namespaces down in the background, and a veth pair goes with one
        let deadline = Instant::now() + Duration::from_secs(10);
        while exists() && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
        assert!(!exists(), "{name} is still there");
    }
}

#[test]
fn a_device_with_super_packets_gives_packets_without_checksums_and_takes_them_back() {
    let shape = Shape {
        super_packets: true,
        ..SHAPE
    };
    for (near, far) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
        let (near, far): (IpAddr, IpAddr) = (near.parse().unwrap(), far.parse().unwrap());
        let Some(host) = host_of(DeviceKind::Tun, near, shape) else {
            return;
        };
        assert!(host.device.super_packets());
        let socket = socket(&host, near);
        let mut buffer = SuperBuffer::default();
        let briefly = Some(Duration::from_millis(50));
        socket.set_read_timeout(briefly).unwrap();
        // the kernel may bring a new device's addresses up in the background
        let answered = (0..100).any(|_| {
            let to = SocketAddr::new(far, PORT);
            socket.send_to(b"a datagram of odd size.", to).unwrap();
            let mut packet = [0; MTU];
            while let Some(mut segments) = host.device.read_super(&mut buffer).unwrap() {
                let segment = segments.next_into(&mut packet).unwrap();
                assert!(segments.next_into(&mut [0; MTU]).is_none());
                let packet = &packet[..segment.size_bytes];
                if port_of(packet) == Some(PORT) {
                    assert!(segment.unsummed && sums(packet)[1] != 0xffff);
                    host.device.write_unsummed(&answer(packet)).unwrap();
                }
            }
            let mut received = [0; MTU];
            let got = socket.recv_from(&mut received);
            got.is_ok_and(|(size, _)| received[..size] == *b"a datagram of odd size.")
        });
        assert!(answered, "nothing gets in");
        assert!(host.device.write(&[0; 3]).is_err());
    }
}
