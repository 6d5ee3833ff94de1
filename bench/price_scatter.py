#!/usr/bin/env python3
"""Predicted against measured KLD of random plans: do prices of layouts add up to what the finished model is worth?

    bench/price_scatter.py MODEL --text CALIBRATION.txt --held-out OTHER.txt --work NEW_FOLDER [--plans 30] [--svg FILE]

The model is measured once. Each plan draws a mean width between --low and --high bits and for every linear one of its
measured layouts, of a width that lies about one bit around the mean; the program quantizes to that plan (a measurement
with nothing else to choose from) and evaluates the result. Printed: a line a plan, then Spearman's rank correlation and
the mean and largest |ln(measured / predicted)|, of all plans and of those from 4 bits up. Standard library only.
"""
import argparse
import json
import math
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", type=Path)
    p.add_argument("--text", type=Path, required=True, help="calibration text")
    p.add_argument("--held-out", type=Path, required=True, help="text of the evaluation")
    p.add_argument("--work", type=Path, required=True, help="folder for measurements and models; must not exist")
    p.add_argument("--bitwright", type=Path, default=Path("build/release/bitwright"))
    p.add_argument("--plans", type=int, default=30)
    p.add_argument("--low", type=float, default=2.5)
    p.add_argument("--high", type=float, default=6.0)
    p.add_argument("--rows", type=int, default=36, help="of calibration, 512 tokens each")
    p.add_argument("--eval-rows", type=int, default=12)
    p.add_argument("--effort", default="normal")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--svg", type=Path)
    return p.parse_args()


def run(command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"price_scatter: {' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}")
    return done.stdout


def width_of(candidate, linear):
    return candidate["bits"] / (linear["in"] * linear["out"])


def random_plan(measurement, rng, low, high):
    """A measurement that leaves one choice, and the bits per weight it comes to."""
    mean = rng.uniform(low, high)
    plan = json.loads(json.dumps(measurement))
    bits = weights = 0
    for linear in plan["linears"]:
        if not linear["candidates"]:
            sys.exit(f"price_scatter: {linear['key']} stays in f16; choose a model whose linears can all be stored")
        wanted = mean + rng.gauss(0, 1)
        chosen = min(linear["candidates"], key=lambda c: abs(width_of(c, linear) - wanted))
        widest = max(linear["candidates"], key=lambda c: c["bits"])
        # The widest layout at the same price is never taken, but lets the size asked for lie above the plan's.
        linear["candidates"] = [chosen]
        if widest["bits"] > chosen["bits"]:
            linear["candidates"].append(dict(widest, price=chosen["price"]))
        bits += chosen["bits"]
        weights += linear["in"] * linear["out"]
    return plan, (bits + 0.5) / weights


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    for rank, i in enumerate(order):
        result[i] = float(rank)
    return result


def spearman(a, b):
    ra, rb = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(ra, rb))
    return covariance / sum((x - mean) ** 2 for x in ra)


def summary(points):
    """points: (bpw, predicted, measured)"""
    logs = [math.log(measured / predicted) for _, predicted, measured in points]
    return (f"{len(points)} plans: rank correlation {spearman([p[1] for p in points], [p[2] for p in points]):.3f}, "
            f"ln(measured / predicted) mean {sum(logs) / len(logs):+.3f}, largest {max(map(abs, logs)):.3f}")


def svg(points, title):
    """A log-log scatter with the diagonal."""
    size, margin = 420, 50
    values = [v for p in points for v in p[1:]]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1

    def at(value):
        return (math.log10(value) - low) / (high - low) * (size - 2 * margin)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" '
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{size}" height="{size}" fill="#fff"/><text x="{size / 2}" y="20" text-anchor="middle">{title}</text>',
             f'<path d="M{margin} {margin}V{size - margin}H{size - margin}" fill="none" stroke="#444"/>',
             f'<path d="M{margin} {size - margin}L{size - margin} {margin}" stroke="#bbb" stroke-dasharray="4 3"/>']
    for tick in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        if low <= math.log10(tick) <= high:
            parts.append(f'<text x="{margin + at(tick):.1f}" y="{size - margin + 15}" text-anchor="middle">{tick:g}</text>'
                         f'<text x="{margin - 5}" y="{size - margin - at(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for bpw, predicted, measured in points:
        parts.append(f'<circle cx="{margin + at(predicted):.1f}" cy="{size - margin - at(measured):.1f}" r="4" '
                     f'fill="#1f6feb" fill-opacity="0.7"><title>{bpw:.2f} bpw: {predicted:.4f}, {measured:.4f}</title></circle>')
    parts.append(f'<text x="{size / 2}" y="{size - 10}" text-anchor="middle">predicted KLD, nats per token</text>'
                 f'<text transform="translate(14 {size / 2}) rotate(-90)" text-anchor="middle">measured KLD</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    a = arguments()
    if not a.bitwright.is_file():
        sys.exit(f"price_scatter: {a.bitwright}: there is no such program; build it or give --bitwright")
    if a.work.exists():
        sys.exit(f"price_scatter: {a.work} exists already; name a new folder with --work")
    a.work.mkdir(parents=True)
    calibration = ["--calib", a.text, "--calib-rows", a.rows, "--calib-length", 512, "-q"]
    first = a.work / "measurement.json"
    run([a.bitwright, "measure", a.model, "-o", first] + calibration)
    measurement = json.loads(first.read_text())
    rng, points = random.Random(a.seed), []
    for i in range(a.plans):
        plan, bpw = random_plan(measurement, rng, a.low, a.high)
        path, out, report = a.work / "plan.json", a.work / "model", a.work / "eval.json"
        path.write_text(json.dumps(plan))
        told = run([a.bitwright, "quantize", a.model, "-o", out, "--bpw", repr(bpw), "-m", path, "--effort", a.effort]
                   + calibration)
        predicted = float(re.search(r"predicted +([0-9.e+-]+)", told).group(1))
        run([a.bitwright, "eval", out, "--ref", a.model, "--text", a.held_out, "--rows", a.eval_rows, "--length", 512,
             "--json", report, "-q"])
        shutil.rmtree(out)
        points.append((bpw, predicted, json.loads(report.read_text())["kld"]))
        print(f"plan {i + 1:2}: {bpw:.3f} bpw, predicted {predicted:.4f}, measured {points[-1][2]:.4f}", flush=True)
    print(summary(points))
    wide = [p for p in points if p[0] >= 4]
    if len(wide) > 1:
        print("from 4 bits per weight: " + summary(wide))
    if a.svg:
        a.svg.write_text(svg(points, f"{a.model.name}, {len(points)} random plans"))


if __name__ == "__main__":
    main()
