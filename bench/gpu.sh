#!/usr/bin/env bash
# Checks and measures the CUDA engine on a machine with a GPU, without cargo there.
#
# Build here or elsewhere and copy the executables into one folder, as `model`, `kill` and `ycsb`:
#   cargo test --release --no-run --features cuda --test model --test kill --bench ycsb
# then: bench/gpu.sh FOLDER [check|sanitize|measure]...   (all three by default)
set -u
programs=$(cd "$1" && pwd)
shift
memory=/dev/shm
export GPHASH_TEST_ENGINE=cuda GPHASH_TEST_FOLDER=$memory

check() {
    echo "== model, Shared"
    "$programs/model" 2>&1 | grep -E "FAILED|panicked|result"
    echo "== model, Checkpointed"
    GPHASH_TEST_FOLDER=/tmp "$programs/model" 2>&1 | grep -E "FAILED|panicked|result"
    echo "== model, without the mirror"
    GPHASH_TEST_NO_MIRROR=1 "$programs/model" 2>&1 | grep -E "FAILED|panicked|result"
    echo "== kill"
    "$programs/kill" --nocapture 2>&1 | grep -E "FAILED|panicked|Tally|result"
}

sanitize() {
    for mirror in yes no; do
        [ $mirror = no ] && export GPHASH_TEST_NO_MIRROR=1
        echo "== memcheck, mirror: $mirror"
        sanitized memcheck
        # Racecheck slows the others down a hundredfold; these run all kernels.
        for test in verbs reserved_keys between_engines random_batches::small \
            random_batches::batches growth::a_tiny growth::reserve concurrent::of_several \
            sizes::every_key; do
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
    local ycsb=("$programs/ycsb" --engine cuda --domain shared --threads 1
        --records 16000000 --operations 16000000)
    echo "== batches in device memory"
    "${ycsb[@]}" --device-slices --batch 4096,65536,1048576 --workload load,c,a,b,d,f,negative
    "${ycsb[@]}" --device-slices --batch 4096,1048576 --workload c,update --distribution uniform
    "${ycsb[@]}" --device-slices --batch 4096,1048576 --workload load,c --key-size 32
    echo "== batches in host memory"
    "${ycsb[@]}" --batch 4096,1048576 --workload load,c,a
}

for step in "${@:-check sanitize measure}"; do
    for part in $step; do $part; done
done
