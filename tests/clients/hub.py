#!/usr/bin/env python3
"""huggingface_hub and lily share one cache: what one has fetched the other finds, and fetches nothing. A hub of our own serves both."""
import os
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from test_pull import COMMIT, Hub, Place, model_files  # noqa: E402

WANTED = ["*.json", "*.jinja", "model-0*-of-*.safetensors"]


def tool(place):
    """huggingface_hub reads its variables when it is imported: a process for each use."""
    import subprocess
    code = ("import sys, huggingface_hub as h\n"
            "print(h.snapshot_download(sys.argv[1], revision=sys.argv[2], allow_patterns=sys.argv[4:], local_files_only=sys.argv[3] == 'local'))")

    def fetch(local, revision="main"):
        p = subprocess.run([sys.executable, "-c", code, place.hub.repo, revision, "local" if local else "fetch", *WANTED],
                           capture_output=True, text=True, timeout=120, env={**place.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"})
        assert p.returncode == 0, p.stderr[-2000:]
        return p.stdout.strip()
    return fetch


def test_theirs_is_found(hub, place):
    folder = tool(place)(False)
    before = len(hub.log)
    v = place.pulled()
    assert v["dir"] == folder and v["fetched"] == 0 and len(hub.log) == before, (v, folder)


def test_ours_is_found(hub, place):
    v = place.pulled()
    assert tool(place)(True) == v["dir"]
    before = len(hub.log)
    assert tool(place)(False) == v["dir"] and len(hub.log) == before, "it fetched again"
    assert tool(place)(True, COMMIT) == v["dir"]
    import huggingface_hub
    info = huggingface_hub.scan_cache_dir(place.dir)
    assert not info.warnings, info.warnings
    repo, = info.repos
    revision, = repo.revisions
    assert repo.repo_id == hub.repo and revision.commit_hash == COMMIT and revision.refs == {"main"}
    assert {f.file_name for f in revision.files} == set(os.listdir(v["dir"])) and repo.size_on_disk == v["bytes"]


def test_half_of_each(hub, place):
    """They fetch the texts, lily the rest; then they find all."""
    global WANTED
    all_of_it, WANTED = WANTED, ["*.json"]
    try:
        tool(place)(False)
    finally:
        WANTED = all_of_it
    v = place.pulled()
    assert 0 < v["fetched"] < v["bytes"] and tool(place)(True) == v["dir"]


def main():
    failed, tests = 0, [f for n, f in sorted(globals().items()) if n.startswith("test_")]
    for test in tests:
        hub = Hub(model_files())
        place = Place(hub)
        try:
            test(hub, place)
        except Exception:
            failed += 1
            traceback.print_exc()
            print("FAIL", test.__name__)
        hub.close()
        place.folder.cleanup()
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
