#!/usr/bin/env python3
"""Skill tests of the demo model through the engine, with names and wordings that its training never saw.

Use: skills.py [--source lily|echo] [--lily ./lily] [--model models/demo] [--seed S] [--cases N] [--skills a,b] [--show]

An answer source is a callable: body -> reply. body is a chat-completions body {messages, tools?, chat_template_kwargs};
reply is {text, reasoning, tool_calls: [{name, arguments}], finish}. `lily` asks the engine; `echo` repeats the right
answers, so that the script itself can be tested without an engine. Prints a line per skill (passed at 90%) and ends
`N passed, N failed, N skipped`. Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "train"))
import render                      # noqa: E402
import skills_cases as S           # noqa: E402


def body_of(case):
    """The conversation of a case as a client would send it."""
    msgs = []
    for n, m in enumerate(render.case_messages(case)):
        m = {k: v for k, v in m.items() if k != "weight"}
        if m.get("tool_calls"):
            m["tool_calls"] = [{"id": f"call_{n}_{i}", "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                               for i, c in enumerate(m["tool_calls"])]
        msgs.append(m)
    body = {"messages": msgs, "chat_template_kwargs": {"enable_thinking": case["think"]}}
    if case.get("tools"):
        body["tools"] = case["tools"]
    return body


def reply_of(v):
    """lily's JSON reply; arguments may be an object or its JSON text."""
    calls = []
    for c in v.get("tool_calls") or []:
        c = c.get("function", c)
        args = c["arguments"]
        calls.append({"name": c["name"], "arguments": json.loads(args) if isinstance(args, str) else args})
    return {"text": v.get("text") or "", "reasoning": v.get("reasoning") or "", "tool_calls": calls, "finish": v.get("finish")}


class Lily:
    def __init__(self, binary, model):
        self.base = [binary, "run", "-m", model, "--temp", "0", "-n", "400", "--json"]

    def __call__(self, case):
        body = body_of(case)
        msgs = body["messages"]
        plain = all(m["role"] in ("system", "user") for m in msgs) and len(msgs) <= 2 and "tools" not in body
        if plain:
            cmd = self.base + ["--think" if case["think"] else "--no-think"]
            cmd += ["-s", msgs[0]["content"]] if msgs[0]["role"] == "system" else []
            return self.ask(cmd + ["--", msgs[-1]["content"]])
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as f:
            json.dump(body, f)
            f.flush()
            return self.ask(self.base + ["--messages", f.name])

    @staticmethod
    def ask(cmd):
        p = subprocess.run(cmd, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        if p.returncode != 0:
            raise RuntimeError(f"exit {p.returncode}: {(p.stdout or p.stderr)[:300]}")
        return reply_of(json.loads(p.stdout))


def echo(case):
    text = render.reply(case).removesuffix("<|im_end|>")
    return {**render.parse(text, case["think"]), "finish": "stop"}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--source", choices=("lily", "echo"), default="lily")
    ap.add_argument("--lily", default=os.environ.get("LILY", os.path.join(ROOT, "lily")))
    ap.add_argument("--model", default=os.path.join(ROOT, "models", "demo"))
    ap.add_argument("--seed", default="1")
    ap.add_argument("--cases", type=int, default=10)
    ap.add_argument("--skills", default=",".join(S.SKILLS))
    ap.add_argument("--seen", action="store_true", help="words and wordings of the training side, new seeds")
    ap.add_argument("--show", action="store_true", help="print every wrong reply")
    a = ap.parse_args()
    names = a.skills.split(",")
    if a.source == "lily" and not os.access(a.lily, os.X_OK):
        print(f"{a.lily} is not built: all skills skipped")
        print(f"0 passed, 0 failed, {len(names)} skipped")
        return 0
    source = echo if a.source == "echo" else Lily(a.lily, a.model)
    good = bad = 0
    for sk in names:
        right = 0
        for i in range(a.cases):
            case = S.make(sk, f"{a.seed}/{i}", not a.seen)
            try:
                wrong = S.verdict(case, source(case))
            except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
                wrong = f"no reply: {e}"
            right += wrong is None
            if wrong and a.show:
                print(f"  {sk} {i}: {case['messages'][-1]['content'][-200:]!r}: {wrong}")
        ok = right >= 0.9 * a.cases
        good, bad = good + ok, bad + (not ok)
        print(f"{sk}: {right} of {a.cases} {'ok' if ok else 'FAILED'}", flush=True)
    print(f"{good} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
