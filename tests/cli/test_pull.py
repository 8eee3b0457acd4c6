#!/usr/bin/env python3
"""lily pull, list and remove against a hub of our own that cuts, stalls, lies and refuses."""
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from hub import COMMIT, Hub, git_id, is_large  # noqa: E402

LILY = os.environ.get("LILY", "./lily")
os.umask(0o022)
TINY = "tests/data/tiny"
MIB = 1 << 20


def model_files(shard_mib=(5, 3)):
    """The tiny checkpoint's texts and index, with shards of noise."""
    files = {n: open(f"{TINY}/{n}", "rb").read() for n in sorted(os.listdir(TINY)) if n.endswith((".json", ".jinja"))}
    noise = random.Random(7)
    for i, mib in enumerate(shard_mib):
        files[f"model-0000{i + 1}-of-00002.safetensors"] = noise.randbytes(mib * MIB + 12345 * (i + 1))
    files.update({"README.md": b"# nothing", "pytorch_model.bin": b"x" * 100, "model-extra.safetensors": b"y" * 100})
    return files


class Place:
    """A cache folder and runs of lily in it."""

    def __init__(self, hub):
        self.hub = hub
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("PULL_DIR"))
        self.dir = self.folder.name
        self.repo_dir = f"{self.dir}/models--" + hub.repo.replace("/", "--")
        self.env = {k: v for k, v in os.environ.items() if k not in ("HF_TOKEN", "HF_HOME", "LILY_MODEL") and not k.lower().endswith("_proxy")}
        self.env.update(HF_ENDPOINT=hub.url, HF_HUB_CACHE=self.dir, HOME=self.dir)

    def run(self, *args, **env):
        p = subprocess.run([LILY, *args], capture_output=True, text=True, env={**self.env, **env}, stdin=subprocess.DEVNULL, timeout=120)
        return p.returncode, p.stdout, p.stderr

    def pull(self, *args, **env):
        code, out, err = self.run("pull", self.hub.repo, "--json", "--timeout", "1", *args, **env)
        return code, json.loads(out), err

    def pulled(self, *args, **env):
        code, v, err = self.pull(*args, **env)
        assert code == 0, (v, err)
        self.check()
        return v

    def refused(self, *words, **env):
        code, v, err = self.pull(**env)
        text = v["error"]["message"] + " " + (v["error"]["hint"] or "")
        assert code == 1 and all(w in text for w in words), (code, v)
        assert not os.path.exists(f"{self.repo_dir}/snapshots/{COMMIT}/config.json")

    def check(self):
        """Every wanted file is linked, has its content, and its blob has its name; who shares the cache may read it."""
        folder = f"{self.repo_dir}/snapshots/{COMMIT}"
        want = {n for n in self.hub.files if n.endswith((".json", ".jinja")) or "-of-" in n or n in ("mtp.safetensors", "model.safetensors")}
        assert set(os.listdir(folder)) == want, os.listdir(folder)
        for n in want:
            data = self.hub.files[n]
            blob = hashlib.sha256(data).hexdigest() if is_large(n) else git_id(data)
            assert os.readlink(f"{folder}/{n}") == "../../blobs/" + blob
            with open(f"{folder}/{n}", "rb") as f:  # in pieces: a file of tests/soak has gigabytes
                assert all(f.read(MIB) == data[i:i + MIB] for i in range(0, len(data) + 1, MIB)), n
        left = [n for n in os.listdir(f"{self.repo_dir}/blobs") if "." in n]
        assert not left, left
        assert open(f"{self.repo_dir}/refs/{self.hub.revision}").read() == COMMIT
        for at, folders, files in os.walk(self.repo_dir):
            folders[:] = [n for n in folders if n != "trees"]  # huggingface_hub's own, its owner's alone
            for n in folders + files:
                mode = os.stat(f"{at}/{n}").st_mode & 0o777
                assert mode == (0o755 if n in folders and not os.path.islink(f"{at}/{n}") else 0o644), (at, n, oct(mode))


def with_hub(fn):
    def test():
        hub = Hub(model_files())
        place = Place(hub)
        try:
            fn(hub, place)
        finally:
            hub.close()
            place.folder.cleanup()
    test.__name__ = fn.__name__
    return test


@with_hub
def test_whole(hub, place):
    v = place.pulled()
    size = sum(len(d) for n, d in hub.files.items() if os.path.exists(f"{place.repo_dir}/snapshots/{COMMIT}/{n}"))
    assert v["bytes"] == v["fetched"] == size and v["commit"] == COMMIT and v["dir"] == f"{place.repo_dir}/snapshots/{COMMIT}", v
    assert hub.sent() == size, "something was fetched twice"
    before = len(hub.log)
    assert place.pulled()["fetched"] == 0 and len(hub.log) == before, "what is there is not fetched again"
    code, out, err = place.run("pull", hub.repo)
    assert code == 0 and out == v["dir"] + "\n" and "\r" not in err and "everything was there" in err, (out, err)
    # It is the model that lily takes now, and list shows it.
    code, out, err = place.run("info")
    assert "the newest pulled one" in err and v["dir"] in err, err
    v = json.loads(place.run("list", "--json")[1])["models"]
    assert [(m["repo"], m["revision"], m["commit"], m["bytes"], m["complete"]) for m in v] == [(hub.repo, "main", COMMIT, size, True)], v
    assert f"{hub.repo}@main" in place.run("list")[1]
    v = json.loads(place.run("remove", "--yes", hub.repo, "--json")[1])
    assert v["freed"] >= size and not os.path.exists(place.repo_dir), v
    assert json.loads(place.run("list", "--json")[1]) == {"models": []}
    assert place.run("remove", "--yes", hub.repo)[0] == 2


@with_hub
def test_cuts(hub, place):
    """Every connection is cut somewhere until the third attempt; nothing complete is lost."""
    hub.fault = lambda r: {"cut": 700_000} if is_large(r.name) and r.attempt < 3 else None
    place.pulled()


@with_hub
def test_stall(hub, place):
    hub.fault = lambda r: {"stall": 300_000} if r.name.startswith("model-00002") and r.attempt == 1 and r.first == 0 else None
    place.pulled()


@with_hub
def test_cut_redirect(hub, place):
    """The place that a redirect leads to closes the connection, or is silent, before it answers."""
    fail = {"count": 6}

    def fault(path, handler):
        if path.startswith("/cdn/") and fail["count"] > 0:
            fail["count"] -= 1
            if fail["count"] % 3 == 0:
                hub.stopped.wait(2)
            handler.close_connection = True
            handler.connection.shutdown(2)
            raise ConnectionAbortedError
        return None
    hub.page_fault = fault
    place.pulled()
    assert fail["count"] == 0


@with_hub
def test_busy_server(hub, place):
    """429 with a time, 503 without, on files and on the listing."""
    hub.fault = lambda r: {"status": 429, "headers": [("Retry-After", "1")]} if r.attempt == 1 else {"status": 503} if r.attempt == 2 else None
    times = []
    hub.page_fault = lambda path, h: times.append(time.monotonic()) or (502, b"") if path.startswith("/api/") and len(times) < 2 else None
    place.pulled()
    assert times[1] - times[0] >= 0.2


@with_hub
def test_refusals(hub, place):
    for status, word in ((401, "HF_TOKEN"), (403, "HF_TOKEN"), (404, "OWNER/NAME")):
        hub.page_fault = lambda path, h, status=status: (status, b"no") if path.startswith("/api/") else None
        place.refused(str(status), word)
        hub.page_fault = None
        hub.fault = lambda r, status=status: {"status": status}
        place.refused(str(status), word)
        hub.fault = None
    place.pulled()


@with_hub
def test_wrong_size(hub, place):
    hub.fault = lambda r: {"total": r.n + 5} if is_large(r.name) else None
    place.refused("bytes, the hub lists")
    hub.fault = lambda r: {"first": r.first + 1} if is_large(r.name) else None
    place.refused("asked from byte")
    hub.fault = None
    place.pulled()


@with_hub
def test_other_bytes(hub, place):
    """Right length, wrong content: thrown away, and the next run gets it right."""
    hub.fault = lambda r: {"body": b"z" * r.n} if r.name.startswith("model-00001") else None
    place.refused("SHA-256", "the hub lists")
    hub.fault = lambda r: {"body": b"{" * r.n} if r.name == "config.json" else None
    os.unlink(f"{place.repo_dir}/blobs/{git_id(hub.files['config.json'])}")
    place.refused("config.json", "git's id")
    hub.fault = None
    place.pulled()


@with_hub
def test_changed_midway(hub, place):
    """Another file of the same size from some range on; then one of another size."""
    other = bytes(reversed(hub.files["model-00001-of-00002.safetensors"]))
    count = [0]

    def later(r):
        if r.name.startswith("model-00001"):
            count[0] += 1
            if count[0] > 1 or r.first:
                return {"body": other}
            return {"cut": 2 * MIB}
        return None
    hub.fault = later
    place.refused("SHA-256")
    count[0] = 0
    other = other + b"more"
    place.refused("bytes, the hub lists")


@with_hub
def test_no_ranges(hub, place):
    """A server that ignores ranges, even one that cuts."""
    hub.files["model-00001-of-00002.safetensors"] *= 4  # more than one range
    hub.fault = lambda r: {"no_range": True, **({"cut": 3 * MIB} if r.attempt < 3 else {})} if is_large(r.name) else None
    place.pulled()


@with_hub
def test_token(hub, place):
    """The token goes to the hub and to nobody else."""
    place.pulled(HF_TOKEN="hf_secret")
    for port, path, auth in hub.seen:
        assert (auth == "Bearer hf_secret") == (port == hub.main.server_port), (port, path, auth)
    assert any(port == hub.cdn.server_port for port, _, _ in hub.seen)


@with_hub
def test_killed(hub, place):
    """kill -9 in the middle: what was complete is kept."""
    hub.rate = 20e6
    name = "model-00001-of-00002.safetensors"
    hub.files[name] = random.Random(1).randbytes(24 * MIB)
    p = subprocess.Popen([LILY, "pull", hub.repo], env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while hub.sent(name) < 16 * MIB:
        time.sleep(0.01)
    p.send_signal(signal.SIGKILL)
    p.wait()
    code, out, _ = place.run("list", "--json")
    assert json.loads(out)["models"][0]["unfinished"] > 0, out
    _, _, err = place.run("info")
    assert "newest pulled" not in err, "half a model is none"
    hub.rate = 0
    place.pulled()
    again = hub.sent(name) - len(hub.files[name])
    assert 0 <= again < 12 * MIB, again


@with_hub
def test_interrupted(hub, place):
    hub.rate = 10e6
    p = subprocess.Popen([LILY, "pull", hub.repo], env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while hub.sent("model-00001-of-00002.safetensors") < MIB:
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 130
    p.stderr.close()
    hub.rate = 0
    place.pulled()


@with_hub
def test_found(hub, place):
    """A blob that another tool has fetched is linked, a snapshot of another revision is shared, and remove keeps what is used."""
    name = "model-00002-of-00002.safetensors"
    blob = hashlib.sha256(hub.files[name]).hexdigest()
    os.makedirs(f"{place.repo_dir}/blobs")
    open(f"{place.repo_dir}/blobs/{blob}", "wb").write(hub.files[name])
    place.pulled()
    assert hub.sent(name) == 0
    other = "f" * 40
    os.makedirs(f"{place.repo_dir}/snapshots/{other}")
    os.symlink(f"../../blobs/{blob}", f"{place.repo_dir}/snapshots/{other}/{name}")
    assert place.run("remove", "--yes", f"{hub.repo}@main")[0] == 0
    assert os.listdir(f"{place.repo_dir}/blobs") == [blob] and os.listdir(f"{place.repo_dir}/snapshots") == [other]
    assert not os.path.exists(f"{place.repo_dir}/refs/main")
    assert place.run("remove", "--yes", f"{hub.repo}@main")[0] == 2
    assert place.run("remove", "--yes", f"{hub.repo}@{other}")[0] == 0
    assert not os.path.exists(place.repo_dir)


def test_packed():
    """remove drops what lily pack made of the model, and nothing else of its folder."""
    hub = Hub({n: open(f"{TINY}/{n}", "rb").read() for n in os.listdir(TINY) if n.endswith((".json", ".jinja")) or "-of-" in n})
    place = Place(hub)
    folder = place.pulled()["dir"]
    packed = f"{place.dir}/cache/lily/packed"
    for model in (folder, TINY):
        code, _, err = place.run("pack", model, XDG_CACHE_HOME=f"{place.dir}/cache")
        assert code == 0, err
    assert len([n for n in os.listdir(packed) if n.endswith(".lily")]) == 2, os.listdir(packed)
    before = len(os.listdir(packed))
    assert place.run("remove", "--yes", hub.repo, XDG_CACHE_HOME=f"{place.dir}/cache")[0] == 0
    assert len(os.listdir(packed)) == before / 2, os.listdir(packed)
    hub.close()
    place.folder.cleanup()


@with_hub
def test_remove_asks(hub, place):
    """A person is asked, a script must say that it means it; only a y deletes."""
    place.pulled()
    code, _, err = place.run("remove", hub.repo)
    assert code == 2 and "--yes" in err and os.path.exists(place.repo_dir), err
    for answer, deletes in (("n\\r", False), ("\\r", False), ("\\x04", False), ("y\\r", True)):
        steps = "wait [y/N]\nsend %s\n" % answer
        asked = subprocess.run([sys.executable, "tests/cli/lib/term.py", "60", LILY, "remove", hub.repo], input=steps, text=True,
                               env=place.env, stdout=subprocess.PIPE)
        assert asked.returncode == (0 if deletes else 130), (answer, asked)
        assert os.path.exists(place.repo_dir) != deletes, (answer, asked)


@with_hub
def test_locked(hub, place):
    import fcntl
    blob = hashlib.sha256(hub.files["model-00001-of-00002.safetensors"]).hexdigest()
    folder = f"{place.dir}/.locks/models--owner--model"
    os.makedirs(folder)
    with open(f"{folder}/{blob}.lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        place.refused("another program")
        code, _, err = place.run("remove", "--yes", hub.repo)
        assert code == 1 and "fetching" in err, err
    place.pulled()


@with_hub
def test_revision(hub, place):
    hub.revision = "refs/pr/7"
    code, out, err = place.run("pull", f"{hub.repo}@refs/pr/7")
    assert code == 0, err
    place.check()
    assert place.run("pull", f"{hub.repo}@{COMMIT}")[0] == 0
    assert sorted(os.listdir(f"{place.repo_dir}/refs")) == ["refs"]


@with_hub
def test_hostile_listing(hub, place):
    """Names and numbers of a server that means harm."""
    def names(v):
        for bad in ("../../evil.json", "/etc/evil.json", ".hidden.json", "a/b.json", "-x.json", "a\n.json", "a..b.json", "x" * 300 + ".json"):
            v["siblings"].append({"rfilename": bad, "size": 3, "blobId": "0" * 40})
        return v
    hub.change_listing = names
    place.pulled()
    hub.files.pop("model-extra.safetensors")
    for change, word in ((lambda v: {**v, "sha": "../" * 13 + "x"}, "sha"), (lambda v: {**v, "siblings": {}}, "siblings"),
                         (lambda v: {**v, "siblings": [{**s, "blobId": "../x", "lfs": None} for s in v["siblings"]]}, "hash"),
                         (lambda v: {**v, "siblings": [{**s, "size": -1, "lfs": None} for s in v["siblings"]]}, "size"),
                         (lambda v: {**v, "siblings": [s for s in v["siblings"] if s["rfilename"] != "config.json"]}, "no config.json"),
                         (lambda v: {**v, "siblings": [s for s in v["siblings"] if "00002-of" not in s["rfilename"]]}, "no model-00002")):
        hub.change_listing = change
        code, v, _ = place.pull()
        assert code == 1 and word in v["error"]["message"], (word, v)
    assert not [n for _, d, f in os.walk(place.dir) for n in f if "evil" in n]


@with_hub
def test_not_ours(hub, place):
    """A model that lily does not run is refused before its weights come; so is one that the disk cannot hold."""
    good = hub.files["config.json"]
    hub.files["config.json"] = b'{"model_type": "llama"}'
    place.refused("llama")
    assert not hub.sent("model-00001-of-00002.safetensors")
    hub.files["config.json"] = good

    def huge(v):
        for s in v["siblings"]:
            if s["rfilename"].startswith("model-00001"):
                s["lfs"]["size"] = 1 << 40
        return v
    hub.change_listing = huge
    place.refused("free", "1024.00 GiB")
    assert not hub.sent("model-00001-of-00002.safetensors")


@with_hub
def test_usage(hub, place):
    for bad in ("model", "a/b/c", "../x/y", "a/..", "a/b@", "a/b@../../x", "a/b@-x", "a b/c", "a--b/c", ".a/b"):
        code, _, err = place.run("pull", bad)
        assert code == 2 and err.count("lily: ") == 1, (bad, err)
    code, _, err = place.run("pull", "a/b", HF_HUB_CACHE="", HOME="", XDG_CACHE_HOME="")
    assert code == 1 and "home" in err, err
    hub.close()
    hub.stopped.clear()
    code, _, err = place.run("pull", "a/b", HF_ENDPOINT="ftp://127.0.0.1")
    assert code == 1 and "no answer" in err, err


def main():
    if "no libcurl" in Place(Hub({})).run("pull", "a/b")[2]:
        print("SKIP pull: this build has no libcurl\n0 passed, 0 failed, 1 skipped")
        return 0
    tests = [f for name, f in globals().items() if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:])]
    failed = 0
    for test in tests:
        started = time.monotonic()
        try:
            test()
        except Exception:
            failed += 1
            traceback.print_exc()
            print("FAIL", test.__name__, flush=True)
        if os.environ.get("V"):
            print(f"{test.__name__} {time.monotonic() - started:.1f} s", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
