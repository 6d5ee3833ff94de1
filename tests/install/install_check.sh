#!/usr/bin/env bash
# install_check.sh BUILD COMPILER: installs BUILD into a place with a space in its name, and builds and runs a program
# against it, with CMake and with pkg-config; then looks at what the library exports.
set -euo pipefail
build=$1 compiler=$2
here=$(dirname "$(readlink -f "$0")")
source=$(dirname "$(dirname "$here")")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
prefix="$place/a prefix"

fail() {
  echo "install_check: $1" >&2
  exit 1
}

# check_program PROGRAM WAY
check_program() {
  local said
  for ((i = 0; i < 200; i++)); do echo "Line $((i * i)) of the log says so."; done >"$place/text.txt"
  said=$("$1" "$source/tests/fixtures/models/llama" "$place/out $2" "$place/text.txt") || fail "the program built with $2 failed"
  [[ $said =~ ^[0-9.]+\ LlamaForCausalLM\ (4\.9|5\.0)[0-9]\ (4\.9|5\.0)[0-9]$ ]] || fail "the program built with $2 says '$said'"
}

cmake --install "$build" --prefix "$prefix" >/dev/null
library=$(find "$prefix" -name 'libbitwright.so' -printf '%h')
[[ -x "$prefix/bin/bitwright" && -n $library ]] || fail "the program or the library is not installed"
"$prefix/bin/bitwright" --version >/dev/null || fail "the installed program does not start"
mv "$prefix" "$place/moved elsewhere" # an installed tree can be moved
prefix="$place/moved elsewhere"
library=$(find "$prefix" -name 'libbitwright.so' -printf '%h')

cmake -S "$here" -B "$place/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" >"$place/log" 2>&1 &&
  cmake --build "$place/build" >>"$place/log" 2>&1 || { cat "$place/log" >&2; fail "it cannot be built with CMake"; }
check_program "$place/build/program" CMake

export PKG_CONFIG_PATH="$library/pkgconfig"
eval "$compiler -std=c++20 '$here/program.cc' -o '$place/program' $(pkg-config --cflags --libs bitwright)" ||
  fail "it cannot be built with pkg-config"
LD_LIBRARY_PATH=$library check_program "$place/program" pkg-config

# Every function of the public header is exported, and nothing else of ours.
exported=$(nm -DC --defined-only "$library/libbitwright.so" | sed -n 's/^[0-9a-f]* [TWVB] //p')
functions=$(sed -nE 's/^[A-Za-z].* \*?([a-z_0-9]+)\(.*/\1/p' "$prefix"/include/bitwright/*.h)
[[ $(wc -w <<<"$functions") -ge 12 ]] || fail "the functions of the headers are not found"
for name in $functions; do
  grep -qE "^bw::$name(\[abi:cxx11\])?\(" <<<"$exported" || fail "bw::$name is not exported: add it to cmake/package/exports.map"
done
while read -r symbol; do
  name=$(sed -E 's/^bw::([A-Za-z_0-9]+).*/\1/' <<<"$symbol")
  [[ $name == Chat ]] || grep -qx "$name" <<<"$functions" || fail "$symbol is exported and in no public header"
done < <(grep '^bw::' <<<"$exported")
echo "install_check: the installed library serves CMake and pkg-config"
