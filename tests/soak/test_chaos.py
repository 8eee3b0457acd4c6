#!/usr/bin/env python3
"""Clients that do everything wrong, at once, for a while; between them good ones, whose answers must be right. Afterwards the server
is as it was. usage: test_chaos.py [SECONDS]; the seed is printed.
"""
import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from lilyserve import *

SECONDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 40
SEED = random.randrange(10 ** 9)
srv = Server({"prefill_tokens_per_s": 200000}, ["--parallel", "3", "--queue", "6", "--max-body", "1M"])
PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/tokenize", "/apply-template", "/v1/messages/count_tokens"]


def leave(rng, s):
    if rng.random() < 0.5:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def frame(path, body, extra=b""):
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (path.encode(), extra, len(body)) + body


def some_body(rng, path):
    tokens = [rng.choice(["a", " b", "</think>", "<tool_call>", call_text("f", x="1"), {"hex": "f09f"}, {"text": "x", "delay_ms": 3, "repeat": rng.randrange(1, 60)},
                          "<|im_end|>", {"error": "boom"}]) for _ in range(rng.randrange(1, 8))]
    text = "#script " + json.dumps({"tokens": tokens})
    if rng.random() < 0.3:
        text = "word%d " % rng.randrange(50) * rng.randrange(1, 3000) + "\n" + text
    key, value = {"/v1/responses": ("input", text), "/v1/completions": ("prompt", text), "/tokenize": ("content", text)}.get(path, ("messages", [{"role": "user", "content": text}]))
    body = {key: value, "max_tokens": rng.randrange(1, 200), "stream": rng.random() < 0.7, "n": rng.choice([1, 1, 1, 2])}
    if rng.random() < 0.2:
        body[rng.choice(["temperature", "stop", "tools", "tool_choice", "seed", "messages", "thinking", "logprobs"])] = rng.choice([None, -1, "x", [], {}, [None], 1e300, True])
    data = json.dumps(body).encode()
    if rng.random() < 0.15:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    return data


def bad_client(rng):
    s = srv.connect()
    s.settimeout(0.3 * SLOW)
    path = rng.choice(PATHS)
    data = frame(path, some_body(rng, path), rng.choice([b"", b"", b"Expect: 100-continue\r\n", b"Transfer-Encoding: chunked\r\n", b"X: " + b"y" * rng.randrange(40000) + b"\r\n"]))
    if rng.random() < 0.2:
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(300)))
    data *= rng.choice([1, 1, 1, 3, 20])
    try:
        if rng.random() < 0.3:
            data = data[:rng.randrange(len(data) + 1)]
        size = rng.choice([1 << 20, 1 << 20, 100, 7]) if len(data) < 3000 else 1 << 20
        for i in range(0, len(data), size):
            s.sendall(data[i:i + size])
        if rng.random() < 0.3:
            s.shutdown(socket.SHUT_WR)
        for _ in range(rng.randrange(6)):
            if not s.recv(rng.choice([1, 100, 65536])):
                break
            time.sleep(rng.random() * 0.02)
    except OSError:
        pass
    leave(rng, s)


def good_client(rng):
    word = "w%d" % rng.randrange(10 ** 6)
    body = chat_body([word, {"text": word, "delay_ms": 1, "repeat": 9}], thinking=False, stream=rng.random() < 0.5)
    status, _, data = srv.request("POST", "/v1/chat/completions", body)
    if status == 429:
        return False
    assert status == 200, (status, data)
    text = join_chat(parse_events(data))["content"] if body["stream"] else json.loads(data)["choices"][0]["message"]["content"]
    assert text == word * 10, (word, text)
    return True


def test_chaos():
    end, served, wrong = time.monotonic() + SECONDS, [0], []

    def work(k):
        rng = random.Random(SEED + k)
        try:
            while time.monotonic() < end:
                if k % 4:
                    bad_client(rng)
                else:
                    served[0] += good_client(rng)
        except Exception:
            wrong.append(traceback.format_exc())

    print("seed %d" % SEED)
    srv.ok("/v1/chat/completions", chat_body(["x"]))
    fds = len(os.listdir("/proc/%d/fd" % srv.process.pid))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong[0]
    assert srv.process.poll() is None, "".join(srv.log[-120:])
    srv.wait_for(lambda: srv.state()["requests"] == [], 20)
    srv.wait_for(lambda: len(os.listdir("/proc/%d/fd" % srv.process.pid)) <= fds + 1, 20)
    state = srv.state()
    assert state["active"] == state["queued"] == 0, state
    assert good_client(random.Random(1))
    print("chaos: %d good answers, %d clients gone, %d MiB resident" % (served[0], srv.metric("clients_gone_total"), state["resident"] >> 20))
    assert served[0] > SECONDS


run(globals(), srv)
