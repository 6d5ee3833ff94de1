# Shared by ./test and ./quickstart (sourced, bash): messages with times, the packages, the build.
# The caller has set -euo pipefail and stands in the repository's root.
# shellcheck shell=bash

# Debian 12 packages that the build needs (with the tests, which are part of it).
# shellcheck disable=SC2034  # used by the scripts that source this file
BUILD_PACKAGES=(g++ cmake ninja-build pkg-config libdnnl-dev libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libeigen3-dev libgtest-dev ccache)
# What the tests use besides: a browser for reports, what the Python module is built with.
# shellcheck disable=SC2034
TEST_PACKAGES=(python3 python3-venv python3-dev chromium chromium-driver python3-selenium)
# What fuzzing needs besides; llvm gives the names and lines of its reports.
# shellcheck disable=SC2034
FUZZ_PACKAGES=(clang libclang-rt-dev libomp-dev llvm)

say() { printf '== %s\n' "$*"; }

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  exit "${2:-1}"
}

# step TEXT COMMAND...: says what begins, runs it, says how long it took.
step() {
  local text=$1 start=$SECONDS
  shift
  say "$text"
  "$@"
  say "done in $((SECONDS - start)) s"
}

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]; }

# install_packages NAME...: installs those that are missing, as root or through sudo.
install_packages() {
  command -v dpkg-query >/dev/null || fail "this is not a Debian system: install the equivalents of '$*' yourself and pass --no-install"
  local missing=() name
  for name in "$@"; do
    is_installed "$name" || missing+=("$name")
  done
  if ((${#missing[@]} == 0)); then
    say "All packages are installed."
    return
  fi
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "these packages are missing and can only be installed by root: ${missing[*]}"
    as_root=(sudo)
  fi
  step "Installing from Debian: ${missing[*]}" apt_install "${missing[@]}"
}

apt_install() {
  local log
  log=$(mktemp)
  # The lists may be absent (a fresh machine) or old: update once, quietly; the log is shown if anything fails.
  if ! { "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install the packages (its last lines stand above)"
  fi
  rm -f "$log"
}

# One compiler process for each core, but no more than fit into memory at 1.5 GB each.
build_jobs() {
  local cores available_kb by_memory
  cores=$(nproc)
  available_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  by_memory=$((available_kb / 1500000))
  ((by_memory > 0)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# build PRESET [TARGET...]. CMake also gets what stands in the array CMAKE_OPTIONS.
CMAKE_OPTIONS=()
build() {
  local preset=$1 jobs log
  shift
  jobs=$(build_jobs)
  log=$(mktemp)
  if ! cmake --preset "$preset" "${CMAKE_OPTIONS[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail "CMake could not configure the preset '$preset' (its output stands above)"
  fi
  rm -f "$log"
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}
