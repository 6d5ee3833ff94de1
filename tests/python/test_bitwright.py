"""The Python module, as pip has installed it. Run by python_check.sh."""
import filecmp
import inspect as reflection
import os
import re
import subprocess
import sys
import tempfile
import typing
import unittest
from pathlib import Path

import bitwright

PROGRAM, MODEL = sys.argv.pop(), sys.argv.pop()


class Bitwright(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.dir = Path(place.name)
        self.text = self.dir / "a text.txt"
        self.text.write_text("".join(f"Line {i * i} of the log says so. " for i in range(400)), encoding="utf-8")
        self.calibration = {"calib": self.text, "calib_rows": 4, "calib_length": 32, "threads": 2}

    def test_quantize_gives_the_programs_bytes(self):
        result, = bitwright.quantize(MODEL, self.dir / "mine", bpw=4.5, **self.calibration)
        subprocess.run([PROGRAM, "quantize", MODEL, "-o", self.dir / "its", "--bpw", "4.5", "--calib", self.text,
                        "--calib-rows", "4", "--calib-length", "32", "-q"], check=True, stdout=subprocess.DEVNULL)
        for name in ("model.safetensors", "config.json"):
            self.assertTrue(filecmp.cmp(self.dir / "mine" / name, self.dir / "its" / name, shallow=False), name)
        self.assertEqual(result.output, self.dir / "mine")
        self.assertLess(abs(result.bpw_linears - 4.5), 0.02)
        self.assertGreater(result.measured.kld.value, 0)
        seen = bitwright.inspect(result.output)
        self.assertTrue(seen.quantized)
        self.assertEqual(seen.bpw_linears, result.bpw_linears)
        self.assertEqual(seen.linears[-1].key, "lm_head")

    def test_a_measurement_is_reused_for_several_targets(self):
        measured = bitwright.measure(MODEL, self.dir / "m.json", **self.calibration)
        self.assertEqual(measured.tokens, 4 * 32)
        results = bitwright.quantize(str(MODEL), str(self.dir / "out"), bpw=[4, 5], measurement=self.dir / "m.json",
                                     effort="fast", head_bits="auto", **self.calibration)
        self.assertEqual([r.bpw_target for r in results], [4, 5])
        kld = [bitwright.evaluate(r.output, self.text, reference=MODEL, rows=4, length=32).kld.value for r in results]
        self.assertGreater(kld[0], kld[1])
        self.assertFalse(bitwright.evaluate(MODEL, self.text, rows=4, length=32).has_reference)

    def test_progress_is_told(self):
        events = []
        bitwright.quantize(MODEL, self.dir / "out", bpw=5,
                           progress=lambda e: events.append((e.kind.name, e.stage, e.done, e.total)), **self.calibration)
        stages = {stage for kind, stage, *_ in events if kind == "progress"}
        self.assertLessEqual({"gradients", "quantize", "compile"}, stages)
        self.assertIn("warning", {kind for kind, *_ in events})
        self.assertTrue(all(done <= total for *_, done, total in events))

    def test_what_the_callback_raises_ends_the_run_and_the_next_goes_on(self):
        class Enough(Exception):
            pass

        def stop(event):
            if event.stage == "quantize" and event.done > 0:
                raise Enough
        with self.assertRaises(Enough):
            bitwright.quantize(MODEL, self.dir / "out", bpw=5, progress=stop, **self.calibration)
        self.assertFalse((self.dir / "out").exists())
        notes = []
        bitwright.quantize(MODEL, self.dir / "out", bpw=5, progress=lambda e: notes.append(e.stage), **self.calibration)
        self.assertIn("resume", notes)
        self.assertTrue((self.dir / "out" / "model.safetensors").exists())

    def test_what_the_callback_raises_at_the_very_end_is_raised_too(self):
        def stop(event):
            if event.stage == "compile" and event.done == event.total:
                raise LookupError("at the end")
        with self.assertRaises(LookupError):
            bitwright.quantize(MODEL, self.dir / "out", bpw=5, progress=stop, **self.calibration)
        self.assertTrue((self.dir / "out" / "model.safetensors").exists())  # all was written

    def test_a_signal_ends_the_run(self):
        import signal
        with self.assertRaises(KeyboardInterrupt):
            bitwright.measure(MODEL, self.dir / "m.json",
                              progress=lambda _: os.kill(os.getpid(), signal.SIGINT), **self.calibration)
        self.assertFalse((self.dir / "m.json").exists())

    def test_errors_have_their_classes(self):
        def of(call):
            with self.assertRaises(bitwright.Error) as caught:
                call()
            return caught.exception
        missing = of(lambda: bitwright.inspect(self.dir / "none"))
        self.assertIsInstance(missing, (bitwright.ModelError, bitwright.InputOutputError))
        self.assertIn("none", str(missing))
        usage = of(lambda: bitwright.quantize(MODEL, self.dir / "out"))
        self.assertIsInstance(usage, bitwright.UsageError)
        self.assertEqual(usage.code, 2)
        self.assertIn("--bpw", usage.hint)
        self.assertIsInstance(of(lambda: bitwright.quantize(MODEL, self.dir / "o", bpw=99)), ValueError)
        for effort in ("most", "__doc__", None):
            self.assertIsInstance(of(lambda e=effort: bitwright.quantize(MODEL, self.dir / "o", bpw=4, effort=e)),
                                  bitwright.UsageError)
        self.assertIsInstance(of(lambda: bitwright.quantize(MODEL, self.dir / "o", size="much")), bitwright.UsageError)
        self.assertFalse((self.dir / "o").exists())

    def test_every_argument_has_a_type_and_the_core_a_stub(self):
        for name in ("quantize", "measure", "evaluate", "inspect"):
            function = getattr(bitwright, name)
            for parameter in reflection.signature(function).parameters.values():
                self.assertIsNot(parameter.annotation, parameter.empty, f"{name}: {parameter.name}")
            self.assertIn("return", typing.get_type_hints(function) if sys.version_info >= (3, 10) else ["return"])
        package = Path(bitwright.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        stub = (package / "_core.pyi").read_text(encoding="utf-8")
        for name in ("quantize", "measure", "evaluate", "inspect", "QuantizeResult", "Progress"):
            self.assertRegex(stub, rf"(?m)^(def|class) {name}\b")

    def test_what_the_documents_show_works(self):
        page = (Path(MODEL).parents[3] / "docs" / "library.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", page, re.S)
        self.assertTrue(blocks)
        long = self.text.read_text(encoding="utf-8") * 40
        for name in ("text.txt", "held-out.txt"):
            (self.dir / name).write_text(long, encoding="utf-8")
        (self.dir / "MODEL").symlink_to(MODEL)
        for block in blocks:
            done = subprocess.run([sys.executable, "-c", block], cwd=self.dir, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_program_is_installed_beside_it(self):
        program = Path(sys.executable).parent / "bitwright"
        said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said.strip(), bitwright.__version__)
        self.assertTrue(re.fullmatch(r"\d+\.\d+\.\d+", bitwright.__version__))


if __name__ == "__main__":
    unittest.main()
