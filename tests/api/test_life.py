#!/usr/bin/env python3
"""Life and death: hang-ups, queues, keepalives, keys, browsers, draining, broken engines; on the fake engine."""
import json
import os
import signal
import struct
import tempfile

from lilyserve import *

srv = Server({}, ["--parallel", "2", "--queue", "2"])
SLOW_PROMPT = {"prefill_tokens_per_s": 2000}  # a piece of 512 tokens takes a quarter of a second


def send(server, path, body):
    """Sends a request and keeps the socket."""
    s = server.connect()
    data = json.dumps(body).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return s


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def read_until(s, word, seconds=20):
    s.settimeout(seconds)
    data = b""
    while word not in data:
        part = s.recv(65536)
        assert part, data
        data += part
    return data


def read_all(s, seconds=30):
    s.settimeout(seconds)
    data = b""
    while True:
        part = s.recv(65536)
        if not part:
            return data
        data += part


def long_chat(tokens=("x",), words=3000, word="word ", **more):
    body = chat_body(list(tokens), thinking=False, **more)
    body["messages"].insert(0, {"role": "system", "content": word * words})
    return body


# ---- hang-ups ----

def test_F1():
    """A client that leaves while its prompt is read frees the engine within one piece."""
    before = srv.metric("jobs_cancelled_total")
    for stream in (True, False):
        for leave in (reset, socket.socket.close):
            s = send(srv, "/v1/chat/completions", long_chat(stream=stream, **SLOW_PROMPT))
            srv.wait_for(lambda: srv.state()["active"] == 1)
            time.sleep(0.1)
            start = time.monotonic()
            leave(s)
            srv.wait_for(lambda: srv.state()["active"] == 0)
            assert time.monotonic() - start < (0.256 + 0.05 + 0.15) * SLOW, time.monotonic() - start
    assert srv.metric("jobs_cancelled_total") == before + 4
    start = time.monotonic()
    srv.ok("/v1/chat/completions", chat_body(["hi"]))
    assert time.monotonic() - start < 1 * SLOW


def test_F3():
    for i in range(20):
        s = send(srv, "/v1/chat/completions", long_chat(stream=i % 2 == 0, words=500 + i * 50, prefill_tokens_per_s=20000))
        time.sleep(0.005 * (i % 5))
        (reset if i % 3 else socket.socket.close)(s)
    srv.wait_for(lambda: srv.state()["requests"] == [])
    assert srv.ok("/v1/chat/completions", chat_body(["right"], thinking=False))["choices"][0]["message"]["content"] == "right"


def test_G7():
    """A client of no stream that closes while tokens come."""
    s = send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 20, "repeat": 2000}]))
    srv.wait_for(lambda: srv.state()["active"] == 1)
    s.close()
    srv.wait_for(lambda: srv.state()["active"] == 0, 2)


def test_F17():
    for _ in range(5):
        s = send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 50, "repeat": 1000}], stream=True))
        read_until(s, b"role")
        reset(s)
    start = time.monotonic()
    srv.ok("/v1/chat/completions", chat_body(["x"]))
    assert time.monotonic() - start < 1 * SLOW


def test_half_close():
    """FIN during a stream: the reader still gets all of it. Without a stream the reply is dropped."""
    s = send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 20, "repeat": 20}], thinking=False, stream=True))
    read_until(s, b"role")
    s.shutdown(socket.SHUT_WR)
    data = read_all(s)
    assert data.count(b'"content":"x"') == 20 and b"[DONE]" in data
    s = send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 20, "repeat": 500}], thinking=False))
    srv.wait_for(lambda: srv.state()["active"] == 1)
    s.shutdown(socket.SHUT_WR)
    assert read_all(s) == b""
    srv.wait_for(lambda: srv.state()["active"] == 0, 2)


def test_half_close_at_once():
    s = send(srv, "/v1/chat/completions", chat_body(["a", "b"], thinking=False, stream=True))
    s.shutdown(socket.SHUT_WR)
    assert b"[DONE]" in read_all(s)


# ---- many at once ----

def test_B5():
    answers = {}

    def ask(i):
        while True:
            status, value = srv.post("/v1/chat/completions", chat_body([{"text": "w%d " % i, "delay_ms": 1, "repeat": 50}], thinking=False))
            if status != 429:
                break
            time.sleep(0.05)
        answers[i] = value["choices"][0]["message"]["content"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(16):
        assert answers[i].split() == ["w%d" % i] * 50


def test_long_prompt_does_not_stop_others():
    s = send(srv, "/v1/chat/completions", chat_body([{"text": "t", "delay_ms": 5, "repeat": 200}], thinking=False, stream=True))
    read_until(s, b"role")
    other = send(srv, "/v1/chat/completions", long_chat(words=8000, prefill_tokens_per_s=5000))  # pieces of 100 ms, more than 1.5 s in all
    s.settimeout(20)
    last, worst, data = time.monotonic(), 0, b""
    while b"[DONE]" not in data:
        data += s.recv(65536)
        worst = max(worst, time.monotonic() - last)
        last = time.monotonic()
    assert worst < 0.8 * SLOW, worst
    s.close()
    assert b"200 OK" in read_until(other, b"}")


def test_equal_prompts_share_a_prefill():
    s = Server({})
    results = []

    def ask():
        body = long_chat(words=3000, prefill_tokens_per_s=20000)
        results.append(s.ok("/v1/chat/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert min(results) == 0 and max(results) > 2900, results
    assert s.stop() == 0


def test_a_bad_script_is_forgotten():
    """The job of a script that cannot be read is gone; the next prompts are compared with what is there."""
    held = send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 20, "repeat": 1000}], stream=True))  # the first slot
    read_until(held, b"role")
    body = long_chat(words=300, word="gone ")
    body["messages"][-1]["content"] = "#script {bad"
    assert error_of(srv, "/v1/chat/completions", body, 500)
    reset(held)
    srv.wait_for(lambda: srv.state()["requests"] == [])
    srv.ok("/v1/chat/completions", long_chat(words=300, word="gone "))


def test_choices_share_a_prefill():
    before = srv.metric("prompt_tokens_computed_total")
    reply = srv.ok("/v1/chat/completions", long_chat(words=3000, word="shared ", n=2, prefill_tokens_per_s=20000))
    computed = srv.metric("prompt_tokens_computed_total") - before
    assert computed <= reply["usage"]["prompt_tokens"] + 64, (computed, reply["usage"])


def test_short_prompt_passes_long_ones():
    """Prompts take turns: a short one waits for a piece or two, not for a long one. A long one gets on among short ones."""
    s = Server({}, ["--parallel", "4"])
    long = [send(s, "/v1/chat/completions", long_chat(words=9000 + i, word=word, prefill_tokens_per_s=4000))
            for i, word in enumerate(("one ", "two "))]  # pieces of 128 ms, more than 4 s in all
    s.wait_for(lambda: s.state()["active"] == 2)
    time.sleep(0.3)
    start = time.monotonic()
    s.ok("/v1/chat/completions", chat_body(["x"]))
    assert time.monotonic() - start < 1.2 * SLOW and s.state()["active"] == 2, time.monotonic() - start  # its tokens, too, take turns with pieces
    stop = threading.Event()

    def flood(k):
        i = 0
        while not stop.is_set():
            i += 1
            s.ok("/v1/chat/completions", long_chat(words=300, word="w%d-%d " % (k, i), prefill_tokens_per_s=100000))

    threads = [threading.Thread(target=flood, args=(k,)) for k in range(2)]
    [t.start() for t in threads]
    try:
        for x in long:
            assert b"200 OK" in read_until(x, b"}", 30 * SLOW)
    finally:
        stop.set()
        [t.join() for t in threads]
    assert s.stop() == 0


def test_queue_limit():
    held = [send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 100, "repeat": 100}], stream=True)) for _ in range(4)]
    srv.wait_for(lambda: srv.state()["active"] == 2 and srv.state()["queued"] == 2)
    status, headers, data = srv.request("POST", "/v1/chat/completions", chat_body(["x"]))
    assert status == 429 and int(headers["retry-after"]) > 0, (status, headers)
    assert json.loads(data)["error"]["type"] == "rate_limit_error"
    status, _, data = srv.request("POST", "/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
    assert status == 429 and json.loads(data)["type"] == "error"
    [reset(s) for s in held]
    srv.wait_for(lambda: srv.state()["requests"] == [])


def test_progress():
    held = [send(srv, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 700}], stream=True)) for _ in range(2)]
    srv.wait_for(lambda: srv.state()["active"] == 2)
    body = long_chat(words=3000, word="other ", lily={"progress": True}, prefill_tokens_per_s=3000)
    states = [e["lily"] for _, e in srv.events("/v1/chat/completions", body)[:-1] if "state" in e.get("lily", {})]
    assert states[0]["state"] == "queued" and states[-1]["state"] == "prefill", states
    done = [s["done"] for s in states if s["state"] == "prefill"]
    assert done == sorted(done) and states[-1]["total"] > 3000 and 2 <= len(done) <= 8, states
    [s.close() for s in held]


def test_keepalive():
    bodies = {"/v1/chat/completions": chat_body([{"text": "x", "delay_ms": 10700}], thinking=False),
              "/v1/messages": {"max_tokens": 5, "messages": [{"role": "user", "content": script([{"text": "x", "delay_ms": 10700}])}]},
              "/v1/responses": {"input": script([{"text": "x", "delay_ms": 10700}]), "reasoning": {"effort": "none"}}}
    got = {}
    three = Server({}, ["--parallel", "3"])
    threads = [threading.Thread(target=lambda p=p, b=b: got.update({p: three.events(p, b)})) for p, b in bodies.items()]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert three.stop() == 0
    empty = [e for _, e in got["/v1/chat/completions"][1:-1] if e["choices"][0]["delta"] == {"content": ""}]
    assert len(empty) == 1, got["/v1/chat/completions"]
    assert [n for n, _ in got["/v1/messages"]].count("ping") == 2
    assert [n for n, _ in got["/v1/responses"]].count("response.in_progress") == 2, got["/v1/responses"]
    join_chat(got["/v1/chat/completions"])


def test_slow_reader():
    """A client that does not read stops its own answer, and nobody else's; nothing is lost."""
    text = "0123456789abcdef" * 64
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", srv.port))
    data = json.dumps(chat_body([{"text": text, "repeat": 3000}], thinking=False, stream=True)).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    first = read_until(s, b"role")

    def stands_still():
        before = srv.metric("generated_tokens_total")
        time.sleep(0.3 * SLOW)
        return srv.metric("generated_tokens_total") == before

    srv.wait_for(stands_still, 20)  # or the engine goes on although nobody reads
    srv.ok("/v1/chat/completions", chat_body(["x"]))
    data = first + read_until(s, b"[DONE]", 60)
    assert data.count(b'"content":"0123') == 3000, data.count(b'"content":"0123')
    s.close()


# ---- errors of the engine ----

def test_F7_error():
    e = error_of(srv, "/v1/chat/completions", chat_body(["a", {"error": "boom"}]), 500)
    assert e["message"] == "boom" and e["type"] == "server_error"
    events = srv.events("/v1/chat/completions", chat_body(["a", {"error": "boom"}], thinking=False))
    assert events[-2][1]["error"]["message"] == "boom" and events[-1][1] == "[DONE]"
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": script(["a", {"error": "boom"}])}]}
    assert srv.events("/v1/messages", body)[-1] == ("error", {"type": "error", "error": {"type": "api_error", "message": "boom"}})
    last = srv.events("/v1/responses", {"input": script(["a", {"error": "boom"}])})[-1]
    assert last[0] == "response.failed" and last[1]["response"]["error"]["message"] == "boom"
    assert error_of(srv, "/v1/chat/completions", chat_body(["a"], prefill_error="bad prompt"), 500)["message"] == "bad prompt"
    srv.ok("/v1/chat/completions", chat_body(["a"]))


def crash(body, args=(), script_file=None):
    s = Server(script_file or {}, args)
    waiting = send(s, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 20, "repeat": 5000}], stream=True))
    read_until(waiting, b"role")
    status, value = s.post("/v1/chat/completions", body)
    assert status in (500, 503), (status, value)
    assert b'"error"' in read_until(waiting, b"[DONE]")
    assert s.process.wait(10) == 1, "a broken engine must end the process"
    assert any("the engine has failed" in line for line in s.log)


def test_F7_crash():
    crash(chat_body(["a", {"crash": True}]))
    crash(chat_body(["a"], prefill_crash=True))


def test_F7_crash_at_step():
    s = Server({"crash_at_step": 20})
    assert error_of(s, "/v1/chat/completions", chat_body(["a"] * 50), 500)
    assert s.process.wait(10) == 1


def test_load_error():
    s = Server({"load_error": "no weights", "load_ms": 300}, wait=False)
    status, _, data = s.get("/health")
    assert status == 503 and json.loads(data)["status"] == "loading"
    assert s.process.wait(10) == 1


def test_G9():
    s = Server({"load_ms": 700}, wait=False)
    status, _, data = s.get("/health")
    first = json.loads(data)
    assert status == 503 and first["status"] == "loading" and 0 <= first["progress"] < 1, first
    time.sleep(0.2)
    second = json.loads(s.get("/health")[2])
    assert first["progress"] < second["progress"] <= 1 and first["seconds"] <= second["seconds"], (first, second)
    status, _, data = s.request("POST", "/v1/chat/completions", chat_body(["x"]))
    assert status == 503 and json.loads(data)["error"]["code"] == "loading"
    s.wait_for(lambda: s.get("/health")[0] == 200)
    s.ok("/v1/chat/completions", chat_body(["x"]))
    assert s.stop() == 0


# ---- keys, browsers, names ----

def test_E15():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("# keys\nsecond\n\n  third  \n")
        f.flush()
        s = Server({}, ["--api-key", "first", "--api-key-file", f.name, "--cors", "https://ok.example"])
    origin = {"Origin": "https://ok.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    status, headers, data = s.request("OPTIONS", "/v1/chat/completions", headers=origin)
    assert status == 204 and headers["access-control-allow-origin"] == "https://ok.example" and data == b""
    assert "authorization" in headers["access-control-allow-headers"].lower() and "POST" in headers["access-control-allow-methods"]
    _, headers, _ = s.request("OPTIONS", "/v1/chat/completions", headers={**origin, "Origin": "https://bad.example"})
    assert "access-control-allow-origin" not in headers
    status, _, data = s.get("/v1/models")
    assert status == 401 and json.loads(data)["error"]["code"] == "invalid_api_key"
    status, _, data = s.request("POST", "/v1/messages", {})
    assert status == 401 and json.loads(data)["error"]["type"] == "authentication_error"
    for wrong in ("firs", "firstx", "", "Second"):
        assert s.get("/v1/models", {"Authorization": "Bearer " + wrong})[0] == 401
    for right in ("first", "second", "third"):
        assert s.get("/v1/models", {"Authorization": "Bearer " + right})[0] == 200
        assert s.get("/v1/models", {"x-api-key": right})[0] == 200
    assert s.get("/health")[0] == 200 and s.request("HEAD", "/")[0] == 200 and s.get("/metrics")[0] == 401
    status, headers, _ = s.get("/v1/models", {"x-api-key": "first", "Origin": "https://ok.example"})
    assert headers["access-control-allow-origin"] == "https://ok.example"
    assert s.stop() == 0


def test_host_header():
    for host, status in (("evil.example", 421), ("localhost", 200), ("127.0.0.1:99", 200), ("[::1]:80", 200), ("127.evil.example", 421)):
        assert srv.get("/v1/models", {"Host": host})[0] == status, host


def test_pages_of_other_sites():
    """What a browser sends without asking first is refused when the page is of another site."""
    open_for = Server({}, ["--cors", "https://ok.example"])
    own, body = "http://127.0.0.1:%d" % open_for.port, chat_body(["x"])
    for origin, status in (("https://evil.example", 403), ("null", 403), ("", 403), ("http://127.0.0.1:1", 403), ("http://evil.example:%d" % open_for.port, 403),
                           ("https://ok.example", 200), (own, 200), (own.replace("http", "https"), 200)):
        for path in ("/v1/chat/completions", "/v1/messages"):
            for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
                got, _, data = open_for.request("POST", path, {**body, "max_tokens": 9}, {"Origin": origin, "Content-Type": kind})
                assert got == status, (origin, path, kind, data)
                assert status == 200 or "--cors" in json.loads(data)["error"]["message"]
    assert json.loads(open_for.request("POST", "/v1/messages", body, {"Origin": "https://evil.example"})[2])["error"]["type"] == "permission_error"
    assert open_for.get("/v1/models", {"Origin": "https://evil.example"})[0] == 200, "a read that the browser does not hand on"
    assert open_for.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/x-www-form-urlencoded"})[0] == 200, "curl -d"
    assert open_for.stop() == 0
    keyed = Server({}, ["--api-key", "k"])
    assert keyed.request("POST", "/v1/chat/completions", body, {"Origin": "https://evil.example", "Authorization": "Bearer k"})[0] == 200
    assert keyed.stop() == 0


def test_insecure_bind():
    done = subprocess.run([LILY, "serve", "--host", "0.0.0.0", "--port", "0"], stderr=subprocess.PIPE)
    assert done.returncode == 2 and b"--insecure" in done.stderr


def test_log():
    with_text = Server({}, ["--log-format", "json", "--log-text"])
    with_text.ok("/v1/chat/completions", chat_body(["secret answer"], thinking=False))
    with_text.stop()
    line = json.loads([l for l in with_text.log if "chat/completions" in l][0])
    assert line["status"] == 200 and line["completion"] == 1 and "secret answer" in line["answer_text"] and "script" in line["prompt_text"]
    srv.ok("/v1/chat/completions", chat_body(["secret answer"], thinking=False))
    srv.wait_for(lambda: any("finish=stop" in l for l in srv.log))
    srv.request("GET", "/x%20status=200%0Atime=%1B[31m%C2%9B")
    srv.wait_for(lambda: any('path="/x status=200 time=^[[31m<U+009B>" status=404' in l for l in srv.log))
    assert not any("secret" in l for l in srv.log)


def test_log_of_errors():
    """What the client was told, without what it said."""
    s = Server({}, ["--log-format", "json"])
    s.post("/v1/chat/completions", chat_body(["secret"], top_p=3))
    s.post("/v1/chat/completions", chat_body(["secret " * 200000]))
    s.request("POST", "/v1/chat/completions", chat_body(["secret"], stream=True, prefill_error="bad prompt"))
    s.request("POST", "/v1/chat/completions", raw=b'{"secret')
    s.post("/v1/nowhere", {"secret": 1})
    s.request("GET", "/%C2%9B31m%7F%C3%A9")
    s.stop()
    path = [l for l in s.log if "31m" in l][0]
    assert "/\\u009b31m\\u007f\u00e9" in path and json.loads(path)["path"] == "/\x9b31m\x7f\u00e9", path
    lines = [json.loads(l) for l in s.log if l.startswith("{") and "POST" in l]
    assert [(l["status"], l.get("code"), l.get("param")) for l in lines] == [
        (400, None, "top_p"), (400, "context_length_exceeded", "messages"), (200, None, None), (400, None, None), (404, "not_found", None)], lines
    assert all(l["error"] and "finish" not in l for l in lines) and lines[2]["error"] == "bad prompt", lines
    assert not any("secret" in l for l in s.log), s.log
    error_of(srv, "/v1/chat/completions", chat_body(["x"], seed="y"))
    srv.wait_for(lambda: any(' error="seed is of kind string, expected' in l and l.endswith(" param=seed\n") for l in srv.log))


def test_log_of_a_client_that_left():
    """One line, with what was made for it until it left: its jobs know that when they have ended."""
    for stream in (True, False):
        s = Server({}, ["--log-format", "json"])
        left = send(s, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 20, "repeat": 1000}], stream=stream))
        s.wait_for(lambda: s.metric("generated_tokens_total") >= 5)
        reset(left)
        s.wait_for(lambda: s.state()["requests"] == [])
        s.stop()
        lines = [json.loads(l) for l in s.log if "chat/completions" in l]
        assert len(lines) == 1 and lines[0]["status"] == 499 and lines[0]["finish"] == "gone", lines
        assert 5 <= lines[0]["completion"] < 1000 and lines[0]["prompt"] > 0 and lines[0]["decode_ms"] > 0, lines


class Unread(Server):
    """Nobody reads its stderr once it has started."""

    def _read_log(self):
        pass


def test_stderr_that_nobody_reads():
    """A log that is not read stops no reply, nor the end; a late reader gets what fits into the pipe."""
    s = Unread({})
    for _ in range(30):
        assert s.get("/" + "x" * 8000)[0] == 404
    assert s.stop() == 0
    assert s.process.stderr.read().count(b"xxx status=404 error=") >= 4


# ---- the end ----

def test_drain():
    s = Server({}, ["--drain", "20"])
    stream = send(s, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 30, "repeat": 30}], thinking=False, stream=True))
    read_until(stream, b"role")
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    try:
        s.connect()
        raise AssertionError("a draining server takes connections")
    except ConnectionRefusedError:
        pass
    data = read_all(stream)
    assert data.count(b'"content":"x"') >= 20 and b"[DONE]" in data and b'"finish_reason":"stop"' in data
    assert s.process.wait(5) == 0
    s.wait_for(lambda: any("open replies have 20 s; Ctrl-C again" in l for l in s.log))
    idle = Server({})
    assert idle.stop(signal.SIGINT) == 0
    idle.wait_for(lambda: any("ending: no reply is open" in l for l in idle.log))
    assert not any("draining" in l for l in idle.log), idle.log


def test_drain_limit():
    s = Server({}, ["--drain", "0.5"])
    stream = send(s, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 30, "repeat": 3000}], thinking=False, stream=True))
    read_until(stream, b"role")
    start = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    data = read_all(stream)
    assert b"[DONE]" in data and b"server_shutting_down" in data
    assert s.process.wait(5) == 0 and time.monotonic() - start < 2 * SLOW


def test_drain_limit_before_the_first_token():
    """No token made is no answer: 503, or an error in the stream."""
    s = Server({}, ["--drain", "0.5", "--parallel", "1"])
    first = send(s, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 30, "repeat": 3000}], thinking=False, stream=True))
    read_until(first, b"role")
    whole = send(s, "/v1/completions", {"prompt": "one", "max_tokens": 5, "logprobs": 2})
    stream = send(s, "/v1/chat/completions", chat_body(["x"], stream=True))
    time.sleep(0.3)
    s.process.send_signal(signal.SIGTERM)
    data = read_all(whole)
    assert data.startswith(b"HTTP/1.1 503") and b'"shutting_down"' in data, data
    data = read_all(stream)
    assert b'"shutting_down"' in data and b"finish_reason\":\"" not in data, data
    assert b"server_shutting_down" in read_all(first) and s.process.wait(5) == 0
    s.wait_for(lambda: sum("shutting_down" in l for l in s.log) == 2)
    ends = {re.search(r" path=(\S+)", l)[1]: l for l in s.log if "code=shutting_down" in l}
    assert " status=503 " in ends["/v1/completions"] and " status=200 " in ends["/v1/chat/completions"], s.log
    assert not any("finish=" in l for l in ends.values()), s.log


def in_long_pass(drain):
    """A server whose engine is in a pass of 4 s, and three requests: a stream and an answer that have begun, and the prompt of that pass."""
    s = Server({}, ["--drain", drain, "--parallel", "3"])
    slow_tokens = [{"text": "x", "delay_ms": 30, "repeat": 3000}]
    whole = send(s, "/v1/chat/completions", chat_body(slow_tokens, thinking=False))
    s.wait_for(lambda: s.metric("generated_tokens_total") > 0)
    stream = send(s, "/v1/chat/completions", chat_body(slow_tokens, thinking=False, stream=True))
    read_until(stream, b'"content":"x"')
    prompt = send(s, "/v1/chat/completions", long_chat(word="fox ", prefill_tokens_per_s=128))
    s.wait_for(lambda: any(r["state"] == "prefill" for r in s.state()["requests"]))
    time.sleep(0.2)
    s.process.send_signal(signal.SIGTERM)
    return s, stream, whole, prompt


def test_drain_limit_in_a_long_pass():
    """The engine ends jobs behind the pass it is in, which may end long after the limit: whoever waits gets a reply all the same."""
    s, stream, whole, prompt = in_long_pass("0.2")
    data = read_all(stream)
    assert b"[DONE]" in data and b"server_shutting_down" in data, data
    data = read_all(whole)
    assert data.startswith(b"HTTP/1.1 200") and b'"finish_reason":"length"' in data, data
    data = read_all(prompt)
    assert data.startswith(b"HTTP/1.1 503") and b'"shutting_down"' in data, data
    assert s.process.wait(5) == 0


def test_second_signal_in_a_long_pass():
    s = in_long_pass("0.2")[0]
    time.sleep(0.5)  # beyond the limit
    start = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(5) == 130 and time.monotonic() - start < 1 * SLOW


def test_second_signal():
    s = Server({}, ["--drain", "60"])
    stream = send(s, "/v1/chat/completions", chat_body([{"text": "x", "delay_ms": 30, "repeat": 3000}], stream=True))
    read_until(stream, b"role")
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    start = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(5) == 130 and time.monotonic() - start < 2 * SLOW


def test_signals_while_loading():
    """A load is stopped, not waited for."""
    for n in (1, 2):
        s = Server({"load_ms": 60000}, wait=False)
        start = time.monotonic()
        for _ in range(n):
            s.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        code = s.process.wait(20)
        assert time.monotonic() - start < 5 * SLOW and (code == 0 if n == 1 else code in (0, 130, -signal.SIGTERM)), code


def test_script_errors():
    for text in ("{", "[]", '{"replies": 3}', '{"replies": [{"tokens": [5]}]}', '{"replies": [{"tokens": [{"hex": "zz"}]}]}'):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write(text)
            f.flush()
            done = subprocess.run([LILY, "serve", "-m", "models/demo", "--port", "0", "--fake-engine", f.name], stderr=subprocess.PIPE)
        assert done.returncode == 1 and os.path.basename(f.name).encode() in done.stderr, (text, done)


run(globals(), srv)
