//! TCP within other headers.

use super::*;
use crate::import::pcap::layers::{Tunnel, parse};
use crate::import::pcap::segment::Skipped;

const MACS: [u8; 12] = [2; 12];
/// LLC, SNAP.
const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

/// An IPv4 packet around `inside`.
fn ip(protocol: u8, inside: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + inside.len() as u16 + 1000).to_be_bytes());
    bytes.extend([0, 9, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    [&bytes, inside].concat()
}

fn udp(port: u16, inside: &[u8]) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    ip(17, &[&[0xc0, 0, high, low, 0, 0, 0, 0], inside].concat())
}

fn frame(ether_type: u16, inside: &[u8]) -> Vec<u8> {
    [&MACS[..], &ether_type.to_be_bytes(), inside].concat()
}

fn ppp(inside: &[u8]) -> Vec<u8> {
    [&[0x00, 0x21], inside].concat()
}

/// One packet of each tunnel, with a frame around it.
fn tunnels(tcp: Tcp) -> Vec<(&'static str, Vec<u8>)> {
    let mut tunnels = over_links_and_ip(tcp);
    tunnels.extend(over_gre(tcp));
    tunnels.extend(over_udp(tcp));
    tunnels
}

fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn over_links_and_ip(tcp: Tcp) -> Vec<(&'static str, Vec<u8>)> {
    let inner = tcp.ipv4();
    let whole = inner.len() as u16 + tcp.payload + 2;
    let ethernet = frame(0x0800, &inner);
    vec![
        ("", frame(0x0800, &inner)),
        (
            "",
            frame(0x88a8, &cat(&[&[0, 5, 0x81, 0, 0, 6, 8, 0], &inner])),
        ),
        ("", cat(&[&MACS, &[1, 0], &SNAP, &inner])),
        (
            "MPLS",
            frame(0x8847, &cat(&[&[0, 1, 0, 64, 0, 2, 1, 64], &inner])),
        ),
        (
            "MPLS",
            frame(0x8847, &cat(&[&[0, 2, 1, 64, 0, 0, 0, 0], &ethernet])),
        ),
        (
            "PPPoE",
            frame(
                0x8864,
                &cat(&[&[0x11, 0, 0, 1], &whole.to_be_bytes(), &ppp(&inner)]),
            ),
        ),
        ("IP in IP", frame(0x0800, &ip(4, &inner))),
        ("6in4", frame(0x0800, &ip(41, &tcp.ipv6()))),
        (
            "EtherIP",
            frame(0x0800, &ip(97, &cat(&[&[0x30, 0], &ethernet]))),
        ),
    ]
}

fn over_gre(tcp: Tcp) -> Vec<(&'static str, Vec<u8>)> {
    let inner = tcp.ipv4();
    let ethernet = frame(0x0800, &inner);
    let gre = |header: &[u8], inside: &[u8]| frame(0x0800, &ip(47, &cat(&[header, inside])));
    let wifi = cat(&[&[0x88, 1], &[0; 24], &SNAP, &inner]);
    vec![
        ("GRE", gre(&[0, 0, 8, 0], &inner)),
        (
            "GRE",
            gre(
                &[0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1],
                &ethernet,
            ),
        ),
        ("ERSPAN type I", gre(&[0, 0, 0x88, 0xbe], &ethernet)),
        (
            "ERSPAN type II",
            gre(
                &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5, 0, 1, 0, 0, 0, 0],
                &ethernet,
            ),
        ),
        (
            "ERSPAN type III",
            gre(
                &cat(&[
                    &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 5, 0, 1],
                    &[0; 7],
                    &[1],
                    &[0; 8],
                ]),
                &ethernet,
            ),
        ),
        ("GRE of Aruba (802.11)", gre(&[0, 0, 0x82, 0], &wifi)),
        (
            "PPTP",
            gre(
                &[0x30, 0x81, 0x88, 0x0b, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
                &ppp(&inner),
            ),
        ),
    ]
}

fn over_udp(tcp: Tcp) -> Vec<(&'static str, Vec<u8>)> {
    let inner = tcp.ipv4();
    let ethernet = frame(0x0800, &inner);
    let over =
        |port, header: &[u8], inside: &[u8]| frame(0x0800, &udp(port, &cat(&[header, inside])));
    vec![
        ("VXLAN", over(4789, &[8, 0, 0, 0, 0, 0, 7, 0], &ethernet)),
        (
            "Geneve",
            over(6081, &[1, 0, 0x65, 0x58, 0, 0, 7, 0, 9, 9, 9, 9], &ethernet),
        ),
        ("GTP-U", over(2152, &[0x30, 0xff, 0, 0, 0, 0, 0, 1], &inner)),
        (
            "GTP-U",
            over(
                2152,
                &[0x34, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0],
                &inner,
            ),
        ),
        ("L2TP", over(1701, &[0, 2, 0, 1, 0, 1], &ppp(&inner))),
        ("TZSP", over(37008, &[1, 0, 0, 1, 10, 1, 5, 1], &ethernet)),
    ]
}

#[test]
fn tunnels_give_what_is_in_them() {
    let plain = read(pcap(&script(), 101, false, Tcp::ipv4)).unwrap();
    for number in 0..tunnels(DATA).len() {
        let name = tunnels(DATA)[number].0;
        // function pointers capture nothing
        let mut capture = pcap(&Vec::new(), 1, false, Tcp::ipv4);
        for (time_us, tcp) in script() {
            let frame = tunnels(tcp).swap_remove(number).1;
            let wire = frame.len() as u32 + u32::from(tcp.payload);
            for value in [1_700_000_000, time_us, frame.len() as u32, wire] {
                capture.extend(value.to_le_bytes());
            }
            capture.extend(frame);
        }
        let read = read(capture).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.trace.records, plain.trace.records, "{name}");
        let told = read.trace.metadata.environment.get("tunnels");
        let wanted = (!name.is_empty()).then(|| format!("{name}: {}", script().len()));
        assert_eq!(told, wanted.as_ref());
    }
}

#[test]
fn tunnels_that_hide_their_packets_are_counted_by_name() {
    let hidden = |packet: Vec<u8>| match parse(1, &packet, 2000) {
        Err(Skipped::Hidden(tunnel)) => Some(tunnel),
        _ => None,
    };
    for (tunnel, packet) in [
        (Tunnel::Esp, frame(0x0800, &ip(50, &[0; 60]))),
        (Tunnel::Macsec, frame(0x88e5, &[0; 60])),
        (Tunnel::Capwap, frame(0x0800, &udp(5247, &[0; 60]))),
        (
            Tunnel::Gre,
            frame(0x0800, &ip(47, &[0x40, 0, 8, 0, 0, 0, 0, 0])),
        ),
        // truncated within the tunnel's content
        (
            Tunnel::ErspanII,
            frame(0x0800, &ip(47, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5])),
        ),
    ] {
        assert_eq!(hidden(packet), Some(tunnel));
    }
    let mut capture = pcap(&script(), 1, false, ethernet);
    let esp = frame(0x0800, &ip(50, &[0; 60]));
    for value in [1_700_000_001, 0, esp.len() as u32, esp.len() as u32] {
        capture.extend(value.to_le_bytes());
    }
    capture.extend(esp);
    let warnings = read(&capture).unwrap().warnings;
    assert!(
        warnings[0].ends_with("left out: 1 packets of IPsec ESP, encrypted, which cannot be read"),
        "{warnings:?}"
    );
}

#[test]
fn headers_without_end_are_no_packet() {
    let tags = [0x81, 0, 0, 1].repeat(10_000);
    assert_eq!(
        parse(1, &[&MACS[..], &tags].concat(), 50_000).err(),
        Some(Skipped::Malformed)
    );
    let nested = [
        0x45, 0, 0, 60, 0, 0, 0, 0, 64, 4, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2,
    ]
    .repeat(1000);
    assert!(parse(101, &nested, 20_000).is_err());
}
