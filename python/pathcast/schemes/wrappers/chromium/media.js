// One end of a flow of media in a page: `offer` and `accept` of the sender, `answer` and `listen` of the receiver.
//
// The encoder makes tiny pictures. A transform of encoded frames, in `worker.js`, lengthens each of them to what the
// controller allows until the next one, so that the controller is never short of data and the processor has little to do.

"use strict";

const end = { pc: null, worker: null, channel: null, answer: null, bytes: 0, done: false };

const PICTURES_A_SECOND = 30;
const EVERY_MS = 50;
const MOST_BPS = 1_000_000_000;
// where estimates begin; by default it is 300 kbit/s
const FIRST_KBPS = 1000;

// A video of noise, as small as a sender may have it.
function pictures() {
  const canvas = document.createElement("canvas");
  canvas.width = 160;
  canvas.height = 90;
  const context = canvas.getContext("2d");
  const stream = canvas.captureStream(0);
  const [track] = stream.getVideoTracks();
  let number = 0;
  setInterval(() => {
    number += 1;
    context.fillStyle = `hsl(${number % 360} 100% 50%)`;
    context.fillRect(number % 150, 0, 10, 90);
    track.requestFrame();
  }, 1000 / PICTURES_A_SECOND);
  return track;
}

function prepare(workerSource, options) {
  end.pc = new RTCPeerConnection({ iceServers: [] });
  end.worker = new Worker(URL.createObjectURL(new Blob([workerSource])));
  end.channel = end.pc.createDataChannel("received", { negotiated: true, id: 1, ordered: false, maxRetransmits: 0 });
  end.channel.onmessage = ({ data }) => end.worker.postMessage({ missing: JSON.parse(data) });
  end.worker.onmessage = ({ data }) => {
    end.bytes = data.bytes;
    end.done ||= data.done ?? false;
    if (data.missing && end.channel.readyState === "open") end.channel.send(JSON.stringify(data.missing));
  };
  return new RTCRtpScriptTransform(end.worker, options);
}

function onlyVp8(transceiver) {
  const known = RTCRtpReceiver.getCapabilities("video").codecs;
  transceiver.setCodecPreferences(known.filter(({ mimeType }) => ["video/VP8", "video/rtx"].includes(mimeType)));
}

async function offer(workerSource, bytes) {
  const transform = prepare(workerSource, { sends: true, bytes });
  const transceiver = end.pc.addTransceiver(pictures(), {
    direction: "sendonly",
    sendEncodings: [{ maxBitrate: MOST_BPS, maxFramerate: PICTURES_A_SECOND }],
  });
  transceiver.sender.transform = transform;
  onlyVp8(transceiver);
  await end.pc.setLocalDescription();
  setInterval(watch, EVERY_MS);
  return end.pc.localDescription.sdp;
}

async function accept(sdp, address, port) {
  const fmtp = `x-google-start-bitrate=${FIRST_KBPS};x-google-max-bitrate=${MOST_BPS / 1000}`;
  const found = sdp.match(/a=rtpmap:(\d+) VP8\/90000\r\n/);
  const candidate = `a=candidate:1 1 udp 2122260223 ${address} ${port} typ host\r\n`;
  const whole = sdp.replace(found[0], `${found[0]}a=fmtp:${found[1]} ${fmtp}\r\n`);
  const media = whole.indexOf("m=video");
  const mid = whole.indexOf("a=mid:", media);
  await end.pc.setRemoteDescription({
    type: "answer",
    sdp: whole.slice(0, mid) + candidate + whole.slice(mid),
  });
}

async function watch() {
  const stats = await end.pc.getStats();
  for (const one of stats.values()) {
    if (one.type === "candidate-pair" && one.availableOutgoingBitrate) {
      end.worker.postMessage({ allowed: one.availableOutgoingBitrate });
    }
  }
}

async function answer(workerSource, sdp, bytes) {
  const transform = prepare(workerSource, { sends: false, bytes });
  end.pc.ontrack = ({ receiver, track }) => {
    receiver.transform = transform;
    const video = document.createElement("video");
    video.srcObject = new MediaStream([track]);
    video.muted = true;
    video.play();
  };
  await end.pc.setRemoteDescription({ type: "offer", sdp });
  end.answer = await end.pc.createAnswer();
  return end.answer.sdp;
}

// Takes the port, of which the range in the browser's settings has but one.
async function listen() {
  await end.pc.setLocalDescription(end.answer);
}

function state() {
  return { bytes: end.bytes, done: end.done, remote: end.pc?.remoteDescription?.sdp };
}
