"""The forward pass of model.md section 4 in numpy float64: the yardstick for the other references."""
import numpy as np


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(u):
    return np.maximum(u, 0) + np.log1p(np.exp(-np.abs(u)))


class Forward64:
    """forward(ids) -> dict(logits [T][V], hidden [L+1][T][H], gaps [L][T], experts [L][T][K])."""

    def __init__(self, ck):
        self.ck, t = ck, ck.text
        self.P = "language_model.model."
        self.eps = t["rms_norm_eps"]
        self.hq, self.hkv, self.dh = t["num_attention_heads"], t["num_key_value_heads"], t["head_dim"]
        self.hk, self.hv, self.d = t["linear_num_key_heads"], t["linear_num_value_heads"], t["linear_key_head_dim"]
        self.top = t["num_experts_per_tok"]
        self.rot = int(self.dh * t["rope_parameters"]["partial_rotary_factor"])
        self.theta = t["rope_parameters"]["rope_theta"]
        self.kinds = t["layer_types"]
        self.w = {}

    def W(self, module):
        if module not in self.w:
            self.w[module] = self.ck.weight(module)
        return self.w[module]

    def rope(self, x):  # [T, heads, dh]
        half = self.rot // 2
        a = np.arange(x.shape[0])[:, None, None] * self.theta ** (-2 * np.arange(half) / self.rot)
        c, s, y = np.cos(a), np.sin(a), x.copy()
        u, v = x[..., :half], x[..., half:self.rot]
        y[..., :half], y[..., half:self.rot] = u * c - v * s, u * s + v * c
        return y

    def attention(self, p, x):
        T, dh, per = len(x), self.dh, self.hq // self.hkv
        qg = (x @ self.W(p + "q_proj").T).reshape(T, self.hq, 2 * dh)
        q, gate = qg[..., :dh], qg[..., dh:]
        k = (x @ self.W(p + "k_proj").T).reshape(T, self.hkv, dh)
        v = (x @ self.W(p + "v_proj").T).reshape(T, self.hkv, dh)
        q = self.rope(rms(q, self.eps) * self.ck.tensor(p + "q_norm.weight"))
        k = self.rope(rms(k, self.eps) * self.ck.tensor(p + "k_norm.weight"))
        o, future = np.zeros((T, self.hq, dh)), np.triu(np.ones((T, T), bool), 1)
        for h in range(self.hq):
            s = q[:, h] @ k[:, h // per].T / np.sqrt(dh)
            s[future] = -np.inf
            e = np.exp(s - s.max(-1, keepdims=True))
            o[:, h] = e / e.sum(-1, keepdims=True) @ v[:, h // per]
        return (o * sigmoid(gate)).reshape(T, -1) @ self.W(p + "o_proj").T

    def delta_rule(self, q, k, v, beta, g):
        """q, k [T][hv][d] (key heads already repeated), v [T][hv][d], beta, g [T][hv] -> o [T][hv][d]."""
        S, o = np.zeros((self.hv, self.d, self.d)), np.zeros_like(v)
        for t in range(len(v)):
            S *= g[t][:, None, None]
            e = beta[t][:, None] * (v[t] - np.einsum("hvk,hk->hv", S, k[t]))
            S += e[:, :, None] * k[t][:, None, :]
            o[t] = np.einsum("hvk,hk->hv", S, q[t])
        return o

    def linear(self, p, x):
        T, d, kd, per = len(x), self.d, self.hk * self.d, self.hv // self.hk
        u = x @ self.W(p + "in_proj_qkv").T
        z = (x @ self.W(p + "in_proj_z").T).reshape(T, self.hv, d)
        beta = sigmoid(x @ self.W(p + "in_proj_b").T)
        a = x @ self.W(p + "in_proj_a").T
        w = self.ck.tensor(p + "conv1d.weight")[..., 0]
        past = np.concatenate([np.zeros((w.shape[1] - 1, u.shape[1])), u])
        c = silu(sum(past[j:j + T] * w[:, j] for j in range(w.shape[1])))
        unit = lambda y: y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6)
        q = unit(c[:, :kd].reshape(T, self.hk, d)) / np.sqrt(d)
        k = unit(c[:, kd:2 * kd].reshape(T, self.hk, d))
        v = c[:, 2 * kd:].reshape(T, self.hv, d)
        g = np.exp(-np.exp(self.ck.tensor(p + "A_log")) * softplus(a + self.ck.tensor(p + "dt_bias")))
        o = self.delta_rule(np.repeat(q, per, 1), np.repeat(k, per, 1), v, beta, g)
        return (rms(o, self.eps) * self.ck.tensor(p + "norm.weight") * silu(z)).reshape(T, -1) @ self.W(p + "out_proj").T

    def moe(self, p, x):
        r = x @ self.W(p + "gate").T
        P = np.exp(r - r.max(-1, keepdims=True))
        P /= P.sum(-1, keepdims=True)
        rank = np.argsort(-P, axis=-1, kind="stable")
        top, rows = rank[:, :self.top], np.arange(len(x))
        gap = P[rows, rank[:, self.top - 1]] / P[rows, rank[:, self.top]] - 1
        s = np.take_along_axis(P, top, -1)
        s /= s.sum(-1, keepdims=True)
        G, U, D = (self.W(p + "switch_mlp." + n) for n in ("gate_proj", "up_proj", "down_proj"))
        out = np.zeros_like(x)
        for e in np.unique(top):
            at, slot = np.where(top == e)
            out[at] += s[at, slot][:, None] * ((silu(x[at] @ G[e].T) * (x[at] @ U[e].T)) @ D[e].T)
        h = p + "shared_expert."
        shared = (silu(x @ self.W(h + "gate_proj").T) * (x @ self.W(h + "up_proj").T)) @ self.W(h + "down_proj").T
        return out + sigmoid(x @ self.W(p + "shared_expert_gate").T) * shared, gap, top

    def forward(self, ids):
        x = self.W(self.P + "embed_tokens")[np.asarray(ids)]
        hidden, gaps, experts = [x], [], []
        for l, kind in enumerate(self.kinds):
            p = f"{self.P}layers.{l}."
            n = rms(x, self.eps) * self.ck.tensor(p + "input_layernorm.weight")
            x = x + (self.attention(p + "self_attn.", n) if kind == "full_attention" else self.linear(p + "linear_attn.", n))
            y, gap, top = self.moe(p + "mlp.", rms(x, self.eps) * self.ck.tensor(p + "post_attention_layernorm.weight"))
            x = x + y
            hidden.append(x), gaps.append(gap), experts.append(np.sort(top, -1))
        logits = (rms(x, self.eps) * self.ck.tensor(self.P + "norm.weight")) @ self.W("language_model.lm_head").T
        return {"logits": logits, "hidden": np.stack(hidden), "gaps": np.stack(gaps), "experts": np.stack(experts)}
