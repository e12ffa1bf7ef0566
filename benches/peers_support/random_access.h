/* HPCC RandomAccess between two ranks for the programs of `cargo bench --bench peers`, as this project's example does it: a rank makes
 * samples in strips without a branch that depends on them, keeps its own part of the table in large pages, and has each update wait until
 * its word has been fetched. A rank holds 1024 updates at most: those that wait for their words, a strip, and a bucket; as in the example, what
 * was given to the library is on its way, also where that keeps it in the program's buffers (MPI, UCX). What includes this
 * defines `rank`, `now`, `count` and `tell`, and how updates travel (the functions below). */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Sends updates to the other rank; they are copied, or the room that `ra_room` gave is not used again before they have left. */
static void ra_send(const uint64_t *values, int count);
/* Room for a bucket of `RA_HELD` updates. */
static uint64_t *ra_room(void);
/* Sends one update in a message of its own. */
static void ra_send_one(uint64_t value);
/* Takes in what has arrived. */
static void ra_poll(void);
/* Called before a run, which sends updates in buckets or one by one. */
static void ra_prepare(int buckets);
/* Returns when all that was sent to this rank has been handed to `ra_take`, and the other rank is as far. */
static void ra_end(void);

enum { RA_LOG2_WORDS = 24, RA_WAITING = 128, RA_NEAR = 24, RA_STRIP = 32, RA_HELD = 1024 - RA_WAITING };

/* Updates that make a message, and samples between two polls without one, where a library is not better off with other numbers. */
#ifndef RA_FULL
#define RA_FULL 512
#endif
#ifndef RA_BLOCK
#define RA_BLOCK 256
#endif

static uint64_t *ra_table, ra_waiting[RA_WAITING];
static unsigned ra_place;

/* Applies updates of this rank's words, each when 128 others have come behind it: words are fetched into the second cache, which has room
 * for more that are under way than the first, and from there into the first when 24 updates are before them. */
static inline void ra_take(const uint64_t *values, int count) {
    const uint64_t mask = (UINT64_C(1) << RA_LOG2_WORDS) - 1;
    for (int i = 0; i < count; i++) {
        uint64_t due = ra_waiting[ra_place];
        __builtin_prefetch(&ra_table[values[i] & mask], 0, 2);
        ra_waiting[ra_place] = values[i];
        ra_place = (ra_place + 1) % RA_WAITING;
        __builtin_prefetch(&ra_table[ra_waiting[(ra_place + RA_NEAR) % RA_WAITING] & mask], 0, 3);
        ra_table[due & mask] ^= due;
    }
}

static inline uint64_t ra_next(uint64_t x) {
    return (x << 1) ^ (uint64_t)((int64_t)x >> 63 & 7);
}

/* The sample of this number of the benchmark's stream. */
static uint64_t ra_start(int64_t n) {
    uint64_t square[64], x = 1, found = 2;
    int bit = 62;
    if (n == 0)
        return 1;
    for (int i = 0; i < 64; i++) {
        square[i] = x;
        x = ra_next(ra_next(x));
    }
    while (bit >= 0 && !(n >> bit & 1))
        bit--;
    while (bit-- > 0) {
        uint64_t sum = 0;
        for (int i = 0; i < 64; i++)
            if (found >> i & 1)
                sum ^= square[i];
        found = n >> bit & 1 ? ra_next(sum) : sum;
    }
    return found;
}

/* Makes this rank's updates and returns the seconds until all ranks' are applied. */
static double ra_run(int buckets, int64_t updates) {
    uint64_t x = ra_start(updates * rank), own[RA_STRIP], others[RA_STRIP];
    int held = 0;
    ra_prepare(buckets);
    uint64_t *bucket = ra_room();
    ra_end();
    double start = now();
    for (int64_t made = 0; made < updates; made += RA_STRIP) {
        uint64_t *away = buckets ? bucket + held : others;
        int mine = 0, theirs = 0;
        for (int i = 0; i < RA_STRIP; i++) {
            x = ra_next(x);
            int is_own = (int)(x >> RA_LOG2_WORDS & 1) == rank;
            own[mine] = x;
            mine += is_own;
            /* Overwritten by the next one if it is not theirs. */
            away[theirs] = x;
            theirs += !is_own;
        }
        ra_take(own, mine);
        held += theirs;
        if (!buckets) {
            for (int i = 0; i < theirs; i++)
                ra_send_one(others[i]);
            held = 0;
        } else if (held >= RA_FULL) {
            ra_send(bucket, held);
            bucket = ra_room();
            held = 0;
            ra_poll();
        }
        if (made % RA_BLOCK == 0)
            ra_poll();
    }
    if (held > 0)
        ra_send(bucket, held);
    ra_end();
    /* What still waits; a zero changes nothing. */
    uint64_t last[RA_WAITING] = {0};
    ra_take(last, RA_WAITING);
    ra_end();
    return now() - start;
}

/* The rows of RandomAccess, each checked: the same updates a second time undo the first ones. */
static void ra_rows(void) {
    const size_t words = (size_t)1 << RA_LOG2_WORDS;
    ra_table = aligned_alloc(2 << 20, words * sizeof *ra_table);
    if (ra_table == NULL) {
        fprintf(stderr, "no memory for a table\n");
        exit(1);
    }
    madvise(ra_table, words * sizeof *ra_table, MADV_HUGEPAGE);
    for (size_t i = 0; i < words; i++)
        ra_table[i] = (uint64_t)rank << RA_LOG2_WORDS | i;
    for (int buckets = 0; buckets < 2; buckets++) {
        int64_t updates = (count(buckets ? 1 << 26 : 1 << 22) + RA_STRIP - 1) / RA_STRIP * RA_STRIP;
        double took = ra_run(buckets, updates);
        took += ra_run(buckets, updates);
        for (size_t i = 0; i < words; i++)
            if (ra_table[i] != ((uint64_t)rank << RA_LOG2_WORDS | i)) {
                fprintf(stderr, "word %zu of rank %d is wrong\n", i, (int)rank);
                exit(1);
            }
        tell(buckets ? "updates-buckets" : "updates", 2 * 2 * (double)updates / took / 1e9);
    }
    free(ra_table);
}
