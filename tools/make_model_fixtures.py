#!/usr/bin/env python3
"""Makes tests/fixtures/models: tiny random models of every architecture, with golden values computed by transformers.

Each folder holds config.json, config-v5.json (the same in the key style of Transformers 5), model.safetensors,
tokenizer.json and golden.safetensors:
  ids          i32 (tokens)                     token ids of one row
  hidden       f32 (layers + 1, first, hidden)  the first positions after the embedding and after every layer
  hidden_last  f32 (layers + 1, hidden)         the last position of the same
  logits       f32 (tokens, vocabulary)         every position
Needs torch, transformers, tokenizers, safetensors. Run it as: tools/make_model_fixtures.py [NAME ...]
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

ROOT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"
VOCABULARY = 288
BOS, EOS = 286, 287
HIDDEN_ROWS = 4
LOGIT_SPREAD = 3.0  # standard deviation that the logits are scaled to

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
}
LLAMA = SIZES | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
}
MISTRAL = SIZES | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": 7,
    "num_key_value_heads": 1,
}
QWEN2 = SIZES | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "use_sliding_window": True,
    "sliding_window": 7,
    "max_window_layers": 1,
}
GEMMA3 = SIZES | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 24,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "sliding_window": 6,
    "sliding_window_pattern": 2,
    "torch_dtype": "bfloat16",
}


def transformers5(config):
    """The same config in the key style of Transformers 5."""
    config = dict(config)
    theta = config.pop("rope_theta")
    scaling = config.pop("rope_scaling", None) or {"rope_type": "default"}
    full = scaling | {"rope_theta": theta}
    if "rope_local_base_freq" in config:
        local = {"rope_type": "default", "rope_theta": config.pop("rope_local_base_freq")}
        config["rope_parameters"] = {"full_attention": full, "sliding_attention": local}
        pattern = config.pop("sliding_window_pattern")
        layers = range(config["num_hidden_layers"])
        config["layer_types"] = ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in layers]
    else:
        config["rope_parameters"] = full
    config["dtype"] = config.pop("torch_dtype")
    return config


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
DYNAMIC = LLAMA | {
    "num_hidden_layers": 1,
    "max_position_embeddings": 16,
    "rope_scaling": {"type": "dynamic", "factor": 2.0},
}
# name -> (config, tokens of the golden row)
FIXTURES = {
    "llama": (LLAMA, 16),
    # Wavelengths 6.3, 21.7, 74.8 ...: one that is kept, one between the bounds, and longer ones.
    "llama-llama3": (LLAMA | {"rope_theta": 20000.0, "rope_scaling": LLAMA3}, 16),
    # A row within max_position_embeddings is not scaled, a longer one is.
    "llama-dynamic-short": (DYNAMIC, 12),
    "llama-dynamic-long": (DYNAMIC, 22),
    "llama-bias": (LLAMA | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}, 16),
    "mistral-window-linear": (MISTRAL | {"rope_scaling": {"type": "linear", "factor": 4.0}}, 16),
    "qwen2-window": (QWEN2 | {"num_key_value_heads": 1}, 16),
    # (Gemma3 of transformers reads attn_logit_softcapping, but never applies it: only the cap of the logits is tested.)
    "gemma3": (GEMMA3, 16),
    "gemma3-softcap": (GEMMA3 | {"num_key_value_heads": 1, "final_logit_softcapping": 4.0}, 16),
}


def make_tokenizer():
    """Byte-level BPE: 256 bytes, some merges, BOS and EOS; BOS is put before every text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate(alphabet)}
    merges = []
    pairs = "t h|th e|Ġ a|Ġ t|i n|e r|Ġt h|o n|r e|Ġth e|a n|e n|o u|Ġ s|a t|e s|o r|in g|Ġ w|n d|Ġ o|Ġ c|i s|i t|l l|e d"
    pairs += "|Ġa n|Ġan d|a r|Ġo f"
    for pair in pairs.split("|"):
        left, right = pair.split(" ")
        merges.append((left, right))
        vocabulary[left + right] = len(vocabulary)
    for i in range(len(vocabulary), BOS):
        vocabulary[f"<unused{i}>"] = i
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    assert tokenizer.token_to_id("<s>") == BOS and tokenizer.token_to_id("</s>") == EOS
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return tokenizer


def randomize(model, generator):
    """Random weights of a size that keeps every part of the layer in play; norms and biases differ from 1 and 0."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            centre = 0.0 if model.config.model_type == "gemma3_text" else 1.0
            p.data = centre + 0.3 * noise
        elif name.endswith(".bias"):
            p.data = 0.3 * noise
        elif "embed_tokens" in name:
            p.data = 0.15 * noise
        else:
            gain = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
            p.data = gain * noise / p.shape[1] ** 0.5


def scale_logits(model, ids):
    """Scales the final norm so that the logits, before a softcap, have the wanted spread."""
    cap = model.config.final_logit_softcapping if hasattr(model.config, "final_logit_softcapping") else None
    if cap is not None:
        model.config.final_logit_softcapping = None
    spread = model(ids).logits.std()
    offset = 1.0 if model.config.model_type == "gemma3_text" else 0.0
    weight = model.model.norm.weight
    weight.data = (weight.data + offset) * (LOGIT_SPREAD / spread) - offset
    if cap is not None:
        model.config.final_logit_softcapping = cap


def run(model, ids):
    """Logits, and the hidden states after the embedding and after every layer (before the final norm)."""
    states = []
    hooks = [model.model.layers[0].register_forward_pre_hook(lambda module, args: states.append(args[0]))]
    for layer in model.model.layers:
        hooks.append(layer.register_forward_hook(lambda module, args, out: states.append(out)))
    logits = model(ids).logits
    for hook in hooks:
        hook.remove()
    return logits, torch.stack([s[0] for s in states])


def write_config(folder, name, config):
    (folder / name).write_text(json.dumps(config, indent=2) + "\n")


def load(folder):
    """The model as a reader of the files gets it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def make(name, config, tokens, tokenizer):
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_config(folder, "config.json", config)

    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager")
    model = model.to(torch.float32).eval()
    randomize(model, generator)
    ids = torch.randint(0, BOS, (1, tokens), generator=generator)
    ids[0, 0] = BOS
    scale_logits(model, ids)
    dtype = getattr(torch, config["torch_dtype"])
    weights = {k: v.to(dtype) for k, v in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    logits, states = run(load(folder), ids)
    write_config(folder, "config.json", transformers5(config))
    assert torch.equal(logits, run(load(folder), ids)[0]), "the two config styles disagree"
    write_config(folder, "config.json", config)
    write_config(folder, "config-v5.json", transformers5(config))
    golden = {
        "ids": ids[0].to(torch.int32),
        "hidden": states[:, :HIDDEN_ROWS],
        "hidden_last": states[:, -1],
        "logits": logits[0],
    }
    save_file({k: v.contiguous() for k, v in golden.items()}, folder / "golden.safetensors")
    log_probs = torch.log_softmax(logits[0], -1)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    spreads = " ".join(f"{float(s.std()):.2f}" for s in states)
    print(f"{name:22} logits std {logits.std():.2f}, entropy {entropy:.2f}, hidden states std {spreads}")


def main():
    logging.disable_progress_bar()
    tokenizer = make_tokenizer()
    for name, (config, tokens) in FIXTURES.items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, config, tokens, tokenizer)


if __name__ == "__main__":
    main()
