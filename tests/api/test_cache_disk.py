#!/usr/bin/env python3
"""Saved states on disk: restarts, kill -9, damage, the quota, tool calls. The demo model, and a script for the calls."""
import glob
import random
import shutil
import stat

from lilyserve import *

WORDS = "blue stone river lamp seven quiet maple door wind paper".split()
KILLS = int(os.environ.get("KILLS", "4"))


def words(n, seed=1):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(n))


def folder():
    return tempfile.mkdtemp(prefix="lily-cache-")


def server(path, *args, quota="200M"):
    return Server(None, ["--cache-dir", path, "--cache-disk", quota, "--ctx", "8192", "--parallel", "2", *args])


def chat(s, messages, **more):
    body = {"messages": messages, "enable_thinking": False, "temperature": 0, "max_tokens": 12, **more}
    return s.ok("/v1/chat/completions", body)


def message(reply):
    return reply["choices"][0]["message"]


def size(path):
    total = 0
    for root, _, names in os.walk(path):
        for n in names:
            try:
                total += os.lstat(os.path.join(root, n)).st_size
            except FileNotFoundError:
                pass
    return total


def written(s):
    """Everything that is worth it is on disk."""
    s.wait_for(lambda: s.metric("cache_disk_states_written_total") > 0)
    last = [-1]

    def quiet():
        now, last[0] = last[0], s.metric("cache_disk_states_written_total")
        time.sleep(0.3)
        return now == last[0]

    s.wait_for(quiet, 30)


def test_restart():
    """After a restart, and after kill -9, turn 2 reads the answer and what is new; the files are the user's alone."""
    path = folder()
    m = [{"role": "system", "content": words(1500, 1)}, {"role": "user", "content": "hi"}]
    s = server(path)
    a = chat(s, m)
    assert s.stop() == 0
    for f in glob.glob(path + "/*") + glob.glob(path + "/*/*"):
        assert stat.S_IMODE(os.stat(f).st_mode) == (0o700 if os.path.isdir(f) else 0o600), f
    s = server(path)
    m += [message(a), {"role": "user", "content": "and now?"}]
    b = chat(s, m)
    assert b["lily"]["cache"]["reused"] >= a["usage"]["prompt_tokens"] - 8 - 64, b["lily"]
    assert b["lily"]["cache"]["computed"] < 0.1 * a["lily"]["cache"]["computed"], (a["lily"], b["lily"])
    assert s.metric("cache_disk_states_read_total") == 1
    m += [message(b), {"role": "user", "content": words(200, 2)}]
    c = chat(s, m)
    written(s)
    s.stop(signal.SIGKILL)
    s = server(path)
    again = chat(s, m)
    assert again["lily"]["cache"]["computed"] <= 64 and message(again) == message(c), again["lily"]
    cold = Server(None, ["--cache-ram", "0", "--ctx", "8192"])
    assert message(chat(cold, m)) == message(c)
    assert s.stop() == 0 and cold.stop() == 0
    shutil.rmtree(path)


def test_shared_pages_once():
    path = folder()
    s = server(path)
    base = words(600, 3)
    for i in range(4):
        chat(s, [{"role": "system", "content": base}, {"role": "user", "content": "question %d" % i}])
    assert s.stop() == 0
    pages = glob.glob(path + "/*/p-*")
    assert len(pages) <= 620 // 64 + 4, len(pages)
    shutil.rmtree(path)


def test_A25():
    """A byte less, a byte other: the answer is right, the file is named once and set aside."""
    for way in ("cut", "flip"):
        path = folder()
        m = [{"role": "user", "content": words(400, 4)}]
        s = server(path)
        a = chat(s, m)
        assert s.stop() == 0
        for f in glob.glob(path + "/*/[sp]-*"):
            data = bytearray(open(f, "rb").read())
            if way == "cut":
                data = data[:-1]
            else:
                data[len(data) // 2] ^= 16
            open(f, "wb").write(data)
        s = server(path)
        b, c = chat(s, m), chat(s, m)
        assert message(a) == message(b) == message(c) and c["lily"]["cache"]["reused"] > 0
        named = [line.split(": ")[-3] for line in s.log if "set aside" in line]
        assert named and len(set(named)) == len(named), s.log
        assert glob.glob(path + "/*/*.damaged")
        assert s.stop() == 0
        shutil.rmtree(path)


def test_quota_and_read_only():
    path = folder()
    quota = 8 << 20
    s = server(path, quota="8M")
    for i in range(12):
        chat(s, [{"role": "user", "content": words(300, 100 + i)}])
        assert size(path) <= quota, size(path)
    written(s)
    assert s.metric("cache_disk_states_dropped_total") > 0 and s.metric("cache_disk_peak_bytes") <= quota
    second = server(path)  # the folder is in use: it is read only
    assert any("in use" in line for line in second.log), second.log
    chat(second, [{"role": "user", "content": words(300, 111)}])
    assert second.metric("cache_disk_states_written_total") == 0
    assert second.stop() == 0 and s.stop() == 0
    assert size(path) <= quota
    shutil.rmtree(path)


def test_removed():
    """Somebody clears the folder under a running server: it is filled again, with what is in memory, too."""
    path = folder()
    s = server(path)
    old, new = ([{"role": "user", "content": words(300, i)}] for i in (21, 22))
    a = chat(s, old)
    written(s)
    shutil.rmtree(path)
    chat(s, new)
    s.wait_for(lambda: len(glob.glob(path + "/*/s-*")) >= 2)
    assert s.stop() == 0
    assert len([line for line in s.log if "was removed" in line]) == 1 and not any("could not be saved" in line for line in s.log), s.log
    s = server(path)
    for m in (old, new):
        assert chat(s, m)["lily"]["cache"]["reused"] > 0
    assert message(chat(s, old)) == message(a) and s.stop() == 0
    shutil.rmtree(path)


def test_replaced():
    """A file lies where the folder was: one line says so, answers go on, and the folder is filled again once the file is gone."""
    path = folder()
    s = server(path)
    ask = lambda i: chat(s, [{"role": "user", "content": words(300, i)}])
    ask(31)
    written(s)
    shutil.rmtree(path)
    open(path, "w").close()
    for i in (32, 33):
        ask(i)
        s.wait_for(lambda: any("is not a folder" in line or "Not a directory" in line for line in s.log), 10)
    os.unlink(path)
    time.sleep(5.5)  # it is tried again every five seconds
    ask(34)
    s.wait_for(lambda: len(glob.glob(path + "/*/s-*")) >= 4)
    assert s.stop() == 0
    assert len([line for line in s.log if "nothing is written until" in line]) == 1, s.log
    assert len([line for line in s.log if "it is made anew" in line]) == 1, s.log
    shutil.rmtree(path)


def test_kill():
    """kill -9 while states are written: no wrong answer after it, no start that fails, the quota holds."""
    path, quota, r = folder(), 6 << 20, random.Random(5)
    talks = [[{"role": "user", "content": words(150 + 40 * i, 200 + i)}] for i in range(6)]
    cold = Server(None, ["--cache-ram", "0", "--ctx", "8192"])
    expected = [message(chat(cold, t, max_tokens=6)) for t in talks]
    assert cold.stop() == 0
    reused = 0

    def some(s, stop):
        k = 0
        while not stop.is_set():
            i = r.randrange(len(talks))
            try:
                reply = chat(s, talks[i], max_tokens=6)
            except (OSError, http.client.HTTPException, ValueError):
                return
            if message(reply) != expected[i]:
                wrong.append((i, reply))
            k += reply["lily"]["cache"]["reused"]

    wrong = []
    for kill in range(KILLS):
        s = server(path, quota="6M")
        stop = threading.Event()
        t = threading.Thread(target=some, args=(s, stop))
        t.start()
        time.sleep(r.uniform(0, 1.2))
        s.process.kill()
        s.process.wait()
        stop.set()
        t.join()
        assert size(path) <= quota, (kill, size(path))
        assert not wrong, wrong
    # Where all kills came before a state was written, and the quota keeps none long enough, the last server finds those of the one before.
    for i, room in enumerate(("6M", "60M", "60M")):
        s = server(path, quota=room)
        for t, want in zip(talks, expected):
            reply = chat(s, t, max_tokens=6)
            assert message(reply) == want
            reused += reply["lily"]["cache"]["reused"]
        if i == 1:
            written(s)
        assert s.metric("cache_disk_damaged_total") == 0, s.log
        assert s.stop() == 0 and size(path) <= int(room[:-1]) << 20
    assert reused > 0, s.log
    shutil.rmtree(path)


def test_calls_after_restart():
    """A tool call comes back in the text that the model wrote, by its id, also after a restart; an edited one does not."""
    path = folder()
    call = '<tool_call>\n<function=f>\n<parameter=a>\n{"x":1,   "y":[1,2]}\n</parameter>\n</function>\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "object"}}}}}]
    body = chat_body([call], tools=tools)
    s = Server({}, ["--cache-dir", path])
    answer = message(s.ok("/v1/chat/completions", body))
    assert answer["tool_calls"][0]["function"]["name"] == "f", answer
    for round in range(2):
        for edited in (False, True):
            a = json.loads(json.dumps(answer))
            if edited:
                a["tool_calls"][0]["function"]["arguments"] = '{"a": {"x": 2}}'
            m = body["messages"] + [a, {"role": "tool", "tool_call_id": a["tool_calls"][0]["id"], "content": "ok"}]
            prompt = s.ok("/apply-template", {"messages": m, "tools": tools})["prompt"]
            assert (call in prompt) == (not edited), prompt
        if round == 0:
            s.stop(signal.SIGKILL)
            s = Server({}, ["--cache-dir", path])
    assert s.stop() == 0
    assert stat.S_IMODE(os.stat(path + "/calls").st_mode) == 0o600
    shutil.rmtree(path)


if __name__ == "__main__":
    run(globals())
