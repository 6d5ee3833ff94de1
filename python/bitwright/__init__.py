"""Bitwright quantizes language models: a Hugging Face directory in, a measured EXL2 model out.

Names of arguments are those of the program's options; `bitwright quantize --help` explains them. Every call releases
the interpreter's lock while it works. `progress` is called with a Progress; what it raises ends the run, as Ctrl-C
does, and the same call then goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal, Optional, Union, get_args

from . import _core
from ._core import (
    EvaluateResult, Estimate, InspectResult, MeasuredDivergence, MeasureResult, PartReport, Progress, QuantizeResult,
)
from ._errors import Error, InputOutputError, InternalError, Interrupted, ModelError, NumericError, UsageError

__all__ = [
    "Error", "Estimate", "EvaluateResult", "InputOutputError", "InspectResult", "InternalError", "Interrupted",
    "MeasureResult", "MeasuredDivergence", "ModelError", "NumericError", "PartReport", "Progress", "QuantizeResult",
    "UsageError", "evaluate", "inspect", "measure", "quantize",
]

__version__: str = _core.version()

Path = Union[str, "os.PathLike[str]"]
Size = Union[int, str]
OnProgress = Optional[Callable[[Progress], object]]
Arithmetic = Literal["auto", "f32", "bf16"]
Effort = Literal["fast", "normal", "best"]


def _bytes(size: Size, name: str) -> int:
    return _core.parse_bytes(size, name) if isinstance(size, str) else size


def _choice(kind: type, words: object, word: str, name: str):
    known = get_args(words)
    if word not in known:
        raise UsageError(f"{name}: {word!r} is none of {', '.join(known)}", 2)
    return getattr(kind, word)


def _engine(threads: int, arithmetic: str, device: str, memory: Size, device_memory: Size) -> _core.EngineOptions:
    engine = _core.EngineOptions()
    engine.threads = threads
    engine.arithmetic = _choice(_core.Arithmetic, Arithmetic, arithmetic, "arithmetic")
    engine.device = device
    engine.memory = _bytes(memory, "memory")
    engine.device_memory = _bytes(device_memory, "device_memory")
    return engine


def _calibration(calib: Path | Sequence[Path] | None, weights: Sequence[float] | None, rows: int, length: int,
                 seed: int) -> _core.CalibrationOptions:
    options = _core.CalibrationOptions()
    files = [] if calib is None else [calib] if isinstance(calib, (str, os.PathLike)) else list(calib)
    options.files = [os.fspath(file) for file in files]
    options.weights = list(weights or [])
    options.rows, options.length, options.seed = rows, length, seed
    return options


def _work(work: Path | None, restart: bool) -> _core.WorkOptions:
    options = _core.WorkOptions()
    options.path = os.fspath(work) if work is not None else ""
    options.restart = restart
    return options


def quantize(model: Path, output: Path, *, bpw: float | Sequence[float] | None = None, size: Size | None = None,
             measurement: Path | None = None, effort: Effort = "normal", head_bits: int | Literal["auto"] = 6,
             shard_size: Size = "8GiB", overwrite: bool = False, calib: Path | Sequence[Path] | None = None,
             calib_weights: Sequence[float] | None = None, calib_rows: int = 36, calib_length: int = 512,
             seed: int = 1, work: Path | None = None, restart: bool = False, threads: int = 0,
             arithmetic: Arithmetic = "auto", device: str = "cpu", memory: Size = 0, device_memory: Size = 0,
             progress: OnProgress = None) -> list[QuantizeResult]:
    """Writes an EXL2 model for each target: `bpw` (several: OUTPUT-<bpw>bpw each) or `size`."""
    options = _core.QuantizeOptions()
    options.model, options.output = os.fspath(model), os.fspath(output)
    options.bpw = [] if bpw is None else [float(bpw)] if isinstance(bpw, (int, float)) else [float(b) for b in bpw]
    options.size = None if size is None else _bytes(size, "size")
    options.measurement = None if measurement is None else os.fspath(measurement)
    options.effort = _choice(_core.Effort, Effort, effort, "effort")
    options.head_bits = None if head_bits == "auto" else head_bits
    options.shard_bytes = _bytes(shard_size, "shard_size")
    options.overwrite = overwrite
    options.calibration = _calibration(calib, calib_weights, calib_rows, calib_length, seed)
    options.work = _work(work, restart)
    options.engine = _engine(threads, arithmetic, device, memory, device_memory)
    return _core.quantize(options, progress)


def measure(model: Path, output: Path, *, calib: Path | Sequence[Path] | None = None,
            calib_weights: Sequence[float] | None = None, calib_rows: int = 36, calib_length: int = 512,
            seed: int = 1, work: Path | None = None, restart: bool = False, threads: int = 0,
            arithmetic: Arithmetic = "auto", device: str = "cpu", memory: Size = 0, device_memory: Size = 0,
            progress: OnProgress = None) -> MeasureResult:
    """Writes what every way of storing every linear would cost, for quantize(measurement=...)."""
    options = _core.MeasureOptions()
    options.model, options.output = os.fspath(model), os.fspath(output)
    options.calibration = _calibration(calib, calib_weights, calib_rows, calib_length, seed)
    options.work = _work(work, restart)
    options.engine = _engine(threads, arithmetic, device, memory, device_memory)
    return _core.measure(options, progress)


def evaluate(model: Path, text: Path, *, reference: Path | None = None, rows: int = 16, length: int = 512,
             threads: int = 0, arithmetic: Arithmetic = "auto", device: str = "cpu", device_memory: Size = 0,
             progress: OnProgress = None) -> EvaluateResult:
    """Perplexity of a model on a text, and with a reference (the original) its KL divergence to it."""
    options = _core.EvaluateOptions()
    options.model, options.text = os.fspath(model), os.fspath(text)
    options.reference = None if reference is None else os.fspath(reference)
    options.rows, options.length = rows, length
    options.engine = _engine(threads, arithmetic, device, 0, device_memory)
    return _core.evaluate(options, progress)


def inspect(model: Path) -> InspectResult:
    """What a model directory holds: sizes, bits per weight, every linear."""
    return _core.inspect(os.fspath(model))
