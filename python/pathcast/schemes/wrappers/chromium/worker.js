// Lengthens encoded frames at the sender, and cuts them to what the decoder expects at the receiver.
//
// A lengthened frame is the encoder's, then the application's bytes, then a trailer: the offset of these bytes (8 bytes),
// their number (4) and the length of the encoder's frame (4).

"use strict";

const TRAILER_BYTES = 16;
// the part of what the controller allows that headers of packets leave
const PAYLOAD_PART = 0.95;
// a pause longer than this is not made up for
const LONGEST_MS = 100;
// a range that was sent is not sent again before its receiver can have said that it has it
const AGAIN_MS = 1000;
const EVERY_MS = 100;
const MOST_RANGES = 40;

let allowed = 0;
let missing = null;

onmessage = ({ data }) => {
  allowed = data.allowed ?? allowed;
  missing = data.missing ?? missing;
};

onrtctransform = ({ transformer }) => {
  const { sends, bytes } = transformer.options;
  const { readable, writable } = transformer;
  const through = new TransformStream({ transform: sends ? sender(bytes) : receiver(bytes) });
  readable.pipeThrough(through).pipeTo(writable);
};

function sender(bytes) {
  let last = performance.now();
  let next = 0;
  let sent = 0;
  let again = [];
  let asked = 0;
  // what is to be sent now: new bytes first, then those that the receiver lacks
  const piece = (most, now) => {
    if (bytes === 0 || next < bytes) {
      const length = bytes === 0 ? most : Math.min(most, bytes - next);
      next += length;
      asked = now;
      return [next - length, length];
    }
    if (again.length === 0 && missing?.ranges.length && now - asked > AGAIN_MS) {
      again = structuredClone(missing.ranges);
      asked = now;
    }
    if (again.length === 0) return [next, 0];
    const [from, to] = again[0];
    const length = Math.min(most, to - from);
    if (from + length >= to) again.shift();
    else again[0][0] = from + length;
    return [from, length];
  };
  return (frame, controller) => {
    const now = performance.now();
    const most = Math.floor((PAYLOAD_PART * allowed * Math.min(now - last, LONGEST_MS)) / 8000);
    last = now;
    const picture = new Uint8Array(frame.data);
    const [offset, length] = piece(Math.max(0, most - picture.length - TRAILER_BYTES), now);
    const whole = new Uint8Array(picture.length + length + TRAILER_BYTES);
    whole.set(picture);
    const trailer = new DataView(whole.buffer, picture.length + length);
    trailer.setFloat64(0, offset);
    trailer.setUint32(8, length);
    trailer.setUint32(12, picture.length);
    frame.data = whole.buffer;
    sent += length;
    controller.enqueue(frame);
    const done = bytes > 0 && missing?.received >= bytes;
    postMessage({ bytes: sent, done });
  };
}

function receiver(bytes) {
  // of what has come, the ranges without a gap, in order
  let ranges = [];
  let received = 0;
  let said = 0;
  const add = (from, to) => {
    const joined = [from, to];
    const rest = [];
    for (const one of ranges) {
      if (one[1] < joined[0] || one[0] > joined[1]) rest.push(one);
      else {
        joined[0] = Math.min(joined[0], one[0]);
        joined[1] = Math.max(joined[1], one[1]);
      }
    }
    rest.push(joined);
    ranges = rest.sort((one, other) => one[0] - other[0]);
  };
  const gaps = () => {
    const found = [];
    let at = 0;
    for (const [from, to] of ranges) {
      if (from > at) found.push([at, from]);
      at = to;
    }
    if (at < bytes) found.push([at, bytes]);
    return found.slice(0, MOST_RANGES);
  };
  return (frame, controller) => {
    const whole = frame.data;
    if (whole.byteLength >= TRAILER_BYTES) {
      const trailer = new DataView(whole, whole.byteLength - TRAILER_BYTES);
      const offset = trailer.getFloat64(0);
      const length = trailer.getUint32(8);
      const picture = trailer.getUint32(12);
      if (picture + length + TRAILER_BYTES === whole.byteLength) {
        if (bytes === 0) received += length;
        else if (length > 0) {
          add(offset, offset + length);
          received = ranges.reduce((sum, [from, to]) => sum + to - from, 0);
        }
        frame.data = whole.slice(0, picture);
      }
    }
    controller.enqueue(frame);
    const now = performance.now();
    if (now - said > EVERY_MS) {
      said = now;
      postMessage({ bytes: received, missing: bytes > 0 ? { received, ranges: gaps() } : null });
    }
  };
}
