#!/usr/bin/env python3
"""Measures lily serve and writes what it found to build/bench-serve.json and, as a table, to stdout. Nothing is asserted.

usage: serve.py [SECONDS [PART...]]; the 64 streams last 60 s unless told otherwise. BUILD and LILY name what was built.
The measuring client is tests/bench/serve_load.c: a script would take the processor's time away from the server.
"""
import json
import os
import statistics
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from lilyserve import *

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
BUILD = os.environ.get("BUILD", "build/gcc-release")


def load(server, *args):
    done = subprocess.run([BUILD + "/tests/bench/serve_load", str(server.port), *map(str, args)], stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def cpu_seconds(server):
    with open("/proc/%d/stat" % server.process.pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def streams():
    server = Server({}, ["--parallel", "64"])
    before = cpu_seconds(server)
    out = load(server, "streams", 64, 50, SECONDS)
    out["server_cpu_share"] = (cpu_seconds(server) - before) / out["seconds"]
    server.stop()
    return out


def first_byte():
    server = Server({})
    out = load(server, "first", 2000)
    server.stop()
    return out


def ends_of_turn():
    with open("models/demo/generation_config.json") as f:
        return json.load(f)["eos_token_id"]


def overhead(threads, rounds=9):
    """
    Time of a token of the demo model through the server against lily run, alternating; medians of the rounds. Each round starts
    both anew: where a process's memory happens to lie makes up to a tenth.
    """
    question, n = "Tell me a story about a lantern and a fox.", 600
    bias = {str(end): -100 for end in ends_of_turn()}  # n tokens from both
    body = {"stream": True, "temperature": 0, "enable_thinking": False, "max_tokens": n, "logit_bias": bias, "messages": [{"role": "user", "content": question}]}
    command = [LILY, "run", "-m", "models/demo", "--json", "--no-think", "--threads", str(threads), "--ctx", "4096", "-t", "0", "-n", str(n)]
    for end in bias:
        command += ["--logit-bias", "%s=-100" % end]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({**body, "lily": {"progress": False}}, f)
        f.flush()
        served, run, inside, beside = [], [], [], []
        for _ in range(rounds):
            server = Server(None, ["--threads", str(threads), "--ctx", "4096"])
            forward = server.metric("decode_seconds_total")
            served.append(load(server, "tokens", f.name)["ms"] / (n - 1))
            forward = server.metric("decode_seconds_total") - forward
            beside.append(100 * (served[-1] * (n - 1) / (1e3 * forward) - 1))
            whole = server.ok("/v1/chat/completions", {**body, "stream": False})
            server.stop()
            done = json.loads(subprocess.run([*command, question], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
            if not n == whole["usage"]["completion_tokens"] == done["usage"]["completion_tokens"]:
                raise RuntimeError("an answer does not have %d tokens" % n)
            inside.append(whole["lily"]["timings"]["decode_ms"] / n)
            run.append(done["timings"]["decode_ms"] / n)
    a, b, c = statistics.median(served), statistics.median(run), statistics.median(inside)
    return {"threads": threads, "served_ms": a, "not_streamed_ms": c, "run_ms": b, "percent": 100 * (a / b - 1),
            "fastest_percent": 100 * (min(served) / min(run) - 1), "beside_forward_percent": statistics.median(beside)}


def send(server, body):
    s = server.connect()
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return s


def cancel(leave_with_reset, rounds=40):
    """From the client's leaving to the engine's being free, in a prompt that is read in pieces of 25 ms in silence."""
    server = Server({"prefill_tokens_per_s": 20480})
    took = []
    for i in range(rounds):
        s = send(server, {"stream": True, "messages": [{"role": "user", "content": "word%d " % i * 5000 + script(["x"])}]})
        server.wait_for(lambda: server.state()["active"] == 1)
        time.sleep(0.05 + 0.0007 * i)
        start = time.monotonic()
        if leave_with_reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        while server.state()["active"]:
            time.sleep(0.0005)
        took.append(1e3 * (time.monotonic() - start))
    server.stop()
    return {"piece_ms": 25, "p50": statistics.median(took), "max": max(took)}


def ending():
    """SIGTERM with an open stream: to the end of the process beyond the end of the stream, at the limit, and at a second signal."""
    out = {}
    for name, drain, repeat in (("stream_ends", 30, 20), ("limit_of_1_s", 1, 100000)):
        server = Server({}, ["--drain", str(drain)])
        s = send(server, chat_body([{"text": "x", "delay_ms": 30, "repeat": repeat}], thinking=False, stream=True))
        s.recv(100)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        data = b""
        while part := s.recv(65536):
            data += part
        ended = time.monotonic()
        code = server.process.wait(60)
        out[name] = {"done": b"[DONE]" in data, "exit": code, "stream_ms": 1e3 * (ended - start), "exit_ms": 1e3 * (time.monotonic() - start)}
    server = Server({})
    s = send(server, chat_body([{"text": "x", "delay_ms": 30, "repeat": 100000}], stream=True))
    s.recv(100)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    out["second_signal"] = {"exit": server.process.wait(60), "exit_ms": 1e3 * (time.monotonic() - start)}
    return out


def spread(v, *names):
    return ", ".join("%s %.2f" % (n.replace("p999", "p99.9"), v[n]) for n in names) + " ms"


def rows_streams(s):
    yield "%d streams of %d tokens, %d wrong: a token is late by" % (s["clients"], s["tokens_each"], s["wrong"]), spread(s["late_ms"], "p50", "p99", "p999", "max")
    yield "processor time of the server in that", "%.0f%% of a core" % (100 * s["server_cpu_share"])


def rows_first(f):
    for key, name in (("first_byte_ms", "first byte"), ("first_token_ms", "first token")):
        yield name + " of a stream, one after the other", spread(f[key], "p50", "p99", "max")


def rows_overhead(o):
    yield ("demo model, %d thread(s): a token streamed, not streamed, in lily run" % o["threads"],
           "%.3f, %.3f, %.3f ms: %+.1f%% (fastest round %+.1f%%)" % (o["served_ms"], o["not_streamed_ms"], o["run_ms"], o["percent"], o["fastest_percent"]))
    yield "of a streamed token, time beside the forward pass (sampling is in it)", "%+.1f%%" % o["beside_forward_percent"]


def rows_cancel(c):
    for key, v in c.items():
        yield "%s in a silent prompt (pieces of %d ms): the engine is free after" % (key, v["piece_ms"]), spread(v, "p50", "max")


def rows_ending(e):
    yield "SIGTERM, the stream ends by itself: the process ends behind it by", "%.0f ms, status %d" % (
        e["stream_ends"]["exit_ms"] - e["stream_ends"]["stream_ms"], e["stream_ends"]["exit"])
    yield "SIGTERM, --drain 1: stream and process end after", "%.0f, %.0f ms, status %d" % (
        e["limit_of_1_s"]["stream_ms"], e["limit_of_1_s"]["exit_ms"], e["limit_of_1_s"]["exit"])
    yield "second signal: the process ends after", "%.0f ms, status %d" % (e["second_signal"]["exit_ms"], e["second_signal"]["exit"])


PARTS = {"streams": (streams, rows_streams), "first": (first_byte, rows_first), "overhead1": (lambda: overhead(1), rows_overhead),
         "overhead2": (lambda: overhead(2), rows_overhead), "cancel": (lambda: {"reset": cancel(True), "close": cancel(False)}, rows_cancel),
         "ending": (ending, rows_ending)}
wanted = sys.argv[2:] or list(PARTS)
result = {"date": time.strftime("%Y-%m-%d"), "load_average": os.getloadavg()[0]}
print("| what | result |\n|---|---|")
for part in wanted:
    measure, rows = PARTS[part]
    result[part] = measure()
    for row in rows(result[part]):
        print("| %s | %s |" % row, flush=True)
with open("build/bench-serve.json", "w") as f:
    json.dump(result, f, indent=1)
print("load average at the start: %.1f; all numbers are in build/bench-serve.json" % result["load_average"])
