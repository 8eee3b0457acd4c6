#!/usr/bin/env python3
"""Chat completions on the fake engine: thinking, tool calls, text, each streamed and not and at every cut of the tokens."""
import json

from lilyserve import *

srv = Server({})
WRITE = [tool("write_file", path="string", content="string")]
WEATHER = [tool("get_weather", city="string")]


def args(answer, i=0):
    return json.loads(answer["tool_calls"][i]["arguments"])


# ---- C: thinking ----

def test_C1():
    a = both(srv, ["thought "] * 30, max_tokens=20)
    assert a["reasoning_content"].strip() == ("thought " * 20).strip() and a["content"] == "" and a["finish_reason"] == "length", a
    assert a["usage"]["completion_tokens_details"]["reasoning_tokens"] == 20


def test_C3():
    tokens = ["plain answer"]
    off = [{"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"},
           {"reasoning": {"effort": "none"}}]
    for body in off:
        request = {"messages": [{"role": "user", "content": script(tokens)}], **body}
        reply = srv.ok("/v1/chat/completions", request)
        a = whole_chat(reply)
        assert a["content"] == "plain answer" and not a["reasoning_content"], a
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    m = srv.ok("/v1/messages", {"max_tokens": 9, "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": script(tokens)}]})
    assert m["content"] == [{"type": "text", "text": "plain answer"}], m
    r = srv.ok("/v1/responses", {"reasoning": {"effort": "none"}, "input": script(tokens)})
    assert r["usage"]["output_tokens_details"]["reasoning_tokens"] == 0 and r["output"][0]["type"] == "message"


def test_C4():
    a = both(srv, ["Let me", " see", "<|im_end|>", "The answer"])
    assert a["reasoning_content"] == "Let me see" and a["content"] == "The answer", a
    assert a["finish_reason"] == "stop" and a["lily"]["finish_detail"] == "thinking_closed_at_end_of_turn"


def test_C4_ends_for_good():
    a = both(srv, ["Let me", "<|im_end|>", "<|im_end|>", "never said"])
    assert a["reasoning_content"] == "Let me" and a["content"] == "" and a["finish_reason"] == "stop"


def test_C6():
    a = both(srv, ["hm "] * 200 + ["</think>", "\n\n", "done"], thinking_budget=64)
    assert a["content"] == "done" and a["lily"]["finish_detail"] == "thinking_budget_reached", a
    assert 64 <= a["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 68
    assert a["reasoning_content"] == ("hm " * 64).strip()
    for field in ({"reasoning_effort": "minimal"}, {"chat_template_kwargs": {"thinking_budget": 512}}):
        a = both(srv, [{"text": "hm ", "repeat": 600}, "</think>", "done"], **field)
        assert 512 <= a["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 516, a["usage"]


def test_C6_model_closes_first():
    a = both(srv, ["hm "] * 10 + ["</think>", "\n\n", "a ", "</think>", " b"], thinking_budget=64, tags=True)
    assert a["reasoning_content"] == ("hm " * 10).strip() and "finish_detail" not in a["lily"], a
    assert a["content"].startswith("a ") and a["content"].endswith(" b")


def test_C6_budget_zero():
    a = both(srv, ["hm", "</think>", "done"], thinking_budget=0)
    assert a["reasoning_content"] == "" and a["content"] == "done", a


def test_C8():
    body = chat_body(["why", "</think>", "so"])
    assert "reasoning" not in srv.ok("/v1/chat/completions", body)["choices"][0]["message"]
    body["messages"] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho", "reasoning": "hm"}] + body["messages"]
    m = srv.ok("/v1/chat/completions", body)["choices"][0]["message"]
    assert m["reasoning_content"] == m["reasoning"] == "why"
    deltas = [c["choices"][0]["delta"] for _, c in srv.events("/v1/chat/completions", body)[:-1]]
    assert [d["reasoning"] for d in deltas if "reasoning_content" in d] == ["why"]


def test_C10():
    a = both(srv, ["why", "</think>", "\n\n", "so"], tags=True, reasoning_format="none")
    assert a["content"].startswith("<think>") and a["content"].count("<think>") == a["content"].count("</think>") == 1, a
    assert "why" in a["content"] and a["content"].endswith("so") and a["reasoning_content"] == ""


def test_C12():
    a = both(srv, ["w "] * 300, max_tokens=256)
    assert a["finish_reason"] == "length" and a["content"] == ""
    assert a["usage"]["completion_tokens_details"]["reasoning_tokens"] == 256 == a["usage"]["completion_tokens"]


def test_loop_guard():
    s = Server({}, ["--loop-guard", "4"])
    a = both(s, ["round ", "and ", "round ", "we ", "go "] * 100 + ["</think>", "out"])
    assert a["content"] == "out" and a["lily"]["finish_detail"] == "thinking_repeated", a
    assert s.stop() == 0


# ---- D: tool calls ----

def test_D1():
    a = at_every_cut(srv, "I will call it. " + call_text("get_weather", city="Paris") + "<|im_end|>", tools=WEATHER)
    assert a["reasoning_content"] == "I will call it." and a["finish_reason"] == "tool_calls"
    assert len(a["tool_calls"]) == 1 and args(a) == {"city": "Paris"}


def test_D1_quoted():
    a = at_every_cut(srv, "Like " + call_text("get_weather", city="X") + " so.</think>\n\nNo call.<|im_end|>", tags=True, tools=WEATHER)
    assert a["tool_calls"] == [] and a["content"] == "No call." and "get_weather" in a["reasoning_content"], a


def test_D3():
    for value in ('return "</parameter>"\n', 'a = "</tool_call>"', 'x </function> y', 'a\n</parameter>\nb', '<tool_call>\n<function=f>\n'):
        text = call_text("write_file", path="/tmp/f", content=value)
        a = at_every_cut(srv, text + "<|im_end|>", thinking=False, tools=WRITE)
        assert args(a) == {"path": "/tmp/f", "content": value}, (value, a)
        assert a["finish_reason"] == "tool_calls"


def test_D5_refused():
    e = error_of(srv, "/v1/chat/completions", chat_body(["x"], tools=WRITE, tool_choice="required"))
    assert e["param"] == "tool_choice" and "not supported yet" in e["message"]


def test_D6():
    full = call_text("get_weather", city="Paris")
    variants = [full.replace("</parameter>\n", ""), full.replace("<tool_call>\n", ""),
                full.replace("tool_call>", "function_invocation>"), full.replace("\n</tool_call>", ""),
                full.replace("</function>", "</function>\n</function>")]
    for text in variants:
        a = at_every_cut(srv, text + "<|im_end|>", thinking=False, tools=WEATHER, tags=True)
        assert [c["name"] for c in a["tool_calls"]] == ["get_weather"] or "Paris" in a["content"], (text, a)
        if a["tool_calls"]:
            assert args(a) == {"city": "Paris"}, (text, a)


def test_D8():
    tools = [tool("t", year="integer", rate="number", on="boolean", what="string", none="null", list="array", map="object")]

    def typed(**values):
        a = at_every_cut(srv, call_text("t", **values), thinking=False, tools=tools)
        return a["tool_calls"][0]["arguments"]

    assert json.loads(typed(year="2026-01-15")) == {"year": "2026-01-15"}
    assert json.loads(typed(year="007"))["year"] in ("007", 7)
    assert json.loads(typed(rate="1e3")) == {"rate": 1000}
    assert json.loads(typed(on="true")) == {"on": True}
    assert json.loads(typed(year="None")) == {"year": "None"}
    assert json.loads(typed(year="")) == {"year": ""}
    assert json.loads(typed(none="null")) == {"none": None}
    assert "12345678901234567890" in typed(year="12345678901234567890") and json.loads(typed(year="12345678901234567890")) == {"year": 12345678901234567890}
    assert json.loads(typed(list="[1, 2]", map='{"a": 1}')) == {"list": [1, 2], "map": {"a": 1}}


def test_D10():
    text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
    a = at_every_cut(srv, text + "<|im_end|>", thinking=False, tools=WEATHER)
    assert a["finish_reason"] == "tool_calls" and args(a) == {"city": "Paris"}
    a = both(srv, list(call_text("get_weather", city="Paris and more")), thinking=False, tools=WEATHER, max_tokens=60)
    assert a["finish_reason"] == "length"


def test_D11():
    def prompt(**more):
        return srv.ok("/apply-template", {"messages": [{"role": "user", "content": "q"}], "tools": WEATHER, **more})["prompt"]

    assert "get_weather" in prompt() and "get_weather" in prompt(tool_choice="auto")
    assert "get_weather" not in prompt(tool_choice="none")
    a = both(srv, [call_text("get_weather", city="X")], thinking=False, tags=True, tools=WEATHER, tool_choice="none")
    assert a["tool_calls"] == [] and a["finish_reason"] == "stop"
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        e = error_of(srv, "/v1/chat/completions", chat_body(["x"], tools=WEATHER, tool_choice=choice))
        assert e["param"] == "tool_choice" and "not supported yet" in e["message"], e
    e = error_of(srv, "/v1/chat/completions", chat_body(["x"], tools=WEATHER, tool_choice={"type": "function", "function": {"name": "b"}}))
    assert e["param"] == "tool_choice" and '"b"' in e["message"]
    assert error_of(srv, "/v1/chat/completions", chat_body(["x"], tools=WEATHER, tool_choice="sometimes"))["param"] == "tool_choice"


def test_D13():
    for text in (call_text("get_weather", city="X"), "I look.\n\n" + call_text("get_weather", city="X")):
        a = at_every_cut(srv, text + "<|im_end|>", thinking=False, tools=WEATHER)
        assert a["finish_reason"] == "tool_calls" and a["content"] in ("", "I look."), a
    message = srv.ok("/v1/chat/completions", chat_body([call_text("get_weather", city="X")], thinking=False))["choices"][0]["message"]
    assert not message["content"] and message["tool_calls"][0]["type"] == "function"


def test_D15():
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    for content in ({"content": None}, {}, {"content": []}, {"content": ""}):
        messages = [{"role": "user", "content": script(["ok"])}, {"role": "assistant", **content, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": "rain"}]
        assert srv.ok("/v1/chat/completions", {"messages": messages, "enable_thinking": False})["choices"][0]["message"]["content"] == "ok"


def test_D18():
    text = "line of a file\n"
    tokens = ["<tool_call>\n<function=write_file>\n<parameter=content>\n"] + [{"text": text, "delay_ms": 2, "repeat": 200}] + ["</parameter>\n</function>\n</tool_call>"]
    events = srv.events("/v1/chat/completions", chat_body(tokens, thinking=False, tools=WRITE))
    fragments = [c for _, c in events[:-1] if "tool_calls" in c["choices"][0]["delta"]]
    assert len(fragments) > 150, len(fragments)  # each with its tokens, not at the end
    assert json.loads(join_chat(events)["tool_calls"][0]["arguments"]) == {"content": (text * 200)[:-1]}


def test_two_calls_and_one():
    text = call_text("get_weather", city="A") + "\n" + call_text("get_weather", city="B")
    a = at_every_cut(srv, text + "<|im_end|>", thinking=False, tools=WEATHER)
    assert [args(a, i)["city"] for i in range(2)] == ["A", "B"]
    a = both(srv, list(text), thinking=False, tools=WEATHER, parallel_tool_calls=False)
    assert [c["name"] for c in a["tool_calls"]] == ["get_weather"] and args(a) == {"city": "A"} and a["finish_reason"] == "tool_calls", a


# ---- E: text ----

def test_E6():
    for stop in (["END.OF"], "END.OF"):
        a = both(srv, ["alpha END", ".OF beta"], thinking=False, stop=stop)
        assert a["content"].strip() == "alpha" and a["finish_reason"] == "stop", a
    a = at_every_cut(srv, "uma ação, não ça", thinking=False, stop=["ção"])
    assert a["content"] == "uma a" and a["finish_reason"] == "stop"
    for path, key in (("/v1/chat/completions", "stop"), ("/v1/messages", "stop_sequences")):
        for stop in (["", "never"], [""], ""):
            e = error_of(srv, path, {**chat_body(["x"]), "max_tokens": 9, key: stop})
            assert key + " holds an empty string" in e["message"] and e.get("param", key) == key, e
    a = both(srv, ["think END.OF it", "</think>", "\n\n", "said ", "END", ".OF", " not"], stop=["END.OF"])
    assert a["reasoning_content"] == "think END.OF it" and a["content"].strip() == "said", a
    a = both(srv, ["ends with EN"], thinking=False, stop=["END"])
    assert a["content"] == "ends with EN"
    e = error_of(srv, "/v1/chat/completions", chat_body(["x"], stop=["a"] * 17))
    assert e["param"] == "stop"


def test_E8():
    tokens = ["a", {"hex": "e228"}, {"hex": "00"}, "\u2028", '"', "\\", {"hex": "ff"}, "z"]
    a = both(srv, tokens, thinking=False)
    assert a["content"].startswith("a") and a["content"].endswith("z") and '\u2028"\\' in a["content"] and "(" in a["content"], a
    a = both(srv, [{"hex": "f09f"}, {"hex": "98"}, {"hex": "80"}, "!"], thinking=False)
    assert a["content"] == "\U0001f600!"
    a = both(srv, ["cut ", {"hex": "f09f98"}], thinking=False)
    assert a["content"] in ("cut", "cut "), a
    for path, body in (("/v1/messages", {"max_tokens": 50}), ("/v1/responses", {}), ("/v1/completions", {"max_tokens": 50})):
        key = {"/v1/messages": "messages", "/v1/responses": "input", "/v1/completions": "prompt"}[path]
        value = script(tokens)
        srv.ok(path, {**body, key: value if key != "messages" else [{"role": "user", "content": value}]})
        srv.events(path, {**body, key: value if key != "messages" else [{"role": "user", "content": value}]})


def test_E13():
    body = chat_body(["one", " two", " three", " four", " five"], thinking=False, logprobs=True, top_logprobs=3, temperature=0)
    whole = whole_chat(srv.ok("/v1/chat/completions", body))
    streamed = join_chat(srv.events("/v1/chat/completions", body))
    assert whole["logprobs"] == streamed["logprobs"] and len(whole["logprobs"]) == 5
    for one in whole["logprobs"]:
        assert set(one) == {"token", "logprob", "bytes", "top_logprobs"} and len(one["top_logprobs"]) == 3
        assert bytes(one["bytes"]).decode() == one["token"]
        assert one["token"] in [t["token"] for t in one["top_logprobs"]]
    assert "".join(t["token"] for t in whole["logprobs"]) == whole["content"]
    assert error_of(srv, "/v1/chat/completions", chat_body(["x"], top_logprobs=3))["param"] == "top_logprobs"
    assert error_of(srv, "/v1/chat/completions", chat_body(["x"], logprobs=True, top_logprobs=50))["param"] == "top_logprobs"
    none = srv.ok("/v1/chat/completions", chat_body(["x"], thinking=False))
    assert none["choices"][0]["logprobs"] is None
    empty = srv.ok("/v1/completions", {"prompt": script([]), "logprobs": 2})["choices"][0]
    assert empty["text"] == "" and empty["logprobs"] == {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def test_missing_fields():
    """What a client cannot have meant is refused by its name, in every dialect; what only says nothing is taken."""
    def refused(path, body, param):
        e = error_of(srv, path, {"max_tokens": 9, **body})
        assert param in e["message"] and (path == "/v1/messages" or e["param"] == param), e

    said, call = {"role": "user", "content": script(["x"])}, {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for user in ({"role": "user"}, {"role": "user", "content": None}):
        refused("/v1/chat/completions", {"messages": [user]}, "messages[0].content")
        refused("/v1/chat/completions", {"messages": [said, {"role": "assistant", "content": "y"}, user]}, "messages[2].content")
        refused("/v1/messages", {"system": "s", "messages": [said, user]}, "messages[1].content")
        refused("/v1/responses", {"input": [user]}, "input[0].content")
    for tool, param in (({"type": "function"}, "function"), ({}, "function"), ({"type": "function", "function": None}, "function"),
                        ({"type": "function", "function": {"description": "d"}}, "function.name"), ({"function": {}}, "function.name"),
                        ({"name": "x"}, "function")):
        refused("/v1/chat/completions", {"messages": [said], "tools": [*WEATHER, tool]}, "tools[1]." + param)
    image, robot = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]}, {"role": "robot", "content": "x"}
    for system in {}, {"system": "s"}:
        refused("/v1/messages", {**system, "messages": [said, image]}, "messages[1].content[1]")
        refused("/v1/messages", {**system, "messages": [said, {**image, "role": "system"}]}, "messages[1].content[1]")
        refused("/v1/messages", {**system, "messages": [robot]}, "messages[0].role")
    for instructions in {}, {"instructions": "s"}:
        refused("/v1/responses", {**instructions, "input": [said, robot]}, "input[1].role")
        refused("/v1/responses", {**instructions, "input": [said, {"content": "x"}]}, "input[1].role")
        refused("/v1/responses", {**instructions, "input": [said, {"role": "assistant", "content": 5}, said]}, "input[1].content")
    refused("/v1/messages", {"messages": [said], "tools": [{"input_schema": {}}]}, "tools[0].name")
    refused("/v1/responses", {"input": "q", "tools": [{"type": "function"}]}, "tools[0].name")
    for tool in {"name": "f"}, {"type": None, "name": "f"}, {"type": 5, "name": "f"}:
        refused("/v1/responses", {"input": "q", "tools": [tool]}, "tools[0].type")
    whole = [said, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": None}]
    srv.ok("/v1/chat/completions", {"messages": whole, "tools": [*WEATHER, {"type": "web_search"}, {"type": "function", "name": "g"}]})


def test_last_message():
    """The beginning of an answer is refused where an answer is asked for; where none is, such messages are counted and shown."""
    said, begun = {"role": "user", "content": script(["x"])}, {"role": "assistant", "content": "Once"}
    for path in ("/v1/chat/completions", "/v1/messages"):
        for messages in ([said, begun], [said, begun, said, {"role": "assistant", "content": ""}], [{"role": "system", "content": "s"}, said, begun]):
            e = error_of(srv, path, {"max_tokens": 9, "messages": messages})
            assert e["message"].startswith("messages ends with the assistant's") and e.get("param", "messages") == "messages", e
        srv.ok(path, {"max_tokens": 9, "messages": [said, begun, said]})
    assert srv.ok("/v1/messages/count_tokens", {"messages": [said, begun]})["input_tokens"] > 0
    assert "Once" in srv.ok("/apply-template", {"messages": [said, begun]})["prompt"]
    srv.ok("/v1/responses", {"input": [said, begun]})


def test_n():
    body = chat_body(["same"], thinking=False, n=3)
    reply = srv.ok("/v1/chat/completions", body)
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2]
    many = join_chat(srv.events("/v1/chat/completions", body), n=3)
    assert [m["content"] for m in many] == ["same"] * 3
    assert reply["usage"]["completion_tokens"] == 3
    assert error_of(srv, "/v1/chat/completions", chat_body(["x"], n=9))["param"] == "n"
    for path, name in (("/v1/chat/completions", "messages"), ("/v1/responses", "input"), ("/tokenize", "content")):
        assert error_of(srv, path, {})["param"] == name


run(globals(), srv)
