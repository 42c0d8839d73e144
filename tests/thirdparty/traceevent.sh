#!/usr/bin/env bash
# Compiles Microsoft's TraceEvent library (src/TraceEvent of microsoft/perfview) unchanged and runs it with .NET Core 3.1
# over `weir shims`. Four checks:
#   1. It reads all sample traces and fixtures, and its events are those of `weir dump`.
#   2. A live session decodes TraceLogging and manifest events: names, values, times.
#   3. A live kernel session delivers samples, switches and wake-ups, with stacks of the right threads.
#   4. A kernel trace converts to a TraceLog. Each sample and switch has the stack that it has in the trace, and the
#      tree of processor time contains every sample once.
# Environment: SOURCE, PREFIX, WORK, SAMPLES, CHECKOUT; DOTNET is the folder of the .NET Core 3.1 SDK, if `dotnet` is
# not on the PATH.
set -euo pipefail

skip() { echo "$1"; exit 77; }

parts=$CHECKOUT/tests/thirdparty/traceevent
export PYTHONDONTWRITEBYTECODE=1
dotnet=${DOTNET:+$DOTNET/dotnet}
dotnet=${dotnet:-$(command -v dotnet || true)}
[ -n "$dotnet" ] || skip "the .NET Core 3.1 SDK is missing: set DOTNET to its folder"
dotnet=$(readlink -f "$dotnet")
sdk=$(dirname "$dotnet")
csc=$(find "$sdk/sdk" -path '*/3.1.*/Roslyn/bincore/csc.dll' -print -quit 2> /dev/null || true)
reference=$(find "$sdk/packs/Microsoft.NETCore.App.Ref" -type d -path '*/ref/netcoreapp3.1' -print -quit 2> /dev/null || true)
runtime=$(find "$sdk/shared/Microsoft.NETCore.App" -maxdepth 1 -name '3.1.*' -print -quit 2> /dev/null || true)
[ -n "$csc" ] && [ -n "$reference" ] && [ -n "$runtime" ] || skip "$sdk is not a .NET Core 3.1 SDK"
command -v python3 > /dev/null || skip "python3 is missing"
command -v cc > /dev/null || skip "a C compiler is missing"
[ "$(id -u)" = 0 ] || skip "kernel sessions need root"

export DOTNET_ROOT=$sdk DOTNET_CLI_TELEMETRY_OPTOUT=1 DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1

compare() { python3 "$parts/compare.py" "$@"; }

# Compile. The project file needs packages from nuget.org, so the compiler is called with the same files and options.
references=()
for assembly in "$reference"/*.dll "$runtime/Microsoft.Win32.Registry.dll"; do references+=("-r:$assembly"); done
compile() { # OUTPUT OPTIONS...
    local output=$1
    shift
    "$dotnet" "$csc" -nologo -noconfig -nostdlib+ -langversion:latest -optimize+ -nowarn:0618,0649,8002 \
        "-out:$output" "${references[@]}" "$@"
}
src=$SOURCE/src
library=Microsoft.Diagnostics.Tracing.TraceEvent.dll
serialization=Microsoft.Diagnostics.FastSerialization.dll
mkdir -p app && cd app
compile Packages.dll -target:library "$parts/Packages.cs" > csc.txt 2>&1 || {
    cat csc.txt
    ! grep -q 'libssl\|ICU' csc.txt || skip "a library of .NET Core 3.1 is missing: $(head -n 1 csc.txt) (Debian 11: libssl1.1)"
    exit 1
}
mapfile -t files < <(find "$src/FastSerialization" -name '*.cs')
compile "$serialization" -target:library -unsafe -publicsign "-keyfile:$src/MSFT.snk" \
    '-define:GROWABLEARRAY_PUBLIC;STREAMREADER_PUBLIC;FASTSERIALIZATION_PUBLIC' "${files[@]}"
mapfile -t files < <(find "$src/TraceEvent" -name '*.cs' -not -path '*/Ctf/CtfTracing.Tests/*' \
    -not -path '*/TraceEvent.Tests/*' -not -path '*/TraceEvent.Benchmarks/*' -not -path '*/Samples/*')
for name in OperatingSystemVersion DirectoryUtilities FileUtilities StreamUtilities XmlUtilities; do
    files+=("$src/Utilities/$name.cs")
done
compile "$library" -target:library -unsafe -publicsign "-keyfile:$src/MSFT.snk" "-r:$serialization" -r:Packages.dll \
    '-define:COMMAND_PUBLIC;PEFILE_PUBLIC;PERFVIEW;SUPPORT_V1_V2;CONTAINER_WORKAROUND_NOT_NEEDED;SIGNING_BUILD;NETSTANDARD;NETSTANDARD2_0' \
    "${files[@]}" "$src/FastSerialization/FunctorComparer\`1.cs"
compile driver.dll -target:exe "-r:$serialization" -r:Packages.dll "-r:$library" "$parts/Driver.cs"

# The replacement for the platform check of .NET (docs/shims.md).
platform=System.Runtime.InteropServices.RuntimeInformation.dll
framework='{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"}}}'
echo "$framework" | tee key.runtimeconfig.json > driver.runtimeconfig.json
compile key.dll -target:exe "$parts/PublicKey.cs"
"$dotnet" key.dll "$runtime/$platform" key.snk
"$dotnet" "$csc" -nologo -noconfig -nostdlib+ -target:library -publicsign -keyfile:key.snk "-out:$platform" \
    "-r:$reference/System.Runtime.dll" "$parts/RuntimeInformation.cs"
cat > driver.deps.json << END
{"runtimeTarget": {"name": ".NETCoreApp,Version=v3.1"},
 "targets": {".NETCoreApp,Version=v3.1": {
   "driver/1.0.0": {"runtime": {"driver.dll": {}, "$library": {}, "$serialization": {}, "Packages.dll": {}}},
   "platform/1.0.0": {"runtime": {"$platform": {"assemblyVersion": "4.0.99.0", "fileVersion": "9.0.0.0"}}}}},
 "libraries": {
   "driver/1.0.0": {"type": "project", "serviceable": false, "sha512": ""},
   "platform/1.0.0": {"type": "reference", "serviceable": false, "sha512": ""}}}
END
weir shims . > shims.txt 2>&1
cd ..

# Status 3 means a damaged file, status 4 that its session lost events.
dump() {
    local status=0
    weir dump "$1" --format jsonl > dump.jsonl 2> dump.txt || status=$?
    case $status in 0 | 3 | 4) ;; *) cat dump.txt; exit 1 ;; esac
}
driver() { WinDir=/usr PROCESSOR_ARCHITECTURE=amd64 "$dotnet" app/driver.dll "$@"; }

# 1. Files.
traces=0 events=0
for trace in "$CHECKOUT"/fixtures/etl/*.etl "$SAMPLES"/*.etl "$SAMPLES"/*.etl.zip; do
    [ -e "$trace" ] || continue
    driver events "$trace" events.txt
    dump "$trace"
    count=$(compare events events.txt dump.jsonl) || { echo "$trace: $count"; exit 1; }
    traces=$((traces + 1)) events=$((events + count))
done
[ "$traces" -ge 10 ] || { echo "only $traces traces were found"; exit 1; }

# 2. A live session.
weir mc "$parts/writer.man" --c --out . > mc.txt
read -ra flags < <(pkg-config --cflags --libs traceweir)
cc -I. "$parts/writer.c" writer_etw.c "${flags[@]}" -o writer
driver live live.txt "$PWD/writer" 300
live=$(compare live live.txt 300) || { echo "live: $live"; exit 1; }

# 3. A live kernel session.
cc -O1 -fno-omit-frame-pointer "$CHECKOUT/tests/thirdparty/busy.c" -lpthread -o busy
for _ in 1 2 3; do
    driver kernel-live kernel.txt ./busy busy.txt
    # On a busy machine the session may lose events; then it runs again.
    ! grep -q '^lost 0$' kernel.txt || break
done
kernel=$(compare kernel-live kernel.txt busy.txt) || { echo "kernel session: $kernel"; exit 1; }

# 4. Kernel traces as TraceLogs: one of a session of TraceEvent, one of weir.
driver kernel-file driver.etl ./busy busy.txt
weir record --kernel cpu,sched -o weir.etl -- ./busy busy.txt > record.txt 2>&1 || { cat record.txt; exit 1; }
for trace in driver weir; do
    dump "$trace.etl"
    driver tracelog "$trace.etl" tracelog.txt
    tracelog=$(compare tracelog tracelog.txt dump.jsonl) || { echo "TraceLog of $trace.etl: $tracelog"; exit 1; }
done

echo "$traces traces with $events events equal to weir dump; live: $live; kernel session: $kernel; TraceLog: $tracelog"
