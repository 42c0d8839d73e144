#!/usr/bin/env bash
# Builds the wheel, installs it in a new virtual environment, and runs all tests: those of tests/,
# the type checker and the notebook. Run from anywhere.
#
#   PYTHON              the interpreter (python3)
#   WEIR                the command weir; without it, cargo builds it
#   TRACEWEIR_SAMPLES   a folder of real traces, which some tests read
#   TRACEWEIR_REQUIRE   "all": a test that cannot run fails
#   VENV                the folder of the environment (a temporary one)
set -euo pipefail
cd "$(dirname "$0")"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
venv=${VENV:-$out/venv}

if [ -z "${WEIR:-}" ]; then
    cargo build --quiet --manifest-path ../../Cargo.toml -p traceweir-cli
    folder=$(cargo metadata --manifest-path ../../Cargo.toml --format-version 1 --no-deps |
        "${PYTHON:-python3}" -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    WEIR=$folder/debug/weir
fi
export WEIR

cargo fmt --check
cargo clippy --quiet --all-targets -- -D warnings

[ -d "$venv" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2'
"$venv/bin/maturin" build --quiet --release --locked --interpreter "$venv/bin/python" --out "$out/wheel"
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$out"/wheel/*.whl
"$venv/bin/pip" install --quiet --disable-pip-version-check "$(echo "$out"/wheel/*.whl)[test]"

# Outside of this folder, Python imports the installed package.
"$venv/bin/python" -m pytest "$@"
"$venv/bin/mypy" --strict --no-error-summary tests/typed_program.py
"$venv/bin/python" -m mypy.stubtest traceweir
