"""MLX affine quantization, group 64, `gpu` rounding: codes for the exporter, fake quantization for training."""
import torch


def bits_of(name):
    return 8 if name.endswith(("mlp.gate.weight", "mlp.shared_expert_gate.weight")) and not name.startswith("mtp.") else 4


def round_away(x):
    t = torch.trunc(x)
    return torch.where((x - t).abs() >= 0.5, t + torch.sign(x), t)


def affine(w, bits):
    """float32 w [..., I] -> codes [..., I] float, scale and bias [..., I/64] as bf16 tensors."""
    g = w.float().reshape(*w.shape[:-1], -1, 64)
    n = float(2 ** bits - 1)
    mn = g.amin(-1)
    mx = g.amax(-1).clamp(min=0.0)
    s = ((mx - mn) / n).clamp(min=1e-7)
    low = mn.abs() > mx.abs()
    s = torch.where(low, s, -s)
    edge = torch.where(low, mn, mx)
    q0 = round_away(edge / s)
    nz = q0 != 0
    s = torch.where(nz, edge / torch.where(nz, q0, torch.ones_like(q0)), s)
    b = torch.where(nz, edge, torch.zeros_like(edge))
    c = round_away((g - b[..., None]) / s[..., None]).clamp(0, n)
    return c.reshape(w.shape), s.bfloat16(), b.bfloat16()


def dequant(c, s, b):
    g = c.reshape(*c.shape[:-1], -1, 64)
    return (g * s.float()[..., None] + b.float()[..., None]).reshape(c.shape)


def fake(name, w):
    """What the engine will see of matrix `name`: through bf16, as the exporter does."""
    return dequant(*affine(w.bfloat16().float(), bits_of(name)))


def pack(c, bits):
    per = 32 // bits
    v = c.to(torch.int64).reshape(*c.shape[:-1], -1, per)
    sh = torch.arange(per, device=c.device) * bits
    return (v << sh).sum(-1)


def effective(shapes, params, qat, dtype):
    """The weights as the forward pass uses them: leaf tensors without history.
    qat: matrices fake-quantized, the rest rounded to bf16 as it will be stored.
    All matrices of one width go through the quantizer as one tensor: training is bound by launches."""
    out = {}
    for bits in (4, 8):
        names = [n for n, (_, k) in shapes.items() if k == "mat" and bits_of(n) == bits]
        if not names:
            continue
        flat = torch.cat([params[n].reshape(-1, 64) for n in names])
        if qat:
            flat = dequant(*affine(flat.bfloat16().float(), bits))
        flat = flat.to(dtype)
        for n, t in zip(names, flat.split([params[n].numel() // 64 for n in names])):
            out[n] = t.view(shapes[n][0]).detach()
    for n, (_, kind) in shapes.items():
        if kind == "norm":
            out[n] = ((1.0 + params[n]).bfloat16().float() - 1.0 if qat else params[n].float().clone()).detach()
        elif kind == "plain":
            out[n] = (params[n].bfloat16().float() if qat else params[n].float().clone()).detach()
    return {n: out[n] for n in shapes}
