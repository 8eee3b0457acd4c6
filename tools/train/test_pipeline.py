"""Checks of the training pipeline on the CPU: template, quantizer, gated delta rule, tokenization, generators.

Use: test_pipeline.py   (needs torch, tokenizers, jinja2). Ends `N passed, N failed`.
"""
import json
import random
import traceback
import jinja2
import torch
from tokenizers import Tokenizer
import data
import model as M
import quant as Q
import render
import skills_cases as S

DEMO = "../../models/demo"


def test_template():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
    t = env.from_string(open(f"{DEMO}/chat_template.jinja", encoding="utf-8").read())
    for sk in S.SKILLS + ("followup", "chat"):
        for i in range(40):
            c = S.make(sk, i, i % 2 == 0)
            ms = render.case_messages(c)
            want = t.render(messages=ms, tools=c.get("tools"), add_generation_prompt=True, enable_thinking=c["think"])
            assert want == "".join(p for p, _ in render.prompt(ms, c.get("tools"), c["think"])), sk


def test_quantizer_vector():
    w = torch.tensor([(((37 * i) % 64) - 20) / 64 for i in range(64)])[None]
    c, s, b = Q.affine(w, 4)
    assert s.item() == -0.0673828125 and b.item() == 0.671875
    words = "e81a4c6f 5d7193c5 a4d6092b 1a3c6e82 7093b5d7 c6e82a4d 3b5e71a3 82b4d709".split()
    assert [f"{x:08x}" for x in Q.pack(c, 4)[0].tolist()] == words
    w = torch.tensor([-(0.5 + i / 64) for i in range(64)])[None]
    assert Q.affine(w, 4)[0][0, :4].tolist() == [10, 10, 10, 9]


def test_delta_rule():
    torch.manual_seed(0)
    N = 128
    f = lambda *s: torch.randn(*s, dtype=torch.float64)
    q, k, v = f(N, 1, 128), torch.nn.functional.normalize(f(N, 1, 128), dim=-1), f(N, 2, 128)
    k[9:60] = k[8]
    beta, lg = torch.sigmoid(f(N, 2) + 2), -torch.rand(N, 2).double() * 0.3
    for rows in (1, 2):
        W, U, kd, qd, att, e = M.gdn_intra(q, k, v, beta, lg)
        Dm, Sm, _ = M.gdn_scan(W, U, kd, e, rows)
        o = M.gdn_out(qd, att, Dm, Sm)
        for t in range(N):
            if t % (N // rows) == 0:
                s = torch.zeros(2, 128, 128, dtype=torch.float64)
            s = s * lg[t].exp()[:, None, None]
            s = s + (beta[t][:, None] * (v[t] - s @ k[t, 0]))[:, :, None] * k[t, 0]
            assert (s @ q[t, 0] - o[t]).abs().max() < 1e-10


def test_pieces_encode_as_whole():
    tk = Tokenizer.from_file(f"{DEMO}/tokenizer.json")
    for sk in S.SKILLS + ("followup", "chat", "story"):
        for i in range(20):
            p = render.pieces(S.make(sk, i, False))
            assert data.encode(tk, p)[0] == tk.encode("".join(t for t, _ in p), add_special_tokens=False).ids, sk


def test_right_answers_pass():
    for sk in S.SKILLS + ("followup", "chat", "story", "simple"):
        for i in range(60):
            c = S.make(sk, i, i % 2 == 0)
            r = {**render.parse(render.reply(c).removesuffix("<|im_end|>"), c["think"]), "finish": "stop"}
            assert S.verdict(c, r) is None, (sk, i, S.verdict(c, r))


def test_wrong_answers_fail():
    for sk in ("recall", "copy", "tools", "json"):
        for i in range(40):
            c = S.make(sk, i)
            r = {"text": "zzz", "reasoning": "x" if c["think"] else "", "tool_calls": [], "finish": "stop"}
            assert not c["check"] or S.verdict(c, r) is not None, (sk, i)


if __name__ == "__main__":
    random.seed(0)
    good = bad = 0
    for name, f in list(globals().items()):
        if name.startswith("test_"):
            try:
                f()
                good += 1
            except Exception:
                bad += 1
                print(name)
                traceback.print_exc()
    print(f"{good} passed, {bad} failed")
    raise SystemExit(bad > 0)
