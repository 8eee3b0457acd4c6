#!/usr/bin/env python3
"""HTTP on raw sockets: split and joined requests, framing, limits, smuggling, bad bytes, many connections."""
import json
import select

from lilyserve import *

srv = Server({}, ["--max-body", "1M"])


def talk(data, shut=True, pause=0, size=None):
    """Sends bytes (in pieces of `size`), returns all that comes back."""
    s = srv.connect()
    s.settimeout(15)
    try:
        for i in range(0, len(data), size or len(data) or 1):
            s.sendall(data[i:i + (size or len(data))])
            if pause:
                time.sleep(pause)
    except (BrokenPipeError, ConnectionResetError):
        pass
    if shut:
        s.shutdown(socket.SHUT_WR)
    out = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                break
            out += part
    except ConnectionResetError:
        pass
    s.close()
    return out


def post(body, path=b"/tokenize", extra=b"", length=None):
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (path, extra, len(body) if length is None else length)
    return head + body


def statuses(reply):
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d+)", reply)]


TOKENIZE = b'{"content": "hello"}'
CLOSE = b"Connection: close\r\n"


def test_split_at_every_byte():
    request = post(TOKENIZE, extra=CLOSE)
    assert statuses(talk(request, size=1, pause=0.0005, shut=False)) == [200]
    for at in range(1, len(request), 7):
        s = srv.connect()
        s.sendall(request[:at])
        time.sleep(0.001)
        s.sendall(request[at:])
        assert b"200 OK" in s.recv(65536)
        s.close()


def test_pipelining():
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert statuses(talk(get * 5)) == [200] * 5
    mixed = post(TOKENIZE) + get + post(json.dumps(chat_body(["x"])).encode(), b"/v1/chat/completions") + get
    assert statuses(talk(mixed + get[:-2] + b"Connection: close\r\n\r\n", shut=False)) == [200] * 5


def test_keep_alive():
    c = http.client.HTTPConnection("127.0.0.1", srv.port)
    for i in range(20):
        c.request("POST", "/v1/chat/completions", json.dumps(chat_body(["x"], stream=i % 2 == 0)))
        r = c.getresponse()
        assert r.status == 200
        r.read()
    c.close()
    assert b"Connection: close" in talk(b"GET /health HTTP/1.0\r\n\r\n", shut=False)


def test_http_10_stream():
    body = json.dumps(chat_body(["a", "b"], thinking=False, stream=True)).encode()
    reply = talk(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body, shut=False)
    head, data = reply.split(b"\r\n\r\n", 1)
    assert b"chunked" not in head
    assert join_chat(parse_events(data))["content"] == "ab"


def test_G3():
    """A chunked body, cut anywhere."""
    chunks = b"5\r\n" + TOKENIZE[:5] + b"\r\n" + b"%x;ext=1\r\n" % (len(TOKENIZE) - 5) + TOKENIZE[5:] + b"\r\n0\r\nTrailer: x\r\n\r\n"
    request = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" + CLOSE + b"\r\n" + chunks
    for size in (None, 1, 2, 5):
        reply = talk(request, size=size, pause=0.0002 if size else 0, shut=False)
        assert statuses(reply) == [200] and b'"tokens"' in reply, (size, reply)


def test_bad_chunks():
    for bad in (b"zz\r\n", b"-5\r\nhello\r\n", b"+5\r\nhello\r\n", b"5 \r\nhello\r\n0\r\n\r\n", b"5\nhello\r\n", b"5\r\nhelloX\r\n", b"5\r\nhello\n0\r\n\r\n",
                b"0x5\r\nhello\r\n", b"ffffffffffffffffff\r\n", b"\r\n", b"5;" + b"x" * 5000 + b"\r\n"):
        reply = talk(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + bad)
        assert statuses(reply)[0] in (400, 413) and len(statuses(reply)) == 1, (bad, reply)


def test_smuggling():
    hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    both = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(hidden)) + hidden
    tricks = [both,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0, 5\r\n\r\n" + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n" + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length : 0\r\n\r\n" + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n Content-Length: 0\r\n\r\n" + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n" + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n" + hidden,
              b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
              b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n" + hidden,
              b"GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n" + hidden,
              b"GET /health HTTP/1.1\r\nHost: local\x00host\r\n\r\n" + hidden,
              b"GET /health HTTP/1.1\r\n\r\n" + hidden,
              b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n" + hidden]
    for t in tricks:
        reply = talk(t)
        assert len(statuses(reply)) == 1 and statuses(reply)[0] in (400, 501), (t, reply)
        assert json.loads(reply.split(b"\r\n\r\n", 1)[1])["error"]["message"]


def test_bad_request_lines():
    for line in (b"GET /health", b"GET  /health HTTP/1.1", b"GET health HTTP/1.1", b"GET /health HTTP/2.0", b"GET /health HTTP/1.1 x", b"G(T /health HTTP/1.1",
                 b"GET /%zz HTTP/1.1", b"GET /%00 HTTP/1.1", b"GET /a\x7fb HTTP/1.1", b"\x16\x03\x01\x02", b" GET /health HTTP/1.1"):
        reply = talk(line + b"\r\nHost: localhost\r\n\r\n")
        assert statuses(reply) and statuses(reply)[0] in (400, 505), (line, reply)
    assert statuses(talk(b"\r\n\r\nGET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n")) == [200]
    assert statuses(talk(b"GET /%68ealth HTTP/1.1\r\nHost: localhost\r\n\r\n")) == [200]


def test_head_limits():
    long = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 40000 + b"\r\n\r\n"
    assert statuses(talk(long)) == [431]
    many = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n"
    assert statuses(talk(many)) == [431]


def test_body_limit():
    for path, dialect in ((b"/v1/chat/completions", "openai"), (b"/v1/messages", "anthropic")):
        extra = b"anthropic-version: 1\r\n" if dialect == "anthropic" else b""
        reply = talk(post(b"x" * (3 << 20), path, extra), shut=False)
        assert statuses(reply) == [413], reply[:200]
        value = json.loads(reply.split(b"\r\n\r\n", 1)[1])
        assert ("type" in value) == (dialect == "anthropic") and "too long" in value["error"]["message"]
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20
    assert statuses(talk(chunked, shut=False)) == [413]
    reply = talk(post(b"", length=10 ** 17), shut=False)
    assert statuses(reply) == [413]
    text = "a" * ((1 << 20) - 40)
    assert srv.ok("/tokenize", {"content": text})["count"] > 0


def test_64_megabytes():
    big = Server({})
    body = json.dumps({"content": "word " * (13 << 20)}).encode()
    assert (60 << 20) < len(body) < (64 << 20) + (4 << 20)
    status, _, data = big.request("POST", "/tokenize", raw=body[:64 << 20])
    assert status == 400  # cut JSON
    replies, done = [], threading.Event()

    def ask():
        try:
            replies.append(big.request("POST", "/tokenize", raw=b'{"content": "' + b"word " * ((4 << 20) // SLOW) + b'"}')[0])
        finally:
            done.set()

    big.get("/health")
    threading.Thread(target=ask, daemon=True).start()
    worst, began = 0, time.monotonic()
    while not done.is_set():  # the loop answers while P works
        start = time.monotonic()
        assert big.get("/health")[0] == 200
        worst = max(worst, time.monotonic() - start)
        time.sleep(0.01)
    assert replies == [200]
    assert worst < max(0.5 * SLOW, (time.monotonic() - began) / 3), worst  # a slow machine is slow with both
    assert big.stop() == 0


def test_bodies_have_a_limit_together():
    """Many long bodies at once do not fill the memory: what is beyond four times --max-body is refused, and works again later."""
    big = Server({}, ["--max-body", "1M"])
    held, body = [], b'{"content": "' + b"x" * ((1 << 20) - 100) + b'"}'
    for i in range(4):
        s = big.connect()
        s.sendall(post(body)[:-1])
        held.append(s)
    time.sleep(0.2 * SLOW)
    status, headers, data = big.request("POST", "/tokenize", raw=body)
    assert status == 503 and int(headers["retry-after"]) > 0 and json.loads(data)["error"]["message"], (status, data)
    held[0].sendall(body[-1:])
    assert b"200 OK" in held[0].recv(1000)
    [s.close() for s in held]
    big.wait_for(lambda: big.metric("connections") <= 1)
    assert big.request("POST", "/tokenize", raw=body)[0] == 200
    assert big.stop() == 0


def test_pipelining_without_reading():
    """Who sends requests and reads no replies is not answered without end."""
    s = srv.connect()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(0.5)
    before = srv.state()["resident"]
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sent = 0
    try:
        while sent < 40 << 20:
            sent += s.send(request * 1000)
    except TimeoutError:
        pass
    assert sent < 20 << 20 and (SAN or srv.state()["resident"] - before < 8 << 20), (sent, srv.state()["resident"] - before)
    s.settimeout(20 * SLOW)  # and when it reads after all, the replies go on
    got = b""
    while got.count(b"200 OK") < 300:
        got += s.recv(1 << 20)
    s.close()


def test_pipelining_ends_with_a_fin():
    """Who has sent all requests may close that side, read late, and gets every reply."""
    s = srv.connect()
    s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4000)
    s.shutdown(socket.SHUT_WR)
    time.sleep(0.3 * SLOW)
    got = b""
    while part := s.recv(1 << 20):
        got += part
    assert got.count(b"HTTP/1.1 200 OK") == 4000, got.count(b"HTTP/1.1 200 OK")
    s.close()


def test_quick_reader_of_a_quick_answer():
    """An answer that lies ready before its client is written to goes out to its end, though nothing more happens in the server."""
    for _ in range(30):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # nothing ever waits in the server
        s.settimeout(srv.timeout)
        s.connect(("127.0.0.1", srv.port))
        s.sendall(post(json.dumps(chat_body([{"text": "word", "repeat": 2600}], thinking=False, stream=True)).encode(), b"/v1/chat/completions"))
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            part = s.recv(1 << 20)
            assert part
            got += part
        assert got.count(b'"content":"word"') == 2600
        s.close()


def test_expect():
    s = srv.connect()
    s.sendall(post(b"", extra=b"Expect: 100-continue\r\n" + CLOSE, length=len(TOKENIZE)))
    assert s.recv(100).startswith(b"HTTP/1.1 100 ")
    s.sendall(TOKENIZE)
    assert b"200 OK" in s.recv(65536)
    s.close()
    assert statuses(talk(post(b"", extra=b"Expect: more\r\n", length=5))) == [417]


def test_early_refusal():
    """Who may not come in is told before the body is sent."""
    s = srv.connect()
    s.sendall(post(b"", path=b"/nowhere", length=1 << 19))
    assert b" 404 " in s.recv(65536)
    s.close()


def test_bad_utf8():
    for raw in (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', b'{"messages": [{"role": "user", "content": "\xc0\x80"}]}'):
        assert statuses(talk(post(raw, b"/v1/chat/completions"))) == [400]


def test_2000_idle_connections():
    idle = [srv.connect() for _ in range(2000)]
    srv.wait_for(lambda: srv.metric("connections") >= 2001)
    start = time.monotonic()
    srv.ok("/v1/chat/completions", chat_body(["x"]))
    assert time.monotonic() - start < 2 * SLOW
    idle[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in idle[0].recv(1000)
    [s.close() for s in idle]
    srv.wait_for(lambda: srv.metric("connections") <= 2)


def test_idle_connections_give_way():
    """With few descriptors an idle connection is closed for a new one, so nobody can keep others out by sitting there."""
    for descriptors in (200, 40):  # 40: they end before the server's own limit is reached
        idle_connections_give_way(descriptors)


def idle_connections_give_way(descriptors):
    few = Server({}, wrap=["sh", "-c", 'ulimit -n %d; exec "$@"' % descriptors, "sh"])
    working = few.connect()
    body = json.dumps(chat_body([{"text": "x", "delay_ms": 20, "repeat": 100}], stream=True)).encode()
    working.sendall(post(body, b"/v1/chat/completions"))
    data = working.recv(65536)  # from here on it is no idle one
    idle = [few.connect() for _ in range(300)]
    few.ok("/v1/chat/completions", chat_body(["x"]))
    assert few.metric("connections") < descriptors
    while b"[DONE]" not in data:
        part = working.recv(65536)
        assert part, data
        data += part
    [s.close() for s in idle]
    assert few.stop() == 0


def test_short_requests_beside_a_long_text():
    """While seconds go into the tokens of one text, short requests are answered."""
    both = Server({})
    s = both.connect()
    begin = time.monotonic()
    s.sendall(post(json.dumps({"content": "a" * (4 << 20)}).encode()))
    slowest = 0
    while not select.select([s], [], [], 0)[0]:
        start = time.monotonic()
        both.ok("/v1/chat/completions", chat_body(["x"]))
        slowest = max(slowest, time.monotonic() - start)
    took = time.monotonic() - begin
    s.close()
    assert both.stop() == 0
    assert slowest < took / 3, (slowest, took)


def test_no_memory_for_a_prompt():
    """That request is refused, wherever its memory ends (the server itself takes 150 MB), and the others go on."""
    if SAN:
        return  # needs more addresses than any limit could leave
    text = "a" * 50_000_000
    chat = {"messages": [{"role": "system", "content": "words"}, {"role": "user", "content": text}], "max_tokens": 1}
    blocks = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": text}]},
                           {"role": "user", "content": "a"}], "max_tokens": 1}
    items = {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": text}]}, {"role": "user", "content": "a"}]}
    for kilobytes in (220_000, 320_000, 1_500_000):
        few = Server({}, args=["--threads", "1"], wrap=["sh", "-c", 'ulimit -v %d; exec "$@"' % kilobytes, "sh"])
        for path, body in (("chat/completions", chat), ("messages", blocks), ("responses", items), ("completions", {"prompt": text}),
                           ("tokenize", {"content": text})):
            got, value = few.post("/v1/" + path, body)
            assert got == 503 and "memory" in value["error"]["message"], (kilobytes, path, got, value)
            few.ok("/v1/chat/completions", chat_body(["x"]))
        assert few.stop() == 0


def test_cut_requests():
    for data in (b"", b"GET", b"GET / HTTP/1.1\r\n", post(TOKENIZE)[:-3], b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"):
        assert talk(data) == b""
        # The same behind a whole request, while whose reply the client closes its side.
        whole = post(json.dumps(chat_body(["x", {"text": "y", "delay_ms": 50}], stream=True)).encode(), b"/v1/chat/completions")
        assert statuses(talk(whole + data)) == [200], data
    srv.wait_for(lambda: srv.metric("connections") <= 1)


def test_head_and_options():
    reply = talk(b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert statuses(reply) == [200] and reply.endswith(b"\r\n\r\n")
    assert statuses(talk(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")) == [204]


run(globals(), srv)
