#!/usr/bin/env python3
"""The server with the demo model: what depends on real sampling, batches and saved state."""
import json
import random

from lilyserve import *

srv = Server(None, ["--parallel", "4", "--queue", "64", "--ctx", "4096"])
cold = Server(None, ["--cache-ram", "0", "--ctx", "4096"])  # keeps no state: what is right


def ask(content, **more):
    more.setdefault("enable_thinking", False)
    more.setdefault("max_tokens", 24)
    return srv.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **more})


def text(reply, i=0):
    return reply["choices"][i]["message"]["content"]


def warm(body, server=srv):
    """A greedy reply, after checking that the counts of its prompt add up."""
    reply = server.ok("/v1/chat/completions", {"temperature": 0, "max_tokens": 24, "enable_thinking": False, **body})
    assert reply["usage"]["prompt_tokens"] == reply["lily"]["cache"]["reused"] + reply["lily"]["cache"]["computed"]
    return reply


def as_cold(body):
    """A greedy reply that is what a server without saved states says."""
    reply, right = warm(body), warm(body, cold)
    assert reply["choices"][0]["message"] == right["choices"][0]["message"], (reply, right)
    assert cached(right) == 0
    return reply


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def tokens_of(body):
    """Of the rendered prompt, without the part that opens the answer."""
    text = srv.ok("/apply-template", body)["prompt"]
    text = text[:text.rindex("<|im_start|>assistant")]
    return srv.ok("/tokenize", {"content": text, "parse_special": True})["count"]


def user(content):
    return {"role": "user", "content": content}


def said(content, **more):
    return {"role": "assistant", "content": content, **more}


def at_once(jobs):
    out = [None] * len(jobs)

    def one(i):
        out[i] = jobs[i]()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(jobs))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out


def test_B5():
    """The same text alone or among others, greedy and seeded."""
    jobs = [lambda i=i, t=t: text(ask("Tell me a story about the number %d." % i, temperature=t, seed=i)) for i in range(8) for t in (0, 1)]
    alone = [j() for j in jobs]
    assert at_once(jobs) == alone
    assert len(set(alone)) > 4


def test_A8():
    """Thoughts that are sent back with preserve_thinking are in the prompt, with tools and without, and the state is that of a cold run."""
    thought = "The secret number is 48213907561234509876. " * 8
    history = [user("Choose a secret number. " + "Think well. " * 20), said("ok", reasoning_content=thought), user("Tell me the number.")]
    tools = [{"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {}}}}]
    for more in ({}, {"tools": tools}):
        keep = {"messages": history, "preserve_thinking": True, **more}
        rendered = srv.ok("/apply-template", keep)["prompt"]
        assert thought.strip() in rendered, rendered
        assert thought.strip() not in srv.ok("/apply-template", {**keep, "preserve_thinking": False})["prompt"]
        as_cold(keep)
        grown = {**keep, "messages": history + [said("It is secret.", reasoning_content="No."), user("Please.")]}
        assert cached(as_cold(grown)) >= tokens_of(keep) - 64


def test_A16():
    """Text that a client adds to the last message alone: the next turn reuses all in front of that message."""
    start = [user("Tell me about a fox. " + "Be kind. " * 80), said("The fox is kind. " * 30)]
    first = {"messages": start + [user("Do it.\n<system-reminder>clock 10:01</system-reminder>")]}
    as_cold(first)
    second = {"messages": start + [user("Do it."), said("Done."), user("And now?\n<system-reminder>clock 10:02</system-reminder>")]}
    assert cached(as_cold(second)) >= tokens_of({"messages": start}) - 64


def test_A21():
    """In a growing chat each turn reads what is new, so that late turns cost what early ones do."""
    messages = [{"role": "system", "content": "You tell stories. " * 60}]
    computed, ms = [], []
    for turn in range(10):
        messages.append(user("Part %d, please. " % turn + "Go on with it. " * 10))
        reply = (as_cold if turn == 9 else warm)({"messages": messages})
        computed.append(reply["lily"]["cache"]["computed"])
        ms.append(reply["lily"]["timings"]["prefill_ms"])
        messages.append(said(text(reply)))
    print("A21: tokens read in each turn %s; ms %s" % (computed, ["%.0f" % m for m in ms]))
    assert max(computed[1:]) < 3 * computed[1], computed


def test_B1():
    """Nothing of a conversation shows up in another one."""
    other = "What is my code? " + "I forgot it. " * 20
    right = None
    for i in range(20):
        ask("My code is ZEBRA-99. " + "Keep it. " * 30, max_tokens=4)
        ask("side request %d" % i, max_tokens=2)
        reply = warm({"messages": [user(other)], "max_tokens": 12})
        right = right or warm({"messages": [user(other)], "max_tokens": 12}, cold)
        assert "ZEBRA" not in text(reply) and reply["choices"] == right["choices"], (reply, right)


def test_B3():
    """Digits are as they were, whatever part of the prompt comes from saved state."""
    rows = "".join("%s,%d,%.2f,%.2f\n" % (name, 185335 + i, 4032.84 + i, 773.58 + i) for i, name in enumerate(["isced1997_r"] * 16))
    messages = [{"role": "system", "content": "The table:\n" + rows}]
    for turn in range(6):
        messages.append(user("Copy the 4 values of row %d exactly." % (turn + 1)))
        reply = (as_cold if turn == 5 else warm)({"messages": messages})
        assert turn == 0 or cached(reply) > 300, reply["lily"]
        messages.append(said(text(reply)))


def test_B12():
    """Penalties change a text that repeats itself, and 0 is none."""
    def go_on(**more):
        body = {"prompt": "blue blue blue blue blue blue blue", "temperature": 0, "max_tokens": 30, **more}
        return srv.ok("/v1/completions", body)["choices"][0]["text"]

    plain = go_on()
    assert go_on(presence_penalty=0, frequency_penalty=0, repetition_penalty=1) == plain
    assert go_on(presence_penalty=2, frequency_penalty=2) != plain
    first = srv.ok("/tokenize", {"content": plain})["tokens"][0]
    assert go_on(logit_bias={str(first): -100}) != plain


def test_B13():
    def draw(seed):
        return text(ask("Tell me a story.", temperature=1, top_k=0, top_p=1, seed=seed, max_tokens=40))

    a = draw(7)
    ask("something else in between", temperature=1)
    assert draw(7) == a != draw(8)


def test_A27_and_B13_cached():
    long = "Remember these words. " + "one two three four five six seven eight nine ten " * 60
    first = ask(long, temperature=1, seed=5)
    again = ask(long, temperature=1, seed=5)
    cache = again["lily"]["cache"]
    assert 0 < cache["computed"] <= 64 and cache["reused"] + cache["computed"] == again["usage"]["prompt_tokens"], cache
    assert text(first) == text(again)


def test_A10():
    history = [{"role": "user", "content": "Tell me about a fox. " + "Be kind. " * 100}]
    body = {"messages": history, "enable_thinking": False, "temperature": 0, "max_tokens": 30}
    texts = [text(srv.ok("/v1/chat/completions", body)) for _ in range(3)]
    assert len(set(texts)) == 1
    turn = {**body, "messages": history + [{"role": "assistant", "content": texts[0]}, {"role": "user", "content": "And then?"}]}
    reply = srv.ok("/v1/chat/completions", turn)
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128


def test_C3():
    for off in ({"enable_thinking": False}, {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
        reply = srv.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 40, **off})
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0 and text(reply)
    on = srv.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 60})
    assert on["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0 and on["choices"][0]["message"]["reasoning_content"]


def test_E13():
    reply = ask("Who are you?", temperature=0, logprobs=True, top_logprobs=3, max_tokens=5)
    for one in reply["choices"][0]["logprobs"]["content"]:
        assert len(one["top_logprobs"]) == 3 and one["token"] == one["top_logprobs"][0]["token"] and one["logprob"] <= 0
        assert one["top_logprobs"][0]["logprob"] >= one["top_logprobs"][1]["logprob"] >= one["top_logprobs"][2]["logprob"]


def test_F1():
    """A long prompt whose client leaves costs the next one a piece at most."""
    s = srv.connect()
    data = json.dumps({"messages": [{"role": "user", "content": "word " * 3900}], "stream": True}).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    srv.wait_for(lambda: srv.state()["active"] == 1 or srv.metric("prompt_tokens_computed_total") > 3900)
    s.close()
    srv.wait_for(lambda: srv.state()["requests"] == [], 10)
    assert text(ask("Who are you?"))


def test_F5():
    """After a stop in the middle the conversation goes on as a cold one does."""
    question = {"role": "user", "content": "Tell me a story about a lantern. " + "Take your time. " * 30}
    s = srv.connect()
    body = {"messages": [question], "enable_thinking": False, "temperature": 0, "stream": True, "max_tokens": 200}
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    got = b""
    while got.count(b"data: ") < 10:
        got += s.recv(65536)
    s.close()
    turn = {"messages": [question, {"role": "assistant", "content": "Once there was"}, {"role": "user", "content": "Go on."}], "enable_thinking": False,
            "temperature": 0, "max_tokens": 30}
    as_cold(turn)


def test_F8():
    jobs = [lambda: text(ask("Tell me a story.", temperature=0, repetition_penalty=1.3, logit_bias={"100": -100}, seed=3)),
            lambda: text(ask("Tell me a story.", temperature=0))]
    assert at_once(jobs) == [j() for j in jobs]


def test_F11():
    done = subprocess.run([LILY, "serve", "-m", "models/demo", "--memory-limit", "64M", "--ctx", "32768", "--port", "0"], stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"does not fit" in done.stderr and b" needed (weights " in done.stderr, done.stderr


def test_n_choices():
    long = "Tell me a story. " + "Let it be a good one. " * 60
    before = srv.metric("prompt_tokens_computed_total")
    reply = ask(long, temperature=1, n=3, seed=11, max_tokens=20)
    computed = srv.metric("prompt_tokens_computed_total") - before
    assert computed <= reply["usage"]["prompt_tokens"] + 2 * 64, (computed, reply["usage"])  # read once
    texts = [text(reply, i) for i in range(3)]
    assert texts[0] == text(ask(long, temperature=1, seed=11, max_tokens=20))
    assert len(set(texts)) > 1


def test_endless():
    """What repeats itself without end ends at the model's own limit, where the request names none; what is named counts."""
    most = json.loads(srv.get("/v1/models")[2])["data"][0]["default_sampling"]["max_tokens"]
    assert most == json.load(open("models/demo/generation_config.json"))["max_new_tokens"]
    fox = srv.ok("/tokenize", {"content": " fox"})["tokens"][0]
    body = {"logit_bias": {str(fox): 100}, "enable_thinking": False, "temperature": 0}
    chat = {**body, "messages": [user("hi")]}
    reply = srv.ok("/v1/chat/completions", chat)
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == most, reply["usage"]
    assert srv.ok("/v1/chat/completions", {**chat, "max_tokens": most + 9})["usage"]["completion_tokens"] == most + 9
    assert srv.ok("/v1/responses", {**body, "input": "hi"})["usage"]["output_tokens"] == most
    assert srv.ok("/v1/messages", {**body, "messages": [user("hi")]})["usage"]["output_tokens"] == most


def test_thinking_budget():
    reply = srv.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who are you?"}], "thinking_budget": 3, "max_tokens": 60})
    assert 3 <= reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 8
    assert text(reply) and "</think>" not in text(reply)


def test_tools_on_the_model():
    """The demo model calls tools whose names it has never seen; a round trip ends in an answer without tags."""
    rng = random.Random(4)
    good = 0
    for _ in range(10):
        name = rng.choice(["get", "find", "set"]) + "_" + "".join(rng.choice("abcdeklmnor") for _ in range(5))
        key, value = rng.choice(["city", "item", "name"]), rng.choice(["Paris", "Oslo", "Lima"])
        tools = [{"type": "function", "function": {"name": name, "description": "Does it.", "parameters": {
            "type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}}]
        body = {"messages": [{"role": "user", "content": "Call %s with %s %s." % (name, key, value)}], "tools": tools, "temperature": 0,
                "enable_thinking": False, "max_tokens": 100}
        message = srv.ok("/v1/chat/completions", body)["choices"][0]["message"]
        for c in message.get("tool_calls", []):
            if c["function"]["name"] == name and json.loads(c["function"]["arguments"]) == {key: value}:
                good += 1
                body["messages"] += [message, {"role": "tool", "tool_call_id": c["id"], "content": '{"status": "done"}'}]
                no_tags(srv.ok("/v1/chat/completions", body)["choices"][0]["message"])
    print("tools: %d of 10 calls were right" % good)
    assert good >= 3


run(globals(), srv, cold)
