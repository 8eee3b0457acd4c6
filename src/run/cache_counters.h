/* What a prompt cache has done and holds: atomics that any thread may read; the engine thread writes them. */
#ifndef LILY_RUN_CACHE_COUNTERS_H
#define LILY_RUN_CACHE_COUNTERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct cache_counters {
    _Atomic uint64_t saved, dropped;      /* states kept, and given up for room */
    _Atomic uint64_t hits, misses;        /* prompts that found a state, and that did not */
    _Atomic uint64_t waited;              /* prompts that waited for an equal beginning that another one was reading */
    _Atomic uint64_t idle_tokens;         /* tokens read ahead while nothing else was to do */
    _Atomic uint64_t verified, differing; /* prompts read again cold, and those of them whose last logits were others */
    _Atomic size_t bytes, peak_bytes, budget; /* of the states in memory */
    _Atomic int states;
    _Atomic uint64_t disk_written, disk_read, disk_dropped, disk_damaged, disk_errors; /* states; files set aside; failures */
    _Atomic size_t disk_bytes, disk_peak_bytes, disk_quota; /* quota 0: no disk cache */
    _Atomic int disk_states;
};

#endif
