// What the browser tests share: a server with a script, a page of it, ways to wait, and the count at the end.
import { spawn } from "node:child_process";
import { mkdtempSync, mkdirSync, readFileSync, writeFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const LILY = process.env.LILY || "./lily";
export const SCREENS = "build/screens";
mkdirSync(SCREENS, { recursive: true });
const dir = mkdtempSync(join(tmpdir(), "lily-web-"));

/** lily serve on a free port. script: the fake engine's; null: the demo model. */
export async function serve(script, args = []) {
  const argv = ["serve", "-m", "models/demo", "--port", "0", ...args];
  if (script) {
    const file = join(dir, Math.random().toString(36).slice(2) + ".json");
    writeFileSync(file, JSON.stringify(script));
    argv.push("--fake-engine", file);
  }
  const child = spawn(LILY, argv, { stdio: ["ignore", "ignore", "pipe"] });
  const log = [];
  const url = await new Promise((ok, fail) => {
    child.on("exit", () => fail(new Error("the server ended: " + log.join("\n"))));
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      const found = /http:\/\/\S+:\d+$/.exec(line);
      if (found) ok(found[0]);
    });
  });
  while ((await fetch(url + "/health")).status !== 200) await sleep(50);
  const stop = () => new Promise((ok) => (child.exitCode === null ? (child.on("exit", ok), child.kill("SIGINT"), setTimeout(() => child.kill("SIGINT"), 300)) : ok()));
  return { url, stop, child, log };
}

export const sleep = (ms) => new Promise((ok) => setTimeout(ok, ms));

let browser = null;
/** A fresh browser profile with the page open. What goes wrong in it is collected in page.faults. */
export async function openPage(server, options = {}) {
  browser = browser || (await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] }));
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-US", ...options });
  const page = await context.newPage();
  page.faults = [];
  page.outside = [];
  page.on("pageerror", (e) => page.faults.push(String(e)));
  page.on("console", (m) => m.type() === "error" && !/Failed to load resource|net::ERR/.test(m.text()) && page.faults.push(m.text()));
  page.on("request", (r) => !/^(blob|data):/.test(r.url()) && !r.url().startsWith(server.url) && page.outside.push(r.url()));
  page.on("dialog", (d) => (page.faults.push("dialog: " + d.message()), d.dismiss()));
  await page.goto(server.url + "/");
  await page.waitForSelector("body[data-ready]");
  return page;
}

/** Sends a message by the keyboard. */
export async function say(page, text) {
  await page.locator("#ask").fill(text);
  await page.locator("#ask").press("Enter");
}

/** The last answer, complete and shown. */
export async function answer(page, timeout = 15000) {
  await page.waitForFunction(() => {
    const last = [...document.querySelectorAll(".message.assistant")].at(-1);
    return last && !last.classList.contains("writing") && last.querySelector(".again");
  }, null, { timeout });
  await settled(page);
  return page.locator(".message.assistant").last();
}

/** All frames that were asked for are drawn: the text on the screen does not change any more. */
export async function settled(page) {
  let before = null;
  for (let same = 0; same < 3; ) {
    const now = await page.evaluate(() => document.querySelector("#log").innerHTML.length);
    same = now === before ? same + 1 : 0;
    before = now;
    await sleep(40);
  }
}

/** Runs f and returns the tasks of the page's main thread meanwhile, the longest first: {wall, cpu} in ms. */
export async function tasksOf(page, f) {
  await browser.startTracing(page, { categories: ["-*", "disabled-by-default-devtools.timeline", "__metadata"] });
  await f();
  const { traceEvents: all } = JSON.parse((await browser.stopTracing()).toString());
  // The page's own process is the one whose main thread did the most.
  const mains = all.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => all.filter((t) => t.name === "RunTask" && t.tid === e.tid && t.pid === e.pid));
  return mains.reduce((a, b) => (b.length > a.length ? b : a), []).map((t) => ({ wall: t.dur / 1000, cpu: t.tdur / 1000 })).sort((a, b) => b.cpu - a.cpu);
}

export const screen = (page, name) => page.screenshot({ path: join(SCREENS, name + ".png") });

export function equal(found, expected, what = "") {
  const a = JSON.stringify(found), b = JSON.stringify(expected);
  if (a !== b) throw new Error(`${what}\n  found    ${a}\n  expected ${b}`);
}
export function ok(value, what) {
  if (!value) throw new Error(String(what));
}
export async function until(f, what, ms = 10000) {
  for (const end = Date.now() + ms; !(await f()); await sleep(30)) if (Date.now() > end) throw new Error("waited in vain: " + what);
}

const tests = [];
export const test = (name, f) => tests.push([name, f]);

/** How many tests this program must have, by tests/min_counts: tests may not vanish unseen. */
function expected() {
  const name = process.argv[1].replace(/^.*\/|\.mjs$/g, "");
  const line = readFileSync("tests/min_counts", "utf8").split("\n").find((l) => l.startsWith("check-web " + name + " "));
  return Number(line?.split(" ")[2] || 0);
}

/** Runs all tests, or those whose name has the first argument; prints the closing line; ends the process. */
export async function run(cleanUp = async () => {}) {
  const only = process.argv[2] || "";
  let passed = 0, failed = 0;
  if (tests.length < expected()) test(`only ${tests.length} tests; tests/min_counts has ${expected()}`, () => ok(false, "tests are missing"));
  for (const [name, f] of tests.filter(([n]) => n.includes(only))) {
    const begun = Date.now();
    try {
      await f();
      passed++;
      console.log(`ok ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
    } catch (e) {
      failed++;
      console.log(`FAIL ${name}\n${e.stack || e}`);
    }
  }
  await cleanUp();
  await browser?.close();
  rmSync(dir, { recursive: true, force: true });
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed ? 1 : 0);
}
