// libutp as a scheme: `utp.js receive|send ADDRESS:PORT [--bytes N]`.
'use strict'

const utp = require('utp-native')

const PORTION = Buffer.alloc(1 << 16)

function report (values) {
  process.stdout.write(JSON.stringify(values) + '\n', () => process.exit(0))
}

// The files that hold the implementation, as the process itself has loaded them.
function evidence () {
  const loaded = process.report.getReport().sharedObjects.filter((name) => name.endsWith('.node'))
  const names = loaded.map((name) => name.split('/').slice(-5).join('/'))
  return { names, version: require('utp-native/package.json').version }
}

function receive (host, port) {
  let received = 0
  let began = 0
  let last = 0
  const server = utp.createServer((connection) => {
    connection.on('data', (portion) => {
      last = performance.now()
      began = began || last
      received += portion.length
    })
    // the sender ends when all has been read
    connection.on('end', () => connection.end())
    connection.on('error', () => {})
  })
  server.listen(port, host, () => process.stdout.write('listening\n'))
  process.on('SIGTERM', () => report({ received_bytes: received, seconds: (last - began) / 1e3 }))
}

function send (host, port, most) {
  let sent = 0
  const connection = utp.connect(port, host)
  const end = () => {
    const { names, version } = evidence()
    report({
      // libutp has no other
      controller: names.some((name) => name.includes('utp')) && sent > 0 ? 'ledbat' : 'unknown',
      evidence: `utp-native ${version}: loaded ${names.join(', ')}; libutp's only controller is LEDBAT, target 100 ms`,
      sent_bytes: sent
    })
  }
  const write = () => {
    while (most === 0 || sent < most) {
      const left = most === 0 ? PORTION.length : Math.min(PORTION.length, most - sent)
      const more = connection.write(left === PORTION.length ? PORTION : PORTION.subarray(0, left))
      sent += left
      if (!more) return
    }
    connection.end()
  }
  connection.on('connect', write)
  connection.on('drain', write)
  connection.on('data', () => {})
  connection.on('end', end)
  connection.on('error', (error) => {
    process.stderr.write(`utp-native: ${error.message}\n`)
    process.exit(1)
  })
  process.on('SIGTERM', end)
}

const [role, address, option, bytes] = process.argv.slice(2)
const at = address.lastIndexOf(':')
const [host, port] = [address.slice(0, at), Number(address.slice(at + 1))]
if (role === 'receive') receive(host, port)
else send(host, port, option === '--bytes' ? Number(bytes) : 0)
