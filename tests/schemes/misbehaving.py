"""A scheme that misbehaves: `misbehaving.py HOW receive|send ADDRESS:PORT`; otherwise it moves data over TCP."""

import json
import os
import signal
import socket
import sys
import time

how, role, host, port = "", "", "", 0
#: Processes that do nothing but take time of processors.
busy = []


def end(*_):
    os._exit(0)


def report(**values):
    print(json.dumps(values), flush=True)


def receive():
    if how == "never-listens":
        time.sleep(60)
    if how == "lies-about-listening":
        print("listening", flush=True)
        time.sleep(60)
    elsewhere = 500 if how == "wrong-port" else 0
    with socket.create_server((host, port + elsewhere)) as listener:
        print("listening", flush=True)
        connection, _ = listener.accept()
        got = 0

        def stop(*_):
            report(received_bytes=10 * got if how == "exaggerates" else got, seconds=1.0)
            end()

        signal.signal(signal.SIGTERM, stop)
        while data := connection.recv(1 << 16):
            got += len(data)
        while True:
            time.sleep(1)


def reach(tried):
    try:
        tried()
    except OSError as error:
        return type(error).__name__
    return "done"


def snoop():
    """What a contained program can see and do; the folder of the secret is in the name of this scheme's file."""
    secret, listening = sys.argv[4:6]
    with open("/proc/self/status") as file:
        lines = file.read().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    return {
        "secret": reach(lambda: open(secret).read()),
        "write": reach(lambda: open(f"{os.path.dirname(os.path.abspath(__file__))}/x", "w")),
        "usr": reach(lambda: open("/usr/pathcast-test", "w")),
        "scratch": reach(lambda: open("/tmp/x", "w")),
        "host": reach(lambda: socket.create_connection(("127.0.0.1", int(listening)), 0.5)),
        "abroad": reach(lambda: socket.create_connection(("192.0.2.1", 80), 0.5)),
        "capabilities": int(status["CapEff"], 16),
        "user": os.getuid(),
        "processes": len([name for name in os.listdir("/proc") if name.isdecimal()]),
        "links": sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys") else [],
    }


def misbehave():
    if how == "crashes":
        sys.exit("an error of its own")
    if how == "says-nothing":
        sys.exit(0)
    if how == "floods":
        while True:
            os.write(2, b"x" * 4096)
    if how == "forks":
        while True:
            try:
                child = os.fork()
            except BlockingIOError:  # the hard limit was faster than whoever counts
                time.sleep(0.01)
                continue
            if child == 0:
                time.sleep(60)
    if how == "hoards":
        kept = []
        while True:
            kept.append(b"x" * (8 << 20))
    if how == "fills-disk":
        with open("/tmp/large", "wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
    if how == "is-busy":
        for _ in range(3 * os.cpu_count()):
            child = os.fork()
            if child == 0:
                while True:
                    pass
            busy.append(child)
    if how == "leaves-a-process" and os.fork() == 0:
        os.setsid()
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        time.sleep(60)


def send():
    signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "never-stops" else end)
    connection = socket.create_connection((host, port))
    connection.sendall(bytes(100_000))
    misbehave()

    def stop(*_):
        for child in busy:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if how == "snoops":
            report(controller="none", evidence=json.dumps(snoop()))
        elif how == "reports-nothing":
            print("no JSON", flush=True)
        else:
            report(controller=how, evidence="its own word")
        end()

    if how != "never-stops":
        signal.signal(signal.SIGTERM, stop)
    if how == "leaves-a-process":
        time.sleep(0.5)
        stop()
    while True:
        connection.sendall(bytes(10_000))
        time.sleep(0.01)


if __name__ == "__main__":
    how, role, place = sys.argv[1:4]
    host, port = place.rsplit(":", 1)
    port = int(port)
    send() if role == "send" else receive()
