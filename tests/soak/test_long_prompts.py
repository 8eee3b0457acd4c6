#!/usr/bin/env python3
"""B7: prompts of up to 33,000 tokens are answered, cold and from saved state, with the same text. F11: many
conversations do not take more memory than was allowed.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from lilyserve import *

srv = Server(None, ["--parallel", "2", "--ctx", "34K"])
srv.timeout = 600
LINE = "The fox sat by the lantern and told a story of the sea. "


def test_B7():
    per_line = srv.ok("/tokenize", {"content": LINE * 100})["count"] / 100
    for n in (15000, 16500, 20000, 33000):
        body = {"messages": [{"role": "user", "content": LINE * int(n / per_line) + "\nThe word is READY. What is the word?"}], "enable_thinking": False, "temperature": 0,
                "max_tokens": 40}
        start = time.monotonic()
        status, value = srv.post("/v1/chat/completions", body)
        assert status == 200, (status, value)
        first = time.monotonic() - start
        again = srv.ok("/v1/chat/completions", body)
        usage, text = value["usage"], value["choices"][0]["message"]["content"]
        print("B7: %d tokens in %.1f s, again in %.1f s: %s" % (usage["prompt_tokens"], first, time.monotonic() - start - first, text))
        assert abs(usage["prompt_tokens"] - n) < n / 20 and usage["completion_tokens"] > 1 and text.strip(), value
        assert again["choices"] == value["choices"] and again["lily"]["cache"]["computed"] <= 64, again


def peak(server):
    with open("/proc/%d/status" % server.process.pid) as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) << 10


def test_F11():
    plan = Server(None, ["--parallel", "2", "--ctx", "8192", "--cache-ram", "24M"])
    total = plan.state()["plan"]["total"]
    assert plan.stop() == 0
    limit = total + (1 << 20)
    tight = Server(None, ["--parallel", "2", "--ctx", "8192", "--cache-ram", "24M", "--memory-limit", str(limit)])
    for i in range(24):
        tight.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": ("%d " % i + LINE) * 24}], "enable_thinking": False, "max_tokens": 4})
    print("F11: plan %.1f MiB, limit %.1f, peak %.1f" % (total / 2 ** 20, limit / 2 ** 20, peak(tight) / 2 ** 20))
    assert peak(tight) < 1.02 * limit, (peak(tight), limit)
    assert tight.stop() == 0
    few = subprocess.run([LILY, "serve", "-m", "models/demo", "--port", "0", "--parallel", "2", "--ctx", "8192", "--memory-limit", str(total - (1 << 20))],
                         stderr=subprocess.PIPE)
    assert few.returncode == 1 and b"does not fit" in few.stderr, few.stderr


run(globals(), srv)
