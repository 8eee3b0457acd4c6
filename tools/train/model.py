"""The demo model in plain PyTorch: parameters, training forward pass, loss.

Tensor names are those of the MLX checkpoint without the prefix
`language_model.` ("model.layers.0.mlp.gate.weight", "lm_head.weight",
"mtp.fc.weight"). Norm weights are held as w - 1, so zero is neutral.
Everything that does not mix tokens runs on flat [N, .] rows with a static N;
only attention and the chunked gated delta rule see rows of one sequence.
"""
import math
import torch
import torch.nn.functional as F

CHUNK = 64


class Config:
    def __init__(self, vocab=8192, hidden=256, layers=8, q_heads=8, kv_heads=1, k_heads=2, v_heads=4,
                 experts=32, inter=64, shared=64, top_k=8):
        self.vocab, self.hidden, self.layers = vocab, hidden, layers
        self.q_heads, self.kv_heads, self.k_heads, self.v_heads = q_heads, kv_heads, k_heads, v_heads
        self.experts, self.inter, self.shared, self.top_k = experts, inter, shared, top_k
        self.head, self.rot, self.gd, self.conv, self.theta = 256, 64, 128, 4, 1e7

    def full(self, l):
        return (l + 1) % 4 == 0


def shapes(c):
    """name -> (shape, kind); kind: mat (quantized), norm (1 + w), plain."""
    s = {}
    H, I, E = c.hidden, c.inter, c.experts
    kd, vd = c.k_heads * c.gd, c.v_heads * c.gd

    def layer(p, full):
        if full:
            a = p + "self_attn."
            s[a + "q_proj.weight"] = ((c.q_heads * 512, H), "mat")
            s[a + "k_proj.weight"] = ((c.kv_heads * 256, H), "mat")
            s[a + "v_proj.weight"] = ((c.kv_heads * 256, H), "mat")
            s[a + "o_proj.weight"] = ((H, c.q_heads * 256), "mat")
            s[a + "q_norm.weight"] = ((256,), "norm")
            s[a + "k_norm.weight"] = ((256,), "norm")
        else:
            a = p + "linear_attn."
            s[a + "in_proj_qkv.weight"] = ((2 * kd + vd, H), "mat")
            s[a + "in_proj_z.weight"] = ((vd, H), "mat")
            s[a + "in_proj_b.weight"] = ((c.v_heads, H), "mat")
            s[a + "in_proj_a.weight"] = ((c.v_heads, H), "mat")
            s[a + "out_proj.weight"] = ((H, vd), "mat")
            s[a + "conv1d.weight"] = ((2 * kd + vd, 4), "plain")
            s[a + "A_log"] = ((c.v_heads,), "plain")
            s[a + "dt_bias"] = ((c.v_heads,), "plain")
            s[a + "norm.weight"] = ((128,), "norm")
        s[p + "input_layernorm.weight"] = ((H,), "norm")
        s[p + "post_attention_layernorm.weight"] = ((H,), "norm")
        m = p + "mlp."
        s[m + "gate.weight"] = ((E, H), "mat")
        s[m + "switch_mlp.gate_proj.weight"] = ((E, I, H), "mat")
        s[m + "switch_mlp.up_proj.weight"] = ((E, I, H), "mat")
        s[m + "switch_mlp.down_proj.weight"] = ((E, H, I), "mat")
        s[m + "shared_expert.gate_proj.weight"] = ((c.shared, H), "mat")
        s[m + "shared_expert.up_proj.weight"] = ((c.shared, H), "mat")
        s[m + "shared_expert.down_proj.weight"] = ((H, c.shared), "mat")
        s[m + "shared_expert_gate.weight"] = ((1, H), "mat")

    s["model.embed_tokens.weight"] = ((c.vocab, H), "mat")
    for l in range(c.layers):
        layer(f"model.layers.{l}.", c.full(l))
    s["model.norm.weight"] = ((H,), "norm")
    s["lm_head.weight"] = ((c.vocab, H), "mat")
    s["mtp.fc.weight"] = ((H, 2 * H), "mat")
    for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        s[f"mtp.{n}.weight"] = ((H,), "norm")
    layer("mtp.layers.0.", True)
    return s


def init(c, seed=1):
    g = torch.Generator().manual_seed(seed)
    p = {}
    for n, (sh, kind) in shapes(c).items():
        if kind == "norm":
            t = torch.zeros(sh)
        elif n.endswith("A_log"):
            t = torch.log(torch.linspace(0.5, 8.0, sh[0]))
        elif n.endswith("dt_bias"):
            t = torch.full(sh, -4.0) + 3.0 * torch.rand(sh, generator=g)
        elif n.endswith("conv1d.weight"):
            t = torch.randn(sh, generator=g) * 0.3
            t[:, 3] += 0.5
        elif n.endswith("embed_tokens.weight"):
            t = torch.randn(sh, generator=g) * 0.5
        elif n.endswith("lm_head.weight"):
            t = torch.randn(sh, generator=g) * 0.02
        elif n.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            t = torch.randn(sh, generator=g) * (0.5 / math.sqrt(sh[-1]) / math.sqrt(2 * c.layers))
        else:
            t = torch.randn(sh, generator=g) / math.sqrt(sh[-1])
        p[n] = t
    return p


# ---- pieces without token mixing (these are compiled) ----

def rms(x, w):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1.0 + w.float())


def rope(x, pos, theta, rot):
    """x [N, heads, 256] float; half-split pairs in the first `rot` dims."""
    h = rot // 2
    f = theta ** (-torch.arange(h, device=x.device, dtype=torch.float32) / h)
    a = pos.float()[:, None] * f
    co, si = a.cos()[:, None], a.sin()[:, None]
    u, v = x[..., :h], x[..., h:rot]
    return torch.cat([u * co - v * si, u * si + v * co, x[..., rot:]], -1)


def attn_pre(x, nw, wq, wk, wv, qn, kn, pos, theta):
    n = rms(x, nw).to(wq.dtype)
    qg = (n @ wq.T).view(x.shape[0], -1, 512)
    q, gate = qg[..., :256], qg[..., 256:]
    k = (n @ wk.T).view(x.shape[0], -1, 256)
    v = (n @ wv.T).view(x.shape[0], -1, 256)
    q = rope(rms(q, qn), pos, theta, 64).to(wq.dtype)
    k = rope(rms(k, kn), pos, theta, 64).to(wq.dtype)
    return q, k, v, gate


def attn_post(x, o, gate, wo):
    y = (o.float() * torch.sigmoid(gate.float())).to(wo.dtype).reshape(x.shape[0], -1)
    return x + (y @ wo.T).float()


def conv_silu(u, w, pos, hist=None):
    y = u.float() * w[:, 3].float()
    for j in (1, 2, 3):
        s = F.pad(u[:-j], (0, 0, j, 0)) if hist is None else None
        s = torch.where((pos >= j)[:, None], s.float(), 0.0)
        y = y + s * w[:, 3 - j].float()
    return F.silu(y)


def gdn_split(c, b, a, A_log, dt_bias, kh, vh):
    n = c.shape[0]
    kd = kh * 128
    q, k = c[:, :kd].view(n, kh, 128), c[:, kd:2 * kd].view(n, kh, 128)
    v = c[:, 2 * kd:].view(n, vh, 128)
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * 128 ** -0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    beta = torch.sigmoid(b.float())
    lg = -torch.exp(A_log.float()) * F.softplus(a.float() + dt_bias.float())
    return q, k, v, beta, lg


def gdn_pre(x, nw, wqkv, wz, wb, wa, conv, A_log, dt_bias, pos, kh, vh):
    n = rms(x, nw).to(wqkv.dtype)
    u = n @ wqkv.T
    z = n @ wz.T
    c = conv_silu(u, conv, pos)
    q, k, v, beta, lg = gdn_split(c, n @ wb.T, n @ wa.T, A_log, dt_bias, kh, vh)
    return q, k, v, beta, lg, z


def gdn_post(x, o, z, nw, wo):
    y = rms(o, nw) * F.silu(z.float().view(o.shape))
    return x + (y.to(wo.dtype).reshape(x.shape[0], -1) @ wo.T).float()


def moe(x, nw, wr, wg, wu, wd, sg, su, sd, sgate, top_k):
    """All experts densely; the renormalised top-k weights are zero elsewhere."""
    n32 = rms(x, nw)
    n = n32.to(wg.dtype)
    E, I, H = wg.shape
    P = torch.softmax(n.float() @ wr.float().T, -1)
    # rank by counting (fuses; a sort would not): ties go to the higher index
    idx = torch.arange(E, device=x.device)
    better = (P[:, None, :] > P[:, :, None]) | ((P[:, None, :] == P[:, :, None]) & (idx[None, :] > idx[:, None])[None])
    mask = (better.sum(-1) < top_k).float()
    s = P * mask
    s = s / s.sum(-1, keepdim=True)
    h = F.silu((n @ wg.reshape(E * I, H).T).float()) * (n @ wu.reshape(E * I, H).T).float()
    h = (h.view(-1, E, I) * s[:, :, None]).to(wg.dtype).view(-1, E * I)
    y = h @ wd.permute(0, 2, 1).reshape(E * I, H)
    hs = (F.silu((n @ sg.T).float()) * (n @ su.T).float()).to(wg.dtype)
    ys = (hs @ sd.T).float() * torch.sigmoid(n.float() @ sgate.float().T)
    aux = E * (mask.mean(0) / top_k * P.mean(0)).sum()
    return x + y.float() + ys, aux


def ce_sum(h, w, target, weight):
    """Sum of weighted cross entropies; h [N, H] in compute dtype."""
    lg = (h @ w.T).float()
    lse = torch.logsumexp(lg, -1)
    ce = lse - lg.gather(1, target[:, None]).squeeze(1)
    return (ce * weight).sum()


def mtp_in(e, h, ne, nh, fc):
    m = torch.cat([rms(e, ne), rms(h, nh)], -1).to(fc.dtype)
    return (m @ fc.T).float()


# ---- token mixing ----

def unit_lower_inverse(M):
    """(I + M)^-1 for strictly lower M [..., 64, 64], by 16-blocks (stable where keys repeat)."""
    n = M.shape[-1]
    b = 16
    B = M.reshape(*M.shape[:-2], n // b, b, n // b, b).transpose(-3, -2)
    D = torch.diagonal(B, dim1=-4, dim2=-3).movedim(-1, -3)
    eye = torch.eye(b, device=M.device, dtype=M.dtype)
    X = eye - D
    Pw = D
    for _ in range(3):
        Pw = Pw @ Pw
        X = X + X @ Pw
    size = b
    while size < n:
        k = n // (2 * size)
        blocks = [M[..., (2 * i + 1) * size:(2 * i + 2) * size, 2 * i * size:(2 * i + 1) * size] for i in range(k)]
        C = torch.stack(blocks, -3)
        A, Bt = X[..., 0::2, :, :], X[..., 1::2, :, :]
        low = -(Bt @ C @ A)
        top = torch.cat([A, torch.zeros_like(A)], -1)
        bot = torch.cat([low, Bt], -1)
        X = torch.cat([top, bot], -2)
        size *= 2
    return X.squeeze(-3)


def gdn_intra(q, k, v, beta, lg):
    """Everything inside the chunks. Returns what the scan and the output need."""
    N, kh, D = q.shape
    vh = v.shape[1]
    nc, C, r = N // CHUNK, CHUNK, vh // kh
    q = q.view(nc, C, kh, D).transpose(1, 2)
    k = k.view(nc, C, kh, D).transpose(1, 2)
    v = v.view(nc, C, vh, D).transpose(1, 2)
    beta = beta.view(nc, C, vh).transpose(1, 2)
    G = lg.view(nc, C, vh).transpose(1, 2).cumsum(-1)
    tri = torch.ones(C, C, dtype=torch.bool, device=q.device).tril()
    dif = (G[..., :, None] - G[..., None, :]).masked_fill(~tri, 0.0)
    lam = dif.exp() * tri
    kk = (k @ k.transpose(-1, -2)).repeat_interleave(r, 1)
    qk = (q @ k.transpose(-1, -2)).repeat_interleave(r, 1)
    M = (beta[..., :, None] * kk * lam).tril(-1)
    T = unit_lower_inverse(M)
    kr, qr = k.repeat_interleave(r, 1), q.repeat_interleave(r, 1)
    eG = G.exp()
    W = T @ (kr * (beta * eG)[..., None])
    U = T @ (v * beta[..., None])
    kd = kr * (G[..., -1:] - G).exp()[..., None]
    qd = qr * eG[..., None]
    return W, U, kd, qd, qk * lam, eG[..., -1]


def gdn_scan(W, U, kd, eGC, rows):
    """Sequential part. Returns D per chunk, the state before each chunk, and the last state."""
    nc, vh, C, D = W.shape
    n, B = nc // rows, rows * vh
    by_time = lambda t: t.view(rows, n, *t.shape[1:]).transpose(0, 1).reshape(n, B, *t.shape[2:])
    Wt, ks = by_time(W).unbind(0), by_time(kd).unbind(0)
    Us, gs = by_time(U).unbind(0), by_time(eGC[..., None, None]).unbind(0)
    S = torch.zeros(B, D, D, device=W.device, dtype=W.dtype)
    Ds, Ss = [], []
    for i in range(n):
        d = torch.baddbmm(Us[i], Wt[i], S.transpose(1, 2), alpha=-1)
        Ds.append(d)
        Ss.append(S)
        if i + 1 < n or rows == 1:
            S = torch.baddbmm(S * gs[i], d.transpose(1, 2), ks[i])
    back = lambda l: torch.stack(l).view(n, rows, vh, *l[0].shape[1:]).transpose(0, 1).reshape(nc, vh, *l[0].shape[1:])
    return back(Ds), back(Ss), S


def gdn_out(qd, att, Dm, Sm):
    o = qd @ Sm.transpose(-1, -2) + att @ Dm
    nc, vh, C, D = o.shape
    return o.transpose(1, 2).reshape(nc * C, vh, D)


class Ops:
    """The pieces above, compiled or not."""

    def __init__(self, compile=False):
        w = (lambda f: torch.compile(f, dynamic=False)) if compile else (lambda f: f)
        for f in (attn_pre, attn_post, gdn_pre, gdn_post, moe, ce_sum, gdn_intra, gdn_out, mtp_in):
            setattr(self, f.__name__, w(f))


def attention(q, k, v, rows):
    N, hq, D = q.shape
    L = N // rows
    q = q.view(rows, L, hq, D).transpose(1, 2)
    k = k.view(rows, L, -1, D).transpose(1, 2)
    v = v.view(rows, L, -1, D).transpose(1, 2)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / 16, enable_gqa=True)
    return o.transpose(1, 2).reshape(N, hq, D)


def attn_layer(c, ops, w, p, x, pos, rows):
    a = p + "self_attn."
    q, k, v, gate = ops.attn_pre(x, w[p + "input_layernorm.weight"], w[a + "q_proj.weight"], w[a + "k_proj.weight"],
                                 w[a + "v_proj.weight"], w[a + "q_norm.weight"], w[a + "k_norm.weight"], pos, c.theta)
    return ops.attn_post(x, attention(q, k, v, rows), gate, w[a + "o_proj.weight"])


def gdn_layer(c, ops, w, p, x, pos, rows):
    a = p + "linear_attn."
    q, k, v, beta, lg, z = ops.gdn_pre(x, w[p + "input_layernorm.weight"], w[a + "in_proj_qkv.weight"],
                                       w[a + "in_proj_z.weight"], w[a + "in_proj_b.weight"], w[a + "in_proj_a.weight"],
                                       w[a + "conv1d.weight"], w[a + "A_log"], w[a + "dt_bias"], pos, c.k_heads, c.v_heads)
    W, U, kd, qd, att, eGC = ops.gdn_intra(q, k, v, beta, lg)
    Dm, Sm, _ = gdn_scan(W, U, kd, eGC, rows)
    o = ops.gdn_out(qd, att, Dm, Sm)
    return ops.gdn_post(x, o, z, w[a + "norm.weight"], w[a + "out_proj.weight"])


def moe_layer(c, ops, w, p, x):
    m = p + "mlp."
    return ops.moe(x, w[p + "post_attention_layernorm.weight"], w[m + "gate.weight"], w[m + "switch_mlp.gate_proj.weight"],
                   w[m + "switch_mlp.up_proj.weight"], w[m + "switch_mlp.down_proj.weight"],
                   w[m + "shared_expert.gate_proj.weight"], w[m + "shared_expert.up_proj.weight"],
                   w[m + "shared_expert.down_proj.weight"], w[m + "shared_expert_gate.weight"], c.top_k)


def trunk(c, ops, w, ids, rows):
    """ids [N] = rows sequences of equal length, one after another. Returns normed hidden [N, H], aux."""
    N = ids.shape[0]
    pos = torch.arange(N, device=ids.device) % (N // rows)
    x = F.embedding(ids, w["model.embed_tokens.weight"]).float()
    aux = 0.0
    for l in range(c.layers):
        p = f"model.layers.{l}."
        x = (attn_layer if c.full(l) else gdn_layer)(c, ops, w, p, x, pos, rows)
        x, a = moe_layer(c, ops, w, p, x)
        aux = aux + a
    return rms(x, w["model.norm.weight"]), aux / c.layers


def mtp(c, ops, w, ids, H, rows):
    """Hidden [N, H] after mtp.norm: position t sees H_t and x_{t+1}, predicts x_{t+2}."""
    N = ids.shape[0]
    pos = torch.arange(N, device=ids.device) % (N // rows)
    nxt = torch.roll(ids, -1)
    e = F.embedding(nxt, w["model.embed_tokens.weight"]).float()
    x = ops.mtp_in(e, H, w["mtp.pre_fc_norm_embedding.weight"], w["mtp.pre_fc_norm_hidden.weight"], w["mtp.fc.weight"])
    x = attn_layer(c, ops, w, "mtp.layers.0.", x, pos, rows)
    x, aux = moe_layer(c, ops, w, "mtp.layers.0.", x)
    return rms(x, w["mtp.norm.weight"]), aux


def loss(c, ops, w, ids, weight, rows, mtp_w=0.0):
    """weight[t] is the weight of predicting ids[t] (0 for the first of a row).
    Returns (weighted sums: trunk ce, mtp ce), aux."""
    L = ids.shape[0] // rows
    dt = w["lm_head.weight"].dtype
    H, aux = trunk(c, ops, w, ids, rows)
    last = torch.arange(ids.shape[0], device=ids.device) % L
    w1 = torch.where(last < L - 1, torch.roll(weight, -1), 0.0)
    ce = ops.ce_sum(H.to(dt), w["lm_head.weight"], torch.roll(ids, -1), w1)
    ce2 = torch.zeros((), device=ids.device)
    if mtp_w > 0:
        M, aux2 = mtp(c, ops, w, ids, H, rows)
        w2 = torch.where(last < L - 2, torch.roll(weight, -2), 0.0)
        ce2 = ops.ce_sum(M.to(dt), w["lm_head.weight"], torch.roll(ids, -2), w2)
        aux = aux + aux2
    return ce, ce2, aux
