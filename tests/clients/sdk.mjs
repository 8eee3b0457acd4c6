// The official JavaScript SDKs against running servers, one on the fake engine, one with the demo model: node sdk.mjs PORT DEMO_PORT.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import assert from "node:assert";
import OpenAI from "openai";
import { z } from "zod";

const [port, demoPort] = process.argv.slice(2);
const script = (tokens) => "#script " + JSON.stringify({ tokens });
const user = (text) => [{ role: "user", content: text }];
const call = (city) => `<tool_call>\n<function=get_weather>\n<parameter=city>\n${city}\n</parameter>\n</function>\n</tool_call>`;
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const openaiAt = (p) => new OpenAI({ baseURL: `http://127.0.0.1:${p}/v1`, apiKey: "none", maxRetries: 0 });
const anthropicAt = (p) => new Anthropic({ baseURL: `http://127.0.0.1:${p}`, apiKey: "none", maxRetries: 0 });
const openai = openaiAt(port), anthropic = anthropicAt(port);
const lily = createOpenAICompatible({ name: "lily", baseURL: `http://127.0.0.1:${port}/v1` });
const endless = script(["</think>", { text: "x", delay_ms: 20, repeat: 5000 }]);
const TAGS = /<\/?think>|<\/?tool_call>|<\|im_(start|end)\|>|<\/?function|<\/?parameter/;

// Waits until the server has no request any more: who left is noticed.
async function idle() {
  for (let i = 0; i < 1000; i++) {
    if ((await (await fetch(`http://127.0.0.1:${port}/state`)).json()).requests.length === 0) return;
    await new Promise((done) => setTimeout(done, 10));
  }
  throw new Error("a request of a client that left still runs");
}

function randomTool() {
  const pick = (list) => list[Math.floor(Math.random() * list.length)];
  const name = pick(["get", "find", "set"]) + "_" + Array.from({ length: 5 }, () => pick([..."abcdeklmnor"])).join("");
  const key = pick(["city", "item", "name"]), value = pick(["Paris", "Oslo", "Lima"]);
  const parameters = { type: "object", properties: { [key]: { type: "string" } }, required: [key] };
  return { name, values: { [key]: value }, parameters, question: `Call ${name} with ${key} ${value}.` };
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

const tests = {
  async openai_chat() {
    const body = { model: "m", messages: user(script(["why", "</think>", "\n\n", "Hello", " you"])) };
    assert.equal((await openai.chat.completions.create(body)).choices[0].message.content, "Hello you");
    let text = "";
    for await (const c of await openai.chat.completions.create({ ...body, stream: true })) text += c.choices[0].delta.content ?? "";
    assert.equal(text, "Hello you");
  },
  async openai_tools_and_models() {
    const tools = [{ type: "function", function: { name: "get_weather", parameters: schema } }];
    const messages = user(script(["</think>", call("Oslo")]));
    const { message } = (await openai.chat.completions.create({ model: "m", tools, messages })).choices[0];
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Oslo" });
    messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: script(["</think>", "sunny"]) });
    assert.equal((await openai.chat.completions.create({ model: "m", tools, messages })).choices[0].message.content, "sunny");
    assert.equal((await openai.models.list()).data[0].id, "demo");
    assert.equal((await openai.models.retrieve("demo")).owned_by, "lily");
  },
  async openai_responses() {
    const reply = await openai.responses.create({ model: "m", input: script(["</think>", "Hi"]) });
    assert.equal(reply.output_text, "Hi");
    const stream = openai.responses.stream({ model: "m", input: script(["why", "</think>", "Hi"]) });
    for await (const e of stream) assert.ok(e.type);
    assert.equal((await stream.finalResponse()).output_text, "Hi");
    const tools = [{ type: "function", name: "get_weather", parameters: schema, strict: false }];
    const input = user(script(["why", "</think>", call("Rome")]));
    const first = await openai.responses.create({ model: "m", input, tools });
    const asked = first.output.find((i) => i.type === "function_call");
    assert.deepEqual(JSON.parse(asked.arguments), { city: "Rome" });
    input.push(...first.output, { type: "function_call_output", call_id: asked.call_id, output: script(["</think>", "sunny"]) });
    assert.equal((await openai.responses.create({ model: "m", input, tools })).output_text, "sunny");
  },
  async openai_abort_and_errors() {
    const stream = await openai.chat.completions.create({ model: "m", stream: true, messages: user(endless) });
    for await (const _ of stream) break;
    stream.controller.abort();
    await idle();
    await assert.rejects(openai.chat.completions.create({ model: "m", messages: user("x"), temperature: 500 }), (e) => e.status === 400 && e.param === "temperature");
    await assert.rejects(openai.get("/nothing"), (e) => e.status === 404);
    await assert.rejects(async () => {
      for await (const _ of await openai.chat.completions.create({ model: "m", stream: true, messages: user(script(["a", { error: "boom" }])) }));
    }, /boom/);
  },
  async anthropic_messages() {
    const body = { model: "m", max_tokens: 900, tools: [{ name: "get_weather", input_schema: schema }], messages: user(script(["why", "</think>", "\n\n", "I look.", call("Lima")])) };
    const whole = await anthropic.messages.create(body);
    assert.deepEqual(whole.content[2].input, { city: "Lima" });
    const result = [{ type: "tool_result", tool_use_id: whole.content[2].id, content: script(["</think>", "sunny"]) }];
    const next = [...body.messages, { role: "assistant", content: whole.content }, { role: "user", content: result }];
    assert.equal((await anthropic.messages.create({ ...body, messages: next })).content.at(-1).text, "sunny");
    const final = await anthropic.messages.stream(body).finalMessage();
    assert.deepEqual([final.stop_reason, final.content[1].text, final.content[2].input], ["tool_use", "I look.", { city: "Lima" }]);
    assert.ok((await anthropic.messages.countTokens({ model: "m", messages: user("hi") })).input_tokens > 3);
    await assert.rejects(anthropic.messages.create({ model: "m", max_tokens: 5, messages: user("x"), temperature: 500 }), (e) => e.status === 400);
    assert.equal((await anthropic.models.list()).data[0].id, "demo");
  },
  async anthropic_abort() {
    const stream = anthropic.messages.stream({ model: "m", max_tokens: 9000, messages: user(endless) });
    stream.on("text", () => stream.abort());
    await assert.rejects(stream.finalMessage());
    await idle();
  },
  async ai_sdk() {
    assert.equal((await generateText({ model: lily("m"), prompt: script(["</think>", "Hi"]) })).text, "Hi");
    const stream = streamText({ model: lily("m"), prompt: script(["why", "</think>", "Hi"]) });
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.equal(text, "Hi");
    const weather = tool({ description: "d", inputSchema: z.object({ city: z.string() }) });
    const reply = await generateText({ model: lily("m"), prompt: script(["</think>", call("Rome")]), tools: { get_weather: weather } });
    assert.deepEqual(reply.toolCalls[0].input, { city: "Rome" });
    const answers = tool({ description: "d", inputSchema: z.object({ city: z.string() }), execute: async () => script(["</think>", "sunny"]) });
    const prompt = script(["</think>", call("Rome")]);
    assert.equal((await generateText({ model: lily("m"), prompt, tools: { get_weather: answers }, stopWhen: stepCountIs(3) })).text, "sunny");
  },
  async ai_sdk_abort_and_errors() {
    const abort = new AbortController();
    const stream = streamText({ model: lily("m"), prompt: endless, abortSignal: abort.signal, maxRetries: 0, onError() {} });
    for await (const _ of stream.textStream) abort.abort();
    await idle();
    await assert.rejects(generateText({ model: lily("m"), prompt: "x", temperature: 500, maxRetries: 0 }), (e) => e.statusCode === 400 && /temperature/.test(e.message));
  },
  async demo_tools_round_trip() {
    const chat = openaiAt(demoPort), messages = anthropicAt(demoPort), demo = createOpenAICompatible({ name: "demo", baseURL: `http://127.0.0.1:${demoPort}/v1` });
    let good = 0;
    for (let i = 0; i < 4; i++) {
      const t = randomTool();
      const tools = [{ type: "function", function: { name: t.name, description: "Does it.", parameters: t.parameters } }];
      const body = { model: "m", tools, temperature: 0, max_tokens: 100, enable_thinking: false, messages: user(t.question) };
      const { message } = (await chat.chat.completions.create(body)).choices[0];
      for (const c of message.tool_calls ?? []) {
        good += c.function.name === t.name && same(JSON.parse(c.function.arguments), t.values);
        const last = await chat.chat.completions.create({ ...body, messages: [...body.messages, message, { role: "tool", tool_call_id: c.id, content: '{"status": "done"}' }] });
        assert.ok(!TAGS.test(last.choices[0].message.content ?? ""));
      }
      const ask = { model: "m", max_tokens: 100, temperature: 0, thinking: { type: "disabled" }, tools: [{ name: t.name, description: "Does it.", input_schema: t.parameters }] };
      const reply = await messages.messages.create({ ...ask, messages: body.messages });
      for (const b of reply.content.filter((x) => x.type === "tool_use")) {
        good += b.name === t.name && same(b.input, t.values);
        const result = [{ type: "tool_result", tool_use_id: b.id, content: '{"status": "done"}' }];
        const last = await messages.messages.create({ ...ask, messages: [...body.messages, { role: "assistant", content: reply.content }, { role: "user", content: result }] });
        assert.ok(last.content.every((x) => x.type !== "text" || !TAGS.test(x.text)));
      }
      const shape = z.object({ [Object.keys(t.values)[0]]: z.string() });
      const steps = await generateText({ model: demo("m"), prompt: t.question, temperature: 0, maxOutputTokens: 200, maxRetries: 0, stopWhen: stepCountIs(2),
        tools: { [t.name]: tool({ description: "Does it.", inputSchema: shape, execute: async () => ({ status: "done" }) }) } });
      good += steps.steps[0].toolCalls.some((c) => c.toolName === t.name && same(c.input, t.values));
      assert.ok(!TAGS.test(steps.text));
    }
    console.log(`demo tools: ${good} of 12 calls were right`);
    assert.ok(good >= 4, `${good} of 12`);
  },
};
let passed = 0, failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    passed++;
  } catch (e) {
    failed++;
    console.log(`FAIL ${name}`, e);
  }
}
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
