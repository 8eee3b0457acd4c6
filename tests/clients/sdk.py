#!/usr/bin/env python3
"""The official Python SDKs of OpenAI and Anthropic against lily serve: scripts on the fake engine, then the demo model."""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "api"))
from lilyserve import *

import anthropic
import openai

srv = Server({}, ["--parallel", "2", "--queue", "4"])
demo = Server(None, ["--ctx", "4096"])
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def openai_client(server=srv):
    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % server.port, api_key="none", max_retries=0)


def anthropic_client(server=srv):
    return anthropic.Anthropic(base_url="http://127.0.0.1:%d" % server.port, api_key="none", max_retries=0)


def user(text):
    return [{"role": "user", "content": text}]


def test_openai_chat_and_stream():
    c = openai_client()
    body = dict(model="m", messages=user(script(["why", "</think>", "\n\n", "Hello", " you"])))
    whole = c.chat.completions.create(**body)
    assert whole.choices[0].message.content == "Hello you" and whole.choices[0].message.reasoning_content == "why"
    chunks = list(c.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    assert "".join(k.choices[0].delta.content or "" for k in chunks if k.choices) == "Hello you"
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens and chunks[-2].choices[0].finish_reason == "stop"


def test_openai_tools_round_trip():
    c = openai_client()
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    messages = user(script(["</think>", call_text("get_weather", city="Oslo")]))
    message = c.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Oslo"}
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": script(["</think>", "sunny"])}]
    assert c.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message.content == "sunny"


def test_openai_abort_and_errors():
    c = openai_client()
    stream = c.chat.completions.create(model="m", messages=user(script([{"text": "x", "delay_ms": 20, "repeat": 5000}])), stream=True)
    for i, _ in enumerate(stream):
        if i == 3:
            break
    stream.close()
    srv.wait_for(lambda: srv.state()["requests"] == [])
    try:
        c.chat.completions.create(model="m", messages=user("x"), temperature=500)
        raise AssertionError("no error")
    except openai.BadRequestError as e:
        assert e.param == "temperature"
    try:
        c.get("/nothing", cast_to=object)
        raise AssertionError("no error")
    except openai.NotFoundError:
        pass
    try:
        list(c.chat.completions.create(model="m", messages=user(script(["a", {"error": "boom"}])), stream=True))
        raise AssertionError("no error")
    except openai.APIError as e:
        assert "boom" in str(e)


def test_openai_models_completions_responses():
    c = openai_client()
    assert c.models.list().data[0].id == "demo" and c.models.retrieve("demo").owned_by == "lily"
    assert c.completions.create(model="m", prompt=script(["a", "b"])).choices[0].text == "ab"
    body = dict(model="m", input=script(["why", "</think>", "\n\n", "Hi", call_text("get_weather", city="Rome")]),
                tools=[{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}])
    whole = c.responses.create(**body)
    assert whole.output_text == "Hi" and [i.type for i in whole.output] == ["reasoning", "message", "function_call"]
    with c.responses.stream(**body) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and final.output_text == "Hi" and json.loads(final.output[2].arguments) == {"city": "Rome"}


def test_anthropic():
    c = anthropic_client()
    body = dict(model="m", max_tokens=900, messages=user(script(["why", "</think>", "\n\n", "I look.", call_text("get_weather", city="Lima")])),
                tools=[{"name": "get_weather", "input_schema": WEATHER}])
    whole = c.messages.create(**body)
    assert [b.type for b in whole.content] == ["thinking", "text", "tool_use"] and whole.content[2].input == {"city": "Lima"}
    with c.messages.stream(**body) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "I look." and final.content[2].input == {"city": "Lima"} and final.stop_reason == "tool_use"
    body["messages"] += [{"role": "assistant", "content": whole.content}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": whole.content[2].id, "content": script(["</think>", "sunny"])}]}]
    assert c.messages.create(**body).content[-1].text == "sunny"
    assert c.messages.count_tokens(model="m", messages=user("hi")).input_tokens > 3
    try:
        c.messages.create(model="m", max_tokens=5, messages=user("x"), extra_body={"temperature": 500})
        raise AssertionError("no error")
    except anthropic.BadRequestError as e:
        assert "temperature" in str(e)


def test_anthropic_abort_and_models():
    c = anthropic_client()
    asked = dict(model="m", max_tokens=9000, messages=user(script(["</think>", {"text": "x", "delay_ms": 20, "repeat": 5000}])))
    with c.messages.stream(**asked) as stream:
        for i, _ in enumerate(stream.text_stream):
            if i == 3:
                break
    srv.wait_for(lambda: srv.state()["requests"] == [])
    assert c.models.list().data[0].id == "demo" and c.models.retrieve("demo").display_name == "demo"
    try:
        list(c.messages.create(model="m", max_tokens=5, messages=user(script(["a", {"error": "boom"}])), stream=True))
        raise AssertionError("no error")
    except anthropic.APIError as e:
        assert "boom" in str(e)
    try:
        c.get("/v1/nothing", cast_to=object)
        raise AssertionError("no error")
    except anthropic.NotFoundError:
        pass


def test_openai_responses_round_trip():
    c = openai_client()
    tools = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]
    items = [{"role": "user", "content": script(["why", "</think>", "\n\n", call_text("get_weather", city="Rome")])}]
    first = c.responses.create(model="m", input=items, tools=tools)
    call = [i for i in first.output if i.type == "function_call"][0]
    items += [i.model_dump() for i in first.output] + [{"type": "function_call_output", "call_id": call.call_id, "output": script(["</think>", "sunny"])}]
    assert json.loads(call.arguments) == {"city": "Rome"} and c.responses.create(model="m", input=items, tools=tools).output_text == "sunny"


def random_tool(rng):
    """A name, a parameter, a value that the demo model has not seen together, and the question for them."""
    name = rng.choice(["get", "find", "set"]) + "_" + "".join(rng.choice("abcdeklmnor") for _ in range(5))
    key, value = rng.choice(["city", "item", "name"]), rng.choice(["Paris", "Oslo", "Lima"])
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    return name, {key: value}, schema, "Call %s with %s %s." % (name, key, value)


def test_demo_tools_round_trip():
    """Both SDKs, tool and argument names drawn at random; the model need not be right each time, but every reply must be clean."""
    seed = random.randrange(10 ** 9)
    rng, good = random.Random(seed), 0
    for _ in range(6):
        name, values, schema, question = random_tool(rng)
        c, tools, messages = openai_client(demo), [{"type": "function", "function": {"name": name, "description": "Does it.", "parameters": schema}}], user(question)
        ask = dict(model="m", tools=tools, temperature=0, max_tokens=100, extra_body={"enable_thinking": False})
        message = c.chat.completions.create(messages=messages, **ask).choices[0].message
        for call in message.tool_calls or []:
            good += call.function.name == name and json.loads(call.function.arguments) == values
            last = c.chat.completions.create(messages=messages + [message, {"role": "tool", "tool_call_id": call.id, "content": '{"status": "done"}'}], **ask)
            no_tags(last.choices[0].message.model_dump())
        c = anthropic_client(demo)
        ask = dict(model="m", tools=[{"name": name, "description": "Does it.", "input_schema": schema}], max_tokens=100, thinking={"type": "disabled"}, extra_body={"temperature": 0})
        reply = c.messages.create(messages=messages, **ask)
        for block in reply.content:
            if block.type == "tool_use":
                good += block.name == name and block.input == values
                result = [{"type": "tool_result", "tool_use_id": block.id, "content": '{"status": "done"}'}]
                last = c.messages.create(messages=messages + [{"role": "assistant", "content": reply.content}, {"role": "user", "content": result}], **ask)
                assert all(b.type != "text" or not TAGS.search(b.text) for b in last.content)
    print("demo tools: %d of 12 calls were right, seed %d" % (good, seed))
    assert good >= 4, (good, seed)


def test_demo_model():
    reply = openai_client(demo).chat.completions.create(model="m", messages=user("Who are you?"), max_tokens=60, extra_body={"enable_thinking": False})
    assert reply.choices[0].message.content
    message = anthropic_client(demo).messages.create(model="m", max_tokens=60, messages=user("Who are you?"), thinking={"type": "disabled"})
    assert message.content[0].text


run(globals(), srv, demo)
