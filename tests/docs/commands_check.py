#!/usr/bin/env python3
"""Runs every command of Bitwright that the documents and --help show, on a tiny model.

    tests/docs/commands_check.py PROGRAM MODEL

Commands are the lines of fenced blocks and the inline code of README.md, CONTRIBUTING.md and docs/*.md that begin with
`bitwright` (or its path in the build), and the examples of each command's --help. Names in capitals stand for files
that are made here. What another shell would read (after a pipe) is left out. Standard library only.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = r"(?:build/release/)?bitwright\b"
VALUES = {"B": "4.5", "N": "40"}


def documented():
    """(where, command) of all documents."""
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
        for line in lines + inline:
            inner = re.match(rf"source <\(({COMMAND}.*)\)", line)
            line = inner.group(1) if inner else line
            if re.match(rf"{COMMAND} ", line):
                yield path.name, line


def examples(program):
    """(where, command) of what --help shows."""
    top = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    names = re.findall(r"^  (\w+)  ", top, re.M)
    for name in ["", *names]:
        words = [program, *([name] if name else []), "--help"]
        text = subprocess.run(words, check=True, capture_output=True, text=True,
                              env={**os.environ, "COLUMNS": "400"}).stdout
        for line in re.findall(r"^ +(bitwright [a-z].*)$", text, re.M):
            yield f"bitwright {name} --help", line


def fill(place, program, model):
    """The files that the names in documents stand for."""
    text = "".join(f"Line {i * i} of the log says so, and {i} others agree with it. " for i in range(1600))
    chats = '{"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "%s"}]}\n'
    files = {name: text for name in ("FILE", "TEXT", "HELD_OUT", "YOUR_TEXT", "YOUR_TEXT.txt", "text.txt",
                                     "held-out.txt", "books/a.txt", "books/b.txt", "code/a.txt", "a.txt", "b.txt")}
    files["questions.txt"] = "Hi\n"
    files["text.jsonl"] = "".join('{"text": "%s"}\n' % text[at:at + 900] for at in range(0, len(text), 900))
    files["chats.jsonl"] = (chats % text[:4000]) * 30
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    shutil.copytree(model, place / "MODEL", symlinks=True)
    (place / "MODEL" / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}", encoding="utf-8")
    (place / "ORIGINAL").symlink_to("MODEL")
    common = ["--calib", "text.txt", "--calib-rows", "4", "--calib-length", "32", "-q"]
    for out in ("OUT", "A", "B", "OUT-3bpw", "OUT-4bpw"):
        subprocess.run([program, "quantize", "MODEL", "-o", out, "--bpw", "4.5", *common], cwd=place, check=True,
                       capture_output=True)
    subprocess.run([program, "measure", "MODEL", "-o", "measurement.json", *common], cwd=place, check=True,
                   capture_output=True)
    subprocess.run([program, "calib", "MODEL", "--calib", "text.txt", "-o", "rows.jsonl", "-q"], cwd=place, check=True,
                   capture_output=True)


def interrupt(place, program):
    """Leaves OUT.work of a job that was interrupted; one that is done before it could be is begun again, larger."""
    for attempt in range(8):
        job = subprocess.Popen([program, "quantize", "MODEL", "-o", "INTERRUPTED", "--work", "OUT.work", "--bpw", "4.5",
                                "--checkpoint", "0", "--overwrite", "--log", "json",
                                "--calib-rows", str(8 << attempt), "--calib-length", "64"],
                               cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in job.stderr:
            if '"stage":"quantize"' in line:
                job.send_signal(signal.SIGINT)
        if job.wait() == 130:
            return
    sys.exit("commands_check: no job could be interrupted")


def runnable(command):
    """As a shell here can run it; None for a mere name, which is asked for its help."""
    command = re.sub(r"^build/release/", "", command).split(" | ")[0].split("  #")[0].strip()
    words = command.split()
    if len(words) == 2 and words[1] not in ("man",):
        return f"bitwright {words[1]} --help" if words[1].isalpha() else command
    if not any(re.match(r"-|[A-Z]", word) for word in words[2:]) and words[1] not in ("man", "completion"):
        return None
    if not any(word[0].isupper() for word in words[2:]) and words[1] not in ("man", "completion"):
        return f"bitwright {words[1]} --help"  # an option by its name
    for name, value in VALUES.items():
        command = re.sub(rf"(--bpw|--calib-rows) {name}\b", rf"\1 {value}", command)
    return command


def renew(place, command):
    """What a command writes must not be there already."""
    if re.match(r"bitwright (quantize|plan|convert) ", command):
        several = re.search(r"--bpw \S+,", command)
        for name in re.findall(r"(?:-o|--output|-cf) (\S+)", command):
            for path in place.glob(name + ("-*bpw" if several else "")):
                shutil.rmtree(path, ignore_errors=True)


def main(program, model):
    seen, failures = {}, []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        binaries = place / "bin"
        binaries.mkdir()
        (binaries / "bitwright").symlink_to(Path(program).resolve())
        fill(place, program, model)
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
        for where, text in [*documented(), *examples(program)]:
            command = runnable(text)
            if command is None or command in seen:
                continue
            seen[command] = where
            renew(place, command)
            if "OUT.work" in command:
                interrupt(place, program)
            done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
            shutil.rmtree(place / "OUT.work", ignore_errors=True)
            if done.returncode != 0:
                failures.append(f"{where}: {command}\n    status {done.returncode}: {done.stderr.strip()[-400:]}")
    print(f"commands_check: {len(seen)} commands, {len(failures)} fail")
    print("\n".join(failures))
    if len(seen) < 25:
        sys.exit("commands_check: there should be more commands")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
