"""What the API tests share: a server with a fake engine, requests, streams and their invariants, and the count at the end.

A test is a function whose name begins with test_; the part behind it is the id of a case (docs/cases.md) where there is one.
"""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

LILY = os.environ.get("LILY", "./lily")
DEVICE = os.environ.get("LILY_TEST_DEVICE")
SAN = bool(os.environ.get("SAN"))
SLOW = 10 if SAN else 1  # sanitized builds get more time
TAGS = re.compile(r"</?think>|</?tool_call>|<\|im_(start|end)\|>|</?function|</?parameter")


class Server:
    """lily serve on a free port. script: the fake engine's (None: the demo model)."""

    timeout = 60  # seconds that a client waits for a reply

    def __init__(self, script=None, args=(), wait=True, model="models/demo", wrap=()):
        self.log = []
        argv = [*wrap, LILY, "serve", "-m", model, "--port", "0", *(["--device", DEVICE] if DEVICE else []), *args]
        self.file = None
        if script is not None:
            self.file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
            json.dump({"prompt_scripts": True, **script}, self.file)
            self.file.close()
            argv += ["--fake-engine", self.file.name]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        atexit.register(self.process.kill)  # nothing stays behind a test that fails or is chosen alone
        self.port = None
        for line in self.process.stderr:
            self.log.append(line.decode(errors="replace"))
            found = re.search(r"http://\S+:(\d+)$", self.log[-1].rstrip())
            if found:
                self.port = int(found.group(1))
                break
        if self.port is None:
            raise RuntimeError("the server did not start: " + "".join(self.log))
        threading.Thread(target=self._read_log, daemon=True).start()
        if wait:
            self.wait_for(lambda: self.get("/health")[0] == 200, 60)

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.decode(errors="replace"))

    def wait_for(self, condition, seconds=10):
        end = time.monotonic() + seconds * SLOW
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("waited %d s in vain" % seconds)
            time.sleep(0.01)

    def request(self, method, path, body=None, headers=None, raw=None):
        """(status, headers, bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        c.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        out = (r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
        c.close()
        return out

    def get(self, path, headers=None):
        return self.request("GET", path, None, headers)

    def post(self, path, body, headers=None):
        """(status, JSON)"""
        status, _, data = self.request("POST", path, body, headers)
        return status, json.loads(data)

    def ok(self, path, body, headers=None):
        status, value = self.post(path, body, headers)
        assert status == 200, (status, value)
        return value

    def events(self, path, body, headers=None):
        """[(event name or None, data)] of a stream; data is JSON or the string [DONE]"""
        status, got, data = self.request("POST", path, {**body, "stream": True}, headers)
        assert status == 200, (status, data)
        assert got["content-type"].startswith("text/event-stream"), got
        return parse_events(data)

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return s

    def metric(self, name):
        for line in self.get("/metrics")[2].decode().splitlines():
            if line.startswith("lily_" + name + " "):
                return float(line.split()[1])
        raise AssertionError("no metric " + name)

    def state(self):
        return json.loads(self.get("/state")[2])

    def stop(self, sig=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            if self.file:
                os.unlink(self.file.name)
                self.file = None
        return code


def parse_events(data):
    out = []
    text = data.decode("utf-8")  # raises where it is no UTF-8
    assert text.endswith("\n\n"), text[-80:]
    for block in text[:-2].split("\n\n"):
        lines = block.split("\n")
        name = None
        if lines[0].startswith("event: "):
            name = lines.pop(0)[7:]
        assert len(lines) == 1 and lines[0].startswith("data: "), block
        payload = lines[0][6:]
        out.append((name, payload if payload == "[DONE]" else json.loads(payload)))
    return out


def script(tokens, **more):
    """The text of a user message that makes the fake engine play these tokens."""
    return "#script " + json.dumps({"tokens": tokens, **more})


def chat_body(tokens, thinking=True, **more):
    reply = {k: more.pop(k) for k in list(more) if k in ("delay_ms", "prefill_tokens_per_s", "prefill_error", "prefill_crash")}
    return {"messages": [{"role": "user", "content": script(tokens, **reply)}], "enable_thinking": thinking, **more}


def no_tags(message):
    texts = [message.get("content") or "", message.get("reasoning_content") or ""]
    for t in texts:
        assert not TAGS.search(t), message


def join_chat(events, include_usage=False, n=1):
    """The messages that a chat stream says, after checking what holds of every stream."""
    assert events[-1][1] == "[DONE]", events[-1]
    chunks = [e[1] for e in events[:-1]]
    assert all(e[0] is None for e in events)
    usage = None
    if include_usage:
        last = chunks.pop()
        assert last["choices"] == [] and last["object"] == "chat.completion.chunk", last
        usage = last["usage"]
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    out = [{"role": None, "content": "", "reasoning_content": "", "tool_calls": [], "finish_reason": None, "logprobs": []} for _ in range(n)]
    for c in chunks:
        assert "usage" not in c, c
        assert len(c["choices"]) == 1
        choice = c["choices"][0]
        m, delta = out[choice["index"]], choice["delta"]
        assert m["finish_reason"] is None, "something after the finish_reason"
        if m["role"] is None:
            assert delta["role"] == "assistant", "the first delta has no role"
            m["role"] = "assistant"
        else:
            assert "role" not in delta
        m["content"] += delta.get("content") or ""
        m["reasoning_content"] += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", []):
            if call["index"] == len(m["tool_calls"]):
                assert call["id"] and call["type"] == "function" and call["function"]["name"]
                m["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
            assert call["index"] == len(m["tool_calls"]) - 1
            m["tool_calls"][-1]["arguments"] += call["function"].get("arguments", "")
        if choice.get("logprobs"):
            m["logprobs"] += choice["logprobs"]["content"]
        if choice["finish_reason"]:
            m["finish_reason"] = choice["finish_reason"]
            m["lily"] = c.get("lily")
    for m in out:
        assert m["finish_reason"] is not None, "no finish_reason"
        m["usage"] = usage
    return out if n > 1 else out[0]


def whole_chat(reply, i=0):
    choice = reply["choices"][i]
    m = choice["message"]
    assert reply["object"] == "chat.completion" and m["role"] == "assistant"
    calls = [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in m.get("tool_calls", [])]
    return {"content": m["content"] or "", "reasoning_content": m.get("reasoning_content", ""), "tool_calls": calls,
            "finish_reason": choice["finish_reason"], "usage": reply["usage"], "lily": reply.get("lily"),
            "logprobs": (choice["logprobs"] or {}).get("content") or []}


def same(a, b):
    for key in ("content", "reasoning_content", "tool_calls", "finish_reason"):
        assert a[key] == b[key], (key, a[key], b[key])


def both(server, tokens, tags=False, **body):
    """The answer to one script, the same streamed and not."""
    request = chat_body(tokens, **body)
    whole = whole_chat(server.ok("/v1/chat/completions", request))
    streamed = join_chat(server.events("/v1/chat/completions", request))
    same(whole, streamed)
    if not tags:
        no_tags(whole)
    for call in whole["tool_calls"]:
        json.loads(call["arguments"])
    return whole


def cuts(text, specials=("<|im_end|>",)):
    """The same text as token lists: whole, byte by byte, in threes, and in two at some places. Special tokens stay whole."""
    pieces = [p for p in re.split("(" + "|".join(re.escape(s) for s in specials) + ")", text) if p]

    def split(size):
        out = []
        for p in pieces:
            data = p.encode()
            if p in specials:
                out.append(p)
            else:
                out += [{"hex": data[i:i + size].hex()} for i in range(0, len(data), size)]
        return out

    yield pieces
    yield split(1)
    yield split(3)
    yield split(7)
    if len(pieces) == 1:
        data = text.encode()
        for at in range(1, len(data), max(1, len(data) // 24)):
            yield [{"hex": data[:at].hex()}, {"hex": data[at:].hex()}]


def at_every_cut(server, text, tags=False, **body):
    """The answer, equal at every cut, streamed and not."""
    first = None
    for tokens in cuts(text):
        got = both(server, tokens, tags, **body)
        if first is None:
            first = got
        same(first, got)
    return first


def error_of(server, path, body, status=400, headers=None):
    """The error object of a refused request."""
    got, value = server.post(path, body, headers)
    assert got == status, (got, value)
    e = value["error"]
    assert e["message"], value
    return e


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "description": name, "parameters": {
        "type": "object", "properties": {k: {"type": v} for k, v in properties.items()}}}}


def call_text(name, **values):
    """A call in the family's form."""
    body = "".join("<parameter=%s>\n%s\n</parameter>\n" % kv for kv in values.items())
    return "<tool_call>\n<function=%s>\n%s</function>\n</tool_call>" % (name, body)


def run(namespace, *shared):
    """Runs every test of a module; prints the closing line; exits. shared: servers to stop at the end."""
    only = sys.argv[1:]
    passed = failed = 0
    for name, test in list(namespace.items()):
        if not name.startswith("test_") or (only and not any(o in name for o in only)):
            continue
        try:
            test()
            passed += 1
        except Exception:
            failed += 1
            print("FAIL " + name)
            traceback.print_exc(file=sys.stdout)
    for server in shared:
        code = server.stop()
        if code != 0:
            failed += 1
            print("FAIL a server ended with status %s\n%s" % (code, "".join(server.log[-30:])))
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(1 if failed else 0)
