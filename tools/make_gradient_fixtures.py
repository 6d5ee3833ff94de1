#!/usr/bin/env python3
"""Makes tests/fixtures/gradients: for each model of tests/fixtures/models, gradients of a loss, computed by torch.

The loss is the sum of -log p over all positions of the row in golden.safetensors, each for one successor token.
NAME.safetensors (a folder of its own: a reader of a model reads all the files beside it) holds
  successors          i32 (tokens)                      the successor of each position
  hidden              f32 (layers + 1, tokens, hidden)  gradient to the hidden states: embeddings, output of each layer
and for every linear of every layer, with L its layer and K its name (q_proj, ...):
  layers.L.K.output   f32 (tokens)                      norms of the gradient to its output
  layers.L.K.weight   f32 (out)                         gradient to its weight, times the probe
where element i of the probe is 7 i mod 13 - 6. Needs torch, transformers, safetensors; run it again whenever
tools/make_model_fixtures.py has been run. Run it as: tools/make_gradient_fixtures.py [NAME ...]
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
LEAST_PROBABILITY = 1e-3  # of a successor


def choose_successors(logits):
    """Likely and less likely tokens in turn, none so unlikely that rounding decides whether a sample hits it."""
    probabilities, order = torch.softmax(logits, -1).sort(dim=-1, descending=True)
    rows = torch.arange(len(logits))
    choices = (probabilities > LEAST_PROBABILITY).sum(-1)
    return order[rows, 7 * rows % choices]


def linears(model):
    """(layer, name, module) of each."""
    for i, layer in enumerate(model.model.layers):
        for part, names in ((layer.self_attn, ATTENTION), (layer.mlp, MLP)):
            yield from ((i, name, getattr(part, name)) for name in names)


def record(model):
    """What a forward pass fills: the list of the hidden states, and the outputs of the linears by (layer, name)."""
    states, outputs = [], {}

    def keep(tensor):
        tensor.retain_grad()
        return tensor

    layers = model.model.layers
    layers[0].register_forward_pre_hook(lambda module, args: states.append(keep(args[0])))
    for layer in layers:
        layer.register_forward_hook(lambda module, args, out: states.append(keep(out)))
    for i, name, module in linears(model):
        module.register_forward_hook(lambda module, args, out, key=(i, name): outputs.update({key: keep(out)}))
    return states, outputs


def make(folder):
    # Products in f64. (Norms and softmax of transformers compute in f32 all the same.)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    ids = load_file(folder / "golden.safetensors")["ids"].long()
    states, outputs = record(model)
    logits = model(ids[None]).logits[0]
    successors = choose_successors(logits.detach())
    loss = torch.nn.functional.cross_entropy(logits, successors, reduction="sum")
    loss.backward()

    gradients = {"successors": successors.to(torch.int32), "hidden": torch.stack([s.grad[0] for s in states]).float()}
    for i, name, module in linears(model):
        probe = (7 * torch.arange(module.in_features) % 13 - 6).double()
        gradients[f"layers.{i}.{name}.output"] = outputs[(i, name)].grad[0].norm(dim=-1).float()
        gradients[f"layers.{i}.{name}.weight"] = (module.weight.grad @ probe).float()
    save_file(gradients, FIXTURES / "gradients" / f"{folder.name}.safetensors")
    norms = " ".join(f"{float(s.grad.norm()):.3g}" for s in states)
    print(f"{folder.name:22} loss {loss / len(ids):.2f} a token, norms of the gradients to the hidden states {norms}")


def main():
    logging.disable_progress_bar()
    (FIXTURES / "gradients").mkdir(exist_ok=True)
    for folder in sorted((FIXTURES / "models").iterdir()):
        if len(sys.argv) == 1 or folder.name in sys.argv[1:]:
            make(folder)


if __name__ == "__main__":
    main()
