#!/usr/bin/env python3
"""B7: prompts up to the demo model's whole context are answered, cold and from saved state, with the same text."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from lilyserve import *

srv = Server(None, ["--parallel", "2"])
LINE = "The fox sat by the lantern and told a story of the sea. "


def test_B7():
    per_line = srv.ok("/tokenize", {"content": LINE * 100})["count"] / 100
    for n in (15000, 16500, 20000, 32000):
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


run(globals(), srv)
