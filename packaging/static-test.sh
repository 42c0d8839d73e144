#!/usr/bin/env bash
# Runs the static weir in Debian root folders of several releases, on the kernel of this machine.
# Needs root and debootstrap.
#
#   packaging/static-test.sh [--weir target/weir-static] [SUITE…]
#
# Without SUITE: stretch, buster, bullseye, bookworm and trixie (Debian 9 to 13). Releases that no
# mirror has any more are skipped, with a line each.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
weir=${CARGO_TARGET_DIR:-$root/target}/weir-static
if [ "${1:-}" = --weir ]; then
    weir=$2
    shift 2
fi
suites=("$@")
[ $# -gt 0 ] || suites=(stretch buster bullseye bookworm trixie)
cd "$root"
. packaging/chroot.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=()
skipped=()
for suite in "${suites[@]}"; do
    if ! make_root "$suite" "$work/$suite"; then
        skipped+=("$suite")
        rm -rf "${work:?}/$suite"
        continue
    fi
    install -m 755 "$weir" "$work/$suite/usr/local/bin/weir"
    run_in_root "$work/$suite" /bin/bash -euc '
        export PATH=/usr/local/bin:$PATH
        useradd --create-home visitor
        cd /home/visitor
        as_user() { su visitor -c "PATH=$PATH; cd /home/visitor; $1"; }
        as_user "weir --version"
        as_user "weir demo" > demo.txt 2>&1 || { cat demo.txt; exit 1; }
        grep -q "12 events" demo.txt
        grep -q "lost: nothing" demo.txt
        as_user "weir start App -o app.etl && weir mark hello && weir stop App" > /dev/null 2>&1
        as_user "weir check app.etl" > /dev/null 2>&1
        as_user "weir dump app.etl" 2> /dev/null | grep -q "text=hello\|text=\"hello\""
        as_user "weir record -o own.etl -- weir demo-shop --orders 3 --pause 0" > record.txt 2>&1 ||
            { cat record.txt; exit 1; }
        as_user "weir dump own.etl --event Order --format jsonl" 2> /dev/null | grep -c CoffeeShop | grep -qx 6
        weir record --system --kernel cpu -o /tmp/kernel.etl -- true > kernel.txt 2>&1 || cat kernel.txt
        rm -rf /tmp/*
    ' || { echo "FAILED in $suite" >&2; exit 1; }
    passed+=("$suite")
    rm -rf "${work:?}/$suite"
done
echo "passed: ${passed[*]:-none}; no root folder could be made: ${skipped[*]:-none}"
[ ${#passed[@]} -gt 0 ]
