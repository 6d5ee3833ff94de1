#!/usr/bin/env bash
# Runs clang-format and clang-tidy on the C++ files that differ from a commit. Changes nothing.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

if [[ ${1:-} == --help || $# -gt 2 ]]; then
  echo "usage: tools/check_style.sh [COMMIT [BUILD_FOLDER]]     (default: HEAD build/release)"
  exit 0
fi
commit=${1:-HEAD}
build=${2:-build/release}
[[ -f $build/compile_commands.json ]] || { echo "check_style: $build is not a build folder; run ./test first" >&2; exit 1; }

mapfile -t files < <({
  git diff --name-only --diff-filter=d "$commit" -- '*.h' '*.cc'
  git ls-files --others --exclude-standard -- '*.h' '*.cc'
} | sort -u)
((${#files[@]})) || { echo "check_style: no C++ file has changed since $commit"; exit 0; }

status=0
clang-format --dry-run -Werror "${files[@]}" || status=1
sources=()
for file in "${files[@]}"; do
  [[ $file == *.cc ]] && sources+=("$file")
done
if ((${#sources[@]})); then
  clang-tidy --quiet --warnings-as-errors='*' -p "$build" "${sources[@]}" || status=1
fi
exit $status
