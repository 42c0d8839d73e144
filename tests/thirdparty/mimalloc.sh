#!/usr/bin/env bash
# mimalloc (github.com/microsoft/mimalloc) with MI_TRACK_ETW: records every allocation and free of a
# program with known calls, once through mi_malloc and once with mimalloc as the program's malloc.
set -euo pipefail

provider='{138f4dbb-ee04-4899-aa0a-572ad4475779}'
manifest=$SOURCE/src/prim/windows/etw.man
threads=3
calls=20000

command -v cc > /dev/null || { echo "missing: a C compiler (package gcc)"; exit 77; }

# The whole library is one source, as the readme of mimalloc describes.
cc -O2 -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -DNDEBUG \
    -DMI_TRACK_ETW=1 -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT \
    -I"$SOURCE/include" "$SOURCE/src/static.c" \
    $(pkg-config --cflags --libs traceweir) -lpthread -o libmimalloc.so

# Each thread allocates and frees between two allocations of a size that no other call has. It
# prints what it did: thread id, event, address, usable size.
cat > calls.c <<'C'
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef DIRECT
#include <mimalloc.h>
#define malloc mi_malloc
#define free mi_free
#define malloc_usable_size mi_usable_size
#endif
struct call { int is_free; void *address; size_t size; };
static struct call calls[THREADS][2 * CALLS];
static size_t counts[THREADS];
static int ids[THREADS];
static void *allocate(void *argument) {
    size_t thread = (size_t)argument;
    ids[thread] = gettid();
    free(malloc(FIRST));
    for (size_t i = 0; i < CALLS; i++) {
        void *block = malloc(1 + (i * 37 + thread) % 5000);
        struct call call = {0, block, malloc_usable_size(block)};
        calls[thread][counts[thread]++] = call;
        if (i % 3 == 0) {
            free(block);
            call.is_free = 1;
            calls[thread][counts[thread]++] = call;
        }
    }
    free(malloc(LAST));
    return NULL;
}
int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, allocate, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        for (size_t at = 0; at < counts[i]; at++)
            printf("%d %s %zu %zu\n", ids[i], calls[i][at].is_free ? "ETW_MI_FREE" : "ETW_MI_ALLOC", (size_t)calls[i][at].address,
                   calls[i][at].size);
    return 0;
}
C
options="-O1 -fno-builtin -DTHREADS=$threads -DCALLS=$calls -DFIRST=1111111 -DLAST=2222222"
cc $options calls.c -lpthread -o calls-malloc
cc $options -DDIRECT -I"$SOURCE/include" calls.c -L. -lmimalloc -Wl,-rpath,"$PWD" -lpthread -o calls-direct

# Records COMMAND and compares each thread's events between its two marks with its calls, in order.
check() { # NAME COMMAND…
    local name=$1
    shift
    weir record -p "$provider" -o "$name.etl" -- "$@" > "$name.calls" 2> "$name.messages"
    if ! weir info "$name.etl" | grep -q '^Lost  *0 events, 0 buffers$' || grep -qi 'warning\|lost [^n]' "$name.messages"; then
        echo "$name: events were lost"
        cat "$name.messages"
        weir info "$name.etl"
        exit 1
    fi
    weir dump "$name.etl" --manifest "$manifest" --provider microsoft-windows-mimalloc --format jsonl |
        sed -E 's/.*"event":"([^"]*)".*"tid":([0-9]+).*"fields":\{"Address":([0-9]+),"Size":([0-9]+)\}\}$/\2 \1 \3 \4/' |
        sort -s -n -k1,1 |
        awk '$4 >= 2222222 { inside = 0 } inside { print } $2 == "ETW_MI_FREE" && $4 >= 1111111 && $4 < 2222222 { inside = 1 }' \
            > "$name.events"
    sort -s -n -k1,1 "$name.calls" > "$name.expected"
    local expected=$((threads * (calls + (calls + 2) / 3)))
    [ "$(wc -l < "$name.expected")" -eq "$expected" ] || { echo "$name: the program did not make $expected calls"; exit 1; }
    if ! diff "$name.expected" "$name.events" > "$name.diff"; then
        echo "$name: events differ from calls:"
        head -n 20 "$name.diff"
        exit 1
    fi
    [ "$(cut -d ' ' -f 1 "$name.events" | uniq | wc -l)" -eq "$threads" ] || { echo "$name: not $threads threads"; exit 1; }
}
check direct ./calls-direct
check override env LD_PRELOAD="$PWD/libmimalloc.so" ./calls-malloc

# A program that knows nothing of mimalloc: no block may be allocated twice without a free between
# the two, and each free has the size of its allocation. Otherwise an event is missing.
weir record -p "$provider" -o shell.etl -- env LD_PRELOAD="$PWD/libmimalloc.so" \
    bash -c 'for ((i = 0; i < 500; i++)); do text=$text$i; done; echo ${#text}' > shell.out 2> shell.messages
[ "$(cat shell.out)" -eq 1390 ] || { echo "bash with mimalloc failed"; exit 1; }
weir info shell.etl | grep -q '^Lost  *0 events, 0 buffers$' || { echo "shell: events were lost"; cat shell.messages; exit 1; }
weir dump shell.etl --manifest "$manifest" --provider microsoft-windows-mimalloc --format jsonl |
    sed -E 's/.*"event":"([^"]*)".*"fields":\{"Address":([0-9]+),"Size":([0-9]+)\}\}$/\1 \2 \3/' > shell.events
awk '$1 == "ETW_MI_ALLOC" { if ($2 in live) { print "allocated twice: " $0; bad = 1 } live[$2] = $3; allocated++ }
     $1 == "ETW_MI_FREE" && $2 in live { if (live[$2] != $3) { print "freed with another size: " $0; bad = 1 } delete live[$2]; freed++ }
     END { if (allocated < 500 || freed < 500) { print allocated " allocations, " freed " frees"; bad = 1 } exit bad }' shell.events

echo "mimalloc: $(wc -l < direct.events) events through mi_malloc and $(wc -l < override.events) as malloc equal the calls in order, address and size; $(wc -l < shell.events) events of bash match in pairs; nothing lost"
