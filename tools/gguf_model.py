"""A GGUF file as a Hugging Face model: its metadata, its tensors under their Hugging Face names, as float32.

The file is mapped; a tensor is dequantized when it is asked for. Versions 2 and 3, little-endian.
"""
import re
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize


class ModelError(Exception):
    """One line for the user."""


SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class _Header:
    """Reads the values of the header one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def scalars(self, code, count=1):
        values = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{code}")
        return values

    def number(self, code):
        return self.scalars(code)[0]

    def string(self):
        length = self.number("Q")
        raw = bytes(self.data[self.at:self.at + length])
        if len(raw) != length:
            raise ValueError("a string runs past the end of the file")
        self.at += length
        return raw.decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        kind, count = self.number("I"), self.number("Q")
        if kind in (STRING, ARRAY):
            return [self.value(kind) for _ in range(count)]
        return list(self.scalars(SCALARS[kind], count))


_LAYER_TENSORS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
# Four norms a layer: the one before the MLP is not the one after attention.
_GEMMA_TENSORS = _LAYER_TENSORS | {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_MODEL_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_TABLES = {"llama": _LAYER_TENSORS, "qwen2": _LAYER_TENSORS, "gemma3": _GEMMA_TENSORS}


class GgufModel:
    def __init__(self, path):
        self.path = path
        self._map = np.memmap(path, np.uint8, "r")
        try:
            self._read_header()
        except (struct.error, ValueError, KeyError) as e:
            raise ModelError(f"{path}: not a GGUF file that can be read here: {e}") from None
        self.architecture = self.metadata["general.architecture"]
        if self.architecture not in _LAYER_TABLES:
            raise ModelError(f"{path}: architecture {self.architecture!r}; known are {', '.join(_LAYER_TABLES)}")

    def _read_header(self):
        header = _Header(memoryview(self._map))
        if bytes(header.scalars("B", 4)) != b"GGUF":
            raise ValueError("it does not begin with 'GGUF'")
        version, n_tensors, n_values = header.number("I"), header.number("Q"), header.number("Q")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        self.metadata = {}
        for _ in range(n_values):
            key = header.string()
            self.metadata[key] = header.value(header.number("I"))
        self._entries = {}  # stored name -> shape (rows first), type, offset
        for _ in range(n_tensors):
            name = header.string()
            shape = header.scalars("Q", header.number("I"))[::-1]
            self._entries[name] = (shape, GGMLQuantizationType(header.number("I")), header.number("Q"))
        align = self.metadata.get("general.alignment", 32)
        self._data_start = -(-header.at // align) * align

    def get(self, key, default=None):
        """A value of the architecture's own metadata, e.g. 'block_count'."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def tokenizer(self, key, default=None):
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def has_tensor(self, stored_name):
        return stored_name in self._entries

    def _hf_name(self, stored_name):
        base, _, suffix = stored_name.rpartition(".")
        layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
        try:
            if layer:
                return f"model.layers.{layer[1]}.{_LAYER_TABLES[self.architecture][layer[2]]}.{suffix}"
            return f"{_MODEL_TENSORS[base]}.{suffix}"
        except KeyError:
            raise ModelError(f"{self.path}: tensor {stored_name!r} is not one of {self.architecture}'s") from None

    def shapes(self):
        """{Hugging Face name: shape}"""
        return {self._hf_name(name): tuple(shape) for name, (shape, _, _) in self._entries.items()}

    def tensors(self):
        """Yields (Hugging Face name, float32 array), one tensor in memory at a time."""
        for stored_name, (shape, kind, offset) in self._entries.items():
            name = self._hf_name(stored_name)
            yield name, self._as_stored_by_hf(name, self._load(stored_name, shape, kind, offset))

    def _load(self, stored_name, shape, kind, offset):
        block, block_bytes = GGML_QUANT_SIZES[kind]
        row_bytes = shape[-1] // block * block_bytes
        begin = self._data_start + offset
        size = int(np.prod(shape[:-1], dtype=np.int64)) * row_bytes
        if begin + size > len(self._map):
            raise ModelError(f"{self.path}: ends inside tensor {stored_name!r} (an incomplete download?)")
        raw = np.asarray(self._map[begin:begin + size]).reshape(*shape[:-1], row_bytes)
        return dequantize(raw, kind).astype(np.float32, copy=False).reshape(shape)

    def _as_stored_by_hf(self, name, w):
        heads = self.get("attention.head_count")
        if self.architecture == "llama" and ".q_proj." in name:
            return _rotary_halves(w, heads)
        if self.architecture == "llama" and ".k_proj." in name:
            return _rotary_halves(w, self.get("attention.head_count_kv", heads))
        if self.architecture == "gemma3" and name.endswith("norm.weight"):
            return w - np.float32(1)  # GGUF holds 1 + weight
        return w


def _rotary_halves(w, heads):
    """GGUF interleaves the two rows of a rotated pair; Hugging Face keeps first halves and second halves apart."""
    pairs = w.shape[0] // heads // 2
    return w.reshape(heads, pairs, 2, -1).swapaxes(1, 2).reshape(w.shape)
