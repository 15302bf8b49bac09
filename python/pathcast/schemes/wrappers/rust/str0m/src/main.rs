//! A sender and a receiver of RTP over str0m: `scheme-str0m receive|send ADDRESS:PORT [--bytes N]`.
//!
//! The sender has media for whatever rate GCC estimates. One UDP port carries everything: datagrams that begin with `{`
//! are JSON by which the ends meet, and by which the receiver says what it has; no protocol of WebRTC begins so.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pathcast_scheme::{
    Failure, Job, report_receiver, report_sender, say_listening, send_to, source_of, stopped, wait,
};
use serde_json::{Value, json};
use str0m::bwe::{Bitrate, BweKind};
use str0m::config::Fingerprint;
use str0m::format::Codec;
use str0m::ice::IceCreds;
use str0m::media::{MediaKind, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{RtpWrite, Ssrc};
use str0m::{Candidate, Event, Input, Output, Rtc};

/// Bytes of a packet's payload: short enough to be sent again as a probe.
const PAYLOAD_BYTES: u64 = 1150;
/// Its first bytes are its number.
const NUMBER_BYTES: u64 = 8;
const MEDIA: &str = "vid";
const SSRC: u32 = 42;
const RTX_SSRC: u32 = 44;
/// Where GCC begins.
const INITIAL: Bitrate = Bitrate::mbps(1);
/// More than any path here has: the sender is never short of media.
const DESIRED: Bitrate = Bitrate::gbps(1);
/// The longest time without a look at the socket.
const STEP: Duration = Duration::from_millis(2);
/// How often the ends talk.
const TALK: Duration = Duration::from_millis(100);

fn main() -> Result<(), Failure> {
    let job = Job::from_arguments()?;
    let stop = stopped()?;
    match job.receives {
        true => receive(job.address, &stop),
        false => send(&job, &stop),
    }
}

/// One end: the connection, its socket, and the address of the other end.
struct End<'a> {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    peer: Option<SocketAddr>,
    stop: &'a AtomicBool,
    buffer: Vec<u8>,
    due: Instant,
    events: Vec<Event>,
}

impl<'a> End<'a> {
    fn new(
        socket: UdpSocket,
        local: SocketAddr,
        sends: bool,
        stop: &'a AtomicBool,
    ) -> Result<Self, Failure> {
        socket.set_nonblocking(true)?;
        let builder = Rtc::builder().set_rtp_mode(true);
        let builder = match sends {
            true => builder.enable_bwe(Some(INITIAL)),
            false => builder,
        };
        let mut rtc = builder.build(Instant::now());
        rtc.add_local_candidate(Candidate::host(local, "udp")?);
        Ok(Self {
            rtc,
            socket,
            local,
            peer: None,
            stop,
            buffer: vec![0; 1 << 16],
            due: Instant::now(),
            events: Vec::new(),
        })
    }

    /// What the other end must know of this one.
    fn introduction(&mut self) -> Value {
        let api = self.rtc.direct_api();
        let credentials = api.local_ice_credentials();
        let fingerprint = api.local_dtls_fingerprint();
        json!({
            "ufrag": credentials.ufrag,
            "pass": credentials.pass,
            "hash": fingerprint.hash_func,
            "fingerprint": fingerprint.bytes,
        })
    }

    /// Meets the other end.
    fn meet(&mut self, peer: SocketAddr, said: &Value, sends: bool) -> Result<(), Failure> {
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_string();
        let digest = said["fingerprint"].as_array().into_iter().flatten();
        let digest = digest.filter_map(|byte| byte.as_u64().and_then(|byte| byte.try_into().ok()));
        let fingerprint = Fingerprint {
            hash_func: text("hash"),
            bytes: digest.collect(),
        };
        self.peer = Some(peer);
        self.rtc.add_remote_candidate(Candidate::host(peer, "udp")?);
        let mut api = self.rtc.direct_api();
        api.set_remote_fingerprint(fingerprint);
        api.set_remote_ice_credentials(IceCreds {
            ufrag: text("ufrag"),
            pass: text("pass"),
        });
        api.set_ice_controlling(sends);
        api.start_dtls(sends)?;
        let (media, ssrc, again) = (MEDIA.into(), Ssrc::from(SSRC), Some(Ssrc::from(RTX_SSRC)));
        api.declare_media(media, MediaKind::Video);
        if sends {
            api.declare_stream_tx(ssrc, again, media, None);
        } else {
            api.expect_stream_rx(ssrc, again, media, None);
            api.enable_twcc_feedback();
        }
        Ok(())
    }

    fn say(&self, to: SocketAddr, value: &Value) -> Result<(), Failure> {
        send_to(&self.socket, value.to_string().as_bytes(), to, self.stop)
    }

    /// Sends what is due, and keeps the events.
    fn poll(&mut self) -> Result<(), Failure> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => {
                    self.due = at;
                    return Ok(());
                }
                Output::Transmit(packet) => {
                    send_to(
                        &self.socket,
                        &packet.contents,
                        packet.destination,
                        self.stop,
                    )?;
                }
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// Waits for a datagram or the next timer. Returns what the other end said beside WebRTC, if it did.
    fn turn(&mut self) -> Result<Option<(SocketAddr, Value)>, Failure> {
        let left = self.due.saturating_duration_since(Instant::now());
        wait(&self.socket, left.min(STEP))?;
        let now = Instant::now();
        let Ok((size, source)) = self.socket.recv_from(&mut self.buffer) else {
            self.rtc.handle_input(Input::Timeout(now))?;
            return Ok(None);
        };
        let datagram = &self.buffer[..size];
        if datagram.first() == Some(&b'{') {
            let said = serde_json::from_slice(datagram).unwrap_or_default();
            return Ok(Some((source, said)));
        }
        // a datagram that is none of WebRTC is not for us
        if let Ok(contents) = datagram.try_into() {
            let receive = Receive {
                proto: Protocol::Udp,
                source,
                destination: self.local,
                contents,
            };
            self.rtc.handle_input(Input::Receive(now, receive))?;
        }
        Ok(None)
    }
}

/// Which packets have come, by their numbers.
#[derive(Default)]
struct Arrived {
    /// All before have come.
    next: u64,
    beyond: BTreeSet<u64>,
    bytes: u64,
}

impl Arrived {
    fn note(&mut self, payload: &[u8]) {
        let Some(number) = payload.first_chunk().copied().map(u64::from_be_bytes) else {
            return;
        };
        if number < self.next || !self.beyond.insert(number) {
            return;
        }
        self.bytes += payload.len() as u64;
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
    }
}

fn receive(address: SocketAddr, stop: &AtomicBool) -> Result<(), Failure> {
    let mut end = End::new(UdpSocket::bind(address)?, address, false, stop)?;
    say_listening();
    let mut arrived = Arrived::default();
    let (mut began, mut last) = (None, Instant::now());
    let mut talked = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        end.poll()?;
        for event in end.events.drain(..) {
            if let Event::RtpPacket(packet) = event {
                last = Instant::now();
                began.get_or_insert(last);
                arrived.note(&packet.payload);
            }
        }
        if let Some((source, said)) = end.turn()? {
            if end.peer.is_none() && said["ufrag"].is_string() {
                end.meet(source, &said, false)?;
            }
            let introduction = end.introduction();
            end.say(source, &introduction)?;
        }
        if let Some(peer) = end.peer
            && talked.elapsed() >= TALK
        {
            talked = Instant::now();
            let has = json!({"received": arrived.bytes, "missing": arrived.next});
            end.say(peer, &has)?;
        }
    }
    report_receiver(arrived.bytes, last - began.unwrap_or(last));
    Ok(())
}

/// What is to be sent: packets by their numbers.
struct Media {
    most: u64,
    number: u64,
    sent: u64,
    sequence: u64,
    pt: Pt,
}

impl Media {
    /// The size of a packet; the last one also takes what would be too short for one of its own.
    fn size(&self, number: u64) -> u64 {
        if self.most == 0 {
            return PAYLOAD_BYTES;
        }
        let left = self.most.saturating_sub(number * PAYLOAD_BYTES);
        match left {
            0..PAYLOAD_BYTES => left,
            left if left < PAYLOAD_BYTES + NUMBER_BYTES => left,
            _ => PAYLOAD_BYTES,
        }
    }

    /// Hands a packet over to str0m; its size.
    fn write(&mut self, rtc: &mut Rtc, number: u64) -> Result<u64, Failure> {
        let size = self.size(number).max(NUMBER_BYTES);
        let mut payload = vec![0; size as usize];
        payload[..NUMBER_BYTES as usize].copy_from_slice(&number.to_be_bytes());
        let now = Instant::now();
        let mut api = rtc.direct_api();
        let stream = api
            .stream_tx(&Ssrc::from(SSRC))
            .ok_or("there is no stream")?;
        let time = (self.sequence * 90) as u32;
        let packet = RtpWrite::new(self.pt, self.sequence.into(), time, now, payload);
        stream.write_rtp(packet.nackable(true));
        self.sequence += 1;
        Ok(size)
    }

    const fn is_over(&self) -> bool {
        self.most > 0 && self.sent >= self.most
    }
}

fn send(job: &Job, stop: &AtomicBool) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut local = socket.local_addr()?;
    local.set_ip(source_of(job.address)?);
    let mut end = End::new(socket, local, true, stop)?;
    let codec = end
        .rtc
        .codec_config()
        .find(|one| one.spec().codec == Codec::Vp8);
    let mut media = Media {
        most: job.bytes,
        number: 0,
        sent: 0,
        sequence: 47_000,
        pt: codec.ok_or("str0m has no VP8")?.pt(),
    };
    let (mut estimates, mut rate) = (0_u64, INITIAL.as_f64());
    let (mut connected, mut allowed) = (false, 0.0);
    let (mut turned, mut talked) = (Instant::now(), None::<Instant>);
    let mut received = 0;
    while !stop.load(Ordering::Relaxed) && (job.bytes == 0 || received < job.bytes) {
        if end.peer.is_none() && talked.is_none_or(|at| at.elapsed() >= TALK) {
            talked = Some(Instant::now());
            let introduction = end.introduction();
            end.say(job.address, &introduction)?;
        }
        end.poll()?;
        for event in end.events.drain(..) {
            match event {
                Event::Connected => connected = true,
                Event::EgressBitrateEstimate(BweKind::Twcc { estimate, .. }) => {
                    (estimates, rate) = (estimates + 1, estimate.as_f64());
                }
                _ => {}
            }
        }
        if let Some((source, said)) = end.turn()? {
            if end.peer.is_none() && said["ufrag"].is_string() {
                end.meet(source, &said, true)?;
                end.rtc.bwe().set_bitrate(Bitrate::ZERO, DESIRED);
            }
            received = said["received"].as_u64().unwrap_or(received);
            if media.is_over()
                && let Some(missing) = said["missing"].as_u64()
                && missing < media.number
            {
                media.write(&mut end.rtc, missing)?;
            }
        }
        let now = Instant::now();
        let step = now - turned;
        turned = now;
        if !connected {
            continue;
        }
        // a burst of 20 ms at most, however late this is
        allowed = (allowed + rate / 8.0 * step.as_secs_f64()).min(rate / 8.0 * 0.02 + 2e3);
        while allowed >= PAYLOAD_BYTES as f64 && !media.is_over() {
            let size = media.write(&mut end.rtc, media.number)?;
            media.number += 1;
            media.sent += size;
            allowed -= size as f64;
            end.poll()?;
        }
    }
    let controller = if estimates > 0 { "gcc" } else { "unknown" };
    let evidence = format!(
        "str0m's estimates by its GoogCC (Event::EgressBitrateEstimate of transport-wide feedback): {estimates}, the last \
         {:.2} Mbit/s",
        rate * 1e-6
    );
    report_sender(controller, &evidence, media.sent);
    Ok(())
}
