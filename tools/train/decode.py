"""Generation with the PyTorch model: prefill each prompt, then greedy decoding of a batch, with the MTP's first draft."""
import torch
import torch.nn.functional as F
import model as M


class Runner:
    def __init__(self, c, w, device="cpu", dtype=torch.float32):
        self.c, self.dev, self.dt = c, device, dtype
        self.w = {n: t.to(device=device, dtype=dtype if M.shapes(c)[n][1] == "mat" else torch.float32)
                  for n, t in w.items()}
        self.ops = M.Ops()

    @torch.no_grad()
    def prefill(self, ids):
        """Returns normed hidden of every position [T, H] and the state after the prompt."""
        c, w, T = self.c, self.w, len(ids)
        pad = -T % M.CHUNK
        x = torch.tensor(list(ids) + [0] * pad, device=self.dev)
        N = len(x)
        pos = torch.arange(N, device=self.dev)
        st = []
        h = F.embedding(x, w["model.embed_tokens.weight"]).float()
        for l in range(c.layers):
            p = f"model.layers.{l}."
            if c.full(l):
                h, s = self.attn_prefill(p, h, pos, T)
            else:
                h, s = self.gdn_prefill(p, h, pos, T)
            st.append(s)
            h, _ = M.moe_layer(c, self.ops, w, p, h)
        return M.rms(h, w["model.norm.weight"])[:T], st

    def attn_prefill(self, p, h, pos, T):
        w, a = self.w, p + "self_attn."
        q, k, v, gate = M.attn_pre(h, w[p + "input_layernorm.weight"], w[a + "q_proj.weight"], w[a + "k_proj.weight"],
                                   w[a + "v_proj.weight"], w[a + "q_norm.weight"], w[a + "k_norm.weight"], pos, self.c.theta)
        h = M.attn_post(h, M.attention(q, k, v, 1), gate, w[a + "o_proj.weight"])
        return h, (k[:T], v[:T])

    def gdn_prefill(self, p, h, pos, T):
        c, w, a = self.c, self.w, p + "linear_attn."
        n = M.rms(h, w[p + "input_layernorm.weight"]).to(self.dt)
        u = n @ w[a + "in_proj_qkv.weight"].T
        cv = M.conv_silu(u, w[a + "conv1d.weight"], pos)
        q, k, v, beta, lg = M.gdn_split(cv, n @ w[a + "in_proj_b.weight"].T, n @ w[a + "in_proj_a.weight"].T,
                                        w[a + "A_log"], w[a + "dt_bias"], c.k_heads, c.v_heads)
        live = (pos < T)[:, None]
        beta, lg = beta * live, lg * live      # padding neither decays nor writes
        W, U, kd, qd, att, e = M.gdn_intra(q, k, v, beta, lg)
        Dm, Sm, S = M.gdn_scan(W, U, kd, e, 1)
        o = M.gdn_out(qd, att, Dm, Sm)
        h = M.gdn_post(h, o, n @ w[a + "in_proj_z.weight"].T, w[a + "norm.weight"], w[a + "out_proj.weight"])
        hist = F.pad(u[:T].float(), (0, 0, 3, 0))[-3:]
        return h, (hist, S.view(c.v_heads, 128, 128))

    @torch.no_grad()
    def step(self, x, st, kv_len):
        """One token for each of B sequences; st is batched state, kv_len [B] the tokens seen before."""
        c, w = self.c, self.w
        h = F.embedding(x, w["model.embed_tokens.weight"]).float()
        for l in range(c.layers):
            p = f"model.layers.{l}."
            h = self.attn_step(p, h, st, l, kv_len) if c.full(l) else self.gdn_step(p, h, st, l)
            h, _ = M.moe_layer(c, self.ops, w, p, h)
        return M.rms(h, w["model.norm.weight"])

    def attn_step(self, p, h, st, l, kv_len):
        w, a, B = self.w, p + "self_attn.", h.shape[0]
        q, k, v, gate = M.attn_pre(h, w[p + "input_layernorm.weight"], w[a + "q_proj.weight"], w[a + "k_proj.weight"],
                                   w[a + "v_proj.weight"], w[a + "q_norm.weight"], w[a + "k_norm.weight"], kv_len, self.c.theta)
        K, V = st[l]
        b = torch.arange(B, device=h.device)
        K[b, kv_len], V[b, kv_len] = k[:, 0], v[:, 0]
        T = int(kv_len.max()) + 1
        s = torch.einsum("bhd,btd->bht", q.float(), K[:, :T].float()) / 16
        s = s.masked_fill((torch.arange(T, device=h.device)[None] > kv_len[:, None])[:, None], -1e30)
        o = torch.einsum("bht,btd->bhd", s.softmax(-1), V[:, :T].float())
        return M.attn_post(h, o, gate, w[a + "o_proj.weight"])

    def gdn_step(self, p, h, st, l):
        c, w, a = self.c, self.w, p + "linear_attn."
        n = M.rms(h, w[p + "input_layernorm.weight"]).to(self.dt)
        u = (n @ w[a + "in_proj_qkv.weight"].T).float()
        hist, S = st[l]
        win = torch.cat([hist, u[:, None]], 1)
        cv = F.silu((win * w[a + "conv1d.weight"].float().T[None]).sum(1))
        q, k, v, beta, lg = M.gdn_split(cv, n @ w[a + "in_proj_b.weight"].T, n @ w[a + "in_proj_a.weight"].T,
                                        w[a + "A_log"], w[a + "dt_bias"], c.k_heads, c.v_heads)
        r = c.v_heads // c.k_heads
        q, k = q.repeat_interleave(r, 1), k.repeat_interleave(r, 1)
        S = S * lg.exp()[..., None, None]
        e = beta[..., None] * (v - torch.einsum("bhvk,bhk->bhv", S, k))
        S = S + e[..., None] * k[:, :, None]
        o = torch.einsum("bhvk,bhk->bhv", S, q)
        st[l] = (win[:, 1:], S)
        return M.gdn_post(h, o, n @ w[a + "in_proj_z.weight"].T, w[a + "norm.weight"], w[a + "out_proj.weight"])

    def logits(self, h):
        return (h.to(self.dt) @ self.w["lm_head.weight"].T).float()

    @torch.no_grad()
    def greedy(self, prompts, max_new, stop, mask_from=None):
        """prompts: id lists. Returns generated id lists (stop token not included) and their finished flags."""
        B = len(prompts)
        room = max(len(p) for p in prompts) + max_new + 1
        st, hs = [None] * self.c.layers, []
        for i, p in enumerate(prompts):
            h, s = self.prefill(p)
            hs.append(h[-1])
            for l, (x, y) in enumerate(s):
                if self.c.full(l):
                    if i == 0:
                        st[l] = tuple(torch.zeros(B, room, 256, device=self.dev, dtype=self.dt) for _ in range(2))
                    st[l][0][i, :len(p)], st[l][1][i, :len(p)] = x[:, 0], y[:, 0]
                else:
                    if i == 0:
                        st[l] = (torch.zeros(B, *x.shape, device=self.dev), torch.zeros(B, *y.shape, device=self.dev))
                    st[l][0][i], st[l][1][i] = x, y
        h = torch.stack(hs)
        ln = torch.tensor([len(p) for p in prompts], device=self.dev)
        out, done = [[] for _ in prompts], [False] * B
        for _ in range(max_new):
            lg = self.logits(h)
            if mask_from:
                lg[:, mask_from:] = -1e30
            nx = lg.argmax(-1)
            for i, t in enumerate(nx.tolist()):
                if not done[i]:
                    if t in stop:
                        done[i] = True
                    else:
                        out[i].append(t)
            if all(done):
                break
            h = self.step(nx, st, ln)
            ln = ln + 1
        return out, done

    @torch.no_grad()
    def mtp_agreement(self, ids, start):
        """Of the positions from `start` on: how often the first draft for x_{t+2} equals the trunk's greedy token there,
        given the trunk's own greedy x_{t+1}. ids: prompt plus a greedy continuation. Returns (equal, counted)."""
        n = len(ids) // M.CHUNK * M.CHUNK
        x = torch.tensor(ids[:n], device=self.dev)
        H, _ = M.trunk(self.c, self.ops, self.w, x, 1)
        D, _ = M.mtp(self.c, self.ops, self.w, x, H, 1)
        g, d = self.logits(H).argmax(-1), self.logits(D).argmax(-1)
        if start >= n - 1:
            return 0, 0
        t = torch.arange(start, n - 1, device=self.dev)
        ok = g[t] == x[t + 1]                  # x_{t+1} is what the trunk chose
        return int((d[t] == g[t + 1])[ok].sum()), int(ok.sum())
