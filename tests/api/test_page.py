#!/usr/bin/env python3
"""The page's files on the wire: bytes, headers, encodings, weights. What they do in a browser is in tests/web."""
import glob
import gzip
import os
import re

from lilyserve import Server, run

srv = Server(script={"replies": []}, args=["--api-key", "secret"])
NAMES = sorted(os.path.basename(f) for f in glob.glob("src/serve/web/*")) + ["marked.js", "purify.js"]
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def get(path, **headers):
    return srv.get(path, {k.replace("_", "-"): v for k, v in headers.items()})


def test_every_file_without_a_key():
    assert len(NAMES) > 20 and srv.get("/state")[0] == 401
    for name in NAMES:
        status, headers, plain = get("/web/" + name)
        assert status == 200 and headers["content-type"] == TYPES[name.rsplit(".")[-1]], (name, status, headers)
        assert "content-encoding" not in headers and headers["vary"] == "Accept-Encoding"
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-cache"
        status, packed_headers, packed = get("/web/" + name, Accept_Encoding="br;q=1, gzip")
        assert status == 200 and packed_headers["content-encoding"] == "gzip" and gzip.decompress(packed) == plain, name
        assert packed_headers["etag"] != headers["etag"] and packed[4:8] == b"\0\0\0\0", "no time in it"


def test_root_is_the_page():
    status, headers, page = get("/")
    assert status == 200 and page == get("/web/index.html")[2] and page.startswith(b"<!doctype html>")
    assert headers["content-type"] == TYPES["html"]
    status, headers, body = srv.request("HEAD", "/")
    assert status == 200 and body == b"" and headers["content-length"] == str(len(page))


def test_encodings():
    for wanted, packed in (("gzip", 1), ("GZIP", 1), ("deflate, gzip;q=0.5", 1), ("gzip;q=0", 0), ("gzip; q=0.000", 0), ("br", 0),
                           ("xgzip", 0), ("gzipx", 0), ("", 0), ("identity,gzip ; q=1", 1)):
        assert (get("/", Accept_Encoding=wanted)[1].get("content-encoding") == "gzip") == bool(packed), wanted


def test_tags():
    for coding in ("gzip", "identity"):
        tag = get("/web/main.js", Accept_Encoding=coding)[1]["etag"]
        for known in (tag, '"x", W/' + tag):
            status, headers, body = get("/web/main.js", Accept_Encoding=coding, If_None_Match=known)
            assert status == 304 and body == b"" and headers["etag"] == tag and "content-length" not in headers, headers
        assert get("/web/chat.js", Accept_Encoding=coding, If_None_Match=tag)[0] == 200
    # A connection goes on behind a 304.
    s = srv.connect()
    s.sendall(("GET /web/main.js HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %s\r\n\r\n" % tag).encode() * 2)
    got = b""
    while got.count(b"\r\n\r\n") < 2:
        got += s.recv(4096)
    assert got.count(b"HTTP/1.1 304 Not Modified\r\n") == 2
    s.close()


def test_policy():
    for path in ("/", "/web/index.html", "/web/md_worker.js"):
        policy = dict(p.strip().split(" ", 1) for p in get(path)[1]["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["style-src"] == "'self'", policy
        assert policy["connect-src"] == "'self'" and policy["img-src"] == "'self' data:", policy
        assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'" and not any("unsafe" in v for v in policy.values())
        assert get(path)[1]["referrer-policy"] == "no-referrer"


def test_nothing_inline_and_nothing_from_elsewhere():
    html = get("/")[2].decode()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html), "inline"
    assert all(src for src in re.findall(r"<script([^>]*)>\s*</script>", html)) and len(re.findall("<script", html)) == 2
    for name in NAMES:
        if name in ("marked.js", "purify.js"):
            continue
        text = get("/web/" + name)[2].decode()
        assert not re.search(r"(?:src|href|url|import|from)\W{1,3}(?:https?:)?//", text), name
        assert not re.search(r"innerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function", text), name


def test_what_is_not_there():
    for path in ("/web/nothing.js", "/web", "/web/../web.c", "/web/%2e%2e/%2e%2e/etc/passwd", "/web//main.js", "/web/main.js/x", "/web/MAIN.JS"):
        status, headers, body = get(path)
        assert status == 404 and headers["content-type"] == "application/json", (path, status, body)
    assert srv.request("POST", "/web/main.js", {}, {"X-Api-Key": "secret"})[0] == 405


def test_weight():
    plain = sum(len(get("/web/" + n)[2]) for n in NAMES)
    packed = sum(len(get("/web/" + n, Accept_Encoding="gzip")[2]) for n in NAMES)
    assert plain < 200_000 and packed < 70_000, (plain, packed)


run(globals(), srv)
