// The page's modules that need no browser: the splitter against the parser, trees, files, events, texts.
import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";
import { pathToFileURL } from "node:url";
import { equal, ok, run, test } from "./page.mjs";

const web = pathToFileURL(process.cwd() + "/src/serve/web/").href;
const load = (name) => import(web + name);
const { makeParser } = await load("parser.js");
const { Splitter } = await load("split.js");
const { Tree } = await load("tree.js");
const { EventParser } = await load("sse.js");
const { Writing } = await load("deltas.js");
const { requestBody } = await load("request.js");
const { fromText, toText } = await load("transfer.js");
const { bytes, duration, number, table } = await load("texts.js");

const sandbox = createContext({});
runInContext(readFileSync(process.env.MARKED || "/usr/share/javascript/marked/marked.umd.min.js", "utf8"), sandbox);
const parser = makeParser(sandbox.marked);

/** All that a text becomes, cut into pieces; also the longest single word of the splitter. */
function render(text, size) {
  const s = new Splitter(parser), ops = [];
  for (let i = 0; i < text.length; i += size) ops.push(...s.push(text.slice(i, i + size)));
  ops.push(...s.end());
  let out = "", longest = 0;
  for (const o of ops) {
    longest = Math.max(longest, (o.html || o.text || "").length);
    if (o.op === "block") out += o.html;
    if (o.op === "code") out += "<pre lang=" + o.lang + ">";
    if (o.op === "lines") out += o.text;
    if (o.op === "end") out += "</pre>";
  }
  return { out, longest, ops: ops.length };
}
const words = (html) => html.replace(/<[^>]*>/g, " ").split(/\s+/).filter(Boolean).join(" ");

test("every cut of a text gives the same blocks", () => {
  const text = "# T\n\npara *a*\nb\n\n- x\n- y\n\n  z\n\n1. q\n\n> w\n\n```js\nlet a;\n\n\nb\n```\ntail\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n    indented\n\n***\nSet\n---\n";
  const whole = render(text, 1e9).out;
  for (let size = 1; size < 40; size++) equal(render(text, size).out, whole, "size " + size);
  ok(whole.includes("<pre lang=js>let a;\n\n\nb\n</pre>"), whole);
});

test("random texts: pieces equal the whole", () => {
  const bits = ["- a\n", "\n", "text ", "*b*", "`c`", "```\n", "```js\n", "> q\n", "1. n\n", "| a | b |\n", "|---|---|\n", "# h\n", "\n\n", "~~~\n", "    in\n", "\n---\n", "\t- t\n", "<div>\n", "\r\n", "[l](http://x) "];
  let seed = 1;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 400; round++) {
    const text = Array.from({ length: 3 + random(14) }, () => bits[random(bits.length)]).join("");
    const whole = render(text, 1e9).out;
    for (const size of [1, 3, 8]) if (!text.includes("\r")) equal(render(text, size).out, whole, JSON.stringify(text) + " in pieces of " + size);
  }
});

test("no word is longer than a frame can bear, and nothing is lost", () => {
  const n = 4000, cases = {
    paragraph: "word ".repeat(20000),
    "one line without blanks": "x".repeat(100000),
    list: Array.from({ length: n }, (_, i) => `- item ${i} with some words\n`).join(""),
    "numbered list": Array.from({ length: n }, (_, i) => `${i + 1}. item\n`).join(""),
    table: "| a | b |\n|---|---|\n" + Array.from({ length: n }, (_, i) => `| ${i} | cell |\n`).join(""),
    quote: Array.from({ length: n }, (_, i) => `> line ${i}\n`).join(""),
    code: "```\n" + "let a = 1;\n".repeat(n) + "```\n",
    "lines without end": Array.from({ length: n }, (_, i) => `line ${i}\n`).join(""),
    brackets: "[".repeat(30000),
  };
  for (const [name, text] of Object.entries(cases)) {
    const begun = performance.now(), { out, longest } = render(text, 997);
    ok(performance.now() - begun < 8000, name + " took " + (performance.now() - begun));
    ok(longest < 60000, name + ": a piece of " + longest);
    const plain = (s) => words(s).replace(/[-|>#`*]|\d+\./g, "").replace(/\s+/g, "");
    const expected = name === "table" ? plain(text.replace(/---/g, "")) : plain(text.replace(/```/g, ""));
    const found = name === "table" ? plain(out.replace(/<thead>[^]*?<\/thead>/g, (h, at) => (at === out.indexOf("<thead>") ? h : ""))) : plain(out.replace(/lang=>/g, ">"));
    equal(found.length, expected.length, name);
  }
});

test("trees: branches and paths", () => {
  const tree = new Tree({ id: "c", title: "", created: 0, updated: 0, picked: null });
  const a = tree.add(null, { role: "user", text: "a" }), b = tree.add(a.id, { role: "assistant", text: "b" }), c = tree.add(a.id, { role: "assistant", text: "c" });
  equal(tree.path().map((m) => m.text), ["a", "c"]);
  equal(tree.sibling(c, -1).text, "b");
  tree.pick(b);
  equal(tree.path().map((m) => m.text), ["a", "b"]);
  equal([tree.sibling(b, -1), tree.sibling(c, 1)], [undefined, undefined]);
  tree.conv.picked = "gone"; // a choice that is not there any more
  equal(tree.path()[0].text, "a");
});

test("files: what comes back is what went out, with new ids", () => {
  const tree = new Tree({ id: "c", title: "T", created: 1, updated: 2, picked: null, settings: { system: "s" } });
  const a = tree.add(null, { role: "user", text: "a" });
  tree.add(a.id, { role: "assistant", text: "b", thought: "t", finish: "stop", calls: [{ id: "1", name: "f", args: "{}" }] });
  const [back] = fromText(toText([{ conversation: tree.conv, messages: [...tree.byId.values()] }]));
  const again = new Tree(back.conversation, back.messages);
  equal(again.path().map((m) => [m.role, m.text, m.thought, m.calls]), [["user", "a", undefined, undefined], ["assistant", "b", "t", [{ id: "1", name: "f", args: "{}" }]]]);
  ok(back.conversation.id !== "c" && back.messages.every((m) => m.conv === back.conversation.id && !tree.byId.has(m.id)), "new ids");
});

test("files: hostile ones are refused or made harmless", () => {
  const bad = (f) => {
    try {
      f();
    } catch {
      return true;
    }
    return false;
  };
  for (const s of ["", "null", "[]", '{"format":"x"}', '{"format":"lily-conversations","conversations":{}}']) ok(bad(() => fromText(s)), s);
  const file = (messages, conversation = {}) => fromText(JSON.stringify({ format: "lily-conversations", conversations: [{ conversation, messages }] }));
  equal(file([{ id: "a", parent: "b", role: "user" }, { id: "b", parent: "a", role: "user" }]), [], "a loop");
  equal(file([{ id: "a", parent: "nobody", role: "user" }, { id: "b", role: "system" }, null, 5, { role: "user" }])[0].messages, [], "parts that fit nowhere");
  const [odd] = file([{ id: "a", role: "assistant", numbers: { speed: "fast", tokens: {}, prompt: 5, why: { why: "x" } }, calls: [null, { name: 5 }], thought_ms: "1" }], { settings: { temperature: "hot", top_k: 3, system: ["x"], thinking: 0, tools: "rm" } });
  equal([odd.messages[0].numbers, odd.messages[0].calls, odd.messages[0].thought_ms, odd.conversation.settings], [{ prompt: 5 }, [{ id: "", name: "", args: "" }, { id: "", name: "", args: "" }], 0, { top_k: 3 }]);
  const [{ conversation, messages }] = file([{ id: "a", role: "user", text: { x: 1 }, created: "now", __proto__x: 1 }], { title: 5, picked: "a", settings: [] });
  equal([conversation.title, conversation.settings, messages[0].text, messages[0].created, conversation.picked === messages[0].id], ["", {}, "", 0, true]);
});

test("events in any pieces", () => {
  const text = 'data: {"a":1}\n\n: note\n\nevent: x\ndata: [DONE]\n\n';
  for (let size = 1; size < 12; size++) {
    const p = new EventParser(), out = [];
    for (let i = 0; i < text.length; i += size) out.push(...p.push(text.slice(i, i + size)));
    equal(out, ['{"a":1}', "[DONE]"]);
  }
});

test("deltas become the message and its numbers", () => {
  let now = 0;
  const m = { id: "m" }, w = new Writing(m, () => now);
  const chunk = (delta, more = {}) => w.take(JSON.stringify({ model: "demo", choices: [{ delta, finish_reason: null }], ...more }));
  chunk({ role: "assistant", content: "" }, { lily: { state: "prefill", done: 5, total: 10 } });
  equal(w.progress.done, 5);
  now = 400;
  chunk({ reasoning_content: "hm" });
  now = 1400;
  chunk({ content: "Hi" });
  chunk({ tool_calls: [{ index: 0, id: "x", function: { name: "f", arguments: '{"a"' } }] });
  chunk({ tool_calls: [{ index: 0, function: { arguments: ":1}" } }] });
  w.take(JSON.stringify({ choices: [{ delta: {}, finish_reason: "tool_calls" }], lily: { timings: { decode_tok_s: 33.5 }, cache: { reused: 64, computed: 6, reason: null }, seed: 1 } }));
  w.take(JSON.stringify({ choices: [], usage: { prompt_tokens: 70, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 64 } } }));
  w.take("[DONE]");
  equal([m.text, m.thought, m.calls, m.finish, w.done, w.progress], ["Hi", "hm", [{ id: "x", name: "f", args: '{"a":1}' }], "tool_calls", true, null]);
  equal([m.numbers.first_ms, m.numbers.speed, m.numbers.tokens, m.numbers.reused, m.numbers.prompt], [400, 33.5, 9, 64, 70]);
});

test("requests: what came to nothing is left out", () => {
  const path = [{ role: "user", text: "a" }, { role: "assistant", text: "", thought: "x", finish: "error" }, { role: "user", text: "b" }];
  equal(requestBody(path, { temperature: 0, top_p: NaN, thinking: false, thinking_budget: 5 }), { messages: [{ role: "user", content: "a" }, { role: "user", content: "b" }], stream: true, stream_options: { include_usage: true }, lily: { progress: true }, temperature: 0, enable_thinking: false });
});

test("every text is there in both languages, and every key that is used", () => {
  for (const [key, both] of Object.entries(table)) {
    ok(both.length === 2 && both.every((s) => typeof s === "string" && s), key);
    const holes = (s) => [...s.matchAll(/\{\w+\}/g)].map(String).sort().filter((h, i, a) => a[i - 1] !== h);
    equal(holes(both[0]), holes(both[1]), key);
  }
  for (const file of ["view.js", "numbers.js", "dialogs.js", "settings.js", "sidebar.js", "chat.js", "welcome.js", "machine.js", "gauge.js", "plot.js", "looks.js", "composer.js", "code.js", "main.js"])
    for (const [, key] of readFileSync("src/serve/web/" + file, "utf8").matchAll(/\bt\("(\w+)"/g)) ok(table[key] || key === "s_", file + ": " + key);
  for (const [, key] of readFileSync("src/serve/web/index.html", "utf8").matchAll(/data-t(?:-label|-hint)?="(\w+)"/g)) ok(table[key], key);
});

test("numbers in the language's form", () => {
  globalThis.document = { documentElement: { lang: "en" } };
  equal([number(0), number(999), number(1000), number(-1234567.891, 2), number(0.5, 1), duration(420), duration(9950), duration(75000), duration(7500000), bytes(1023), bytes(1536), bytes(20e9)], ["0", "999", "1,000", "-1,234,567.89", "0.5", "0.42 s", "9.9 s", "1 min 15 s", "2 h 5 min", "1.00 KiB", "1.50 KiB", "18.6 GiB"]);
  document.documentElement.lang = "pt";
  equal([number(1234.5, 1), duration(420)], ["1.234,5", "0,42 s"]);
});

await run();
