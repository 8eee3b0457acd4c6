"""The training stream: documents drawn from the generators and the corpora, tokenized, sorted into rows of equal length.

A micro-batch is (L, ids uint16 [N], weight uint8 [N]): N/L rows of L tokens, one document a row (raw text fills its row).
Weights are in hundredths. Worker processes make them and put them into queues.
"""
import lzma
import multiprocessing as mp
import os
import random
import re
import numpy as np
from tokenizers import Tokenizer
import render
import skills_cases as S
import stories
import words as W
from words import Draw

HERE = os.path.dirname(os.path.abspath(__file__))
LENS = [128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768]
SHORT = 2048
MIX = dict(story=8, plot=2, tiny=4, tinychat=4, asp=1, books=3, own=1, recall=26, copy=24, tools=24, system=16, json=18, help=9, chat=5, simple=9,
           followup=14, sgd=2, wordnet=1, dolly=1, think=2)


def read(name):
    return lzma.open(f"{HERE}/corpus/{name}.txt.xz", "rt", encoding="utf-8").read()


def straight(t):
    for a, b in (("“", '"'), ("”", '"'), ("‘", "'"), ("’", "'"), ("—", " - "), ("–", "-"), ("…", "...")):
        t = t.replace(a, b)
    return t


def simple_enough(doc):
    """Old books: keep chapters of short sentences and short words, without dialect spelling."""
    ws = doc.split()
    if len(ws) < 80:
        return False
    sent = max(1, doc.count(".") + doc.count("!") + doc.count("?"))
    odd = sum(doc.count(s) for s in ("'em", "thou", "thee", " o' ", " an' ", "reckon", "ain't", "Uncle Tom", "gypsy", "Indian", "savage", "heathen", "Negro", "black man", "Mammy", "Dinah"))
    return len(ws) / sent < 17 and sum(map(len, ws)) / len(ws) < 5.1 and odd <= 2


class Corpora:
    def __init__(self):
        self.tiny = [t.strip() for d in read("tinystories_samples").split("<|endoftext|>") for t in re.split(r"(?<!\n)\n(?!\n)", straight(d)) if len(t.split()) > 40]
        self.asp = [re.sub(r"(?<=[a-z,;])\n(?=\S)", " ", straight(d).strip()) for d in read("global_asp_ccby_en").split("<|endoftext|>") if len(d.split()) > 40]
        books = straight(read("gitenberg_children_2")).split("<|endoftext|>")
        self.books = [b.strip() for b in books if simple_enough(b)]
        self.sgd = [self.turns(d) for d in straight(read("sgd_dialogues")).split("<|endoftext|>")[:12000]]
        self.wordnet = [t for t in (self.turns(d) for d in read("wordnet_glosses").split("<|endoftext|>")) if len(t) == 2]
        self.dolly = [t for t in (self.turns(d) for d in straight(read("dolly_6400_noctx")).split("<|endoftext|>")) if len(t) == 2 and len(t[1][1]) < 400]
        own = os.path.join(HERE, "own_stories.txt")
        self.own = [t.strip() for t in open(own, encoding="utf-8").read().split("\n---\n")] if os.path.exists(own) else []

    @staticmethod
    def turns(d):
        out = []
        for line in d.strip().split("\n"):
            who, sep, text = line.partition(": ")
            if sep and who in ("User", "Assistant"):
                out.append([who.lower(), text])
            elif out:
                out[-1][1] += "\n" + line
        return out


def tiny_request(d, text):
    """A request that fits a found story: its hero's name and a noun that comes up again and again."""
    m = re.search(r"(?:little|big|old|young|small)? ?([a-z]+) (?:named|called) ([A-Z][a-z]+)", text)
    nouns = [w for w in W.THINGS + W.ANIMALS + W.FOODS if len(re.findall(rf"\b{w}\b", text)) >= 3]
    bits = []
    if m:
        bits.append(d.r.choice((f"{stories.art(m[1])} named {m[2]}", stories.art(m[1]), m[2])))
    if nouns and d.chance(0.8):
        bits.append(stories.with_article(d.r.choice(nouns)))
    if not bits:
        return d.r.choice(stories.ASK_ANY)
    return d.r.choice(stories.ASK_ABOUT).format(A=" and ".join(bits[:2]))


class Source:
    """Documents as lists of (text, weight)."""

    def __init__(self, seed, corpora, soup=None):
        self.r = random.Random(seed)
        self.d = Draw(self.r)
        self.d.soup = soup
        self.c = corpora
        self.kinds, self.p = list(MIX), list(MIX.values())

    def raw(self, text):
        return [(text + "<|endoftext|>", 1.0)]

    def window(self, docs, n=2200):
        t = self.r.choice(docs)
        if len(t) > n:
            ps = t.split("\n")
            i = self.r.randrange(len(ps))
            t = "\n".join(ps[i:])[:n + 3000]
            t = t[:n + t[n:].find("\n")] if "\n" in t[n:] else t[:n]
        return t

    def chat(self, q, ans, plan, system=None):
        c = {"system": system, "messages": [{"role": "user", "content": q}], "answer": ans, "reasoning": plan, "think": self.d.chance(0.5)}
        return render.pieces(c)

    def fill(self, d, n):
        """Filler for long contexts: found text, stories, lists, talk."""
        out, size = [], 0
        while size < n:
            x = self.r.random()
            if x < 0.35:
                t = self.window(self.c.books, 1500)
            elif x < 0.5:
                t = self.r.choice(self.c.tiny)
            elif x < 0.6:
                t = "\n".join(b for a, b in self.r.choice(self.c.sgd))
            else:
                t = S.filler(d, 50)[0]
            out.append(t)
            size += len(t) // 4
        return out

    def doc(self):
        d, r = self.d, self.r
        k = r.choices(self.kinds, self.p)[0]
        if k == "plot":
            return self.raw(stories.story(d)[0])
        if k in ("tiny", "own") and (k == "tiny" or self.c.own):
            t = r.choice(getattr(self.c, k))
            return self.raw(t)
        if k == "own":
            k = "story"
        if k == "tinychat":
            t = r.choice(self.c.tiny + self.c.own)
            return self.chat(tiny_request(d, t), t, r.choice(("The user wants a story.", "I tell a short story.")))
        if k == "asp":
            return self.raw(self.window(self.c.asp))
        if k == "books":
            return self.raw(self.window(self.c.books, 3500))
        if k == "sgd":
            t = r.choice(self.c.sgd)
            n = r.randint(1, len(t) // 2) * 2
            ms = [{"role": a, "content": b, "weight": 0.3} for a, b in t[:n]]
            if [m["role"] for m in ms] != ["user", "assistant"] * (n // 2):
                return self.doc()
            c = {"messages": ms[:-1], "answer": ms[-1]["content"], "think": False, "reasoning": "",
                 "system": r.choice(("You book tables, tickets and rooms.", "You are a booking assistant.", "You help people to plan.", None))}
            return render.pieces(c)
        if k in ("wordnet", "dolly"):
            q, ans = (x[1] for x in r.choice(getattr(self.c, k)))
            return self.chat(q, ans, "I answer the question.")
        c = S.draw(d, k)
        return render.pieces(c)

    def long_doc(self):
        d, r = self.d, self.r
        size = int(1800 * 2 ** r.uniform(0, 2.8))
        x = r.random()
        if x < 0.62:
            c = S.finish(d, S.recall(d, size, self.fill), "recall")
        elif x < 0.72:
            c = S.finish(d, S.listing(d, size // 10), "recall")
        elif x < 0.8:
            return self.raw(self.window(self.c.books, size * 4))
        elif x < 0.9:
            c = S.finish(d, S.copy(d, r.randint(10, 60)), "copy") if r.random() < 0.5 else S.finish(d, S.json_case(d), "json")
            c["messages"] = [m for b in self.fill(d, size) for m in (S.u("Read this: " + b), S.a(r.choice(S.OKS), weight=0.0))] + c["messages"]
        else:
            hist = []
            n = 0
            while n < size:
                t = S.chat.talk(d)
                hist += t["messages"] + [S.a(t["answer"], weight=0.3)]
                n += sum(len(m["content"]) for m in hist[-4:]) // 4
            c = S.draw(d, r.choice(("followup", "simple", "story", "json", "copy", "help")))
            c["messages"] = hist + c["messages"]
        return render.pieces(c)


def soup_of(tk):
    """The text of every letter-only token, with a capital or small first letter as it is."""
    ws = (tk.decode([i]).strip() for i in range(256, tk.get_vocab_size() - 33))
    return sorted({w for w in ws if w.isalpha() and w.isascii()})


def encode(tk, pieces):
    """ids and weights; pieces of equal weight are joined before encoding."""
    joined = []
    for t, w in pieces:
        if joined and joined[-1][1] == w:
            joined[-1][0] += t
        else:
            joined.append([t, w])
    ids, ws = [], []
    for e, (_, w) in zip(tk.encode_batch([t for t, _ in joined], add_special_tokens=False), joined):
        ids += e.ids
        ws += [int(w * 100)] * len(e.ids)
    return ids, ws


def worker(seed, tok_file, N, longs, queue):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tk = Tokenizer.from_file(tok_file)
    src = Source(seed, worker.corpora, soup_of(tk))
    buckets = {L: [] for L in LENS if N % L == 0}
    lim = max(buckets)
    while True:
        ids, ws = encode(tk, src.long_doc() if longs else src.doc())
        if len(ids) > (lim if longs else SHORT):
            continue
        L = next(L for L in buckets if L >= len(ids))
        rows = buckets[L]
        rows.append((ids, ws))
        if len(rows) == N // L:
            a, w = np.zeros((len(rows), L), np.uint16), np.zeros((len(rows), L), np.uint8)
            for i, (x, y) in enumerate(rows):
                a[i, :len(x)], w[i, :len(y)] = x, y
            queue.put((L, a.ravel(), w.ravel()))
            rows.clear()


def start(seed, tok_file, N, n_short, n_long):
    """Forks the workers; returns (short queue, long queue, processes). Call before CUDA is touched."""
    worker.corpora = Corpora()
    ctx = mp.get_context("fork")
    qs, ql = ctx.Queue(3 * n_short), ctx.Queue(3 * max(1, n_long))
    ps = [ctx.Process(target=worker, args=(f"{seed}/{i}", tok_file, N, i >= n_short, ql if i >= n_short else qs), daemon=True)
          for i in range(n_short + n_long)]
    for p in ps:
        p.start()
    return qs, ql, ps
