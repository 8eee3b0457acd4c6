"""Trains the demo model within a time limit. One process per GPU (torchrun) or one on the CPU.

Use: torchrun --nproc-per-node 4 train.py --seconds 540 --out DIR [--resume DIR]
"""
import argparse
import json
import math
import os
import time
import torch
import torch.distributed as dist
import data
import export as X
import model as M
import quant as Q


def zeropower(G):
    """Newton-Schulz orthogonalisation of a stack of matrices [B, m, n]."""
    X = G.bfloat16()
    flip = X.shape[-2] > X.shape[-1]
    if flip:
        X = X.transpose(-1, -2)
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.transpose(-1, -2)
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return (X.transpose(-1, -2) if flip else X).float()


class Optimizer:
    """Muon for the hidden matrices, Adam for the rest; weight decay on matrices."""

    def __init__(self, params, kinds):
        self.p = params
        self.muon, self.adam = {}, []
        for n, p in params.items():
            mat = kinds[n][1] == "mat" and min(p.shape[-2:]) > 32 and "embed" not in n and "lm_head" not in n
            if mat:
                self.muon.setdefault(tuple(p.shape[-2:]), []).append(n)
            else:
                self.adam.append(n)
        self.m = {n: torch.zeros_like(p) for n, p in params.items()}
        self.v = {n: torch.zeros_like(params[n]) for n in self.adam}
        self.t = 0

    @torch.no_grad()
    def step(self, g, lr_muon, lr_adam, wd=0.02):
        self.t += 1
        for sh, names in self.muon.items():
            ps, gs, ms = [self.p[n] for n in names], [g[n] for n in names], [self.m[n] for n in names]
            torch._foreach_lerp_(ms, gs, 0.05)
            us = [u.reshape(-1, *sh) for u in torch._foreach_lerp(gs, ms, 0.95)]
            X = zeropower(torch.cat(us)) * max(1.0, sh[0] / sh[1]) ** 0.5
            xs = [x.reshape(p.shape) for x, p in zip(X.split([len(u) for u in us]), ps)]
            torch._foreach_mul_(ps, 1 - lr_muon * wd)
            torch._foreach_add_(ps, xs, alpha=-lr_muon)
        ps, gs = [self.p[n] for n in self.adam], [g[n] for n in self.adam]
        ms, vs = [self.m[n] for n in self.adam], [self.v[n] for n in self.adam]
        torch._foreach_lerp_(ms, gs, 0.1)
        torch._foreach_mul_(vs, 0.98)
        torch._foreach_addcmul_(vs, gs, gs, 0.02)
        c1, c2 = 1 - 0.9 ** self.t, 1 - 0.98 ** self.t
        den = torch._foreach_sqrt(torch._foreach_div(vs, c2))
        torch._foreach_add_(den, 1e-9)
        torch._foreach_addcdiv_(ps, ms, den, -lr_adam / c1)


def save(c, params, out, info):
    """Matrices bf16 in four files, the rest float32 in one: small enough to travel."""
    sh = M.shapes(c)
    cpu = {n: p.detach().cpu() for n, p in params.items()}
    torch.save({"config": vars_of(c), "info": info, "params": {n: p for n, p in cpu.items() if sh[n][1] != "mat"}}, f"{out}/small.pt")
    parts, size = [{} for _ in range(4)], [0] * 4
    for n, p in sorted(cpu.items(), key=lambda kv: -kv[1].numel()):
        if sh[n][1] == "mat":
            rows = p.bfloat16().reshape(-1, p.shape[-1])
            for j, piece in enumerate(rows.chunk(4) if rows.numel() > 400000 else (rows,)):
                i = size.index(min(size))
                parts[i][f"{n}#{j}"] = piece.clone()
                size[i] += piece.numel()
    for i, part in enumerate(parts):
        torch.save(part, f"{out}/mat{i}.pt")


def vars_of(c):
    return dict(vocab=c.vocab, hidden=c.hidden, layers=c.layers, q_heads=c.q_heads, kv_heads=c.kv_heads, k_heads=c.k_heads,
                v_heads=c.v_heads, experts=c.experts, inter=c.inter, shared=c.shared, top_k=c.top_k)


def load(path):
    small = torch.load(f"{path}/small.pt")
    c = M.Config(**small["config"])
    mats = {}
    for i in range(4):
        for k, t in torch.load(f"{path}/mat{i}.pt").items():
            n, j = k.split("#")
            mats.setdefault(n, {})[int(j)] = t.float()
    params = dict(small["params"])
    for n, (s, kind) in M.shapes(c).items():
        if kind == "mat":
            params[n] = torch.cat([mats[n][j] for j in sorted(mats[n])]).reshape(s)
    return c, {n: params[n] for n in M.shapes(c)}, small["info"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=540)
    ap.add_argument("--steps", type=int, default=10 ** 9)
    ap.add_argument("--rows", type=int, default=49152, help="tokens of a micro-batch")
    ap.add_argument("--workers", type=int, default=14)
    ap.add_argument("--tok", default="../../models/demo/tokenizer.json")
    ap.add_argument("--out", default="/tmp/demo-train")
    ap.add_argument("--resume")
    ap.add_argument("--seed", default="1")
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--adam", type=float, default=0.003)
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--profile", action="store_true")
    ap.add_argument("--tiny", action="store_true", help="a small shape for tests on the CPU")
    a = ap.parse_args()
    t0 = time.time()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    n_long = max(1, a.workers // 4)
    qs, ql, procs = data.start(f"{a.seed}/{rank}", a.tok, a.rows, max(1, a.workers - n_long), n_long)
    gpu = torch.cuda.is_available()
    dev = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(dev)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    if world > 1:
        dist.init_process_group("nccl" if gpu else "gloo")
    if a.resume and os.path.exists(f"{a.resume}/model.safetensors"):
        c = M.Config()
        got = X.load(a.resume)                      # an exported folder: goes on from the quantized weights
        params = {n: got[n].clone() for n in M.shapes(c)}
    elif a.resume:
        c, params, _ = load(a.resume)
    else:
        c = M.Config(layers=4, experts=8) if a.tiny else M.Config()
        params = M.init(c)
    kinds = M.shapes(c)
    params = {n: p.to(dev) for n, p in params.items()}
    opt = Optimizer(params, kinds)
    flat = torch.zeros(sum(p.numel() for p in params.values()), device=dev)
    g = dict(zip(params, (v.view(p.shape) for v, p in zip(flat.split([p.numel() for p in params.values()]), params.values()))))
    ops = M.Ops(compile=gpu and not a.no_compile)
    dt = torch.bfloat16 if gpu else torch.float32
    say = lambda *x: print(*x, flush=True) if rank == 0 else None
    say(f"{sum(p.numel() for p in params.values())} parameters, {world} processes, set up in {time.time() - t0:.1f} s")
    os.makedirs(a.out, exist_ok=True)
    log = open(f"{a.out}/log.jsonl", "a") if rank == 0 else None
    step, mark, seen, sums = 0, time.time(), 0, torch.zeros(4, device=dev)
    prog = 0.0
    prof = torch.profiler.profile() if a.profile and rank == 0 else None
    while prog < 1.0 and step < a.steps:
        late = prog > (0.0 if a.resume else 0.15)
        L, ids, w = (ql if late and step % 6 == 5 else qs).get()
        ids = torch.from_numpy(ids.astype("int32")).to(dev, non_blocking=True).long()
        w = torch.from_numpy(w).to(dev, non_blocking=True).float() / 100
        # the clock of process 0 and the sum of weights, shared
        now = min(1.0, max((time.time() - t0) / a.seconds, step / a.steps))
        info = torch.stack([w.sum(), torch.tensor(now if rank == 0 else 0.0, device=dev)])
        if world > 1:
            dist.all_reduce(info)
        total = info[0]
        prog = float(info[1])
        qat = prog > (0.4 if a.resume else 0.70)
        mtp_w = 0.2 if prog > 0.30 or a.resume else 0.0
        if prof and step == 40:
            prof.__enter__()
        if prof and step == 46:
            torch.cuda.synchronize()
            prof.__exit__(None, None, None)
            open(f"{a.out}/profile.txt", "w").write(prof.key_averages().table(sort_by="cuda_time_total", row_limit=60, max_name_column_width=90))
            prof = None
        eff = Q.effective(kinds, params, qat, dt)
        for t in eff.values():
            t.requires_grad_(True)
        ce, ce2, aux = M.loss(c, ops, eff, ids, w, len(ids) // L, mtp_w)
        ((ce + mtp_w * ce2) / total + 0.002 * aux / world).backward()
        have = [n for n in params if eff[n].grad is not None]
        if len(have) < len(params):
            flat.zero_()
        torch._foreach_copy_([g[n] for n in have], [eff[n].grad for n in have])
        if world > 1:
            dist.all_reduce(flat)
        norm = flat.norm()
        flat *= torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        hold = 0.2 if a.resume else 0.35
        lr = min(1.0, (step + 1) / 100) * (1.0 if prog < hold else max(0.01, (1 - prog) / (1 - hold)))
        opt.step(g, a.lr * lr, a.adam * lr)
        sums += torch.stack([ce.detach(), ce2.detach(), w.sum(), norm.detach()])
        seen += len(ids) * world
        step += 1
        if step in (1, 3) or step % 25 == 0:
            if world > 1:
                dist.all_reduce(sums)
            s = sums.tolist()
            d = time.time() - mark
            row = dict(step=step, t=round(time.time() - t0, 1), prog=round(prog, 3), loss=round(s[0] / s[2], 4), mtp=round(s[1] / s[2], 4), L=L,
                       grad=round(s[3] / (1 if step == 1 else 2 if step == 3 else 25) / world, 3), tok_s=round(seen / d), q=(qs.qsize(), ql.qsize()), qat=qat)
            if step % 100 == 0 or step < 100:
                say(row)
            if log:
                log.write(json.dumps(row) + "\n")
                log.flush()
            sums.zero_()
            seen, mark = 0, time.time()
            if not math.isfinite(s[0]):
                raise SystemExit("loss is not finite")
    if rank == 0:
        save(c, params, a.out, dict(steps=step, seconds=time.time() - t0, world=world, rows=a.rows))
        say(f"saved after {step} steps, {time.time() - t0:.1f} s; peak GiB", torch.cuda.max_memory_allocated() / 2 ** 30 if gpu else 0)
    if world > 1:
        dist.barrier()
    for p in procs:
        p.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
