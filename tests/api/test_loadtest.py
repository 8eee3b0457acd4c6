#!/usr/bin/env python3
"""lily loadtest against servers whose times are known: its percentiles are right, what fails is counted, usage is checked."""
from lilyserve import *


def loadtest(server, *args, code=0):
    p = subprocess.run([LILY, "loadtest", server if isinstance(server, str) else "http://127.0.0.1:%d" % server.port, "--json", *args],
                       capture_output=True, text=True, timeout=120)
    assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
    return json.loads(p.stdout)


def script(tokens, **more):
    return {"prompt_scripts": False, "replies": [{"tokens": ["</think>", "\n\n", *tokens], **more}]}


def test_times():
    """40 ms between tokens: gaps of 40 ms, totals of as many gaps as there are."""
    server = Server(script([{"text": "word ", "delay_ms": 40, "repeat": 10}]), ["--parallel", "8"])
    v = loadtest(server, "--rate", "4", "--duration", "3", "--mix", "chat:1")
    server.stop()
    assert v["started"] == v["done"] > 3 and v["failed"] == v["refused"] == v["cancelled"] == 0, v
    assert v["kinds"]["long"]["started"] == v["kinds"]["cancel"]["started"] == 0
    assert 10 * v["done"] <= v["pieces"] <= 11 * v["done"] and v["first_ms"]["count"] == v["done"], v
    assert v["gap_ms"]["count"] == v["pieces"] - v["done"], v
    assert 35 < v["gap_ms"]["p50"] < 60 * SLOW and 350 < v["total_ms"]["p50"] < 800 * SLOW, v
    for s in ("first_ms", "gap_ms", "total_ms"):
        assert 0 <= v[s]["p50"] <= v[s]["p90"] <= v[s]["p99"] <= v[s]["max"], v


def test_mix():
    """Long prompts are long, cancelled answers end at the server, and conversations go on with what was said."""
    server = Server(script([{"text": "once ", "delay_ms": 20, "repeat": 40}]), ["--parallel", "8"])
    v = loadtest(server, "--rate", "8", "--duration", "3", "--mix", "chat:5,long:3,cancel:3", "--long", "900")
    kinds = v["kinds"]
    assert kinds["cancel"]["cancelled"] == kinds["cancel"]["started"] > 0 and kinds["cancel"]["done"] == 0, kinds
    assert kinds["chat"]["done"] == kinds["chat"]["started"] > 0 and kinds["long"]["done"] == kinds["long"]["started"] > 0, kinds
    server.wait_for(lambda: not server.state()["requests"], 10)
    server.stop()


def test_same_seed():
    """Kinds and their order are drawn from the seed."""
    server = Server(script(["short"]), ["--parallel", "8"])
    runs = [loadtest(server, "--rate", "20", "--duration", "1", "--seed", s)["kinds"] for s in ("5", "5", "6")]
    server.stop()
    counts = [[k["started"] for k in r.values()] for r in runs]
    assert counts[0] == counts[1], counts


def test_no_values():
    """Answers that are all cancelled have no end: a dash in the table, not a time of zero."""
    server = Server(script([{"text": "once ", "delay_ms": 20, "repeat": 40}]))
    p = subprocess.run([LILY, "loadtest", "http://127.0.0.1:%d" % server.port, "--rate", "4", "--duration", "1", "--mix", "cancel:1"],
                       capture_output=True, text=True, timeout=120)
    server.stop()
    ends = [line.split() for line in p.stdout.splitlines() if "to the end" in line]
    assert p.returncode == 0 and ends and all(e[-5:] == ["-"] * 4 + ["0"] for e in ends), p.stdout


def test_failures():
    """A server that is full, an engine that breaks, a server that is not there, a key that is wrong."""
    server = Server(script([{"text": "a ", "delay_ms": 300, "repeat": 10}]), ["--parallel", "1", "--queue", "1"])
    v = loadtest(server, "--rate", "10", "--duration", "1", "--mix", "chat:1")
    server.stop()
    assert v["refused"] > 0 and v["done"] > 0 and v["refused"] + v["done"] == v["started"], v
    server = Server({"prompt_scripts": False, "replies": [{"prefill_error": "no way"}]})
    v = loadtest(server, "--rate", "10", "--duration", "0.5", code=1)
    assert "no request ended well" in v["error"]["message"], v
    server.stop()
    v = loadtest("http://127.0.0.1:1", "--rate", "10", "--duration", "0.5", code=1)
    assert "no request ended well" in v["error"]["message"], v
    server = Server(script(["yes"]), ["--api-key", "sesame"])
    v = loadtest(server, "--rate", "10", "--duration", "0.5", code=1)
    assert "401" in v["error"]["message"], v
    assert loadtest(server, "--rate", "10", "--duration", "0.5", "--mix", "chat:1", "--api-key", "sesame")["failed"] == 0
    server.stop()


def test_usage():
    for args in ((), ("127.0.0.1",), ("ftp://x",), ("http://x", "--mix", "chat"), ("http://x", "--mix", "walk:1"), ("http://x", "--mix", "chat:0"),
                 ("http://x", "--mix", "chat:-1"), ("http://x", "--mix", ""), ("http://x", "--rate", "0")):
        p = subprocess.run([LILY, "loadtest", *args], capture_output=True, text=True, timeout=60)
        assert p.returncode == 2 and p.stderr.count("lily: ") == 1, (args, p)


def test_interrupted():
    """Ctrl-C prints what was measured so far."""
    server = Server(script([{"text": "a ", "delay_ms": 10, "repeat": 5}]), ["--parallel", "8"])
    p = subprocess.Popen([LILY, "loadtest", "http://127.0.0.1:%d" % server.port, "--rate", "20", "--duration", "60", "--mix", "chat:1", "--json"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    time.sleep(2)
    p.send_signal(signal.SIGINT)
    v = json.loads(p.communicate(timeout=20)[0])
    server.stop()
    assert v["done"] > 0 and v["seconds"] < 20, v


run(globals())
