// What answers become: Markdown, and hostile text. At every cut it ends as the same.
import { answer, equal, ok, openPage, run, say, serve, test, until } from "./page.mjs";

const server = await serve({ prompt_scripts: true, replies: [{ tokens: ["</think>", "x"] }] });
const page = await openPage(server);

/** Renders a text as an answer, in pieces of some characters; the element. */
async function render(text, size = 7) {
  const tokens = ["</think>", "\n\n"];
  const letters = [...text];
  for (let i = 0; i < letters.length; i += size) tokens.push(letters.slice(i, i + size).join(""));
  await page.locator("#new").click();
  await say(page, "q\n#script " + JSON.stringify({ tokens }));
  return (await answer(page)).locator(".prose").last();
}
const html = (e) => e.evaluate((n) => [...n.querySelectorAll(".section, .open")].map((s) => s.innerHTML).join(""));
const markdown = (name, text, check) => test("markdown: " + name, async () => check(await render(text)));

markdown("headings", "# One\n\n## Two\n\n###### Six\n\nSet\n===\n", async (e) => equal(await e.locator("h1,h2,h6").allInnerTexts(), ["One", "Two", "Six", "Set"]));
markdown("emphasis, code, strike", "*a* **b** `c <d>` ~~e~~", async (e) => equal([await e.locator("em").innerText(), await e.locator("strong").innerText(), await e.locator("code").innerText(), await e.locator("del").innerText()], ["a", "b", "c <d>", "e"]));
markdown("lists in lists", "1. a\n   - b\n   - c\n2. d\n\n- [x] done\n- [ ] open\n", async (e) => {
  equal(await e.locator("ol > li").count(), 2);
  equal(await e.locator("ol ul > li").allInnerTexts(), ["b", "c"]);
  ok((await e.innerText()).includes("☑ done") && (await e.innerText()).includes("☐ open"), "tasks");
});
markdown("a list that starts at seven", "7. a\n8. b\n", async (e) => equal(await e.locator("ol").getAttribute("start"), "7"));
markdown("tables", "| a | b |\n|:--|--:|\n| 1 | **2** |\n| 3 | `x` |\n\nend", async (e) => {
  equal(await e.locator("td").allInnerTexts(), ["1", "2", "3", "x"]);
  equal(await e.locator("th").last().getAttribute("align"), "right");
});
markdown("code with its language", "text\n```python\nprint('<b>')\n\n# no heading\n```\nafter", async (e) => {
  equal([await e.locator(".lang").innerText(), await e.locator("pre").innerText(), await e.locator("h1").count()], ["python", "print('<b>')\n\n# no heading\n", 0]);
  ok((await e.innerText()).trim().endsWith("after"), "what follows");
});
markdown("a fence in a longer fence", "````md\n```\ninner\n```\n````\nout", async (e) => equal([await e.locator("pre").count(), await e.locator("pre").innerText()], [1, "```\ninner\n```\n"]));
markdown("a fence that never closes", "```c\nint x;\nint", async (e) => equal(await e.locator("pre").innerText(), "int x;\nint"));
markdown("code in a list", "- a\n\n  ```sh\n  ls\n  ```\n- b\n", async (e) => equal([await e.locator("li pre").innerText(), await e.locator("li .copy").count(), await e.locator("ul > li").count()], ["ls\n", 1, 2]));
markdown("quotes and rules", "> a\n> b\n\n---\n\nc", async (e) => equal([await e.locator("blockquote p").count(), await e.locator("hr").count()], [1, 1]));
markdown("links are safe", "[a](https://example.org/x?y=1&z) <https://e.org> https://f.org [m](mailto:a@b.c)", async (e) => {
  const all = await e.locator("a").evaluateAll((as) => as.map((a) => [a.getAttribute("href"), a.rel, a.target]));
  equal(all, ["https://example.org/x?y=1&z", "https://e.org", "https://f.org", "mailto:a@b.c"].map((h) => [h, "noopener noreferrer", "_blank"]));
});
markdown("pictures are links", "![alt](https://evil.example/pixel.png)", async (e) => equal([await e.locator("img").count(), await e.locator("a").innerText()], [0, "alt"]));
markdown("html is text", "a <b>bold</b> <!-- c --> &lt; &amp;\n\n<div class=\"x\">\nhi\n</div>\n", async (e) => {
  equal(await e.locator("b,div.x").count(), 0);
  ok(/a <b>bold<\/b> <!-- c --> < &/.test(await e.innerText()) && /<div class="x">\s*hi\s*<\/div>/.test(await e.innerText()), await e.innerText());
});
markdown("letters of any kind", "Olá **ção** 你好 👩‍👩‍👧 é\n\n- ñ\n", async (e) => ok((await e.innerText()).includes("Olá ção 你好 👩‍👩‍👧 é"), await e.innerText()));

const long = "# Title\n\nA *paragraph* with `code`.\n\n- one\n  - two\n\n      deep\n- three\n\n```js\nlet a = `x`;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n1. x\n2. y\n\nlast **line**";
test("markdown: the same at every cut", async () => {
  const whole = await html(await render(long, 10000));
  for (const size of [1, 2, 3, 5, 11, 31]) equal(await html(await render(long, size)), whole, "pieces of " + size);
});

/* ---- hostile text: nothing runs, nothing is fetched, nothing of the page changes ---- */
const hostile = {
  script: "<script>hit()</script>",
  "script in a block": "<div>\n<script>\nhit()\n</script>\n</div>",
  "image with an error": '<img src=x onerror="hit()">',
  "svg onload": "<svg/onload=hit()>",
  "svg script": "<svg><script>hit()</script></svg>",
  "javascript link": "[click](javascript:hit())",
  "javascript link in odd letters": "[click](JaVaScRiPt&#58;hit()) [b](java\tscript:hit()) [c](&#x6A;avascript:hit())",
  "data link": "[click](data:text/html;base64,PHNjcmlwdD5oaXQoKTwvc2NyaXB0Pg==)",
  "vbscript and file links": "[a](vbscript:hit) [b](file:///etc/passwd)",
  "a quote in a title": '[x](https://e.org "a\\" onmouseover=\\"hit()")',
  "a quote in a destination": '[x](https://e.org/"onmouseover="hit())',
  iframe: '<iframe srcdoc="<script>parent.hit()</script>"></iframe>',
  "form and button": '<form action="javascript:hit()"><button>go</button></form>',
  "style with an address": "<style>@import 'https://evil.example/x.css'; body{display:none}</style>",
  "base and meta": '<base href="https://evil.example/"><meta http-equiv="refresh" content="0;url=https://evil.example">',
  "a language that is markup": '```"><img src=x onerror=hit()>\ncode\n```',
  "code that closes its element": "`</code><img src=x onerror=hit()>`\n\n```\n</code></pre><script>hit()</script>\n```",
  "mathml mutation": "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=hit()&gt;\">",
  "an id of the page": '<input id="ask"><a id=status name=cookie>x</a> <div class="message user">fake</div>',
  "a picture with a script": "![x](javascript:hit()) ![y](x\" onerror=\"hit())",
  "a table cell": "| <img src=x onerror=hit()> | b |\n|---|---|\n| [j](javascript:hit()) | <svg onload=hit()> |",
  "a heading and a list": "# <img src=x onerror=hit()>\n\n- <a href=javascript:hit()>x</a>\n",
  "an autolink": "<javascript:hit()> <https://e.org/<script>hit()</script>>",
  "a reference": "[x][1]\n\n[1]: javascript:hit()",
};
await page.evaluate(() => ((window.hits = 0), (window.hit = () => window.hits++)));
for (const [name, text] of Object.entries(hostile))
  test("hostile: " + name, async () => {
    for (const size of [5, 1000]) {
      const e = await render(text, size);
      const bad = await e.evaluate((n) =>
        [...n.querySelectorAll("*")]
          .filter((x) => /^(script|img|iframe|form|style|base|meta|input|math|object|embed|link)$/i.test(x.localName) || (x.localName === "svg" && !x.matches(".copy > .icon")) || x.id || [...x.attributes].some((a) => a.name.startsWith("on") || a.name === "style" || (a.name === "href" && !/^(https?:|mailto:)/.test(a.value))) || /message|user/.test(x.getAttribute("class") || ""))
          .map((x) => x.outerHTML),
      );
      equal(bad, [], name);
      for (const link of await e.locator("a[href]").all()) equal(await link.getAttribute("rel"), "noopener noreferrer");
      await e.locator("a:not([href])").first().click({ timeout: 300 }).catch(() => {});
    }
    equal(await page.evaluate(() => window.hits), 0, "something ran");
    equal([page.faults, page.outside], [[], []], "faults, requests to elsewhere");
  });

test("hostile: the policy holds against code that runs in the page", async () => {
  const tried = await page.evaluate(async () => {
    const broken = [];
    document.addEventListener("securitypolicyviolation", (e) => broken.push(e.effectiveDirective));
    const fails = async (f) => f().then(() => "went through", () => "refused");
    const fetched = await fails(() => fetch("https://example.org/", { mode: "no-cors" }));
    const script = document.createElement("div");
    const put = await fails(async () => (script.innerHTML = "<b>x</b>"));
    const image = new Image();
    const loaded = await fails(() => new Promise((ok, no) => ((image.onload = ok), (image.onerror = no), (image.src = "https://example.org/x.png"))));
    const worker = await fails(async () => new Worker("/web/md_worker.js"));
    await new Promise((ok) => setTimeout(ok, 100));
    return { fetched, put, loaded, worker, broken: [...new Set(broken)].sort() };
  });
  equal(tried, { fetched: "refused", put: "refused", loaded: "refused", worker: "refused", broken: ["connect-src", "img-src", "require-trusted-types-for"] });
  page.faults.length = 0; // the browser reports each of these as an error
});

test("hostile: titles and errors are text", async () => {
  await page.locator("#new").click();
  await say(page, '<img src=x onerror="hit()"> <b>title</b>');
  await answer(page);
  equal(await page.locator("#title img, .open-conv img, .bubble img, .bubble b").count(), 0);
  equal(await page.evaluate(() => window.hits), 0);
});

test("a text that the parser chokes on is shown all the same", async () => {
  const e = await render("[".repeat(6000) + "\n\n" + "*a **".repeat(2000) + "\n\nThe end.", 400);
  await until(async () => (await e.innerText()).includes("The end."), "the end", 30000);
});

await run(() => server.stop());
