#!/usr/bin/env python3
"""The server over time: 64 streams of 50 tokens a second, and 2,000 requests of which half are cancelled. Prints what was measured.

usage: test_serve.py [SECONDS] [PART-OF-A-NAME]; the streams last 60 s unless told otherwise
"""
import json
import os
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


def test_load():
    """Every stream is whole, whatever their number; memory and descriptors stay as they are. The client is tests/bench/serve_load.c."""
    server = Server({}, ["--parallel", str(CLIENTS)])
    fds = descriptors(server)
    program = os.environ.get("BUILD", "build/gcc-release") + "/tests/bench/serve_load"
    client = subprocess.Popen([program, str(server.port), "streams", str(CLIENTS), "50", str(SECONDS)], stdout=subprocess.PIPE)
    time.sleep(SECONDS / 4)
    middle = server.state()["resident"]
    result = json.loads(client.communicate()[0])
    grown = server.state()["resident"] - middle
    print("load: %s; memory grew by %.2f MiB from the first quarter on" % (result, grown / 2 ** 20))
    assert result["wrong"] == 0, result
    assert grown < 5 << 20 or SAN, grown
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
    assert grown < 5 << 20 or SAN, grown
    server.wait_for(lambda: descriptors(server) <= fds)
    assert server.stop() == 0


def test_slow_request():
    """A request that comes byte by byte ends after a minute, however steadily; a slow reply does not."""
    server = Server({})
    s, slow = server.connect(), send(server, chat_body([{"text": "x", "delay_ms": 5000, "repeat": 16}], thinking=False, stream=True))
    start = time.monotonic()
    s.settimeout(1)
    reply = b""
    for byte in b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200:
        try:
            s.sendall(bytes([byte]))
            reply = s.recv(1000)
            break
        except TimeoutError:
            pass
    assert b" 408 " in reply and 55 < time.monotonic() - start < 75, (reply, time.monotonic() - start)
    data = b""
    slow.settimeout(30)
    while b"[DONE]" not in data:
        data += slow.recv(65536)
    assert data.count(b'"content":"x"') == 16 and server.stop() == 0


run(globals())
