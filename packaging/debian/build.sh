#!/usr/bin/env bash
# Builds the Debian packages weir, libtraceweir0 and libtraceweir-dev with dpkg-deb.
#
#   packaging/debian/build.sh [--out target/debian] [--version 0.1.0] [--profile dist] [--built]
#
# --profile dev builds faster, for trying things. --built takes the files that an earlier run built.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/debian
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
profile=dist
is_built=
while [ $# -gt 0 ]; do
    case "$1" in
        --out) out=$2; shift ;;
        --version) version=$2; shift ;;
        --profile) profile=$2; shift ;;
        --built) is_built=1 ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
library_profile=c
[ "$profile" = dev ] && library_profile=dev
cd "$root"
if [ -z "$is_built" ]; then
    cargo build --locked --profile "$profile" -p traceweir-cli --features view
    cargo build --locked --profile "$library_profile" -p traceweir-ffi
fi
folder_of() { # PROFILE
    if [ "$1" = dev ]; then echo "$target/debug"; else echo "$target/$1"; fi
}
binary=$(folder_of "$profile")/weir
library=$(folder_of "$library_profile")

. packaging/debian/package.sh

strip_file() { # FILE: removes symbols, but not those that the library exports
    strip --strip-unneeded --remove-section=.comment "$1"
}

# weir
weir=$(new_stage)
install -D -m 755 "$binary" "$weir/usr/bin/weir"
strip_file "$weir/usr/bin/weir"
for unit in traceweir.service traceweir.socket; do
    install -D -m 644 "packaging/systemd/$unit" "$weir/usr/lib/systemd/system/$unit"
    install -D -m 644 "packaging/systemd/user/$unit" "$weir/usr/lib/systemd/user/$unit"
done
install -D -m 644 packaging/sysusers.conf "$weir/usr/lib/sysusers.d/traceweir.conf"
install -D -m 644 packaging/tmpfiles.conf "$weir/usr/lib/tmpfiles.d/traceweir.conf"
install -D -m 644 packaging/traceweir.conf "$weir/etc/traceweir/traceweir.conf"
"$binary" man "$weir/usr/share/man/man1" >/dev/null
find "$weir/usr/share/man" -name '*.1' -exec gzip -9n {} +
completions=$weir/usr/share
mkdir -p "$completions/bash-completion/completions" "$completions/zsh/vendor-completions" \
    "$completions/fish/vendor_completions.d"
"$binary" completions bash > "$completions/bash-completion/completions/weir"
"$binary" completions zsh > "$completions/zsh/vendor-completions/_weir"
"$binary" completions fish > "$completions/fish/vendor_completions.d/weir.fish"
mkdir -p "$weir/usr/share/doc/weir" "$weir/DEBIAN"
third_party_licences Cargo.toml traceweir-cli --features view > "$weir/usr/share/doc/weir/third-party.txt"
install -m 755 packaging/debian/weir.postinst "$weir/DEBIAN/postinst"
install -m 755 packaging/debian/weir.prerm "$weir/DEBIAN/prerm"
install -m 755 packaging/debian/weir.postrm "$weir/DEBIAN/postrm"
echo /etc/traceweir/traceweir.conf > "$weir/DEBIAN/conffiles"
depends=$(shared_library_dependencies "$weir/usr/bin/weir")
build_package "$weir" weir "Section: utils
Priority: optional
Depends: $depends, passwd
Suggests: libtraceweir-dev, weir-sql" \
    "record, watch, decode and repair event traces" \
    "Traceweir is Event Tracing for Windows (ETW) on Linux. The command weir records the events of programs and of the kernel to .etl files, prints and analyses the files of Linux and Windows, and shows them in the browser."

# The library, by the script that also installs it without packages.
library_stage=$(new_stage)
crates/ffi/install.sh --prefix /usr --libdir "/usr/lib/$multiarch" --built "$library" --destdir "$library_stage" >&2
runtime=$(new_stage)
mkdir -p "$runtime/usr/lib/$multiarch" "$runtime/DEBIAN" "$runtime/usr/share/doc/libtraceweir0"
mv "$library_stage/usr/lib/$multiarch"/libtraceweir.so.* "$runtime/usr/lib/$multiarch/"
shared=$(find "$runtime" -type f -name 'libtraceweir.so.*')
strip_file "$shared"
third_party_licences Cargo.toml traceweir-ffi > "$runtime/usr/share/doc/libtraceweir0/third-party.txt"
echo "libtraceweir 0 libtraceweir0 (>= $version)" > "$runtime/DEBIAN/shlibs"
echo "activate-noawait ldconfig" > "$runtime/DEBIAN/triggers"
depends=$(shared_library_dependencies "$shared")
build_package "$runtime" libtraceweir0 "Section: libs
Priority: optional
Multi-Arch: same
Depends: $depends" \
    "Event Tracing for Windows on Linux (library)" \
    "The functions of evntprov.h, evntrace.h, evntcons.h and tdh.h under their Win32 names, for C and C++ programs that write, control and read event traces."

strip --strip-debug "$library_stage/usr/lib/$multiarch"/*.a
find "$library_stage/usr/lib" -type f -exec chmod 644 {} +
build_package "$library_stage" libtraceweir-dev "Section: libdevel
Priority: optional
Multi-Arch: same
Depends: libtraceweir0 (= $version), libc6-dev" \
    "Event Tracing for Windows on Linux (headers and static library)" \
    "Headers with the Win32 names, the static library, and files for pkg-config. weir cc compiles sources that were written for Windows with them."
