#!/usr/bin/env python3
"""Compares Bitwright's tokenizer with the `tokenizers` library: ids and decodings of every text must be equal.

    cmake -B build -DBITWRIGHT_BENCH=ON && cmake --build build --target bench_tokenizer_ids
    python3 tools/check_tokenizer.py build/bench_tokenizer_ids MODEL_DIR [--fuzz N] [--seed S] [TEXT_FILE ...]

Every line of the files (line ends kept), every file as a whole and N random strings are encoded, with the special tokens
of the post-processor, and decoded again. Needs: pip install tokenizers. Exit status 1 if anything differs.
"""
import argparse
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

BATCH = 20000
SNIPPETS = ["'s", "'S", "'ſ", "'re", "'LL", "don't", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\n \n", " \t ", "12", "345", "①", "½",
            "٣", "hello", "World", " the", "…", "—", "中文", "日本語", "한국어", "नमस्ते", "مرحبا", "ไทย", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽",
            "e\u0301", "\u0301", "\u0323\u0301", "\u0344", "\u00e9", "\u1e9b\u0323", "\ufb01", "\u2126", "\uac00", "\u1100\u1161\u11a8",
            "\u200b", "\u200d", "\ufeff", "\ufffd", "\ue000", "\U0010ffff", "\x00", "\x01", "\x7f", "\x85", "\xa0", "\u180e", "\u2028",
            "\u3000", "▁", "▁▁", "Ġ", "Ċ", "<0x0A>", "<0xE4>", "<unk>", "_", "\\", "//", "{}", "=>", "!=", "(", ")]", "<", ">", "|"]


def random_texts(n, seed, specials):
    rng = random.Random(seed)
    assigned = [c for c in range(0x30000) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    marks = [c for c in assigned if unicodedata.combining(chr(c))]
    decomposable = [c for c in assigned if unicodedata.decomposition(chr(c))]

    def piece():
        kind = rng.randrange(12)
        if kind < 3:
            return rng.choice(SNIPPETS)
        if kind == 3:
            return rng.choice(specials) if specials else ""
        if kind == 4:
            c = rng.randrange(0x110000)
            return "" if 0xD800 <= c < 0xE000 else chr(c)
        if kind == 5:
            return chr(rng.choice(assigned))
        if kind == 6:
            return "".join(chr(rng.choice(marks)) for _ in range(rng.randrange(1, 5)))
        if kind == 7:
            return chr(rng.choice(decomposable))
        if kind == 8:
            return "".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randrange(1, 9)))
        if kind == 9:
            return "".join(rng.choice(" \t\n\r") for _ in range(rng.randrange(1, 9)))
        if kind == 10:
            block = rng.randrange(0, 0x1F)
            return "".join(chr(block * 0x80 + rng.randrange(0x80)) for _ in range(rng.randrange(1, 7)))
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(1, 12)))

    for _ in range(n):
        yield "".join(piece() for _ in range(rng.randrange(1, 14)))


def file_texts(paths):
    for path in paths:
        text = pathlib.Path(path).read_bytes().decode("utf-8", "replace")
        yield from text.splitlines(keepends=True)
        yield text


class Peer:
    """The C++ tool as a subprocess for one batch of texts."""

    def __init__(self, tool, tokenizer_json):
        self.command = [tool, str(tokenizer_json)]

    def results(self, texts):
        encoded = [text.encode() for text in texts]
        data = b"".join(struct.pack("<I", len(e)) + e for e in encoded)
        out = subprocess.run(self.command, input=data, stdout=subprocess.PIPE, check=True).stdout
        at = 0
        for _ in texts:
            (n,) = struct.unpack_from("<I", out, at)
            ids = list(struct.unpack_from(f"<{n}I", out, at + 4))
            at += 4 + 4 * n
            (length,) = struct.unpack_from("<I", out, at)
            yield ids, out[at + 4:at + 4 + length].decode("utf-8", "surrogateescape")
            at += 4 + length


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    reference = Tokenizer.from_file(str(args.model_dir / "tokenizer.json"))
    reference.no_truncation()
    reference.no_padding()
    peer = Peer(args.tool, args.model_dir / "tokenizer.json")
    specials = [t.content for t in reference.get_added_tokens_decoder().values()][:64]
    texts = list(file_texts(args.files)) + list(random_texts(args.fuzz, args.seed, specials))
    n_bad = n_bytes = 0
    for begin in range(0, len(texts), BATCH):
        batch = texts[begin:begin + BATCH]
        expected = [e.ids for e in reference.encode_batch(batch, add_special_tokens=True)]
        decoded = reference.decode_batch(expected, skip_special_tokens=False)
        for text, want, want_text, (got, got_text) in zip(batch, expected, decoded, peer.results(batch)):
            n_bytes += len(text.encode())
            if want != got or (want == got and want_text != got_text):
                n_bad += 1
                if n_bad <= 10:
                    kind = "ids" if want != got else "decoding"
                    print(f"{kind} differ for {text[:200]!r}\n  expected {want[:40] if want != got else want_text[:200]!r}"
                          f"\n  got      {got[:40] if want != got else got_text[:200]!r}")
    print(f"{args.model_dir.name}: {len(texts)} texts, {n_bytes} bytes, {n_bad} differ")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
