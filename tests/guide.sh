#!/usr/bin/env bash
# Runs all commands of the README and the guide, also those that compile Traceweir or need the view,
# which `cargo test` skips. Takes about half an hour on two processors.
#
# Needs a C compiler, pkg-config, perf, the right to record kernel events, rustup and mingw-w64.
set -euo pipefail
cd "$(dirname "$0")/.."

export TRACEWEIR_GUIDE=all TRACEWEIR_REQUIRE=all
tests=$(cargo test -q -p traceweir-cli --features view --test e2e guide::)
printf '%s\n' "$tests"
# `cargo test` also succeeds if the filter selects no test.
grep -Eq '[1-9][0-9]* passed' <<<"$tests"
