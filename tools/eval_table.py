#!/usr/bin/env python3
"""Prints the figures that `bitwright eval --json FILE` wrote as a table: the original beside the result."""
import json
import sys


def megabytes(count):
    return f"{count / 1e6:.1f} MB"


def rows(m):
    yield "", "original", "quantized"
    yield "size", megabytes(m["ref_bytes"]), megabytes(m["bytes"])
    yield "bits per weight, linears", f"{m['ref_bpw_linears']:.3f}", f"{m['bpw_linears']:.3f}"
    yield "bits per weight, head", f"{m['ref_bpw_head']:.3f}", f"{m['bpw_head']:.3f}"
    yield "perplexity", f"{m['ppl_ref']:.3f}", f"{m['ppl']:.3f}"
    yield "KLD to the original (nats)", "0", f"{m['kld']:.4f} +- {m['kld_se']:.4f}"
    yield "KLD, median", "0", f"{m['kld_median']:.4f}"
    yield "same most likely token", "100 %", f"{100 * m['top1']:.1f} %"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: eval_table.py FILE")
    with open(sys.argv[1], encoding="utf-8") as file:
        table = list(rows(json.load(file)))
    widths = [max(map(len, column)) for column in zip(*table)]
    for name, original, result in table:
        print(f"  {name:<{widths[0]}}   {original:>{widths[1]}}   {result:>{widths[2]}}")


if __name__ == "__main__":
    main()
