#!/usr/bin/env python3
"""Hold `berth estimate` against what models really use on this machine's GPU.

    python3 scripts/modelsizes.py --berth bin/berth > cases.jsonl

Builds models in the shape of Llama with random weights, from plain PyTorch
modules, writes their config.json and safetensors header, and runs inference
with a cache and training. One line of JSON for each case; a table at the end,
on stderr. The GPU must be otherwise idle. Takes a few minutes.
"""
import argparse
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "mixed": torch.float32}

# hidden, layers, heads, kv heads, intermediate, vocabulary
SHAPES = {
    "0.2B": (768, 12, 12, 12, 2048, 32000),
    "0.5B": (1024, 24, 16, 4, 2816, 50304),
    "1.2B": (2048, 16, 32, 8, 8192, 128256),
    "3.2B": (3072, 28, 24, 8, 8192, 128256),
    "0.7B": (1536, 24, 12, 2, 4608, 64000),
    "7.2B": (4096, 32, 32, 8, 14336, 32000),
    "8.0B": (4096, 32, 32, 8, 14336, 128256),
    "14B": (5120, 40, 40, 8, 17408, 151936),
}

# model, mode, dtype, context, batch, options
CASES = [
    ("0.5B", "inference", "bf16", 2048, 1, ()),
    ("0.5B", "inference", "fp32", 4096, 4, ()),
    ("1.2B", "inference", "fp16", 4096, 8, ()),
    ("1.2B", "inference", "bf16", 4096, 8, ("growing",)),
    ("3.2B", "inference", "bf16", 8192, 4, ()),
    ("8.0B", "inference", "bf16", 4096, 1, ()),
    ("8.0B", "inference", "bf16", 8192, 16, ()),
    ("8.0B", "inference", "bf16", 32768, 4, ()),
    ("14B", "inference", "bf16", 8192, 4, ()),
    ("14B", "inference", "bf16", 8192, 4, ("growing",)),
    ("0.2B", "full", "fp32", 1024, 8, ()),
    ("0.5B", "full", "bf16", 2048, 4, ()),
    ("0.5B", "full", "mixed", 2048, 4, ()),
    ("0.5B", "full", "bf16", 2048, 16, ("checkpointing",)),
    ("1.2B", "full", "bf16", 2048, 4, ()),
    ("1.2B", "full", "fp32", 1024, 4, ()),
    ("1.2B", "full", "mixed", 2048, 8, ()),
    ("3.2B", "full", "bf16", 2048, 2, ()),
    ("3.2B", "full", "mixed", 2048, 2, ("checkpointing",)),
    ("8.0B", "full", "bf16", 1024, 1, ()),
    ("1.2B", "lora", "bf16", 2048, 8, ()),
    ("3.2B", "lora", "bf16", 4096, 4, ()),
    ("8.0B", "lora", "bf16", 2048, 4, ()),
    ("8.0B", "lora", "bf16", 4096, 8, ("checkpointing",)),
    # The constants were fitted to the cases above, and not to these.
    ("0.7B", "inference", "bf16", 4096, 16, ()),
    ("0.7B", "inference", "fp32", 2048, 4, ()),
    ("3.2B", "inference", "fp16", 16384, 8, ()),
    ("7.2B", "inference", "bf16", 4096, 32, ()),
    ("7.2B", "inference", "bf16", 16384, 2, ("growing",)),
    ("14B", "inference", "bf16", 16384, 8, ()),
    ("0.7B", "full", "bf16", 1024, 16, ()),
    ("0.7B", "full", "fp32", 2048, 4, ()),
    ("0.7B", "full", "mixed", 4096, 4, ()),
    ("3.2B", "full", "bf16", 4096, 2, ("checkpointing",)),
    ("7.2B", "full", "bf16", 2048, 2, ()),
    ("7.2B", "lora", "bf16", 4096, 4, ()),
    ("14B", "lora", "bf16", 2048, 4, ("checkpointing",)),
    ("0.7B", "lora", "fp32", 2048, 4, ()),
]


class Norm(nn.Module):  # as in transformers: computed in fp32
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * x.to(kind)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv):
        super().__init__()
        self.heads, self.kv, self.dim = heads, kv, hidden // heads
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, kv * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv * self.dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, cos, sin, cache):
        b, t, _ = x.shape
        q = rotate(self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, t, self.kv, self.dim).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, self.kv, self.dim).transpose(1, 2)
        if cache is not None:
            k, v = cache.update(self, k, v)
        if x.dtype == torch.float32 and not torch.is_autocast_enabled() and self.kv != self.heads:
            # No fast kernel shares keys between heads in fp32.
            k, v = (part.repeat_interleave(self.heads // self.kv, 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=k.shape[1] != self.heads)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv, inner):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden), Norm(hidden)
        self.self_attn, self.mlp = Attention(hidden, heads, kv), MLP(hidden, inner)

    def forward(self, x, cos, sin, cache):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, hidden, layers, heads, kv, inner, vocab):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, kv, inner) for _ in range(layers))
        self.norm = Norm(hidden)
        self.lm_head = nn.Linear(hidden, vocab, bias=False)
        self.dim, self.checkpointing = hidden // heads, False

    def forward(self, ids, start=0, cache=None, last=False):
        x = self.embed_tokens(ids)
        if self.checkpointing and not x.requires_grad:
            x.requires_grad_()
        at = torch.arange(start, start + ids.shape[1], device=ids.device, dtype=torch.float32)
        angle = at[:, None] / 10000 ** (torch.arange(0, self.dim, 2, device=ids.device) / self.dim)[None, :]
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            if self.checkpointing:
                x = checkpoint(layer, x, cos, sin, cache, use_reentrant=False)
            else:
                x = layer(x, cos, sin, cache)
        x = self.norm(x)
        return self.lm_head(x[:, -1:] if last else x)


class Cache:
    """Keys and values: of the full length from the start, or growing token by token."""

    def __init__(self, model, batch, length, kind, growing):
        self.kept, self.at, self.growing = {}, 0, growing
        if not growing:
            for layer in model.layers:
                a = layer.self_attn
                self.kept[a] = tuple(torch.zeros(batch, a.kv, length, a.dim, dtype=kind, device="cuda") for _ in "kv")

    def update(self, layer, k, v):
        if self.growing:
            old = self.kept.get(layer)
            if old:
                k, v = torch.cat((old[0], k), 2), torch.cat((old[1], v), 2)
            self.kept[layer] = k, v
            return k, v
        end = self.at + k.shape[2]
        keys, values = self.kept[layer]
        keys[:, :, self.at:end], values[:, :, self.at:end] = k, v
        return keys[:, :, :end], values[:, :, :end]


class Adapter(nn.Module):
    def __init__(self, base, rank, kind):
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False, device="cuda", dtype=kind)
        self.b = nn.Linear(rank, base.out_features, bias=False, device="cuda", dtype=kind)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x)) * 2.0


def save(folder, shape, dtype, model):
    """Writes config.json and model.safetensors: the real header, and data of the
    right length that takes no space on disk, because nobody reads it."""
    hidden, layers, heads, kv, inner, vocab = shape
    kind = "fp32" if dtype == "mixed" else dtype
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "torch_dtype": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[kind],
                   "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
                   "intermediate_size": inner, "vocab_size": vocab, "max_position_embeddings": 131072}, f)
    width, header, at = (4 if kind == "fp32" else 2), {}, 0
    for name, p in model.named_parameters():
        size = p.numel() * width
        header["model." + name] = {"dtype": {"bf16": "BF16", "fp16": "F16", "fp32": "F32"}[kind], "shape": list(p.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def device_used():
    out = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True)
    return int(out.stdout.split()[0]) if out.returncode == 0 else None


def infer(model, dtype, context, batch, options):
    vocab = model.lm_head.out_features
    steps = 32 if "growing" not in options else 128
    with torch.inference_mode():
        cache = Cache(model, batch, context, TYPES[dtype], "growing" in options)
        ids = torch.randint(vocab, (batch, context - steps), device="cuda")
        for _ in range(steps):
            token = model(ids, cache.at, cache, last=True).argmax(-1)
            cache.at += ids.shape[1]
            ids = token


def train(model, mode, dtype, context, batch, options):
    if mode == "lora":
        model.requires_grad_(False)
        for layer in model.layers:
            for part, names in ((layer.self_attn, ("q_proj", "k_proj", "v_proj", "o_proj")), (layer.mlp, ("gate_proj", "up_proj", "down_proj"))):
                for name in names:
                    setattr(part, name, Adapter(getattr(part, name), 16, TYPES[dtype]))
    model.checkpointing = "checkpointing" in options
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    vocab = model.lm_head.out_features
    for _ in range(3):
        ids = torch.randint(vocab, (batch, context), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "mixed"):
            logits = model(ids)
            loss = F.cross_entropy(logits.float().view(-1, vocab), ids.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def measure(case, report):
    name, mode, dtype, context, batch, options = case
    result = {}
    try:
        torch.manual_seed(1)
        torch.zeros(1, device="cuda")
        result["empty_mib"] = device_used()
        with torch.device("cuda"):
            torch.set_default_dtype(TYPES[dtype])
            model = Model(*SHAPES[name])
            torch.set_default_dtype(torch.float32)
        torch.cuda.reset_peak_memory_stats()
        if mode == "inference":
            infer(model, dtype, context, batch, options)
        else:
            train(model, mode, dtype, context, batch, options)
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        result.update(allocated_mib=torch.cuda.max_memory_allocated() // MIB, reserved_mib=torch.cuda.max_memory_reserved() // MIB,
                      device_mib=device_used(), info_mib=(total - free) // MIB)
    except Exception as err:  # the other cases go on
        result["error"] = f"{type(err).__name__}: {err}"[:300]
    report.put(result)


def estimate(berth, folder, case):
    name, mode, dtype, context, batch, options = case
    with torch.device("meta"):
        model = Model(*SHAPES[name])
    save(folder, SHAPES[name], dtype, model)
    words = [berth, "estimate", folder, "--json", "--context", str(context), "--batch", str(batch)]
    if mode != "inference":
        words += ["--train", mode]
    if dtype == "mixed":
        words += ["--dtype", "mixed"]
    if "checkpointing" in options:
        words += ["--checkpointing"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--berth", default="bin/berth")
    parser.add_argument("--limit", type=float, default=330, help="seconds after which no further case begins")
    parser.add_argument("--dry-run", action="store_true", help="estimates only, without a GPU")
    args = parser.parse_args()
    began, fork, rows = time.monotonic(), multiprocessing.get_context("fork"), []
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip() if not args.dry_run else ""
    print(json.dumps({"card": card, "torch": torch.__version__, "cuda": torch.version.cuda}), flush=True)
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            told = estimate(args.berth, folder, case)
        row = dict(zip(("model", "mode", "dtype", "context", "batch", "options"), case))
        row.update(low_mib=told["low_mib"], expected_mib=told["expected_mib"], high_mib=told["high_mib"], parts={p["name"]: p["mib"] for p in told["parts"]})
        if not args.dry_run and time.monotonic() - began < args.limit:
            before, start = device_used(), time.monotonic()
            report = fork.Queue()
            process = fork.Process(target=measure, args=(case, report))
            process.start()
            try:
                row.update(report.get(timeout=90))
            except Exception as err:
                row["error"] = f"no answer: {type(err).__name__}"
                process.kill()
            process.join()
            row.update(before_mib=before, seconds=round(time.monotonic() - start, 1))
            if row.get("device_mib") is not None and before is not None:
                row["used_mib"] = row["device_mib"] - before
                row["off"] = round(told["expected_mib"] / row["used_mib"] - 1, 4)
        elif not args.dry_run:
            row["error"] = "no time left"
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(f"{'model':6}{'mode':11}{'dtype':7}{'context':>8}{'batch':>6}  {'options':14}{'allocated':>10}{'reserved':>10}{'used':>9}{'expected':>9}{'off':>8}  interval", file=sys.stderr)
    for r in rows:
        off = f"{100 * r['off']:+.1f}%" if "off" in r else r.get("error", "")[:60]
        print(f"{r['model']:6}{r['mode']:11}{r['dtype']:7}{r['context']:8}{r['batch']:6}  {','.join(r['options']):14}{r.get('allocated_mib', '-'):>10}"
              f"{r.get('reserved_mib', '-'):>10}{r.get('used_mib', '-'):>9}{r['expected_mib']:9}{off:>8}  {r['low_mib']} to {r['high_mib']}", file=sys.stderr)


if __name__ == "__main__":
    main()
