#!/usr/bin/env bash
# Checks and measures the CUDA engine on a machine with a GPU, without cargo there.
#
# Build here or elsewhere and copy the executables into one folder, as `gphash` and `gphash_kernels` (the unit
# tests), `model`, `kill`, `kernel_crash`, `store_tests`, `ycsb`, `limits` and `store` (the bench):
#   cargo test --release --no-run --features cust --lib --test model --test kill --test kernel_crash \
#       --test store --bench ycsb --bench limits --bench store   (linking: ptx/README.md)
#   python3 ptx/build.py --logging FOLDER/logging.ptx
# then: bench/gpu.sh FOLDER [check|sanitize|measure|limits]...   (all four by default)
#
# `limits` writes its figures and results into $OUT, or ./limits-out.
set -u
programs=$(cd "$1" && pwd)
shift
memory=/dev/shm
export GPHASH_TEST_ENGINE=cuda GPHASH_TEST_FOLDER=$memory

check() {
    for order in auto always never; do
        echo "== model, Shared, address order: $order"
        GPHASH_TEST_ADDRESS_ORDER=$order "$programs/model" 2>&1 | grep -E "FAILED|panicked|result"
        echo "== model, Shared, address order: $order, without the mirror"
        GPHASH_TEST_ADDRESS_ORDER=$order GPHASH_TEST_NO_MIRROR=1 "$programs/model" 2>&1 |
            grep -E "FAILED|panicked|result"
        echo "== model, Shared, address order: $order, without the cache"
        GPHASH_TEST_ADDRESS_ORDER=$order GPHASH_TEST_NO_CACHE=1 "$programs/model" 2>&1 |
            grep -E "FAILED|panicked|result"
    done
    echo "== model, Checkpointed"
    GPHASH_TEST_FOLDER=/tmp "$programs/model" 2>&1 | grep -E "FAILED|panicked|result"
    echo "== versions of the store's batches"
    "$programs/gphash_kernels" device_sort 2>&1 | grep -E "SEED|FAILED|panicked|result"
    "$programs/gphash" versions_of_a_key 2>&1 | grep -E "SEED|FAILED|panicked|result"
    "$programs/store_tests" large_batches 2>&1 | grep -E "FAILED|panicked|result"
    echo "== kill"
    "$programs/kill" --nocapture 2>&1 | grep -E "FAILED|panicked|Tally|result"
    echo "== crashes inside kernels"
    GPHASH_LOGGING_PTX="$programs/logging.ptx" GPHASH_CRASH_IMAGES=100000 "$programs/kernel_crash" --nocapture 2>&1 |
        grep -E "SEED|images|Tally|FAILED|panicked|result"
}

sanitize() {
    for mirror in yes no; do
        [ $mirror = no ] && export GPHASH_TEST_NO_MIRROR=1
        echo "== memcheck, mirror: $mirror"
        sanitized memcheck
        # Racecheck slows the others down a hundredfold; these run all kernels.
        for test in verbs reserved_keys between_engines random_batches::small \
            random_batches::batches growth::growth_of_a_tiny growth::reserve \
            concurrent::insert_of_one_key sizes::key_sizes; do
            echo "== racecheck $test, mirror: $mirror"
            sanitized racecheck $test
        done
    done
    unset GPHASH_TEST_NO_MIRROR
}

sanitized() {
    local tool=$1
    shift
    compute-sanitizer --tool "$tool" "$programs/model" "$@" 2>&1 |
        grep -E "SUMMARY|Invalid|hazard|FAILED|panicked|result" | sort | uniq -c | head -20
}

measure() {
    local ycsb=("$programs/ycsb" --engine cuda --domain shared --threads 1)
    local small=("${ycsb[@]}" --records 16000000 --operations 16000000)
    local large=("${ycsb[@]}" --records 64000000 --operations 32000000)
    local batches=4096,65536,1048576
    echo "== batches in device memory"
    "${small[@]}" --device-slices --batch $batches --workload c,negative,update --distribution uniform
    "${small[@]}" --device-slices --batch $batches --workload load,c,a,b,d,f
    echo "== 32-byte keys"
    "${small[@]}" --device-slices --batch $batches --workload c,negative,update --distribution uniform \
        --key-size 32
    "${small[@]}" --device-slices --batch $batches --workload load,c,a --key-size 32
    echo "== 64 M items"
    "${large[@]}" --device-slices --batch 1048576 --workload c --distribution uniform
    "${large[@]}" --device-slices --batch 1048576 --workload c,load
    echo "== while the cache is loaded"
    "${small[@]}" --device-slices --batch 65536,1048576 --workload c,a
    "${small[@]}" --device-slices --batch 65536,1048576 --workload c,a --reload-during
    echo "== batches in host memory"
    "${small[@]}" --batch $batches --workload load,c,a
    "${small[@]}" --batch $batches --workload c,update --distribution uniform
    "${small[@]}" --batch 65536,1048576 --workload load,c,a --pinned
    local store=("$programs/store" --path $memory --records 4000000 --operations 16000000 --threads 1)
    for engine in cuda cpu; do
        echo "== the store, versions sorted by: $engine"
        "${store[@]}" --engine $engine --batch 1048576 --workload load,a,b,c,d --steps
    done
    "$programs/store" --path $memory --records 8000000 --replay
}

limits() {
    local out=${OUT:-limits-out}
    mkdir -p "$out"
    "$programs/limits" --engine cuda --plots "$out" | tee "$out/limits.txt"
}

for step in "${@:-check sanitize measure limits}"; do
    for part in $step; do $part; done
done
