/* The rows of `cargo bench --bench peers` on GASNet-EX's smp-conduit: active messages, one-sided access and collectives between the
 * processes that the conduit starts (GASNET_PSHM_NODES). Rank 0 prints a line for each row: its name and the value, in the unit that the
 * bench has for the row. The argument divides all counts (1 for figures). Releases before 2018.9 have no collectives here. */

#include <gasnetex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 64, LARGEST = 1 << 20, SEGMENT = 2 << 20 };
enum { REQUEST = GEX_AM_INDEX_BASE, REPLY, ONE_WAY, LONG, ANSWER, ADDRESS, MEET, UPDATE, UPDATES, LAST };

static gex_TM_t team;
static gex_Rank_t rank, ranks;
static long divisor = 1;
static char *block, *segment, *theirs;
/* What handlers have counted. */
static volatile long replies, messages, answers, met;

static void check(int status, const char *what) {
    if (status != GASNET_OK) {
        fprintf(stderr, "%s: %s\n", what, gasnet_ErrorDesc(status));
        gasnet_exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static long count(long wanted) {
    return wanted / divisor > 0 ? wanted / divisor : 1;
}

static void tell(const char *row, double value) {
    if (rank == 0) {
        printf("%s %.9g\n", row, value);
        fflush(stdout);
    }
}

static gex_AM_Arg_t upper(uint64_t word) {
    return (gex_AM_Arg_t)(uint32_t)(word >> 32);
}

static gex_AM_Arg_t lower(uint64_t word) {
    return (gex_AM_Arg_t)(uint32_t)word;
}

static void request_handler(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
    gex_AM_ReplyShort2(token, REPLY, 0, high, low);
}

static void reply_handler(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
    (void)token, (void)high, (void)low;
    replies++;
}

static void one_way_handler(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
    (void)token, (void)high, (void)low;
    messages++;
}

static void long_handler(gex_Token_t token, void *data, size_t bytes) {
    (void)token, (void)data, (void)bytes;
    messages++;
}

static void answer_handler(gex_Token_t token) {
    (void)token;
    answers++;
}

static void address_handler(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
    (void)token;
    theirs = (char *)(uintptr_t)((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
    answers++;
}

static void meet_handler(gex_Token_t token) {
    (void)token;
    met++;
}

/* Waits for the other one of two. */
static void meet(void) {
    gex_AM_RequestShort0(team, 1 - rank, MEET, 0);
    GASNET_BLOCKUNTIL(met > 0);
    met--;
}

/* Microseconds of a request with eight bytes and its reply with as many. */
static void round_trip(void) {
    long trips = count(200000);
    double start = 0;
    if (rank == 0) {
        for (long trip = -trips / 10; trip < trips; trip++) {
            if (trip == 0)
                start = now();
            long seen = replies;
            gex_AM_RequestShort2(team, 1, REQUEST, 0, upper(trip), lower(trip));
            GASNET_BLOCKUNTIL(replies > seen);
        }
        gex_AM_RequestShort0(team, 1, ANSWER, 0);
    } else {
        GASNET_BLOCKUNTIL(answers > 0);
        answers = 0;
    }
    tell("round-trip", (now() - start) * 1e6 / trips);
    meet();
}

/* Seconds of `windows` windows of messages one way, each window answered. */
static double stream(size_t bytes, long windows, int window) {
    double start = 0;
    messages = answers = 0;
    meet();
    for (long done = -1 - windows / 10; done < windows; done++) {
        if (done == 0)
            start = now();
        if (rank == 0) {
            for (int i = 0; i < window; i++) {
                if (bytes == 8)
                    gex_AM_RequestShort2(team, 1, ONE_WAY, 0, upper(done), lower(done));
                else
                    gex_AM_RequestLong0(team, 1, LONG, block, bytes, theirs, GEX_EVENT_NOW, 0);
            }
            GASNET_BLOCKUNTIL(answers > 0);
            answers--;
        } else {
            GASNET_BLOCKUNTIL(messages >= window);
            messages -= window;
            gex_AM_RequestShort0(team, 0, ANSWER, 0);
        }
    }
    double took = now() - start;
    meet();
    return took;
}

/* Nanoseconds of a put, or get, of eight bytes that is done at the target before the next begins; and large puts. */
static void one_sided(void) {
    if (rank == 0) {
        long times = count(500000);
        for (int get = 0; get < 2; get++) {
            double start = 0;
            for (long i = -times / 10; i < times; i++) {
                if (i == 0)
                    start = now();
                char *at = theirs + (i & 1023) * 8;
                if (get)
                    gex_RMA_GetBlocking(team, block, 1, at, 8, 0);
                else
                    gex_RMA_PutBlocking(team, 1, at, block, 8, 0);
            }
            tell(get ? "get" : "put", (now() - start) * 1e9 / times);
        }
        long blocks = count(2000);
        double start = 0;
        for (long i = -blocks / 10; i < blocks; i++) {
            if (i == 0)
                start = now();
            gex_RMA_PutBlocking(team, 1, theirs, block, LARGEST, 0);
        }
        tell("put-1m", (double)blocks * LARGEST / (now() - start) / 1e9);
    }
    meet();
}

#include "random_access.h"

static uint64_t ra_bucket[RA_HELD];
/* Updates sent, taken, and those that the other rank has sent. */
static uint64_t ra_sent;
static volatile uint64_t ra_taken, ra_theirs;
static volatile long ra_ended;

static void update_handler(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
    uint64_t value = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    (void)token;
    ra_take(&value, 1);
    ra_taken++;
}

static void updates_handler(gex_Token_t token, void *data, size_t bytes) {
    (void)token;
    ra_take(data, (int)(bytes / sizeof(uint64_t)));
    ra_taken += bytes / sizeof(uint64_t);
}

static void last_handler(gex_Token_t token, gex_AM_Arg_t high, gex_AM_Arg_t low) {
    (void)token;
    ra_theirs = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    ra_ended++;
}

static void ra_poll(void) {
    gasnet_AMPoll();
}

static void ra_prepare(int buckets) {
    (void)buckets;
}

static uint64_t *ra_room(void) {
    return ra_bucket;
}

static void ra_send(const uint64_t *values, int length) {
    gex_AM_RequestMedium0(team, 1 - rank, UPDATES, (void *)values, length * sizeof *values, GEX_EVENT_NOW, 0);
    ra_sent += length;
}

static void ra_send_one(uint64_t value) {
    gex_AM_RequestShort2(team, 1 - rank, UPDATE, 0, upper(value), lower(value));
    ra_sent++;
}

static void ra_end(void) {
    gex_AM_RequestShort2(team, 1 - rank, LAST, 0, upper(ra_sent), lower(ra_sent));
    GASNET_BLOCKUNTIL(ra_ended > 0 && ra_taken >= ra_theirs);
    ra_ended--;
}

#if GASNET_RELEASE_VERSION_MAJOR * 100 + GASNET_RELEASE_VERSION_MINOR >= 201809
static void barrier(void) {
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
}

static void collectives(void) {
    long times = count(200000);
    double start = 0, sum, one = 1;
    for (long i = -times / 10; i < times; i++) {
        if (i == 0)
            start = now();
        barrier();
    }
    tell(ranks == 2 ? "barrier" : "barrier-4", (now() - start) * 1e6 / times);
    for (long i = -times / 10; i < times; i++) {
        if (i == 0)
            start = now();
        gex_Event_Wait(gex_Coll_ReduceToAllNB(team, &sum, &one, GEX_DT_DBL, sizeof one, 1, GEX_OP_ADD, NULL, NULL, 0));
    }
    tell(ranks == 2 ? "allreduce" : "allreduce-4", (now() - start) * 1e6 / times);
    for (long i = -times / 10; i < times; i++) {
        if (i == 0)
            start = now();
        gex_Rank_t root = (gex_Rank_t)((i + times) % ranks);
        gex_Event_Wait(gex_Coll_BroadcastNB(team, root, block, block + 8, 8, 0));
    }
    tell(ranks == 2 ? "broadcast" : "broadcast-4", (now() - start) * 1e6 / times);
    barrier();
}
#else
static void collectives(void) {
}
#endif

int main(int argc, char **argv) {
    gex_Client_t client;
    gex_EP_t endpoint;
    check(gex_Client_Init(&client, &endpoint, &team, "PEERS", &argc, &argv, 0), "starting GASNet-EX");
    rank = gex_TM_QueryRank(team);
    ranks = gex_TM_QuerySize(team);
    divisor = argc == 2 ? atol(argv[1]) : 0;
    if (divisor < 1 || (ranks != 2 && ranks != 4)) {
        fprintf(stderr, "usage: %s DIVISOR, with 2 or 4 ranks (GASNET_PSHM_NODES)\n", argv[0]);
        gasnet_exit(2);
    }
    gex_Segment_t own;
    check(gex_Segment_Attach(&own, team, SEGMENT), "attaching a segment");
    segment = gex_Segment_QueryAddr(own);
    const gex_Flags_t shorts = GEX_FLAG_AM_SHORT, request = GEX_FLAG_AM_REQUEST;
    gex_AM_Entry_t handlers[] = {
        {REQUEST, (gex_AM_Fn_t)request_handler, shorts | request, 2, NULL, "request"},
        {REPLY, (gex_AM_Fn_t)reply_handler, shorts | GEX_FLAG_AM_REPLY, 2, NULL, "reply"},
        {ONE_WAY, (gex_AM_Fn_t)one_way_handler, shorts | request, 2, NULL, "one way"},
        {LONG, (gex_AM_Fn_t)long_handler, GEX_FLAG_AM_LONG | request, 0, NULL, "long"},
        {ANSWER, (gex_AM_Fn_t)answer_handler, shorts | request, 0, NULL, "answer"},
        {ADDRESS, (gex_AM_Fn_t)address_handler, shorts | request, 2, NULL, "address"},
        {MEET, (gex_AM_Fn_t)meet_handler, shorts | request, 0, NULL, "meet"},
        {UPDATE, (gex_AM_Fn_t)update_handler, shorts | request, 2, NULL, "update"},
        {UPDATES, (gex_AM_Fn_t)updates_handler, GEX_FLAG_AM_MEDIUM | request, 0, NULL, "updates"},
        {LAST, (gex_AM_Fn_t)last_handler, shorts | request, 2, NULL, "last"},
    };
    check(gex_EP_RegisterHandlers(endpoint, handlers, sizeof handlers / sizeof *handlers), "registering handlers");
    block = malloc(LARGEST);
    memset(block, 2, LARGEST);
    memset(segment, 1, SEGMENT);
    if (ranks == 2) {
        uint64_t address = (uintptr_t)segment;
        gex_AM_RequestShort2(team, 1 - rank, ADDRESS, 0, upper(address), lower(address));
        GASNET_BLOCKUNTIL(answers > 0);
        answers = 0;
        meet();
        round_trip();
        long windows = count(20000);
        tell("rate", windows * WINDOW / stream(8, windows, WINDOW) / 1e6);
        windows = count(1000);
        tell("stream-64k", windows * 16 * 65536.0 / stream(65536, windows, 16) / 1e9);
        windows = count(300);
        tell("stream-1m", windows * 4 * (double)LARGEST / stream(LARGEST, windows, 4) / 1e9);
        one_sided();
        ra_rows();
    } else if (divisor == 1) {
        /* More ranks than processors take turns: fewer repetitions do. */
        divisor = 20;
    }
    collectives();
    if (ranks == 2)
        meet();
    gasnet_exit(0);
    return 0;
}
