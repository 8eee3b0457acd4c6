#!/usr/bin/env python3
"""The wire of every endpoint on the fake engine: fields, errors, shapes, the Responses and Anthropic dialects."""
import json

from lilyserve import *

srv = Server({})
USER = [{"role": "user", "content": "q"}]


def prompt(messages, **more):
    return srv.ok("/apply-template", {"messages": messages, **more})["prompt"]


def in_order(text, *words):
    at = [text.index(w) for w in words]
    assert at == sorted(at), (words, text)


# ---- cases about prompts ----

def test_A6():
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    first = prompt(history)
    base = first[:first.rindex("<|im_start|>assistant")]
    second = prompt(history + [{"role": "assistant", "content": "four"}, {"role": "user", "content": "five"}])
    assert second.startswith(base)


def test_A19_line():
    line = "x-anthropic-billing-header: cc_version=2.1.100; cc_entrypoint=cli; cch=%d;"
    counts = []
    for cch in (11111, 2222222):
        body = {"system": [{"type": "text", "text": line % cch}, {"type": "text", "text": "Be kind."}], "messages": USER}
        counts.append(srv.ok("/v1/messages/count_tokens", body)["input_tokens"])
    assert counts[0] == counts[1]
    with_it = srv.ok("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": line % 1}]})["input_tokens"]
    assert with_it > srv.ok("/v1/messages/count_tokens", {"messages": USER})["input_tokens"] + 10


def test_E1():
    text = prompt([{"role": "system", "content": "S1"}, {"role": "system", "content": "S2"}, {"role": "user", "content": "U"}])
    in_order(text, "S1", "S2", "U")
    assert text.count("<|im_start|>system") == 1
    text = prompt([{"role": "system", "content": "S1"}, {"role": "user", "content": "U1"}, {"role": "assistant", "content": "A1"},
                   {"role": "system", "content": "S2"}, {"role": "user", "content": "U2"}])
    in_order(text, "S1", "U1", "A1", "<system-reminder>", "S2", "U2")
    in_order(prompt([{"role": "developer", "content": "D1"}] + USER), "D1", "q")


def test_E10():
    parts = [{"type": "text", "text": "PA"}, {"type": "text", "text": "PB"}]
    call = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    text = prompt([{"role": "system", "content": parts}, {"role": "user", "content": parts},
                   {"role": "assistant", "content": parts, "tool_calls": call}, {"role": "tool", "tool_call_id": "c", "content": parts},
                   {"role": "user", "content": "end"}])
    assert text.count("PA") == text.count("PB") == 4
    in_order(text, "PA", "PB")


def test_E17():
    assert "<|im_start|>user\nq<|im_end|>" in prompt(USER)


def test_media_is_refused():
    e = error_of(srv, "/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]})
    assert e["param"] == "messages[0].content[1]", e
    e = error_of(srv, "/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})
    assert "messages[0]" in e["message"]
    error_of(srv, "/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})


def test_user_text_is_no_token():
    text = "<|im_end|>"
    plain = srv.ok("/tokenize", {"content": text, "parse_special": False})["count"]
    ids = srv.ok("/apply-template", {"messages": [{"role": "user", "content": text}]})["count"]
    base = srv.ok("/apply-template", {"messages": [{"role": "user", "content": "q"}]})["count"]
    assert plain > 1 and ids >= base + plain - 2


# ---- fields ----

def test_E5():
    body = chat_body(["a", "b"], thinking=False)
    got = join_chat(srv.events("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}), include_usage=True)
    assert got["usage"]["completion_tokens"] == 2 and got["usage"]["total_tokens"] == got["usage"]["prompt_tokens"] + 2
    for options in ({"include_usage": False}, {}, None):
        join_chat(srv.events("/v1/chat/completions", {**body, "stream_options": options}))
    join_chat(srv.events("/v1/chat/completions", body))
    assert error_of(srv, "/v1/chat/completions", {**body, "stream": True, "stream_options": 3})["param"] == "stream_options"


test_G1 = test_G6 = test_E5


def test_E12_refused():
    for format in ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}):
        e = error_of(srv, "/v1/chat/completions", chat_body(["x"], response_format=format))
        assert e["param"] == "response_format" and "not supported yet" in e["message"], e
    srv.ok("/v1/chat/completions", chat_body(["x"], response_format={"type": "text"}))
    e = error_of(srv, "/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}})
    assert "not supported yet" in e["message"]


def test_G2():
    wrong = {"max_tokens": "ten", "temperature": "hot", "top_p": 2, "top_k": 1.5, "min_p": -1, "n": 0, "stream": "yes", "seed": "x",
             "stop": 5, "logit_bias": [1], "presence_penalty": 3, "frequency_penalty": [], "repetition_penalty": 0, "messages": "hi",
             "tools": "x", "tool_choice": 7, "response_format": "json", "logprobs": 1, "top_logprobs": -1, "reasoning_effort": "huge",
             "thinking_budget": "much", "enable_thinking": 3, "chat_template_kwargs": 1, "lily": 2, "model": 5,
             "parallel_tool_calls": "no", "max_completion_tokens": 0, "reasoning_format": "odd"}
    for key, value in wrong.items():
        e = error_of(srv, "/v1/chat/completions", {**chat_body(["x"]), key: value})
        assert e["param"] == key and e["type"] == "invalid_request_error", (key, e)
    e = error_of(srv, "/v1/chat/completions", {**chat_body(["x"]), "logit_bias": {"abc": 1}})
    assert e["param"] == "logit_bias"
    e = error_of(srv, "/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]})
    assert e["param"] == "messages[0].role", e
    e = error_of(srv, "/v1/messages", {"messages": USER, "max_tokens": "x"})
    assert e["type"] == "invalid_request_error" and "max_tokens" in e["message"]


test_G8 = test_G2


def test_long_values():
    """What is quoted leaves room for what is wrong with it."""
    long, user = "x" * 700, {"role": "user", "content": "x"}
    for more in ({"reasoning_effort": long}, {"reasoning": {"effort": long}}, {"reasoning_format": long}, {"temperature": long},
                 {"response_format": {"type": long}}, {"logit_bias": {long: 1}}, {"messages": [{"role": long, "content": "x"}]},
                 {"messages": [{"role": "user", "content": [{"type": long}]}]}):
        e = error_of(srv, "/v1/chat/completions", {"messages": [user], **more})
        assert "expected" in e["message"] and len(e["message"]) < 300, (more, e)


def test_bad_json():
    for raw in (b"", b"{", b"[]", b"null", b'{"messages": [}', b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"[" * 600 + b"]" * 600):
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize", "/detokenize", "/apply-template"):
            status, _, data = srv.request("POST", path, raw=raw)
            assert status == 400 and json.loads(data)["error"]["message"], (path, raw[:20], status, data)


def test_no_user_message():
    for messages, word in (([], "messages is empty"), ([{"role": "system", "content": "x"}], "messages has no message of a user")):
        e = error_of(srv, "/v1/chat/completions", {"messages": messages})
        assert e["type"] == "invalid_request_error" and e["param"] == "messages" and e["message"].startswith(word), e
        assert error_of(srv, "/v1/messages", {"max_tokens": 5, "messages": messages})["message"].startswith(word)
    e = error_of(srv, "/v1/responses", {"input": []})
    assert e["param"] == "input" and e["message"].startswith("input is empty"), e


def test_G12():
    body = chat_body(["x"], thinking=False, user="me", temperature=1, store=False, metadata={}, service_tier="auto", unknown={"a": [1]})
    assert srv.ok("/v1/chat/completions", body)["choices"][0]["message"]["content"] == "x"


def test_context():
    s = Server({}, ["--ctx", "128"])
    e = error_of(s, "/v1/chat/completions", {"stream": True, "messages": [{"role": "user", "content": "word " * 500}]})
    assert e["code"] == "context_length_exceeded" and "128" in e["message"] and "larger --ctx" in e["message"], e
    assert "prompt is too long" in error_of(s, "/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "word " * 500}]})["message"]
    reply = s.ok("/v1/completions", {"prompt": script([{"text": "x", "repeat": 500}]), "max_tokens": 4000})
    assert reply["usage"]["total_tokens"] == 128 and reply["choices"][0]["finish_reason"] == "length"
    assert s.stop() == 0


def test_model_names():
    body = {**chat_body(["x"], thinking=False), "model": "gpt-4o"}
    assert srv.ok("/v1/chat/completions", body)["model"] == "demo"
    s = Server({}, ["--strict-model"])
    assert error_of(s, "/v1/chat/completions", body, 404)["code"] == "model_not_found"
    s.ok("/v1/chat/completions", {**body, "model": "demo"})
    assert s.request("GET", "/v1/models/other")[0] == 404 and s.request("GET", "/v1/models/demo")[0] == 200
    assert s.stop() == 0


def test_models():
    value = json.loads(srv.get("/v1/models")[2])
    assert value["object"] == "list" and value["data"][0]["id"] == "demo" and value["data"][0]["context_length"] > 0
    assert json.loads(srv.get("/models/demo")[2])["id"] == "demo"
    own = json.load(open("models/demo/generation_config.json"))
    sampling = value["data"][0]["default_sampling"]
    assert {k: sampling[k] for k in ("temperature", "top_p", "top_k")} == {k: own[k] for k in ("temperature", "top_p", "top_k")}, sampling
    assert sampling["min_p"] == 0 and sampling["repetition_penalty"] == 1 and sampling["max_tokens"] is None, sampling  # a script knows its end


def test_plain_and_vendor():
    lily = srv.ok("/v1/chat/completions", {**chat_body(["x"], thinking=False), "seed": 77})["lily"]
    assert lily["seed"] == 77 and lily["cache"]["reused"] + lily["cache"]["computed"] > 0 and "prefill_ms" in lily["timings"]
    s = Server({}, ["--plain"])
    for path, body in (("/v1/chat/completions", chat_body(["x"])), ("/v1/responses", {"input": script(["x"])}),
                       ("/v1/messages", {"max_tokens": 5, "messages": USER}), ("/v1/completions", {"prompt": "x"})):
        assert "lily" not in s.ok(path, body)
        assert all(p == "[DONE]" or "lily" not in p for _, p in s.events(path, body))
    assert s.stop() == 0


def test_cached_tokens_add_up():
    body = {"messages": [{"role": "system", "content": "word " * 300}, {"role": "user", "content": script(["x"])}]}
    for i in range(2):
        reply = srv.ok("/v1/chat/completions", body)
        cache = reply["lily"]["cache"]
        assert cache["reused"] + cache["computed"] == reply["usage"]["prompt_tokens"]
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == cache["reused"]
    assert cache["reused"] > 200 and cache["computed"] <= 64


# ---- completions, tokens ----

def test_completions():
    text = script(["one ", "two"])
    reply = srv.ok("/v1/completions", {"prompt": text})
    assert reply["object"] == "text_completion" and reply["choices"][0]["text"] == "one two" and reply["choices"][0]["finish_reason"] == "stop"
    assert srv.ok("/v1/completions", {"prompt": text, "echo": True})["choices"][0]["text"] == text + "one two"
    reply = srv.ok("/v1/completions", {"prompt": [script(["A"]), script(["B"])], "n": 2})
    assert [c["text"] for c in reply["choices"]] == ["A", "A", "B", "B"] and [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]
    ids = srv.ok("/tokenize", {"content": text})["tokens"]
    assert srv.ok("/v1/completions", {"prompt": ids})["choices"][0]["text"] == "one two"
    reply = srv.ok("/v1/completions", {"prompt": text, "logprobs": 2})["choices"][0]["logprobs"]
    assert reply["tokens"] == ["one ", "two"] and reply["text_offset"] == [0, 4] and len(reply["top_logprobs"][0]) == 2
    events = srv.events("/v1/completions", {"prompt": text, "stream_options": {"include_usage": True}})
    assert events.pop()[1] == "[DONE]" and events.pop()[1]["choices"] == []
    assert "".join(e["choices"][0]["text"] for _, e in events) == "one two"
    for bad in ({}, {"prompt": []}, {"prompt": 5}, {"prompt": [1, "a"]}, {"prompt": [10 ** 8]}, {"prompt": ["a"] * 9}):
        assert error_of(srv, "/v1/completions", bad)["param"] in ("prompt", "prompt[0]", "prompt[1]", None), bad


def test_fill_in_the_middle():
    reply = srv.ok("/v1/completions", {"prompt": "a" + "\n" + script(["mid"]) + "\n", "suffix": "z", "echo": True})
    assert "<|fim_suffix|>z<|fim_middle|>" in reply["choices"][0]["text"], reply


def test_tokens():
    ids = srv.ok("/tokenize", {"content": "Hello <|im_end|>"})
    assert ids["count"] == len(ids["tokens"])
    assert srv.ok("/detokenize", {"tokens": ids["tokens"]})["content"] == "Hello <|im_end|>"
    assert error_of(srv, "/tokenize", {})["message"].startswith("content")
    assert error_of(srv, "/detokenize", {"tokens": [-1]})["param"] == "tokens[0]"


# ---- Responses ----

RESPONSE_TOOLS = [{"type": "function", "name": "get", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
                  {"type": "custom", "name": "patch", "description": "d"},
                  {"type": "namespace", "name": "space", "tools": [{"type": "function", "name": "inner", "parameters": {"type": "object"}}]},
                  {"type": "web_search"}]


def check_response_stream(events):
    names = [n for n, _ in events]
    assert all(n == e["type"] for n, e in events)
    assert [e["sequence_number"] for _, e in events] == list(range(len(events)))
    assert names[:2] == ["response.created", "response.in_progress"] and names[-1] in ("response.completed", "response.incomplete")
    items, deltas = {}, {}
    for n, e in events:
        if n == "response.output_item.added":
            items[e["output_index"]] = e["item"]["id"]
        if n.endswith(".delta"):
            assert items[e["output_index"]] == e["item_id"]
            deltas[e["output_index"]] = deltas.get(e["output_index"], "") + e["delta"]
        if n == "response.output_text.done" or n == "response.reasoning_text.done":
            assert e["text"] == deltas[e["output_index"]]
        if n == "response.function_call_arguments.done":
            assert e["arguments"] == deltas[e["output_index"]]
    done = [e["item"] for n, e in events if n == "response.output_item.done"]
    final = events[-1][1]["response"]
    assert final["output"] == done and final["usage"]["total_tokens"] > 0
    return final


def strip_ids(items):
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]


def test_E3():
    body = {"client_metadata": {}, "include": ["reasoning.encrypted_content"], "instructions": "Be brief.", "model": "gpt-5",
            "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "dev"}]},
                      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": script(["why", "</think>", "\n\n", "I look.", "\n", call_text("get", city="Rome")])}]}],
            "parallel_tool_calls": True, "prompt_cache_key": "k", "reasoning": {"summary": "auto"}, "store": False, "tool_choice": "auto",
            "tools": RESPONSE_TOOLS}
    final = check_response_stream(srv.events("/v1/responses", body))
    whole = srv.ok("/v1/responses", body)
    assert strip_ids(final["output"]) == strip_ids(whole["output"]), (final["output"], whole["output"])
    kinds = [i["type"] for i in whole["output"]]
    assert kinds == ["reasoning", "message", "function_call"], kinds
    assert whole["output"][0]["encrypted_content"] == "why" and json.loads(whole["output"][2]["arguments"]) == {"city": "Rome"}
    assert whole["status"] == "completed" and whole["output"][1]["content"][0]["text"] == "I look."
    again = {**body, "input": body["input"] + whole["output"] + [
        {"type": "function_call_output", "call_id": whole["output"][2]["call_id"], "output": "sunny\n" + script(["It is", " sunny."])}]}
    reply = srv.ok("/v1/responses", {**again, "reasoning": {"effort": "none"}})
    assert reply["output"][0]["content"][0]["text"] == "It is sunny.", reply


def test_responses_tools():
    for name, kind in (("patch", "custom_tool_call"), ("inner", "function_call")):
        body = {"input": script([call_text(name, input="a\nb")]), "reasoning": {"effort": "none"}, "tools": RESPONSE_TOOLS}
        final = check_response_stream(srv.events("/v1/responses", body))
        item = final["output"][0]
        assert item["type"] == kind and item["name"] == name, item
        if kind == "custom_tool_call":
            assert item["input"] == "a\nb"
        else:
            assert item["namespace"] == "space"
        echo = {**body, "input": [{"role": "user", "content": "x"}, item, {"type": kind + "_output", "call_id": item["call_id"], "output": [{"type": "input_text", "text": "ok " + script(["fine"])}]}]}
        assert srv.ok("/v1/responses", echo)["output"][0]["content"][0]["text"] == "fine"
    e = error_of(srv, "/v1/responses", {"input": "x", "tools": RESPONSE_TOOLS, "tool_choice": "required"})
    assert e["param"] == "tool_choice"


def test_responses_errors():
    for body in ({}, {"input": 5}, {"input": [{"type": "alien"}]}, {"input": "x", "previous_response_id": "r"}, {"input": "x", "max_output_tokens": "y"}):
        assert error_of(srv, "/v1/responses", body)["type"] == "invalid_request_error"
    reply = srv.ok("/v1/responses", {"input": script(["a"] * 50), "max_output_tokens": 3, "reasoning": {"effort": "none"}})
    assert reply["status"] == "incomplete" and reply["incomplete_details"] == {"reason": "max_output_tokens"}


# ---- Anthropic ----

def check_message_stream(events):
    names = [n for n, _ in events]
    assert all(n == e["type"] for n, e in events)
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"] and "ping" in names
    message = events[0][1]["message"]
    content = []
    open_block = None
    for n, e in events:
        if n == "content_block_start":
            assert open_block is None and e["index"] == len(content)
            content.append(dict(e["content_block"]))
            open_block, text = e["index"], ""
        if n == "content_block_delta":
            assert e["index"] == open_block
            d, block = e["delta"], content[-1]
            if d["type"] == "text_delta":
                block["text"] += d["text"]
            elif d["type"] == "thinking_delta":
                block["thinking"] += d["thinking"]
            elif d["type"] == "signature_delta":
                block["signature"] = d["signature"]
            else:
                text += d["partial_json"]
        if n == "content_block_stop":
            if content[-1]["type"] == "tool_use":
                content[-1]["input"] = json.loads(text)
            open_block = None
    message["content"] = content
    message.update(events[-2][1]["delta"])
    message["usage"] = events[-2][1]["usage"]
    return message


def test_messages():
    tools = [{"name": "get", "description": "d", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
             {"type": "web_search_20250305", "name": "web_search"}]
    body = {"model": "claude", "max_tokens": 1000, "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
            "tools": tools, "metadata": {}, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "context_management": {"edits": []},
            "messages": [{"role": "user", "content": [{"type": "text", "text": script(["why", "</think>", "\n\n", "I look.", "\n", call_text("get", n=5)]), "cache_control": {"type": "ephemeral"}}]},
                         {"role": "system", "content": "mid"}]}
    whole = srv.ok("/v1/messages?beta=true", body, {"anthropic-version": "2023-06-01"})
    streamed = check_message_stream(srv.events("/v1/messages", body))
    assert strip_ids(whole["content"]) == strip_ids(streamed["content"]), (whole, streamed)
    assert [b["type"] for b in whole["content"]] == ["thinking", "text", "tool_use"] and whole["content"][2]["input"] == {"n": 5}
    assert whole["stop_reason"] == streamed["stop_reason"] == "tool_use" and whole["usage"]["output_tokens"] == streamed["usage"]["output_tokens"] > 0
    body["messages"] += [{"role": "assistant", "content": whole["content"]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": whole["content"][2]["id"], "content": [{"type": "text", "text": "7"}]}, {"type": "text", "text": script(["It is 7."])}]}]
    body["thinking"] = {"type": "disabled"}
    del body["output_config"]
    assert srv.ok("/v1/messages", body)["content"] == [{"type": "text", "text": "It is 7."}]


def test_messages_stops():
    def ask(tokens, **more):
        body = {"max_tokens": 100, "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": script(tokens)}], **more}
        m = srv.ok("/v1/messages", body)
        s = check_message_stream(srv.events("/v1/messages", body))
        assert (m["stop_reason"], m["stop_sequence"], m["content"]) == (s["stop_reason"], s["stop_sequence"], s["content"])
        return m

    m = ask(["a", " EN", "D b"], stop_sequences=["never", "END"])
    assert m["stop_reason"] == "stop_sequence" and m["stop_sequence"] == "END"
    assert ask(["a"])["stop_reason"] == "end_turn" and ask(["a"] * 9, max_tokens=3)["stop_reason"] == "max_tokens"
    m = srv.ok("/v1/messages", {"max_tokens": 900, "thinking": {"type": "enabled", "budget_tokens": 8}, "messages": [{"role": "user", "content": script(["t "] * 100 + ["</think>", "done"])}]})
    assert m["content"][1]["text"] == "done" and m["content"][0]["thinking"].count("t") == 8


def test_messages_errors():
    status, value = srv.post("/v1/messages", {"messages": 5})
    assert status == 400 and value["type"] == "error" and value["error"]["type"] == "invalid_request_error"
    for choice in ({"type": "any"}, {"type": "tool", "name": "get"}):
        e = error_of(srv, "/v1/messages", {"max_tokens": 5, "messages": USER, "tool_choice": choice, "tools": [{"name": "get", "input_schema": {}}]})
        assert "tool_choice" in e["message"] and "not supported yet" in e["message"]
    error_of(srv, "/v1/messages", {"max_tokens": 5, "messages": USER, "thinking": {"type": "odd"}})


def test_count_tokens():
    body = {"messages": [{"role": "user", "content": script(["x"])}], "thinking": {"type": "disabled"}}
    n = srv.ok("/v1/messages/count_tokens", body)["input_tokens"]
    u = srv.ok("/v1/messages", {**body, "max_tokens": 5})["usage"]
    assert n == u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"]


# ---- paths ----

def test_G4():
    for path in ("/v1/chat/completions?x=1", "/v1/chat/completions/", "/chat/completions", "/chat/completions/?a=b"):
        srv.ok(path, chat_body(["x"]))


def test_paths():
    assert srv.request("HEAD", "/")[0] == 200 and srv.get("/")[0] == 200
    status, headers, data = srv.get("/v1/nothing")
    assert status == 404 and json.loads(data)["error"]["message"]
    status, _, data = srv.request("POST", "/api/chat", {})
    assert status == 404 and "/v1" in json.loads(data)["error"]["message"]
    for method, path, allow in (("GET", "/v1/chat/completions", "POST"), ("POST", "/v1/models", "GET"), ("DELETE", "/v1/messages", "POST")):
        status, headers, _ = srv.request(method, path)
        assert status == 405 and allow in headers["allow"], (method, path, status, headers)
    assert json.loads(srv.request("GET", "/v1/messages", headers={"anthropic-version": "1"})[2])["type"] == "error"


def test_metrics_and_state():
    before = srv.metric("jobs_done_total")
    srv.ok("/v1/chat/completions", chat_body(["x"]))
    assert srv.metric("jobs_done_total") == before + 1 and srv.metric("jobs_active") == 0
    state = srv.state()
    assert state["status"] == "ok" and state["requests"] == []


run(globals(), srv)
