#!/usr/bin/env python3
"""The server over time: 64 streams of 50 tokens a second, and 2,000 requests of which half are cancelled. Prints what was measured.

usage: test_serve.py [SECONDS] [PART-OF-A-NAME]; the streams last 60 s unless told otherwise
"""
import json
import os
import selectors
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from lilyserve import *

SECONDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 60
CLIENTS = 64


def descriptors(server):
    return len(os.listdir("/proc/%d/fd" % server.process.pid))


def send(server, body):
    s = server.connect()
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return s


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def test_load():
    """Tokens come when the script says, whatever the number of streams; memory and descriptors stay as they are."""
    server = Server({}, ["--parallel", str(CLIENTS)])
    fds = descriptors(server)
    n = SECONDS * 50
    sel = selectors.DefaultSelector()
    times, tail = {}, {}
    for i in range(CLIENTS):
        s = send(server, chat_body([{"text": "word ", "delay_ms": 20, "repeat": n}], thinking=False, stream=True))
        s.setblocking(False)
        sel.register(s, selectors.EVENT_READ)
        times[s], tail[s] = [], b""
    started, middle = time.monotonic(), None
    while sel.get_map():
        assert time.monotonic() - started < SECONDS * 2 * SLOW + 20
        for key, _ in sel.select(1):
            s = key.fileobj
            data = s.recv(65536)
            now = time.monotonic()
            text = tail[s] + data
            cut = text.rfind(b"\n\n") + 2 if b"\n\n" in text else 0
            times[s] += [now] * text[:cut].count(b'"content":"word')  # also deltas that hold a blank in front
            times[s] += [now] * text[:cut].count(b'"content":" word')
            tail[s] = text[cut:]
            if not data or b"[DONE]" in text:
                sel.unregister(s)
                s.close()
        if middle is None and time.monotonic() - started > SECONDS / 4:
            middle = server.state()["resident"]
    late = []
    for t in times.values():
        assert len(t) == n, len(t)
        base = min(x - i * 0.02 for i, x in enumerate(t))
        late += [x - (base + i * 0.02) for i, x in enumerate(t)]
    grown = server.state()["resident"] - middle
    print("load: %d streams, %d tokens each; a token is late by p50 %.2f ms, p99 %.2f ms; memory grew by %.2f MiB from the first quarter on"
          % (CLIENTS, n, 1e3 * percentile(late, 0.5), 1e3 * percentile(late, 0.99), grown / 2 ** 20))
    assert grown < 5 << 20, grown
    server.wait_for(lambda: descriptors(server) <= fds + 1)
    assert server.metric("jobs_failed_total") == 0 and server.stop() == 0


def test_F13():
    """A leak per request would show."""
    server = Server({}, ["--parallel", "8"])
    first = fds = None
    for i in range(2000):
        if i == 200:
            server.wait_for(lambda: server.state()["requests"] == [])
            first, fds = server.state()["resident"], descriptors(server)
        body = chat_body(["think", "</think>", "a", call_text("f", x="1"), {"text": "x", "delay_ms": 1, "repeat": 5}], stream=i % 3 == 0)
        if i % 10 == 0:
            body["temperature"] = "hot"
        if i % 2:
            s = send(server, body)
            if i % 4 == 1:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if i % 8 == 7:
                s.recv(100)
            s.close()
        else:
            assert server.request("POST", "/v1/chat/completions", body)[0] == (400 if i % 10 == 0 else 200)
    server.wait_for(lambda: server.state()["requests"] == [])
    grown = server.state()["resident"] - first
    print("2,000 requests: memory grew by %.2f MiB after the first 200, descriptors %d before, %d after" % (grown / 2 ** 20, fds, descriptors(server)))
    assert grown < 5 << 20, grown
    server.wait_for(lambda: descriptors(server) <= fds)
    assert server.stop() == 0


def test_first_byte():
    """Printed, not judged: the time from a request to the first byte of its stream."""
    server = Server({})
    took = []
    c = http.client.HTTPConnection("127.0.0.1", server.port)
    for _ in range(300):
        start = time.monotonic()
        c.request("POST", "/v1/chat/completions", json.dumps(chat_body(["x"], stream=True)))
        r = c.getresponse()
        r.read(1)
        took.append(time.monotonic() - start)
        r.read()
    print("first byte of a stream: p50 %.2f ms, p99 %.2f ms" % (1e3 * percentile(took, 0.5), 1e3 * percentile(took, 0.99)))
    assert server.stop() == 0


run(globals())
