// Taking and retiring records.
#pragma once

#include "layout.cuh"

// A record for each lane that wants one; 0 where there is none left.
__device__ inline u64 take_record(const Records &records, Counters *counters, bool wants) {
    u32 wanting = __ballot_sync(ALL_LANES, wants);
    if (wanting == 0) return 0;
    u64 number = 0;
    if (lane_number() == 0) number = atomicAdd(&counters->taken, static_cast<u64>(__popc(wanting)));
    number = __shfl_sync(ALL_LANES, number, 0);
    if (!wants) return 0;
    number += __popc(wanting & ((1u << lane_number()) - 1));
    u64 free = records.tail - records.head;
    if (number < free) return __ldcs(records.ring + ((records.head + number) & (records.ring_capacity - 1)));
    number -= free;
    #pragma unroll 1
    for (u32 range = 0; range < 2; range++) {
        if (number < records.bump_count[range]) return records.bump_offset[range] + number * records.bump_stride;
        number -= records.bump_count[range];
    }
    return 0;
}

// Output each lane's record (0: none) behind those retired before. It is not taken again by the launch
// that retires it, nor does the file say that it is free, so its slot may let go of it before or after.
__device__ inline void retire_record(const Records &records, Counters *counters, u64 record) {
    u32 leaving = __ballot_sync(ALL_LANES, record != 0);
    if (leaving == 0) return;
    u64 number = 0;
    if (lane_number() == 0) number = atomicAdd(&counters->retired, static_cast<u64>(__popc(leaving)));
    number = __shfl_sync(ALL_LANES, number, 0);
    if (record == 0) return;
    number += __popc(leaving & ((1u << lane_number()) - 1));
    __stcs(records.ring + ((records.retired_tail + number) & (records.ring_capacity - 1)), record);
}
