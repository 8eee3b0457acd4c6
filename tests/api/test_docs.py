#!/usr/bin/env python3
"""Every curl example of docs/api.md is played against the demo model, and every endpoint has one."""
import json
import shlex

from lilyserve import *

srv = Server(None, ["--ctx", "4096"])


def examples():
    """(method, path, headers, body or None) of the commands in the page's indented blocks."""
    with open("docs/api.md") as f:
        text = f.read()
    for block in re.findall(r"(?:^    .*\n)+", text, re.M):
        if "curl" not in block:
            continue
        words = []
        for word in shlex.split(re.sub(r"^    ", "", block, flags=re.M).replace(";", " ; "), comments=True) + ["curl"]:
            if word not in ("curl", ";"):
                words.append(word)
            elif words:
                yield read(words)
                words = []


def read(words):
    method, url, headers, body = "GET", None, {}, None
    words = iter(words)
    for word in words:
        if word == "-d":
            method, body = "POST", next(words)
        elif word == "-H":
            name, value = next(words).split(": ", 1)
            headers[name] = value
        elif word == "-I":
            method = "HEAD"
        elif word != "-N":
            assert url is None and word.startswith("localhost:8080"), word
            url = word[len("localhost:8080"):] or "/"
    return method, url, headers, body


def test_examples():
    done = set()
    for method, path, headers, body in examples():
        if body and "max_tokens" not in body and "/tokenize" not in path:
            body = json.dumps({"max_tokens": 8, **json.loads(body)}) if "responses" not in path else json.dumps({"max_output_tokens": 8, **json.loads(body)})
        status, got, data = srv.request(method, path, headers=headers, raw=body and body.encode())
        assert status == 200, (method, path, status, data)
        if got["content-type"] == "application/json" and method != "HEAD":
            json.loads(data)
        if body and json.loads(body).get("stream"):
            assert parse_events(data)
        done.add((method, re.sub("^/v1", "", path)))
    with open("src/serve/route.c") as f:
        table = re.findall(r'^    \{"([A-Z]+)", "([^"]+)"', f.read(), re.M)
    assert len(table) >= 13
    for method, path in table:
        if path == "/web":
            continue  # parts of the page
        assert any(m == method and (p == path or p.startswith(path + "/") and path == "/models") for m, p in done), "no example of %s %s" % (method, path)


run(globals(), srv)
