# Functions that build Debian packages with dpkg-deb, for scripts that source this file.
#
#   root=/path/to/repository version=0.1.0 out=FOLDER
#   . packaging/debian/package.sh
#   stage=$(new_stage)                        # an empty folder, removed at the end of the script
#   install -D … "$stage/usr/bin/tool"
#   third_party_licences Cargo.toml tool-crate > FILE    # into /usr/share/doc/PACKAGE
#   build_package "$stage" NAME "Depends: …" "Short description" "Long description"
#
# compression=gzip is faster than xz, the default.
#
# build_package adds copyright, changelog, md5sums and control file, sets modes, and prints the path
# of the package. Files in $stage/DEBIAN (maintainer scripts, conffiles, shlibs, triggers) are kept.

: "${root:?}" "${version:?}" "${out:?}"

maintainer="${DEBFULLNAME:-The Traceweir authors} <${DEBEMAIL:-noreply@traceweir.invalid}>"
architecture=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")
# Equal sources give equal packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 1700000000)}
export SOURCE_DATE_EPOCH
stages=$(mktemp -d)
trap 'rm -rf "$stages"' EXIT

new_stage() {
    mktemp -d "$stages/stage.XXXXXX"
}

# Prints the crates that a program is linked from, with their licences.
third_party_licences() { # MANIFEST PACKAGE [CARGO OPTION…]
    manifest=$1 package=$2
    shift 2
    echo "The programs and libraries of this package are linked from these crates of crates.io:"
    echo
    cargo tree --manifest-path "$manifest" --package "$package" --edges normal --prefix none \
        --format '{p} ({l})' --locked "$@" | grep -v '(/' | sed 's/ (\*)$//; s/ (proc-macro)//' | sort -u
}

# Prints the Depends of binaries, from the symbols that they use.
shared_library_dependencies() { # FILE…
    folder=$(mktemp -d "$stages/shlibs.XXXXXX")
    mkdir "$folder/debian"
    printf 'Source: traceweir\n\nPackage: traceweir\nArchitecture: any\n' > "$folder/debian/control"
    if command -v dpkg-shlibdeps >/dev/null; then
        (cd "$folder" && dpkg-shlibdeps -O --ignore-missing-info "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
    else
        newest=$(objdump -T "$@" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
        echo "libc6 (>= ${newest#GLIBC_}), libgcc-s1"
    fi
}

copyright_file() {
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Traceweir
Source: https://github.com/traceweir/traceweir

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' "$root/LICENSE-MIT")
License: MIT or Apache-2.0

License: MIT
$(sed -e '1,/^Copyright/d' "$root/LICENSE-MIT" | sed -e '/./,$!d' -e 's/^$/./' -e 's/^/ /')

License: Apache-2.0
 On Debian systems, the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
END
}

changelog_file() { # NAME
    cat <<END
$1 ($version) unstable; urgency=medium

  * Version $version. /usr/share/doc/$1/changelog.gz lists what it does.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
}

build_package() { # STAGE NAME FIELDS SUMMARY DESCRIPTION
    stage=$1 name=$2 fields=$3 summary=$4 description=$5
    doc=$stage/usr/share/doc/$name
    mkdir -p "$stage/DEBIAN" "$doc"
    copyright_file > "$doc/copyright"
    changelog_file "$name" | gzip -9n > "$doc/changelog.Debian.gz"
    gzip -9nc "$root/CHANGELOG.md" > "$doc/changelog.gz"
    find "$stage" -type d -exec chmod 755 {} +
    find "$stage" -type f -perm /111 -exec chmod 755 {} +
    find "$stage" -type f ! -perm /111 -exec chmod 644 {} +
    (cd "$stage" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) \
        > "$stage/DEBIAN/md5sums"
    size=$(du -k --apparent-size -s --exclude=DEBIAN "$stage" | cut -f1)
    {
        echo "Package: $name"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: $maintainer"
        echo "Installed-Size: $size"
        printf '%s\n' "$fields" | sed '/^$/d'
        echo "Homepage: https://github.com/traceweir/traceweir"
        echo "Description: $summary"
        printf '%s\n' "$description" | fold -s -w 75 | sed -e 's/ *$//' -e 's/^$/./' -e 's/^/ /'
    } > "$stage/DEBIAN/control"
    mkdir -p "$out"
    file=$out/${name}_${version}_$architecture.deb
    dpkg-deb --root-owner-group -Z"${compression:-xz}" --build "$stage" "$file" >/dev/null
    echo "$file"
}
