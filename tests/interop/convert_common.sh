# What the scripts convert-*.sh share. They read this file with `.` after they have set `here` to the
# folder that contains it.
#
# WEIR, HOSTILE_TRACE, INTEROP_WRITE and PACKET_TRACE name programs that are built already: weir, and
# the examples of these names. A tool that is not installed is skipped, or fails if TRACEWEIR_REQUIRE
# names it or is `all`. Exit status 77 says that a script skipped everything.

root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
# No files beside the scripts.
export PYTHONDONTWRITEBYTECODE=1

# Prints that a tool is missing and why, or fails if it is required.
skip() {
    case ",${TRACEWEIR_REQUIRE:-}," in
    *,all,* | *",$1,"*) echo "required: $1: $2" && exit 1 ;;
    esac
    echo "skipped: $1: $2"
}

# Skips the whole script.
skip_all() {
    skip "$1" "$2"
    exit 77
}

# Returns whether a program is installed.
is_installed() {
    command -v "$1" >/dev/null
}

# Builds an example of a package. Prints its path.
build_example() {
    cargo build --quiet --manifest-path "$root/Cargo.toml" --package "$1" --example "$2" >&2
    echo "$target/debug/examples/$2"
}

# Runs weir. Status 3 says that a trace is damaged, and that the readable part was processed.
run_weir() {
    "$WEIR" "$@" || [ $? -eq 3 ]
}

# Makes a folder with a Python environment that has the packages of the arguments. Prints the path of
# its Python. Fails if there is no package index.
make_python() (
    venv=$1
    shift
    if [ "$(cat "$venv/packages" 2>/dev/null || true)" != "$*" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2 || exit 1
        echo "$*" >"$venv/packages"
    fi
    echo "$venv/bin/python"
)

# Prints the traces to convert: the arguments, or the fixtures and the samples.
list_traces() {
    if [ $# -gt 0 ]; then
        printf '%s\n' "$@"
        return
    fi
    ls "$root"/fixtures/etl/*.etl
    if [ -d "${TRACEWEIR_SAMPLES:-}" ]; then
        ls "$TRACEWEIR_SAMPLES"/*.etl "$TRACEWEIR_SAMPLES"/*.etl.zip
    else
        skip samples "TRACEWEIR_SAMPLES names no folder" >&2
    fi
}

# Builds weir, unless WEIR names one.
build_weir() {
    if [ -z "${WEIR:-}" ]; then
        cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir
        WEIR=$target/debug/weir
    fi
}
