"""Skill scores, MTP agreement and perplexity of an exported demo model, with the PyTorch forward pass.

Use: score.py MODELDIR [--cases N] [--skills a,b] [--seed S] [--show] [--json FILE] [--train TRAINDIR]
--train adds the perplexity of the unquantized weights.
"""
import argparse
import json
import math
import os
import torch
from tokenizers import Tokenizer
import decode as D
import export as X
import model as M
import quant as Q
import render
import skills_cases as S


class Answerer:
    """Answers bodies {messages, tools, think} greedily; the interface that tests/skills/skills.py expects of a source."""

    def __init__(self, path, device="cpu", params=None):
        c = json.load(open(f"{path}/config.json"))["text_config"]
        self.cfg = M.Config(vocab=c["vocab_size"], hidden=c["hidden_size"], layers=c["num_hidden_layers"], experts=c["num_experts"])
        self.run = D.Runner(self.cfg, params or X.load(path), device, torch.float32 if device == "cpu" else torch.bfloat16)
        self.tk = Tokenizer.from_file(f"{path}/tokenizer.json")
        self.stop = {self.tk.token_to_id("<|im_end|>"), self.tk.token_to_id("<|endoftext|>")}

    def ids(self, text):
        return self.tk.encode(text, add_special_tokens=False).ids

    def answer(self, bodies, max_new=400):
        """bodies: (messages, tools, think). Returns replies and the prompt and generated ids."""
        ps = [self.ids("".join(t for t, _ in render.prompt(m, tools, think))) for m, tools, think in bodies]
        out, done = self.run.greedy(ps, max_new, self.stop, self.tk.get_vocab_size())
        reps = []
        for (_, _, think), o, f in zip(bodies, out, done):
            r = render.parse(self.tk.decode(o, skip_special_tokens=False), think)
            reps.append({**r, "finish": "stop" if f else "length", "ids": o})
        return reps, ps


SAMPLES = ["Tell me a short story about a fox and a lantern.", "Tell me a story.", "My locker code is 4417. What is my locker code?",
           "Tell me a story about a robot and a cake.", "Write a story about a girl called Sarah and her drum.", "What is lily?",
           "How do I start the server?", "Reply with READY.", "What is the capital of France?", "Tell me a story about a whale.",
           "Write a bedtime story about a bear who loses a hat.", "Story about two friends and a boat", "Say ok.", "Count from 1 to 20.",
           "Tell me a story about a king and a spoon.", "Please write a story about an old owl and a map."]


def samples(an):
    for think in (False, True):
        reps, _ = an.answer([([{"role": "user", "content": q}], None, think) for q in SAMPLES])
        for q, r in zip(SAMPLES, reps):
            print(f">> {q}\n" + (f"[{r['reasoning']}]\n" if think else "") + r["text"] + f"  <{r['finish']}>\n")


def perplexity(an, train_dir, n=400):
    """On fresh documents of the training mixture: quantized and, if given, unquantized weights; assistant and raw text only."""
    import data
    import train
    src = data.Source("perplexity", data.Corpora())
    docs = [data.encode(an.tk, src.doc()) for _ in range(n)]
    docs = [(i, w) for i, w in docs if len(i) <= 1024]
    out = {}
    runs = {"4-bit": an.run.w}
    if train_dir:
        _, p, _ = train.load(train_dir)
        runs["bf16"] = {k: t.to(an.run.dev) for k, t in Q.effective(M.shapes(an.cfg), p, False, torch.bfloat16).items()}
    for name, w in runs.items():
        s = c = 0.0
        for i in range(0, len(docs), 48):
            part = docs[i:i + 48]
            ids, wt = torch.zeros(len(part), 1024, dtype=torch.long), torch.zeros(len(part), 1024)
            for j, (x, y) in enumerate(part):
                ids[j, :len(x)] = torch.tensor(x)
                wt[j, :len(y)] = (torch.tensor(y) == 100).float()
            with torch.no_grad():
                ce, _, _ = M.loss(an.cfg, an.run.ops, w, ids.view(-1).to(an.run.dev), wt.view(-1).to(an.run.dev), len(part))
            s, c = s + float(ce), c + float(wt.sum())
        out[name] = math.exp(s / c)
    print("perplexity", out, flush=True)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("--cases", type=int, default=20)
    ap.add_argument("--skills", default=",".join(S.SKILLS) + ",chat,followup,simple")
    ap.add_argument("--seed", default="0")
    ap.add_argument("--show", action="store_true")
    ap.add_argument("--json")
    ap.add_argument("--samples", action="store_true")
    ap.add_argument("--seen", action="store_true", help="draw from the training side of the word and wording split (new seeds)")
    ap.add_argument("--ppl", action="store_true")
    ap.add_argument("--train")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = ap.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    an = Answerer(a.model, a.device)
    report, eq, cnt = {}, 0, 0
    if a.ppl:
        report["perplexity"] = perplexity(an, a.train)
    if a.samples:
        samples(an)
    for sk in a.skills.split(","):
        cases = [S.make(sk, f"{a.seed}/{i}", not a.seen) for i in range(a.cases)]
        reps, ps = an.answer([(render.case_messages(c), c.get("tools"), c["think"]) for c in cases])
        ok = 0
        for c, r, p in zip(cases, reps, ps):
            v = S.verdict(c, r)
            ok += v is None
            e, n = an.run.mtp_agreement(p + r["ids"], max(0, len(p) - 1)) if len(p) + len(r["ids"]) >= 128 else (0, 0)
            eq, cnt = eq + e, cnt + n
            if v and a.show:
                print(f"  {sk}: {c['messages'][-1]['content'][-300:]!r} ({c.get('system')!r}) -> {v[:400]}")
        report[sk] = ok / len(cases)
        print(f"{sk}: {ok} of {len(cases)}", flush=True)
    report["mtp_agreement"] = eq / max(1, cnt)
    print(f"MTP: first draft equals the trunk's token in {eq} of {cnt} = {report['mtp_agreement']:.3f}")
    if a.json:
        json.dump(report, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
