// What Lantern (the simulator of Lighthouse) says of a page by HTTP/1.1 and HTTP/2. Reads JSON from its input:
// {"rtt_ms", "kbps", "server_ms", "resources": [{"url", "type", "priority", "bytes", "parent"}]}; writes the times in ms.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const module = '@paulirish/trace_engine/models/trace/lantern/lantern.js';
const { Graph, Simulation } = await import(
  pathToFileURL(createRequire(path.join(path.resolve(folder), 'package.json')).resolve(module)).href
);

const given = JSON.parse(fs.readFileSync(0, 'utf8'));
const root = given.resources[0].url;

/** A request as Chrome's log has it, of which only the order of the times counts. */
function request(resource, number, protocol) {
  const { protocol: scheme, hostname: host, origin } = new URL(resource.url);
  return {
    requestId: String(number),
    connectionId: '1',
    connectionReused: number > 0,
    url: resource.url,
    protocol,
    parsedURL: { scheme: scheme.replace(':', ''), host, securityOrigin: origin },
    documentURL: root,
    rendererStartTime: number,
    networkRequestTime: number,
    responseHeadersEndTime: number + 0.5,
    networkEndTime: number === 0 ? 0.5 : 1e6,
    transferSize: resource.bytes,
    resourceSize: resource.bytes,
    fromDiskCache: false,
    fromMemoryCache: false,
    finished: true,
    failed: false,
    statusCode: 200,
    initiator: number === 0 ? { type: 'other' } : { type: 'parser', url: given.resources[resource.parent].url },
    resourceType: resource.type,
    mimeType: 'x/y',
    priority: resource.priority,
    frameId: 'main',
    fromWorker: false,
    isLinkPreload: false,
  };
}

const found = {};
for (const protocol of ['http/1.1', 'h2']) {
  const requests = given.resources.map((resource, number) => request(resource, number, protocol));
  given.resources.forEach((resource, number) => {
    if (number > 0) requests[number].initiatorRequest = requests[resource.parent];
  });
  // a graph needs a task of the main thread
  const task = { name: 'RunTask', cat: 'disabled-by-default-lighthouse', ph: 'X', ts: 1, dur: 1, pid: 1, tid: 1, args: {} };
  const graph = Graph.PageDependencyGraph.createGraph([task], requests, { requestedUrl: root, mainDocumentUrl: root });
  const simulator = new Simulation.Simulator({
    rtt: given.rtt_ms,
    throughput: given.kbps * 1000,
    cpuSlowdownMultiplier: 1,
    additionalRttByOrigin: new Map(),
    serverResponseTimeByOrigin: new Map([[new URL(root).origin, given.server_ms]]),
  });
  found[protocol] = simulator.simulate(graph).timeInMs;
}
console.log(JSON.stringify(found));
