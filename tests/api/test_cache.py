#!/usr/bin/env python3
"""The prompt cache with the demo model: cases A, B, G10 and G11, sharing, budgets, reasons, verification."""
import random

from lilyserve import *

CTX = ["--ctx", "8192", "--threads", "1"]
srv = Server(None, ["--parallel", "4", "--verify-cache", "0.2", *CTX])
WORDS = "blue stone river lamp seven quiet maple door wind paper".split()


def words(n, seed=1):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(n))


def chat(messages, s=None, **more):
    more.setdefault("enable_thinking", False)
    more.setdefault("temperature", 0)
    more.setdefault("max_tokens", 16)
    reply = (s or srv).ok("/v1/chat/completions", {"messages": messages, **more})
    usage = reply["usage"]
    cache = reply["lily"]["cache"]
    assert cache["reused"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert cache["reused"] + cache["computed"] == usage["prompt_tokens"], (cache, usage)
    return reply


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def message(reply):
    return reply["choices"][0]["message"]


def text(reply):
    return message(reply)["content"]


def cache(reply):
    return reply["lily"]["cache"]


def tokens(messages, s=None, **more):
    """Tokens of a rendering, without the generation prompt unless asked."""
    more.setdefault("add_generation_prompt", True)
    return (s or srv).ok("/apply-template", {"messages": messages, "enable_thinking": False, **more})["tokens"]


_cold = None


def cold():
    """A server that keeps nothing: what every cached answer must equal."""
    global _cold
    if _cold is None:
        _cold = Server(None, ["--parallel", "1", "--cache-ram", "0", *CTX])
    return _cold


def same_cold(messages, reply, **more):
    assert text(chat(messages, cold(), **more)) == text(reply)


def test_A1():
    """Turn 2 reads the answer and what is new."""
    first = [system(words(1500, 11)), user("hi")]
    a = chat(first)
    assert cache(a)["computed"] > 1400
    second = first + [message(a), user("and now?")]
    b = chat(second)
    assert cache(b)["reused"] >= a["usage"]["prompt_tokens"] - 8 - 64, (cache(b), a["usage"])
    assert cache(b)["computed"] < 0.1 * cache(a)["computed"], (a["lily"], b["lily"])
    same_cold(second, b)


def test_A3():
    s = words(1000, 12)
    a = chat([system(s), user("Now is 10:01. Say ok.")])
    b = chat([system(s), user("Now is 10:02. Say ok.")])
    assert cache(b)["reused"] >= a["usage"]["prompt_tokens"] // 64 * 64 - 128, cache(b)
    same_cold([system(s), user("Now is 10:02. Say ok.")], b)


def test_A5():
    """Thinking off: the empty block in front of the answer is not in the history."""
    first = [user("Tell me of " + words(300, 13))]
    a = chat(first)
    b = chat(first + [message(a), user("More.")])
    assert cache(b)["reused"] >= a["usage"]["prompt_tokens"] - 8 - 64, cache(b)


def test_A6():
    """A history only grows: each rendering without its generation prompt begins the next one."""
    messages = [user("One?"), {"role": "assistant", "content": "One."}, user("Two?")]
    longer = messages + [{"role": "assistant", "content": "Two."}, user("Three?")]
    for thinking in (False, True):
        render = lambda m: srv.ok("/apply-template", {"messages": m, "enable_thinking": thinking})["prompt"]
        head = render(messages)
        head = head[:head.rindex("<|im_start|>assistant")]
        assert render(longer).startswith(head)


def test_A8():
    """preserve_thinking: the reasoning that is sent back is in the prompt, also with tools."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    messages = [user("Choose."), {"role": "assistant", "content": "ok", "reasoning_content": "The number is 71234."}, user("Tell me.")]
    for more in ({}, {"tools": tools}):
        kept = srv.ok("/apply-template", {"messages": messages, "chat_template_kwargs": {"preserve_thinking": True}, **more})["prompt"]
        assert "71234" in kept
        assert "71234" not in srv.ok("/apply-template", {"messages": messages, **more})["prompt"]
    a = chat(messages, preserve_thinking=True)
    b = chat(messages + [{"role": "assistant", "content": "71234"}, user("Again, please, " + words(60, 14))], preserve_thinking=True)
    assert cache(b)["reused"] > 0 or a["usage"]["prompt_tokens"] < 64


def test_A10_and_G10():
    """The same prompt three times; at most 64 tokens are read again."""
    m = [user("Tell me about a fox. " + words(200, 15))]
    a, b, c = chat(m, max_tokens=30), chat(m, max_tokens=30), chat(m, cold(), max_tokens=30)
    assert text(a) == text(b) == text(c)
    assert 1 <= cache(b)["computed"] <= 64 and cache(b)["reused"] > 0, cache(b)
    assert cache(c)["reused"] == 0 and cache(c)["reason"] == {"why": "off"}


def test_A12():
    s = words(800, 16)
    a1 = [system(s), user("First talk, " + words(50, 17))]
    b1 = [system(s), user("Another one, " + words(50, 18))]
    ra, rb = chat(a1), chat(b1)
    at_system = len(tokens([system(s), user("x")])) - 12
    assert cache(rb)["reused"] >= at_system - 64, (cache(rb), at_system)
    ra2 = chat(a1 + [message(ra), user("Go on.")])
    assert cache(ra2)["reused"] >= ra["usage"]["prompt_tokens"] - 8 - 64, cache(ra2)


def test_A14_and_A21():
    """Twenty turns that only append: each is a hit, and late ones cost as early ones."""
    m, computed = [system(words(500, 19))], []
    for turn in range(20):
        m.append(user("Turn %d: %s" % (turn, words(10, turn))))
        r = chat(m, max_tokens=12)
        m.append(message(r))
        computed.append(cache(r)["computed"])
        assert turn == 0 or cache(r)["reused"] > 448, (turn, cache(r))
    assert max(computed[1:]) <= 3 * 64 + 40, computed
    same_cold(m[:-1], r, max_tokens=12)


def test_A16():
    """A transient text in the last user message, gone in the next turn."""
    s = words(300, 20)
    a = chat([system(s), user("do X\n<system-reminder>clock 10:01</system-reminder>")])
    m = [system(s), user("do X"), message(a), user("next\n<system-reminder>clock 10:02</system-reminder>")]
    b = chat(m)
    start = len(tokens([system(s), user("x")])) - 12
    assert cache(b)["reused"] >= start - 64, (cache(b), start)
    same_cold(m, b)


def test_A18():
    """Responses: output items echoed as input."""
    body = {"model": "x", "input": [{"role": "user", "content": "Tell me of " + words(200, 21)}], "temperature": 0, "max_output_tokens": 24,
            "reasoning": {"effort": "none"}}
    a = srv.ok("/v1/responses", body)
    again = {**body, "input": body["input"] + a["output"] + [{"role": "user", "content": "Go on."}]}
    b = srv.ok("/v1/responses", again)
    assert b["usage"]["input_tokens_details"]["cached_tokens"] >= a["usage"]["input_tokens"] - 8 - 64, (a["usage"], b["usage"])


def test_A19():
    """The changing billing line of one client is no part of the prompt; in a user's text it is."""
    def ask(cch, say="Hello."):
        parts = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.100; cc_entrypoint=cli; cch=%s;" % cch},
                 {"type": "text", "text": words(1200, 22)}]
        return srv.ok("/v1/messages", {"model": "x", "max_tokens": 8, "system": parts, "messages": [user(say)], "temperature": 0})

    ask("11111")
    b = ask("22222")
    assert b["usage"]["cache_read_input_tokens"] >= 1150, b["usage"]
    line = "x-anthropic-billing-header: cc_version=1; cch=33333;"
    assert line in srv.ok("/apply-template", {"messages": [user(line)]})["prompt"]


def test_A23():
    """The metric of computed tokens agrees with the replies."""
    before = srv.metric("prompt_tokens_computed_total")
    m = [user("Count these: " + words(300, 23))]
    replies = [chat(m), chat(m), chat(m + [user("again")])]
    assert srv.metric("prompt_tokens_computed_total") - before == sum(cache(r)["computed"] for r in replies)


def test_A27():
    m = [system(words(1200, 24)), user("Hello.")]
    a, b = chat(m), chat(m)
    assert cache(a)["computed"] > 1200 and cache(b)["computed"] <= 64


def test_A29():
    """Thinking on, history without reasoning, three growing turns: the third reads only the second answer and what is new."""
    m = [user("Think of " + words(150, 25))]
    read = []
    for turn in range(3):
        r = chat(m, enable_thinking=True, max_tokens=200)
        read.append((cache(r), r["usage"]["prompt_tokens"]))
        m = m + [{"role": "assistant", "content": text(r) or "Well."}, user("And what of %s?" % words(20, 26 + turn))]
    last = tokens(m[:-1])
    answer = len(tokens(m[:4])) - len(tokens(m[:3]))
    assert read[2][0]["reused"] >= read[1][1] - 8 - 64, (read, answer, len(last))


def test_B1():
    """A word of one talk never shows up in another."""
    question = [user("what is my code?")]
    expect = text(chat(question, cold(), max_tokens=24))
    for i in range(10):
        chat([user("my code is ZEBRA-99. " + words(80, i))], max_tokens=4)
        chat([user("title for: my code")], max_tokens=4)
        r = chat(question, max_tokens=24)
        assert text(r) == expect and "ZEBRA" not in json.dumps(r), r


def test_B3():
    """Late cached turns give the text of a cold run."""
    m = [system("Rows: isced1997_r, 185335, 4032.84, 773.58. " + words(200, 30))]
    for turn in range(6):
        m.append(user("Turn %d. Copy the 4 values exactly." % turn))
        r = chat(m, max_tokens=40)
        m.append(message(r))
        assert turn == 0 or cache(r)["reused"] > 0
    same_cold(m[:-1], r, max_tokens=40)


def test_B5():
    """Sixteen at once give what each gives alone."""
    jobs = [[user("repeat the word %s%d five times" % (WORDS[i % 10], i))] for i in range(16)]
    alone = [text(chat(m, cold())) for m in jobs]
    assert [text(r) for r in together([lambda m=m: chat(m) for m in jobs])] == alone


def together(jobs):
    out = [None] * len(jobs)

    def one(i):
        out[i] = jobs[i]()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(jobs))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out


def test_B7():
    """Prompts near the end of the context are answered, cached as cold."""
    for n in (500, 2500):
        m = [user(words(n, 31) + " Say READY.")]
        a, b = chat(m, max_tokens=8), chat(m, max_tokens=8)
        assert a["usage"]["completion_tokens"] > 0 and text(a) == text(b) and cache(b)["computed"] <= 64


def test_B13():
    """A seed gives the same text cold, cached, and among others."""
    m = [user("Tell me a story. " + words(150, 32))]
    draw = lambda seed, s=None: text(chat(m, s, temperature=1, top_k=0, top_p=1, seed=seed, max_tokens=40))
    a = draw(7)
    chat([user("something else")], temperature=1)
    assert draw(7) == a == draw(7, cold()) and draw(8) != a
    mixed = together([lambda: draw(7), lambda: draw(8), lambda: draw(7)])
    assert mixed[0] == mixed[2] == a


def test_G11():
    """Small requests in between do not push the long conversation out, in a cache that holds little more than it."""
    s = Server(None, ["--parallel", "2", "--cache-ram", "16M", *CTX])
    m = [system(words(1000, 40)), user("Hello.")]
    r = chat(m, s)
    for turn in range(4):
        for i in range(6):
            chat([user("A title for talk %d %d: %s" % (turn, i, words(70, 1000 * turn + i)))], s, max_tokens=4)
        m += [message(r), user("Turn %d, go on." % turn)]
        r = chat(m, s)
        assert cache(r)["reused"] >= 960, (turn, cache(r), s.state()["cache"])
    s.wait_for(lambda: len(s.state()["cache"]["list"]) == s.state()["cache"]["states"] > 0) # the engine reads ahead meanwhile
    k = s.state()["cache"]
    assert k["dropped"] > 0 and k["peak_bytes"] <= k["budget"] == 16 << 20, k
    assert k["states"] > 0 and all(x["bytes"] > 0 for x in k["list"])
    same_cold(m, r)
    assert s.stop() == 0


def test_reasons():
    new = chat([user("Quite another beginning: " + words(100, 50))])
    assert cache(new)["reason"] == {"why": "new"}, cache(new)
    base = [system(words(200, 51)), user("alpha " + words(100, 52)), {"role": "assistant", "content": "yes"}, user("go on")]
    chat(base)
    edited = [base[0], user("beta " + words(100, 52))] + base[2:]
    why = cache(chat(edited))["reason"]
    ids = [tokens(x) for x in (base, edited)]
    at = next(i for i in range(len(ids[0])) if ids[0][i] != ids[1][i])
    assert (why["why"], why["token"], why["message"]) == ("differs", at, 1) and "alpha"[:2] in why["was"] and "beta"[:2] in why["is"], why
    srv.wait_for(lambda: any("miss=differs miss_token=%d" % at in line for line in srv.log))
    assert cache(chat(base + [{"role": "assistant", "content": "so"}, user("more")]))["reason"] is None


def test_reason_dropped_and_keys():
    """What one key has sent is not shown to another; a state that was given up is called so."""
    s = Server(None, ["--parallel", "1", "--cache-ram", "8M", "--api-key", "one", "--api-key", "two", *CTX])

    def ask(key, m):
        return s.ok("/v1/chat/completions", {"messages": m, "max_tokens": 2, "enable_thinking": False}, {"Authorization": "Bearer " + key})

    m = [system(words(150, 60)), user("secret " + words(60, 61)), {"role": "assistant", "content": "a"}, user("b")]
    other = [m[0], user("public " + words(60, 61))] + m[2:]
    ask("one", m)
    why = cache(ask("two", other))["reason"]
    assert why["why"] == "differs" and "was" not in why and "is" in why, why
    for i in range(6):
        ask("one", [user(words(300, 70 + i))])
    why = cache(ask("one", m))["reason"]
    assert why is None or why["why"] in ("dropped", "new"), why
    k = json.loads(s.get("/state", {"Authorization": "Bearer one"})[2])["cache"]
    assert 0 < k["peak_bytes"] <= k["budget"], k
    assert s.stop() == 0


def test_left_client_and_equal_prompts():
    """What was read for a client that left is kept; two equal prompts at once are read once."""
    m = [user("Read this: " + words(1500, 80))]
    n = len(tokens(m))
    data = json.dumps({"messages": m, "stream": True, "enable_thinking": False}).encode()
    before = srv.metric("prompt_tokens_computed_total")
    s = srv.connect()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    srv.wait_for(lambda: srv.metric("prompt_tokens_computed_total") - before > 300)
    s.close()
    srv.wait_for(lambda: srv.state()["requests"] == [])
    read = srv.metric("prompt_tokens_computed_total") - before
    r = chat(m, max_tokens=1)
    assert cache(r)["reused"] >= min(read, n - 64) > 0, (cache(r), read)
    m = [user("And this: " + words(1000, 81))]
    before = srv.metric("prompt_tokens_computed_total")
    a = together([lambda: chat(m, max_tokens=4) for _ in range(3)])
    assert srv.metric("prompt_tokens_computed_total") - before <= len(tokens(m)) + 2 * 64
    assert len({text(x) for x in a}) == 1


def test_read_ahead():
    """While nothing else is to do, the answer is read as the next turn will render it; then that turn reads only its own text."""
    s = Server(None, ["--parallel", "1", *CTX])
    m = [system(words(60, 95)), user("Tell me a story about a fox and a lantern.")]
    a = chat(m, s, max_tokens=200, logit_bias={"8138": -100, "8136": -100})
    end = len(tokens(m + [message(a), user("x")], s)) - 12
    s.wait_for(lambda: any(abs(x["tokens"] - end) <= 64 for x in s.state()["cache"]["list"]))
    assert s.metric("cache_read_ahead_tokens_total") >= 128
    m += [message(a), user("And then?")]
    b = chat(m, s)
    assert cache(b)["reused"] >= end - 64 and cache(b)["computed"] <= 64 + 32, (cache(b), end)
    same_cold(m, b)
    assert s.stop() == 0


def test_verified():
    """The share of prompts that this server read again gave the same bits."""
    m = [user("Verify this: " + words(150, 90))]
    for _ in range(5):
        chat(m)
    srv.wait_for(lambda: srv.metric("cache_verified_total") >= 1, 60)
    assert srv.metric("cache_differing_total") == 0 and srv.metric("cache_hits_total") >= 4


def test_z_cold_ends():
    assert cold().stop() == 0


if __name__ == "__main__":
    run(globals(), srv)
