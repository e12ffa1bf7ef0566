/* The rows of `cargo bench --bench peers` as an MPI program, for any implementation. Rank 0 prints a line for each row: its name and
 * the value, in the unit that the bench has for the row. The argument divides all counts (1 for figures). */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, LARGEST = 1 << 20 };

static int rank, ranks;
static long divisor = 1;
static char *block;

static long count(long wanted) {
    return wanted / divisor > 0 ? wanted / divisor : 1;
}

static void tell(const char *row, double value) {
    if (rank == 0) {
        printf("%s %.9g\n", row, value);
        fflush(stdout);
    }
}

/* Microseconds of a message of eight bytes there and one back. */
static void round_trip(void) {
    long trips = count(200000);
    double start = 0;
    for (long trip = -trips / 10; trip < trips; trip++) {
        if (trip == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            start = MPI_Wtime();
        }
        if (rank == 0) {
            MPI_Send(block, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(block, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(block, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(block, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    tell("round-trip", (MPI_Wtime() - start) * 1e6 / trips);
}

/* Seconds of `windows` windows of messages one way, each window answered by an empty message. */
static double stream(int bytes, long windows, int window) {
    MPI_Request requests[WINDOW];
    double start = 0;
    for (long done = -1 - windows / 10; done < windows; done++) {
        if (done == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            start = MPI_Wtime();
        }
        for (int i = 0; i < window; i++) {
            if (rank == 0)
                MPI_Isend(block, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(block, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(block, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(block, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - start;
}

/* Nanoseconds of a put, or get, of eight bytes that is done at the target before the next begins; and large puts. */
static void one_sided(void) {
    char *base;
    MPI_Win window;
    MPI_Win_allocate(LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    memset(base, 1, LARGEST);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        long times = count(500000);
        for (int get = 0; get < 2; get++) {
            double start = 0;
            for (long i = -times / 10; i < times; i++) {
                if (i == 0)
                    start = MPI_Wtime();
                MPI_Aint at = (i & 1023) * 8;
                if (get)
                    MPI_Get(block, 8, MPI_BYTE, 1, at, 8, MPI_BYTE, window);
                else
                    MPI_Put(block, 8, MPI_BYTE, 1, at, 8, MPI_BYTE, window);
                MPI_Win_flush(1, window);
            }
            tell(get ? "get" : "put", (MPI_Wtime() - start) * 1e9 / times);
        }
        long blocks = count(2000);
        double start = 0;
        for (long i = -blocks / 10; i < blocks; i++) {
            if (i == 0)
                start = MPI_Wtime();
            MPI_Put(block, LARGEST, MPI_BYTE, 1, 0, LARGEST, MPI_BYTE, window);
            MPI_Win_flush(1, window);
        }
        tell("put-1m", (double)blocks * LARGEST / (MPI_Wtime() - start) / 1e9);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

/* Messages of RandomAccess that may be under way, and those that are received into at once: fewer, if they are buckets. */
enum { SENDS = 64, RECEIVES = 64, RECEIVES_OF_BUCKETS = 4, UPDATES = 4, LAST = 5 };

static double now(void) {
    return MPI_Wtime();
}

/* The best of those tried: 256, 448 and 512 updates a message, 256 and 1024 samples, 4, 16 and 64 receives. */
#ifdef OPEN_MPI
#define RA_FULL 448
#endif
#define RA_BLOCK (buckets ? 1024 : 256)
#include "random_access.h"

static uint64_t ra_out[SENDS][RA_HELD], ra_in[RECEIVES][RA_HELD];
static MPI_Request ra_sends[SENDS], ra_receives[RECEIVES];
static int ra_turn, ra_ended, ra_posted;
/* Updates of this phase: those sent, those taken, and those that the other rank has sent. */
static uint64_t ra_sent, ra_taken, ra_theirs;

static void ra_post(int which) {
    MPI_Irecv(ra_in[which], RA_HELD, MPI_UINT64_T, 1 - rank, MPI_ANY_TAG, MPI_COMM_WORLD, &ra_receives[which]);
}

static void ra_arrived(int which, MPI_Status *status) {
    int length;
    MPI_Get_count(status, MPI_UINT64_T, &length);
    if (status->MPI_TAG == LAST) {
        ra_ended++;
        ra_theirs = ra_in[which][0];
    } else {
        ra_take(ra_in[which], length);
        ra_taken += length;
    }
}

static void ra_poll(void) {
    int done, which[RECEIVES];
    MPI_Status of[RECEIVES];
    MPI_Testsome(ra_posted, ra_receives, &done, which, of);
    for (int i = 0; i < done; i++) {
        ra_arrived(which[i], &of[i]);
        ra_post(which[i]);
    }
}

/* Has as many receives as this posted. */
static void ra_posting(int wanted) {
    while (ra_posted < wanted)
        ra_post(ra_posted++);
    while (ra_posted > wanted) {
        int cancelled;
        MPI_Status status;
        MPI_Cancel(&ra_receives[--ra_posted]);
        MPI_Wait(&ra_receives[ra_posted], &status);
        MPI_Test_cancelled(&status, &cancelled);
        if (!cancelled)
            ra_arrived(ra_posted, &status);
    }
}

static void ra_prepare(int buckets) {
    ra_posting(buckets ? RECEIVES_OF_BUCKETS : RECEIVES);
}

static uint64_t *ra_room(void) {
    int done;
    ra_turn = (ra_turn + 1) % SENDS;
    for (MPI_Test(&ra_sends[ra_turn], &done, MPI_STATUS_IGNORE); !done;
         MPI_Test(&ra_sends[ra_turn], &done, MPI_STATUS_IGNORE))
        ra_poll();
    return ra_out[ra_turn];
}

static void ra_send(const uint64_t *values, int length) {
    MPI_Isend(values, length, MPI_UINT64_T, 1 - rank, UPDATES, MPI_COMM_WORLD, &ra_sends[ra_turn]);
    ra_sent += length;
}

static void ra_send_one(uint64_t value) {
    uint64_t *room = ra_room();
    *room = value;
    ra_send(room, 1);
}

static void ra_end(void) {
    MPI_Request end;
    int done = 0;
    uint64_t sent = ra_sent;
    MPI_Isend(&sent, 1, MPI_UINT64_T, 1 - rank, LAST, MPI_COMM_WORLD, &end);
    /* Large messages may be received after small ones that were sent later. */
    while (ra_ended == 0 || ra_taken < ra_theirs || !done) {
        ra_poll();
        MPI_Test(&end, &done, MPI_STATUS_IGNORE);
    }
    ra_ended--;
}

static void random_access(void) {
    for (int i = 0; i < SENDS; i++)
        ra_sends[i] = MPI_REQUEST_NULL;
    ra_rows();
    MPI_Waitall(SENDS, ra_sends, MPI_STATUSES_IGNORE);
    ra_posting(0);
}

static void barrier(long i) {
    (void)i;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(long i) {
    (void)i;
    double sum, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(long i) {
    MPI_Bcast(block, 8, MPI_BYTE, (int)(i % ranks), MPI_COMM_WORLD);
}

/* Microseconds of an operation; of ranks that take turns on processors, as many as a second has room for. */
static void repeat(const char *row, void (*operation)(long)) {
    long times = count(200000), few = 20;
    double start = MPI_Wtime();
    for (long i = 0; i < few; i++)
        operation(i);
    double each = (MPI_Wtime() - start) / few;
    if (times * each > 1)
        times = 1 / each > few ? (long)(1 / each) : few;
    MPI_Bcast(&times, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    for (long i = -times / 10; i < times; i++) {
        if (i == 0)
            start = MPI_Wtime();
        operation(i + times);
    }
    tell(row, (MPI_Wtime() - start) * 1e6 / times);
}

static void collectives(void) {
    repeat(ranks == 2 ? "barrier" : "barrier-4", barrier);
    repeat(ranks == 2 ? "allreduce" : "allreduce-4", allreduce);
    repeat(ranks == 2 ? "broadcast" : "broadcast-4", broadcast);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1)
        divisor = atol(argv[1]);
    if (divisor < 1 || (ranks != 2 && ranks != 4)) {
        fprintf(stderr, "usage: %s DIVISOR, with 2 or 4 ranks\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    block = malloc(LARGEST);
    memset(block, 2, LARGEST);
    if (ranks == 2) {
        round_trip();
        long windows = count(20000);
        tell("rate", windows * WINDOW / stream(8, windows, WINDOW) / 1e6);
        windows = count(1000);
        tell("stream-64k", windows * 16 * 65536.0 / stream(65536, windows, 16) / 1e9);
        windows = count(300);
        tell("stream-1m", windows * 4 * (double)LARGEST / stream(LARGEST, windows, 4) / 1e9);
        one_sided();
        random_access();
    }
    collectives();
    MPI_Finalize();
    free(block);
    return 0;
}
