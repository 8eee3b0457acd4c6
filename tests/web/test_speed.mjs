// Long and fast answers: the main thread's tasks stay short.
import { loadavg } from "node:os";
import { answer, equal, ok, openPage, run, say, serve, sleep, tasksOf, test } from "./page.mjs";

const SECONDS = Number(process.env.STREAM_SECONDS || 60);
const LIMIT_MS = 50;

/** Words of an answer, with every kind of block. @param {number} n tokens */
function text(n) {
  const parts = ["## Part\n\n", ...word(40), "\n\n", "- ", ...word(8), "\n- ", ...word(8), "\n\n", "```js\n", ...word(30), "\n", ...word(20), "\n```\n\n", "| a | b |\n|---|---|\n", ...Array.from({ length: 6 }, () => ["| ", ...word(3), " | ", ...word(3), " |\n"]).flat(), "\n", "**", ...word(3), "** and `", ...word(2), "`. ", ...word(60), "\n\n", "1. ", ...word(9), "\n2. ", ...word(9), "\n\n", "> ", ...word(20), "\n\n"];
  return Array.from({ length: n }, (_, i) => parts[i % parts.length]);
}
function word(n) {
  const all = ["time ", "water ", "lantern ", "of ", "a ", "river ", "and ", "small ", "under ", "light "];
  return Array.from({ length: n }, (_, i) => all[(i * 7 + n) % all.length]);
}

/** Opens a page, runs f in it, and tells the main thread's tasks. A busy machine stretches them: judged is their time of CPU. */
async function watched(server, what, f) {
  const page = await openPage(server);
  await page.evaluate(() => ((window.long = []), new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => Math.round(e.duration)))).observe({ type: "longtask" })));
  const tasks = await tasksOf(page, () => f(page));
  const long = await page.evaluate(() => window.long), at = (q) => tasks[Math.floor(tasks.length * q)].cpu.toFixed(1);
  console.log(`     ${what}: ${tasks.length} tasks, CPU ms longest ${tasks[0].cpu.toFixed(1)}, p99.9 ${at(0.001)}, p99 ${at(0.01)}; by the clock ${long.length} over ${LIMIT_MS} ms${long.length ? ", the longest " + Math.max(...long) : ""} (load ${loadavg()[0].toFixed(1)})`);
  return { page, tasks, long };
}

test(`60 tokens a second for ${SECONDS} s, then the rest of 10,000 at full speed`, async () => {
  const words = text(10000), slow = SECONDS * 60;
  const server = await serve({ replies: [{ tokens: ["</think>", "\n\n", ...words.map((t, i) => (i < slow ? { text: t, delay_ms: 1000 / 60 } : t))] }] });
  const { page, tasks, long } = await watched(server, "10,000 tokens", async (p) => {
    await say(p, "Tell me everything.");
    await answer(p, (SECONDS + 60) * 1000);
  });
  const found = await page.locator(".message.assistant .prose").last().evaluate((e) => e.textContent.replace(/\s+/g, "").length);
  ok(found > words.join("").length * 0.6, "all of it is there: " + found);
  ok(/10,00\d tokens/.test(await page.locator(".numbers").innerText()), await page.locator(".numbers").innerText());
  equal(page.faults, []);
  await page.context().close();
  await server.stop();
  ok(tasks[0].cpu < LIMIT_MS, "a task of " + tasks[0].cpu + " ms");
  if (loadavg()[0] < 1.5) equal(long, [], "long tasks by the clock");
});

test("an answer of 200,000 tokens does not freeze the page", async () => {
  const server = await serve({ replies: [{ tokens: ["</think>", "\n\n", ...text(1000).join("").match(/[^]{1,64}/g).flatMap((t) => ({ text: t, repeat: 1 })), { text: "and so on, with more and more words, ", repeat: 10000 }, "\n\n", { text: "- an item of a list\n", repeat: 10000 }, "\n```\n", { text: "code = code + 1;\n", repeat: 10000 }, "```\n\nThe very end."] }] }, ["--ctx", "262144"]).catch((e) => (console.log(String(e)), null));
  let longest = 0;
  const { page, tasks } = await watched(server, "200,000 tokens", async (page) => {
  await say(page, "Go on.");
  for (let done = false; !done; ) {
    const begun = Date.now();
    done = await page.evaluate(() => !document.querySelector(".message.writing") && /The very end\./.test(document.querySelector(".message.assistant > .prose").lastElementChild.previousElementSibling.textContent));
    longest = Math.max(longest, Date.now() - begun);
    await sleep(50);
  }
  });
  console.log("     the page answered a question within " + longest + " ms at worst");
  ok(tasks[0].cpu < 100, "it stays alive: a task of " + tasks[0].cpu + " ms");
  await page.locator("#scroll").evaluate((e) => (e.scrollTop = e.scrollHeight / 2));
  await sleep(300);
  await page.reload();
  await page.waitForSelector("body[data-ready]");
  await page.locator(".open-conv").click();
  await page.waitForFunction(() => /The very end\./.test(document.querySelector(".message.assistant > .prose")?.textContent || ""), null, { timeout: 60000 });
  equal(page.faults, []);
  await page.context().close();
  await server.stop();
});

await run();
