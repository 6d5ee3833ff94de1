#!/usr/bin/env bash
# python_check.sh PYTHON BUILD PROGRAM COMPILER: `pip install .` into an environment in BUILD, and the tests of what it installs.
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
"$environment/bin/pip" install -q 'scikit-build-core>=0.10' 'nanobind>=2.4' >"$log" 2>&1 ||
  { echo "python_check: PyPI cannot be reached"; exit 77; }
CXX=$compiler PATH="$environment/bin:$PATH" "$environment/bin/pip" install -q --no-build-isolation "$source" >"$log" 2>&1 ||
  { cat "$log" >&2; echo "python_check: pip install . fails" >&2; exit 1; }
cd "$build" # so that what is installed is imported, not the sources
"$environment/bin/python" "$here/test_bitwright.py" "$source/tests/fixtures/models/llama" "$program"
