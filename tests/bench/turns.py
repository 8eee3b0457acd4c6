#!/usr/bin/env python3
"""Measures what the prompt cache saves and holds; writes build/bench-cache.json and a table to stdout. Nothing is asserted.

usage: turns.py [-m DIR] [--words N] [--memory MIB] [--settle S] [OPTION OF lily serve]...
N is the length of the system prompt in words: 5,950 are 6,000 tokens of the demo model, 1,062 are as many of a synthetic model, whose
tokenizer is a stand-in; MIB the budget of the memory's part (64; 0 leaves that part out). After S seconds
(1) without progress idle work is over; a slow model needs more than a piece of a prompt, or the writing of a state, takes.
BUILD and LILY name what was built.
"""
import argparse
import random
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "api"))
from lilyserve import *

WORDS = "blue stone river lamp seven quiet maple door wind paper".split()
BUILD = os.environ.get("BUILD", "build/gcc-release")


def words(n, seed):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(n))


def user(text):
    return {"role": "user", "content": text}


def turn(server, messages):
    """(the answer's message, what the table says of the request)"""
    body = {"messages": messages, "enable_thinking": False, "temperature": 0, "max_tokens": 16}
    started = time.monotonic()
    reply = server.ok("/v1/chat/completions", body)
    seconds = time.monotonic() - started
    timings, cache = reply["lily"]["timings"], reply["lily"]["cache"]
    n = reply["usage"]["prompt_tokens"]
    first = seconds - timings["decode_ms"] / 1e3 if "decode_ms" in timings else seconds
    return reply["choices"][0]["message"], {"prompt": n, "computed": n - cache["reused"], "first_token_s": first}


def settle(server, seconds):
    """Until idle work (reading ahead, writing) is over: the counters stand still for so long."""
    names, last = ("cache_read_ahead_tokens_total", "cache_disk_states_written_total"), None
    while True:
        now = [server.metric(n) for n in names]
        if now == last:
            return
        last = now
        time.sleep(seconds)


def started(options, model):
    """A server that has loaded its model, of which a prompt may take minutes."""
    server = Server(None, options, model=model, wait=False)
    server.timeout = 3600
    server.wait_for(lambda: server.get("/health")[0] == 200, 900)
    return server


def turns(model, n, quiet, options):
    """The turns of a chat with a long system prompt, over a kill -9 and a restart."""
    folder = tempfile.mkdtemp(prefix="lily-cache-")
    options = ["--ctx", "16384", "--cache-dir", folder, *options]
    server = started(options, model)
    system, rows = {"role": "system", "content": words(n, 1)}, {}
    warm = [user(words(n // 8, 9))]
    turn(server, warm)
    talk = [system, user("Name a colour of the text.")]
    answer, rows["first turn"] = turn(server, talk)
    settle(server, quiet)
    second = [*talk, answer, user("And a thing that is made of wood?")]
    _, rows["second turn"] = turn(server, second)
    settle(server, quiet)
    answer, rows["regenerate"] = turn(server, second)
    _, rows["edit of the last message"] = turn(server, [*second[:-1], user("And what burns?")])
    _, rows["new chat, same system prompt"] = turn(server, [system, user("Hello!")])
    settle(server, quiet)
    server.stop(signal.SIGKILL)
    server = started(options, model)
    turn(server, warm)
    third = [*second, answer, user("And the number?")]
    _, rows["third turn after kill -9 and a restart"] = turn(server, third)
    _, rows["new chat after a restart"] = turn(server, [system, user("Good morning.")])
    server.stop()
    shutil.rmtree(folder)
    return rows


def resident(server):
    """Anonymous memory by the page tables; the sums in /proc/PID/status lag behind."""
    with open("/proc/%d/smaps_rollup" % server.process.pid) as f:
        fields = dict(line.split(":", 1) for line in f.readlines()[1:])
    return int(fields["Anonymous"].split()[0]) * 1024


def memory(model, mib, options, chats=24):
    """What a full cache adds to the resident memory, against the same requests without a cache."""
    out = {}
    for budget in (0, mib):
        server = started(["--ctx", "4096", "--cache-ram", "%dM" % budget, *options], model)
        most = 0
        for k in range(chats):
            turn(server, [user(words(1500, k))])
            most = max(most, resident(server))
        settle(server, 1)
        out[budget] = max(most, resident(server))
        peak = server.metric("cache_peak_bytes")
        server.stop()
    return {"budget": mib << 20, "counted_peak": peak, "added": out[mib] - out[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", default="models/demo")
    parser.add_argument("--words", type=int, default=5950)
    parser.add_argument("--memory", type=int, default=64)
    parser.add_argument("--settle", type=float, default=1)
    a, options = parser.parse_known_args()
    out = {"date": time.strftime("%Y-%m-%d"), "model": a.m, "options": options, "load_average": os.getloadavg()[0]}
    rows = out["turns"] = turns(a.m, a.words, a.settle, options)
    whole = rows["first turn"]["first_token_s"]
    print("| | prompt | computed | time to the first token |\n|---|--:|--:|--:|")
    for name, r in rows.items():
        print("| %s | %d | %d | %.3f s, %.1f%% |" % (name, r["prompt"], r["computed"], r["first_token_s"], 100 * r["first_token_s"] / whole))
    if a.memory:
        m = out["memory"] = memory(a.m, a.memory, options)
        print("\nA full cache of at most %.1f MiB adds %.1f MiB to the resident memory (%.1f%%); it counts %.1f MiB at most."
              % (m["budget"] / 2**20, m["added"] / 2**20, 100 * m["added"] / m["budget"], m["counted_peak"] / 2**20))
    with open(BUILD + "/../bench-cache.json", "w") as f:
        json.dump(out, f, indent=1)


main()
