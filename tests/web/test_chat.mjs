// Talking: send, stream, stop, answer again, edit, branches, what is kept, what goes wrong.
import { readFileSync } from "node:fs";
import { answer, equal, ok, openPage, run, say, serve, settled, sleep, test, until } from "./page.mjs";

const server = await serve({ prompt_scripts: true, replies: [{ tokens: ["ok", "</think>", "\n\n", "Fine."] }] });
/** A message that brings its reply along. */
const script = (text, tokens, more = {}) => text + "\n#script " + JSON.stringify({ tokens, ...more });
const plain = (...tokens) => ["</think>", "\n\n", ...tokens];
const texts = (page, which) => page.locator(".message." + which + " > :is(.bubble, .prose)").allInnerTexts();
const bodyOf = (page) => page.waitForRequest((r) => r.url().endsWith("/v1/chat/completions")).then((r) => r.postDataJSON());
async function withPage(f, options) {
  const page = await openPage(server, options);
  await f(page);
  equal(page.faults, [], "faults of the page");
  equal(page.outside, [], "requests to elsewhere");
  await page.context().close();
}
const talk = (name, f, options) => test(name, () => withPage(f, options));

talk("a message is sent, its answer streams", async (page) => {
  const sent = bodyOf(page);
  await say(page, script("Hello", plain({ text: "word ", delay_ms: 30, repeat: 40 })));
  await page.waitForFunction(() => /word word/.test(document.querySelector(".message.assistant > .prose")?.textContent || ""));
  const early = (await texts(page, "assistant"))[0].length;
  ok(await page.locator("#send.stops").count(), "the button stops");
  await answer(page);
  const text = (await texts(page, "assistant"))[0];
  ok(early < text.length, "it came in pieces");
  equal(text.trim(), "word ".repeat(40).trim());
  const body = await sent;
  equal([body.stream, body.lily, body.messages.length, body.messages[0].role], [true, { progress: true }, 1, "user"]);
  equal(Object.keys(body).sort(), ["lily", "messages", "stream", "stream_options"]);
  equal(await page.locator("#ask").inputValue(), "");
  ok((await page.title()).startsWith("Hello"), "a title");
});

talk("the second message carries the first turn", async (page) => {
  await say(page, "One");
  await answer(page);
  const sent = bodyOf(page);
  await say(page, "Two");
  const body = await sent;
  equal(body.messages, [{ role: "user", content: "One" }, { role: "assistant", content: "Fine.", reasoning_content: "ok" }, { role: "user", content: "Two" }]);
});

talk("stop keeps what was said", async (page) => {
  await say(page, script("Go", plain({ text: "tick ", delay_ms: 20, repeat: 2000 })));
  await page.waitForFunction(() => /tick/.test(document.querySelector(".message.assistant > .prose")?.textContent || ""));
  await page.locator("#send").click();
  const a = await answer(page);
  ok((await a.innerText()).includes("tick") && (await a.locator(".note").innerText()).includes("Stopped"), "it says so");
  equal(await a.locator(".retry").count(), 0);
  await until(async () => (await (await fetch(server.url + "/state")).json()).active === 0, "the engine is free");
  await say(page, script("And now?", plain("Well.")));
  await answer(page);
  equal((await texts(page, "assistant")).length, 2);
});

talk("the escape key stops", async (page) => {
  await say(page, script("Go", plain({ text: "tick ", delay_ms: 20, repeat: 2000 })));
  await page.waitForSelector(".message.assistant > .prose p");
  await page.keyboard.press("Escape");
  ok(/Stopped/.test(await (await answer(page)).innerText()), "stopped");
});

talk("answering again keeps both answers", async (page) => {
  await say(page, "Hello");
  await answer(page);
  await page.locator(".message.assistant .again").click();
  await answer(page);
  equal(await page.locator(".message.assistant").count(), 1);
  equal(await page.locator(".message.assistant .count").innerText(), "2/2");
  await page.locator(".message.assistant .back").click();
  equal(await page.locator(".message.assistant .count").innerText(), "1/2");
  ok(await page.locator(".message.assistant .back").isDisabled(), "there is none before");
});

talk("an edited message branches, and the arrows lead back", async (page) => {
  await say(page, script("First", plain("A")));
  await answer(page);
  await say(page, script("Then", plain("B")));
  await answer(page);
  await page.locator(".message.user").first().hover();
  await page.locator(".message.user .edit").first().click();
  await page.locator(".edit-form textarea").fill(script("Other", plain("C")));
  await page.locator(".edit-form .main").click();
  await answer(page);
  equal((await texts(page, "assistant")).map((s) => s.trim()), ["C"]);
  equal(await page.locator(".message.user .count").innerText(), "2/2");
  await page.locator(".message.user .back").click();
  await settled(page);
  equal((await texts(page, "assistant")).map((s) => s.trim()), ["A", "B"]);
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".open-conv").first().click();
  await settled(page);
  equal((await texts(page, "assistant")).map((s) => s.trim()), ["A", "B"], "the choice is kept");
  await page.locator(".message.user .on").click();
  await settled(page);
  equal((await texts(page, "assistant")).map((s) => s.trim()), ["C"]);
});

talk("an edit that is cancelled changes nothing", async (page) => {
  await say(page, "Hello");
  await answer(page);
  await page.locator(".message.user").hover();
  await page.locator(".message.user .edit").click();
  await page.locator(".edit-form textarea").press("Escape");
  equal(await texts(page, "user"), ["Hello"]);
  equal(await page.locator(".arrows").count(), 0);
});

talk("a reload keeps the list and the conversation", async (page) => {
  for (const text of ["Alpha", "Beta"]) {
    await page.locator("#new").click();
    await say(page, text);
    await answer(page);
  }
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  equal(await page.locator(".open-conv").allInnerTexts(), ["Beta", "Alpha"]);
  await page.locator(".open-conv", { hasText: "Alpha" }).click();
  await settled(page);
  equal(await texts(page, "user"), ["Alpha"]);
  equal((await texts(page, "assistant"))[0].trim(), "Fine.");
  ok(/first token/.test(await page.locator(".numbers").innerText()), "numbers are kept");
});

talk("rename and delete", async (page) => {
  await say(page, "Alpha");
  await answer(page);
  await page.locator(".list li").hover();
  await page.locator(".list .rename").click();
  await page.locator("dialog input").fill("A <b>new</b> name");
  await page.keyboard.press("Enter");
  await until(async () => (await page.locator(".open-conv").innerText()) === "A <b>new</b> name", "renamed");
  equal(await page.locator("#title").innerText(), "A <b>new</b> name");
  await page.locator(".list li").hover();
  await page.locator(".list .remove").click();
  await page.locator("dialog .quiet").click();
  equal(await page.locator(".open-conv").count(), 1);
  await page.locator(".list li").hover();
  await page.locator(".list .remove").click();
  await page.locator("dialog .main").click();
  await until(async () => (await page.locator(".open-conv").count()) === 0, "gone");
  equal(await page.locator(".welcome").count(), 1);
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  equal(await page.locator(".open-conv").count(), 0);
});

talk("export and import", async (page) => {
  await say(page, script("Take me along", ["hmm", ...plain("With **you**")]));
  await answer(page);
  await page.locator(".message.assistant .again").click();
  await answer(page);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#export").click()]);
  const file = await download.path(), text = readFileSync(file, "utf8");
  const json = JSON.parse(text);
  equal([json.format, json.version, json.conversations.length, json.conversations[0].messages.length], ["lily-conversations", 1, 1, 3]);
  await page.locator("#file").setInputFiles({ name: "a.json", mimeType: "application/json", buffer: Buffer.from(text) });
  await until(async () => (await page.locator(".open-conv").count()) === 2, "there are two now");
  await page.locator(".open-conv").last().click();
  await settled(page);
  equal(await page.locator(".message.assistant strong").innerText(), "you");
  equal(await page.locator(".message.assistant .count").innerText(), "2/2");
  await page.locator("#file").setInputFiles({ name: "b.json", mimeType: "application/json", buffer: Buffer.from('{"format":"x"}') });
  ok(/no file/.test(await page.locator("dialog").innerText()), "another file is refused");
  await page.keyboard.press("Escape");
});

talk("thinking is folded and has its time", async (page) => {
  await say(page, script("Think", [{ text: "deep ", delay_ms: 20, repeat: 20 }, ...plain("Done.")]));
  await page.waitForSelector(".thought.now");
  ok(/Thinking/.test(await page.locator(".thought").innerText()), "it says that it thinks");
  const a = await answer(page);
  ok(/^Thought for 0[.,]\d\d s$/.test((await a.locator(".thought").innerText()).trim()), await a.locator(".thought").innerText());
  ok(!(await a.innerText()).includes("deep"), "folded");
  await a.locator(".thought summary").click();
  await settled(page);
  equal((await a.locator(".thought .prose").innerText()).trim(), "deep ".repeat(20).trim());
});

talk("thinking on and off", async (page) => {
  equal(await page.locator("#think").getAttribute("aria-pressed"), "true");
  await page.locator("#think").click();
  equal(await page.locator("#think").getAttribute("aria-pressed"), "false");
  const sent = bodyOf(page);
  await say(page, "Quick");
  equal((await sent).enable_thinking, false);
  await answer(page);
});

talk("settings go into the request", async (page) => {
  await page.locator("#settings").click();
  await page.locator("dialog [name=system]").fill("Be brief.");
  for (const [name, value] of Object.entries({ temperature: "0.3", top_k: "7", max_tokens: "55", seed: "42", thinking_budget: "9" })) await page.locator(`dialog [name=${name}]`).fill(value);
  await page.locator("dialog [name=tools]").fill("{");
  await page.locator("dialog .main").click();
  ok(await page.locator("dialog .bad").isVisible(), "tools that are no list are refused");
  await page.locator("dialog [name=tools]").fill('[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]');
  await page.locator("dialog .main").click();
  const sent = bodyOf(page);
  await say(page, "Hello");
  const body = await sent;
  equal(body.messages[0], { role: "system", content: "Be brief." });
  equal([body.temperature, body.top_k, body.max_tokens, body.seed, body.thinking_budget, body.tools.length, body.top_p], [0.3, 7, 55, 42, 9, 1, undefined]);
  await answer(page);
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".open-conv").click();
  await page.locator("#settings").click();
  equal(await page.locator("dialog [name=system]").inputValue(), "Be brief.");
  await page.keyboard.press("Escape");
});

talk("empty settings show what the server says holds", async (page) => {
  const [{ default_sampling: own }] = (await (await fetch(server.url + "/v1/models")).json()).data;
  await page.locator("#settings").click();
  for (const name of ["temperature", "top_p", "top_k", "min_p", "repetition_penalty"]) equal(await page.locator(`dialog [name=${name}]`).getAttribute("placeholder"), String(own[name]), name);
  equal(await page.locator("dialog [name=max_tokens]").getAttribute("placeholder"), "∞");
  await page.keyboard.press("Escape");
  await page.route("**/v1/models", (r) => r.fulfill({ json: { data: [{ id: "other", default_sampling: { temperature: 0.123, max_tokens: 77 } }] } }));
  await page.locator("#settings").click(); // another model is there by now
  await page.locator("dialog [name=temperature][placeholder='0.123']").waitFor();
  equal(await page.locator("dialog [name=max_tokens]").getAttribute("placeholder"), "77");
  equal(await page.locator("dialog [name=top_p]").getAttribute("placeholder"), "");
  await page.keyboard.press("Escape");
  ok((await page.locator(".welcome").innerText()).includes("other"), "its name");
});

talk("calls of tools are shown", async (page) => {
  await say(page, script("Weather?", plain("<tool_call>\n<function=get_weather>\n<parameter=city>\nPorto <b>\n</parameter>\n</function>\n</tool_call>")));
  const a = await answer(page);
  ok(/Calls get_weather/.test(await a.innerText()), "the name");
  equal(JSON.parse(await a.locator(".call pre").innerText()), { city: "Porto <b>" });
});

talk("why not more, at once behind the answer", async (page) => {
  await say(page, script("Hello", plain({ text: "word ", delay_ms: 10, repeat: 60 })));
  equal(await (await answer(page)).locator(".why").count(), 1);
});

talk("why not more: the first difference is shown, as text", async (page) => {
  const chunk = (o) => "data: " + JSON.stringify({ model: "demo", ...o }) + "\n\n";
  const reason = { why: "differs", token: 90, message: 2, was: "the <b>old</b>", is: "the new" };
  const body = chunk({ choices: [{ delta: { content: "Hi" } }] }) + chunk({ choices: [{ delta: {}, finish_reason: "stop" }], lily: { timings: { decode_tok_s: 5 }, cache: { reused: 64, computed: 36, reason } } }) + "data: [DONE]\n\n";
  await page.route("**/v1/chat/completions", (r) => r.fulfill({ contentType: "text/event-stream", body }));
  await say(page, "Hello");
  const a = await answer(page);
  await a.locator(".why summary").click();
  const text = (await a.locator(".why").innerText()).replace(/\s+/g, " ");
  ok(/Message 3 differs/.test(text) && text.includes("before the <b>old</b> now the new"), text);
});

talk("the machine: saved states and what runs", async (page) => {
  const state = { status: "ok", model: "m", context: 4096, active: 1, queued: 1, queue_limit: 64, resident: 3e9, uptime_s: 90, plan: { weights: 2e9, kv: 5e8, borders: 1e8, scratch: 1e8, total: 2.7e9, limit: 8e9 }, history: { step_s: 1, generated: [0, 30, 31], read: [500, 0, 0] }, cache: { hits: 3, misses: 1, bytes: 2e6, budget: 1e9, list: [{ tokens: 64, bytes: 1e6, hits: 0, age_s: 2, on_disk: true }, { tokens: 1280, bytes: 1e6, hits: 4, age_s: 200, on_disk: false }] }, requests: [{ id: "<b>", path: "/v1/chat/completions", state: "decode", age_ms: 1500, prompt_tokens: 20, read: 20, position: 0 }, { id: "b", path: "/v1/messages", state: "queued", age_ms: 10, prompt_tokens: 5, read: 0, position: 2 }] };
  await page.route("**/state", (r) => r.fulfill({ json: state }));
  await page.locator("#tab-machine").click();
  await until(async () => (await page.locator(".table tbody tr").count()) === 4, "two tables of two");
  const rows = (await page.locator(".table tbody tr").allInnerTexts()).map((s) => s.replace(/\s+/g, " ").trim());
  equal(rows, ["/v1/chat/completions writing 20 / 20 1.5 s", "/v1/messages queued · 2 0 / 5 0.01 s", "1,280 977 KiB memory 4 3 min 20 s", "64 977 KiB disk 0 2.0 s"]);
  const widths = await page.locator(".segment").evaluateAll((all) => all.map((e) => e.style.width));
  ok(widths.length === 4 && widths.every((s) => parseFloat(s) > 0), widths);
  ok((await page.locator(".legend").first().innerText()).includes("31"), "the speed of the last second");
  await page.unroute("**/state");
  await page.route("**/state", (r) => r.abort());
  await until(async () => (await page.locator(".tile dd").first().innerText()) === "not reachable", "it says that the server is gone");
});

talk("numbers stand under the answer", async (page) => {
  await say(page, "Hello ".repeat(100));
  await answer(page);
  await page.locator(".message.assistant .again").click();
  const a = await answer(page), text = await a.locator(".numbers").innerText();
  ok(/[\d.,]+ s to first token/.test(text) && /\d tok\/s/.test(text) && /\d+ tokens/.test(text), text);
  const [, reused, prompt] = /(\d+) of (\d+) prompt tokens cached/.exec(text.replace(/\n/g, " "));
  ok(Number(reused) >= 64 && Number(reused) < Number(prompt), text);
  await a.locator(".why summary").click();
  ok((await a.locator(".why").innerText()).length > 30, "why not more");
});

talk("how much of the prompt is read, and the queue", async (page) => {
  await say(page, script("Long " + "x ".repeat(1500), plain("read"), { prefill_tokens_per_s: 1000 }));
  await page.waitForFunction(() => document.querySelector("progress:not([hidden])")?.value > 0);
  ok(/Reading the conversation: [\d,]+ of [\d,]+ tokens/.test(await page.locator(".progress .words").innerText()), await page.locator(".progress").innerText());
  await answer(page, 20000);
  equal(await page.locator(".progress:visible").count(), 0);
});

test("the place in the queue is told", async () => {
  const slow = await serve({ prompt_scripts: true, replies: [{ tokens: plain("x") }] }, ["--parallel", "1"]).catch(() => null);
  if (!slow) throw new Error("no server with one slot");
  const page = await openPage(slow);
  const hold = fetch(slow.url + "/v1/chat/completions", { method: "POST", body: JSON.stringify({ messages: [{ role: "user", content: script("wait", plain({ text: "z", delay_ms: 40, repeat: 60 })) }] }) });
  await sleep(150);
  await say(page, "Hello");
  await page.waitForFunction(() => /queue/.test(document.querySelector(".progress .words")?.textContent || ""));
  await answer(page);
  await hold;
  await page.context().close();
  await slow.stop();
});

test("a connection that breaks off shows a retry", async () => {
  const script1 = { replies: [{ times: 1, tokens: plain({ text: "half ", delay_ms: 30, repeat: 500 }) }] };
  const first = await serve(script1), port = new URL(first.url).port;
  const page = await openPage(first);
  await say(page, "Hello");
  await page.waitForFunction(() => /half half/.test(document.querySelector(".message.assistant > .prose")?.textContent || ""));
  first.child.kill("SIGKILL");
  const a = await answer(page);
  ok(/connection broke/.test(await a.locator(".note").innerText()) && /half/.test(await a.innerText()), "it says so, and keeps the half");
  await a.locator(".retry").click();
  await until(async () => /cannot be reached/.test(await page.locator(".message.assistant .note").innerText()), "still no server");
  const second = await serve({ replies: [{ tokens: plain("whole") }] }, ["--port", port]);
  await page.locator(".retry").click();
  await page.waitForFunction(() => /whole/.test(document.querySelector(".message.assistant > .prose")?.textContent || ""));
  await answer(page);
  equal(await page.locator(".message.assistant .count").innerText(), "3/3");
  equal(page.faults, []);
  await page.context().close();
  await second.stop();
});

talk("a reload in the middle keeps what was there", async (page) => {
  await say(page, script("Go", plain({ text: "tick ", delay_ms: 20, repeat: 2000 })));
  await page.waitForFunction(() => (document.querySelector(".message.assistant > .prose")?.textContent || "").length > 400);
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".open-conv").click();
  await settled(page);
  ok(/tick/.test((await texts(page, "assistant"))[0]) && (await page.locator(".retry").count()) === 1, "half an answer and a retry");
});

talk("an error of the server is told", async (page) => {
  await say(page, script("Go", plain("some", { text: "x", error: "the <i>engine</i> is tired" })));
  const a = await answer(page);
  ok((await a.locator(".note").innerText()).includes("the <i>engine</i> is tired") && (await a.locator(".retry").count()) === 1, await a.innerText());
});

talk("two conversations are answered at once", async (page) => {
  await say(page, script("Slow", plain({ text: "s ", delay_ms: 40, repeat: 150 })));
  await page.waitForSelector(".message.assistant");
  await page.locator("#new").click();
  await say(page, script("Fast", plain("f")));
  await answer(page);
  await page.locator(".open-conv", { hasText: "Slow" }).click();
  await page.waitForSelector("#send.stops");
  equal((await (await answer(page)).locator(".prose").last().innerText()).trim(), "s ".repeat(150).trim());
});

test("the key is asked for once", async () => {
  const locked = await serve({ replies: [{ tokens: plain("open") }] }, ["--api-key", "sesame"]);
  const page = await openPage(locked);
  await page.locator("dialog.ask-key input").fill("wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog.ask-key .bad");
  await page.locator("dialog.ask-key input").fill("sesame");
  await page.keyboard.press("Enter");
  await say(page, "Hello");
  await answer(page);
  equal((await texts(page, "assistant"))[0].trim(), "open");
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await sleep(300);
  equal(await page.locator("dialog").count(), 0);
  await page.locator("#keys").click();
  await page.locator("dialog .quiet").click();
  await page.reload();
  await page.waitForSelector("dialog.ask-key");
  equal(page.faults, []);
  await page.context().close();
  await locked.stop();
});

talk("code is copied", async (page) => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const code = "for (;;) {\n\t<b>&amp;\n}\n";
  await say(page, script("Code", plain("```js\n", code, "```\n\n- x\n\n  ```sh\n  ls -l\n  ```\n")));
  const a = await answer(page);
  await a.locator(".copy").first().click();
  equal(await page.evaluate(() => navigator.clipboard.readText()), code);
  await a.locator(".copy").last().click();
  equal((await page.evaluate(() => navigator.clipboard.readText())).trim(), "ls -l");
  await a.locator(".copy-text").click();
  ok((await page.evaluate(() => navigator.clipboard.readText())).startsWith("```js\n"), "the whole answer as it was written");
});

await run(() => server.stop());
