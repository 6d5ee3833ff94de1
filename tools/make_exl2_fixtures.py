#!/usr/bin/env python3
"""Makes tests/fixtures/codec/exl2.safetensors: EXL2 linears written from the format's description, and their weights.

For each linear K the file holds K.q_weight, K.q_scale, K.q_scale_max, K.q_groups and K.q_invperm, and K.weight: the
(out, in) weights that a loader computes from them, as f16. Everything is done bit by bit on Python integers and in
numpy's f16, so nothing is shared with the code under test. Needs numpy and safetensors. Run it as: tools/make_exl2_fixtures.py
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "codec" / "exl2.safetensors"

# name: (columns, [(bits, rows of each group), ...])
LINEARS = {
    "uniform8": (32, [(8, [32])]),
    "uniform4": (40, [(4, [64, 64])]),
    "all_widths": (48, [(8, [32]), (6, [64, 32]), (5, [32, 32]), (4, [128]), (3, [32, 32]), (2, [64, 64, 32])]),
    "short_last": (96, [(6, [64]), (3, [128, 96])]),
    "half_groups": (32, [(4, [32]), (2, [32, 16])]),
    "tiny_scales": (32, [(5, [64, 64]), (2, [32])]),
    "large_scales": (32, [(3, [64, 64])]),
}
SCALES = {"tiny_scales": (1e-7, 3e-4), "large_scales": (2000.0, 16000.0)}


def words_of(codes, bits):
    """A column's codes as 32-bit words of one little-endian stream."""
    stream = sum(int(code) << (i * bits) for i, code in enumerate(codes))
    count = len(codes) * bits // 32
    assert len(codes) * bits == 32 * count
    return [(stream >> (32 * i)) & 0xFFFFFFFF for i in range(count)]


def make(rng, name, out, runs):
    groups = [(bits, rows) for bits, sizes in runs for rows in sizes]
    columns, n_in = -(-out // 32) * 32, sum(rows for _, rows in groups)
    low, high = SCALES.get(name, (0.002, 0.3))
    top = np.exp(rng.uniform(np.log(low), np.log(high), len(groups))).astype(np.float16)
    scale_codes = rng.integers(0, 16, (len(groups), columns))
    scale_codes[:, out:] = 0
    table, words, stored, row = [], [], np.empty((n_in, columns), np.float16), 0
    for g, (bits, rows) in enumerate(groups):
        codes = rng.integers(0, 2**bits, (rows, columns))
        codes[:, out:] = 2 ** (bits - 1)
        table += [bits, len(words)]
        words += np.array([words_of(codes[:, c], bits) for c in range(columns)], np.uint32).T.tolist()
        unit = np.float16(np.float32(top[g]) / np.float32(256))
        for c in range(columns):
            scale = np.float16(np.float32((scale_codes[g, c] + 1) ** 2) * np.float32(unit))
            level = (codes[:, c] - 2 ** (bits - 1)).astype(np.float32)
            stored[row : row + rows, c] = (level * np.float32(scale)).astype(np.float16)
        row += rows
    nibbles = scale_codes.reshape(len(groups), columns // 8, 8)
    packed = [[sum(int(s) << (4 * i) for i, s in enumerate(word)) for word in line] for line in nibbles]
    invperm = rng.permutation(n_in)  # input feature i is stored row invperm[i]
    assert np.isfinite(stored).all()
    return {
        f"{name}.q_weight": np.array(words, np.uint32).view(np.int32),
        f"{name}.q_scale": np.array(packed, np.uint32).view(np.int32),
        f"{name}.q_scale_max": top,
        f"{name}.q_groups": np.array(table, np.int16),
        f"{name}.q_invperm": invperm.astype(np.int32),
        f"{name}.weight": np.ascontiguousarray(stored[invperm, :out].T),
    }


def main():
    rng = np.random.default_rng(20)
    tensors = {}
    for name, (out, runs) in LINEARS.items():
        tensors |= make(rng, name, out, runs)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(OUT), metadata={"format": "pt"})


if __name__ == "__main__":
    main()
