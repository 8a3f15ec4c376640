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
# `limits` writes its figures and results into $OUT, or ./limits-out. The status is 1 if anything failed; the rest
# runs nevertheless.
set -uo pipefail
programs=$(cd "$1" && pwd) || exit
shift
(($#)) || set -- check sanitize measure limits
memory=/dev/shm
export GPHASH_TEST_ENGINE=cuda GPHASH_TEST_FOLDER=$memory
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a test program, the rest of the arguments, under a heading, and keeps what it prints in $log. It fails if the
# program does, or if no test ran.
run_tests() {
    local heading=$1
    shift
    echo "== $heading"
    if ! "$@" >"$log" 2>&1; then
        failed+=("$heading")
        tail -n 20 "$log"
    elif ! grep -qE "test result: ok\. [1-9]" "$log"; then
        failed+=("$heading: no test ran")
    fi
}

tests() {
    run_tests "$@"
    grep -E "SEED|images|Tally|FAILED|panicked|result" "$log"
}

check() {
    for order in auto always never; do
        export GPHASH_TEST_ADDRESS_ORDER=$order
        tests "model, Shared, address order: $order" "$programs/model"
        tests "model, Shared, address order: $order, without the mirror" env GPHASH_TEST_NO_MIRROR=1 "$programs/model"
        tests "model, Shared, address order: $order, without the cache" env GPHASH_TEST_NO_CACHE=1 "$programs/model"
    done
    unset GPHASH_TEST_ADDRESS_ORDER
    tests "model, Checkpointed" env GPHASH_TEST_FOLDER=/tmp "$programs/model"
    tests "versions of batches, sorted by the device" "$programs/gphash_kernels" device_sort
    tests "versions of a key" "$programs/gphash" versions_of_a_key
    tests "the engine, slices, columns of the store and its sorted files" "$programs/gphash" \
        engine::cuda index::device locator_tests gpu_reads lsm::tests::gpu
    tests "large batches of the store" "$programs/store_tests" large_batches
    tests "kill" "$programs/kill" --nocapture
    tests "crashes inside kernels" env GPHASH_LOGGING_PTX="$programs/logging.ptx" GPHASH_CRASH_IMAGES=100000 \
        "$programs/kernel_crash" --nocapture
}

sanitize() {
    for mirror in yes no; do
        [[ $mirror = no ]] && export GPHASH_TEST_NO_MIRROR=1
        sanitized "memcheck, mirror: $mirror" memcheck
        # Racecheck slows the others down a hundredfold; these run all kernels.
        for test in verbs reserved_keys between_engines random_batches::small \
            random_batches::batches growth::growth_of_a_tiny growth::reserve \
            concurrent::insert_of_one_key sizes::key_sizes; do
            sanitized "racecheck $test, mirror: $mirror" racecheck $test
        done
    done
    unset GPHASH_TEST_NO_MIRROR
}

sanitized() {
    local heading=$1 tool=$2
    shift 2
    run_tests "$heading" compute-sanitizer --error-exitcode 1 --tool "$tool" "$programs/model" "$@"
    grep -E "SUMMARY|Invalid|hazard|FAILED|panicked|result" "$log" | sort | uniq -c | head -20
}

# Runs its arguments, and notes a failure.
measured() {
    "$@" || failed+=("${*#"$programs/"}")
}

measure() {
    local ycsb=("$programs/ycsb" --engine cuda --domain shared --threads 1)
    local small=("${ycsb[@]}" --records 16000000 --operations 16000000)
    local large=("${ycsb[@]}" --records 64000000 --operations 32000000)
    local batches=4096,65536,1048576
    echo "== batches in device memory"
    measured "${small[@]}" --device-slices --batch $batches --workload c,negative,update --distribution uniform
    measured "${small[@]}" --device-slices --batch $batches --workload load,c,a,b,d,f
    echo "== 32-byte keys"
    measured "${small[@]}" --device-slices --batch $batches --workload c,negative,update --distribution uniform \
        --key-size 32
    measured "${small[@]}" --device-slices --batch $batches --workload load,c,a --key-size 32
    echo "== 64 M items"
    measured "${large[@]}" --device-slices --batch 1048576 --workload c --distribution uniform
    measured "${large[@]}" --device-slices --batch 1048576 --workload c,load
    echo "== while the cache is loaded"
    measured "${small[@]}" --device-slices --batch 65536,1048576 --workload c,a
    measured "${small[@]}" --device-slices --batch 65536,1048576 --workload c,a --reload-during
    echo "== batches in host memory"
    measured "${small[@]}" --batch $batches --workload load,c,a
    measured "${small[@]}" --batch $batches --workload c,update --distribution uniform
    measured "${small[@]}" --batch 65536,1048576 --workload load,c,a --pinned
    local store=("$programs/store" --path $memory --records 4000000 --operations 16000000 --threads 1)
    for engine in cuda cpu; do
        echo "== the store, versions sorted by: $engine"
        measured "${store[@]}" --engine $engine --batch 1048576 --workload load,a,b,c,d --steps
    done
    measured "$programs/store" --path $memory --records 8000000 --replay
}

limits() {
    local out=${OUT:-limits-out}
    mkdir -p "$out"
    echo "== limits"
    "$programs/limits" --engine cuda --plots "$out" | tee "$out/limits.txt" || failed+=(limits)
}

# What the parts run. Each is looked for before the first one begins.
needed=()
for part in "$@"; do
    case $part in
        check) needed+=(gphash gphash_kernels model kill kernel_crash store_tests) ;;
        sanitize) needed+=(model) ;;
        measure) needed+=(ycsb store) ;;
        limits) needed+=(limits) ;;
        *) echo "$0: no part $part" >&2 && exit 1 ;;
    esac
done
for program in "${needed[@]}"; do
    [[ -x $programs/$program ]] || failed+=("$programs/$program: no executable")
done
[[ " $* " != *" check "* || -r $programs/logging.ptx ]] || failed+=("$programs/logging.ptx: no file")
[[ " $* " != *" sanitize "* ]] || command -v compute-sanitizer >/dev/null || failed+=("compute-sanitizer: no command")

if ((${#failed[@]} == 0)); then
    for part in "$@"; do $part; done
fi
if ((${#failed[@]} > 0)); then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
