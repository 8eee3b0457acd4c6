// The official JavaScript SDKs against a running lily serve on the fake engine: node sdk.mjs PORT.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText, tool } from "ai";
import assert from "node:assert";
import OpenAI from "openai";
import { z } from "zod";

const port = process.argv[2];
const script = (tokens) => "#script " + JSON.stringify({ tokens });
const user = (text) => [{ role: "user", content: text }];
const call = (city) => `<tool_call>\n<function=get_weather>\n<parameter=city>\n${city}\n</parameter>\n</function>\n</tool_call>`;
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const openai = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: `http://127.0.0.1:${port}`, apiKey: "none", maxRetries: 0 });
const lily = createOpenAICompatible({ name: "lily", baseURL: `http://127.0.0.1:${port}/v1` });

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
    const reply = await openai.chat.completions.create({ model: "m", tools, messages: user(script(["</think>", call("Oslo")])) });
    assert.deepEqual(JSON.parse(reply.choices[0].message.tool_calls[0].function.arguments), { city: "Oslo" });
    assert.equal((await openai.models.list()).data[0].id, "demo");
  },
  async openai_responses() {
    const reply = await openai.responses.create({ model: "m", input: script(["</think>", "Hi"]) });
    assert.equal(reply.output_text, "Hi");
    const stream = openai.responses.stream({ model: "m", input: script(["why", "</think>", "Hi"]) });
    for await (const e of stream) assert.ok(e.type);
    assert.equal((await stream.finalResponse()).output_text, "Hi");
  },
  async openai_abort_and_errors() {
    const stream = await openai.chat.completions.create({ model: "m", stream: true, messages: user("#script " + JSON.stringify({ tokens: [{ text: "x", delay_ms: 20, repeat: 5000 }] })) });
    for await (const _ of stream) break;
    await assert.rejects(openai.chat.completions.create({ model: "m", messages: user("x"), temperature: 500 }), (e) => e.status === 400 && e.param === "temperature");
  },
  async anthropic_messages() {
    const body = { model: "m", max_tokens: 900, tools: [{ name: "get_weather", input_schema: schema }], messages: user(script(["why", "</think>", "\n\n", "I look.", call("Lima")])) };
    assert.deepEqual((await anthropic.messages.create(body)).content[2].input, { city: "Lima" });
    const final = await anthropic.messages.stream(body).finalMessage();
    assert.deepEqual([final.stop_reason, final.content[1].text, final.content[2].input], ["tool_use", "I look.", { city: "Lima" }]);
    assert.ok((await anthropic.messages.countTokens({ model: "m", messages: user("hi") })).input_tokens > 3);
    await assert.rejects(anthropic.messages.create({ model: "m", max_tokens: 5, messages: user("x"), temperature: 500 }), (e) => e.status === 400);
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
