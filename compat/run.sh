#!/usr/bin/env bash
# Runs the tests of the published packages tracelogging and tracelogging_dynamic with the stand-ins,
# and builds their example.
#
#   compat/run.sh FOLDER      works in FOLDER and leaves the example FOLDER/generate_events there
#
# This tree has no copy of the packages: cargo fetches them from the registry. Exits with 77 if no
# registry can be reached.
set -euo pipefail
compat=$(cd "$(dirname "$0")" && pwd)
folder=$1
fetch=$folder/fetch
mkdir -p "$fetch/src" "$folder/src"
cd "$folder"

# An empty package that depends on the two packages, so that cargo fetches them.
printf '' >"$fetch/src/lib.rs"
cat >"$fetch/Cargo.toml" <<'EOF'
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"

[dependencies]
tracelogging = "=1.2.4"
tracelogging_dynamic = "=1.2.4"

[workspace]
EOF
if ! cargo vendor -q --manifest-path "$fetch/Cargo.toml" "$folder/packages" >"$folder/vendor.txt" 2>&1; then
    echo "the packages cannot be fetched:" >&2
    cat "$folder/vendor.txt" >&2
    exit 77
fi

# A package with the tests and the example of the two packages, and the stand-ins as dependencies.
printf '' >"$folder/src/lib.rs"
cat >"$folder/Cargo.toml" <<EOF
[package]
name = "published"
version = "0.0.0"
edition = "2021"

[dependencies]
tracelogging = "=1.2.4"
tracelogging_dynamic = "=1.2.4"

[dev-dependencies]
uuid = "1"
# The last version whose GUID type exists on every system.
windows = "0.48"

[[test]]
name = "tracelogging"
path = "packages/tracelogging/tests/tests.rs"

[[test]]
name = "tracelogging_dynamic"
path = "packages/tracelogging_dynamic/tests/tests.rs"

[[example]]
name = "generate_events"
path = "packages/tracelogging/examples/generate_events.rs"

[patch.crates-io]
tracelogging = { path = "$compat/tracelogging" }
tracelogging_dynamic = { path = "$compat/tracelogging_dynamic" }

[workspace]
EOF
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$folder/target}
cargo test --tests
cargo build --example generate_events
cp "$CARGO_TARGET_DIR/debug/examples/generate_events" "$folder/generate_events"
