"""A hub of our own for tests: the listing, files by ranges behind a redirect to another port, and every fault on demand.

Hub(files) serves {name: bytes}; names in LARGE (or ending .safetensors) are large files with a SHA-256, the others small
ones with git's blob id. fault(request) -> None or a dict decides about each request for a file:
  status: answer with it (headers: more of them)   cut: end after so many bytes   stall: stop sending after so many
  no_range: ignore the range   total: lie about the size   body: other bytes   slow: bytes per second of this connection
hub.rate limits all connections together. hub.log has (path, from, to, bytes sent) of every answer with a body."""
import hashlib
import http.server
import json
import re
import socketserver
import threading
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


hashes = {}


def sha256(data):
    """Remembered: a listing has the hashes of whole checkpoints."""
    if id(data) not in hashes:
        hashes[id(data)] = data, hashlib.sha256(data).hexdigest()
    return hashes[id(data)][1]


def is_large(name):
    return name.endswith(".safetensors") or name == "tokenizer.json"


class Request:
    def __init__(self, hub, name, first, last, n, ranged):
        self.name, self.first, self.last, self.n, self.ranged = name, first, last, n, ranged
        self.attempt = hub.attempts[name, first] = hub.attempts.get((name, first), 0) + 1


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *_):
        pass

    @property
    def hub(self):
        return self.server.hub

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.hub, self.path.split("?")[0]
        hub.seen.append((self.server.server_port, self.path, self.headers.get("Authorization")))
        if hub.page_fault:
            out = hub.page_fault(path, self)
            if out:
                return self.answer(*out)
        if path == f"/api/models/{hub.repo}/revision/{hub.revision.replace('/', '%2F')}" or path == f"/api/models/{hub.repo}/revision/{COMMIT}":
            return self.answer(200, json.dumps(hub.listing()).encode(), [("Content-Type", "application/json")])
        if re.fullmatch(f"/api/models/{hub.repo}/tree/[^/]+", path):  # what huggingface_hub asks instead
            tree = [{"type": "file", "oid": s["blobId"], "size": s["size"], "path": s["rfilename"],
                     **({"lfs": {**s["lfs"], "oid": s["lfs"]["sha256"]}} if "lfs" in s else {})} for s in hub.listing()["siblings"]]
            return self.answer(200, json.dumps(tree).encode(), [("Content-Type", "application/json")])
        m = re.fullmatch(f"/{re.escape(hub.repo)}/resolve/([^/]+)/([^/]+)", path)
        if m and m[2] in hub.files and m[1] in (COMMIT, hub.revision):
            data = hub.files[m[2]]
            etag = sha256(data) if is_large(m[2]) else git_id(data)
            meta = [("X-Repo-Commit", COMMIT), ("X-Linked-Etag", f'"{etag}"'), ("X-Linked-Size", str(len(data))), ("ETag", f'"{etag}"')]
            if is_large(m[2]) and self.server is hub.main:
                return self.answer(302, b"elsewhere", [("Location", f"http://127.0.0.1:{hub.cdn.server_port}/cdn/{m[2]}?signature=x"), *meta])
            return self.serve(m[2], data, meta)
        m = re.fullmatch("/cdn/([^/]+)", path)
        if m and self.server is hub.cdn and m[1] in hub.files:
            return self.serve(m[1], hub.files[m[1]], [])
        self.answer(404, b"Not Found")

    def serve(self, name, data, headers):
        hub, n = self.hub, len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2] or n - 1), n - 1)) if asked else (0, n - 1)
        with hub.lock:
            f = (hub.fault and hub.fault(Request(hub, name, first, last, n, bool(asked)))) or {}
        if "status" in f:
            return self.answer(f["status"], b"refused", f.get("headers", ()))
        data = f.get("body", data)
        total = f.get("total", len(data))
        if asked and not f.get("no_range"):
            body = memoryview(data)[first:last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {f.get('first', first)}-{last}/{total}")
        else:
            body, first = memoryview(data), 0
            self.send_response(200)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.send_body(name, body, first, f)

    def send_body(self, name, body, first, f):
        hub, sent = self.hub, 0
        end = min(len(body), f.get("cut", len(body)), f.get("stall", len(body)))
        entry = [name, first, first + len(body) - 1, 0]
        hub.log.append(entry)
        try:
            while sent < end:
                piece = body[sent:min(sent + hub.piece, end)]
                hub.throttle(len(piece))
                if "slow" in f:
                    time.sleep(len(piece) / f["slow"])
                self.wfile.write(piece)
                sent += len(piece)
                entry[3] = sent
            if "stall" in f:
                hub.stopped.wait(30)
        except OSError:
            pass
        if sent < len(body):
            self.close_connection = True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass


class Hub:
    def __init__(self, files, repo="owner/model", revision="main", rate=0, piece=256 << 10):
        self.files, self.repo, self.revision, self.rate, self.piece = files, repo, revision, rate, piece
        self.fault = self.page_fault = None
        self.change_listing = lambda v: v
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.budget_at = time.monotonic()
        self.reset()
        self.main, self.cdn = (Server(("127.0.0.1", 0), Handler) for _ in range(2))
        for s in (self.main, self.cdn):
            s.hub = self
            threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.main.server_port}"

    def reset(self):
        self.log, self.seen, self.attempts = [], [], {}

    def listing(self):
        siblings = []
        for name, data in self.files.items():
            s = {"rfilename": name, "size": len(data), "blobId": "0" * 40 if is_large(name) else git_id(data)}
            if is_large(name):
                s["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
            siblings.append(s)
        return self.change_listing({"id": self.repo, "sha": COMMIT, "siblings": siblings})

    def throttle(self, n):
        """Waits until n more bytes are due at the common rate."""
        if not self.rate:
            return
        with self.lock:
            now = time.monotonic()
            self.budget_at = max(self.budget_at, now - 0.1) + n / self.rate
            wait = self.budget_at - now
        if wait > 0:
            time.sleep(wait)

    def sent(self, name=None):
        return sum(e[3] for e in self.log if name in (None, e[0]))

    def close(self):
        self.stopped.set()
        for s in (self.main, self.cdn):
            s.shutdown()
            s.server_close()
