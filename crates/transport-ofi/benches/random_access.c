/* HPCC RandomAccess with buckets as an MPI program, for the comparison with `--example random_access --variant
 * medium` over the same provider. Each rank gathers its updates for each destination and sends them when there
 * are 1024 / ranks of them, so that at most 1024 wait in all, the look-ahead that the HPCC rules allow; receives
 * are posted beforehand, and sends overlap with the next updates.
 *
 *   mpicc -O3 -march=native random_access.c -o random_access_mpi
 *   mpirun -n 2 --mca pml ob1 --mca btl tcp,self ./random_access_mpi LOG2_TABLE UPDATES
 *   mpirun -n 2 --mca pml cm --mca mtl ofi \
 *     --mca mtl_ofi_provider_include 'tcp;ofi_rxm' ./random_access_mpi LOG2_TABLE UPDATES */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_AHEAD = 1024, POSTED = 8, TAG = 1, END = 2 };

static int rank, ranks;
static uint64_t *table, words;
static int ended;
static uint64_t (*incoming)[LOOK_AHEAD];
static MPI_Request receives[POSTED];

static uint64_t next(uint64_t x) {
    return (x << 1) ^ ((int64_t)x < 0 ? 7 : 0);
}

/* The sample of this number of the HPCC stream. */
static uint64_t start(int64_t n) {
    uint64_t m2[64], x = 1, r = 2;
    int i, j;
    if (n == 0)
        return 1;
    for (i = 0; i < 64; i++) {
        m2[i] = x;
        x = next(next(x));
    }
    for (i = 62; i >= 0 && !((n >> i) & 1); i--)
        ;
    while (i > 0) {
        uint64_t sum = 0;
        for (j = 0; j < 64; j++)
            if ((r >> j) & 1)
                sum ^= m2[j];
        r = sum;
        i--;
        if ((n >> i) & 1)
            r = next(r);
    }
    return r;
}

static void apply(const uint64_t *values, int count) {
    for (int i = 0; i < count; i++)
        table[values[i] & (words - 1)] ^= values[i];
}

static void post(int which) {
    MPI_Irecv(incoming[which], LOOK_AHEAD, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
              &receives[which]);
}

static void serve(void) {
    int which, flag, count;
    MPI_Status status;
    for (;;) {
        MPI_Testany(POSTED, receives, &which, &flag, &status);
        if (!flag || which == MPI_UNDEFINED)
            return;
        MPI_Get_count(&status, MPI_UINT64_T, &count);
        apply(incoming[which], count);
        ended += status.MPI_TAG == END;
        post(which);
    }
}

/* Upper bits of an update say which rank it belongs to, lower ones which word there: the table is a power of two. */
static double run(uint64_t updates) {
    int most = LOOK_AHEAD / ranks;
    uint64_t (*buckets)[2][LOOK_AHEAD] = malloc(ranks * sizeof *buckets);
    int *filled = calloc(ranks, sizeof *filled), *turn = calloc(ranks, sizeof *turn), flag;
    MPI_Request (*sends)[2] = malloc(ranks * sizeof *sends);
    for (int to = 0; to < ranks; to++)
        sends[to][0] = sends[to][1] = MPI_REQUEST_NULL;
    ended = 0;
    int bits = 0;
    while ((words >> bits) > 1)
        bits++;
    uint64_t x = start((int64_t)(updates / ranks) * rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (uint64_t i = 0; i < updates / ranks; i++) {
        x = next(x);
        int to = (x >> bits) & (ranks - 1);
        if (to == rank) {
            table[x & (words - 1)] ^= x;
            continue;
        }
        buckets[to][turn[to]][filled[to]++] = x;
        if (filled[to] == most) {
            MPI_Isend(buckets[to][turn[to]], most, MPI_UINT64_T, to, TAG, MPI_COMM_WORLD, &sends[to][turn[to]]);
            filled[to] = 0;
            turn[to] ^= 1;
            do {
                serve();
                MPI_Test(&sends[to][turn[to]], &flag, MPI_STATUS_IGNORE);
            } while (!flag);
        }
    }
    for (int to = 0; to < ranks; to++)
        if (to != rank)
            MPI_Isend(buckets[to][turn[to]], filled[to], MPI_UINT64_T, to, END, MPI_COMM_WORLD,
                      &sends[to][turn[to]]);
    while (ended < ranks - 1)
        serve();
    MPI_Waitall(2 * ranks, &sends[0][0], MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - began;
    free(buckets);
    free(filled);
    free(turn);
    free(sends);
    return took;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || (ranks & (ranks - 1))) {
        fprintf(stderr, "random_access_mpi LOG2_TABLE UPDATES, with a power of two of ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    words = (UINT64_C(1) << atoi(argv[1])) / ranks;
    uint64_t updates = strtoull(argv[2], NULL, 10), wrong = 0, all;
    table = malloc(words * sizeof *table);
    for (uint64_t i = 0; i < words; i++)
        table[i] = rank * words + i;
    incoming = malloc(POSTED * sizeof *incoming);
    for (int i = 0; i < POSTED; i++)
        post(i);
    double took = run(updates);
    /* The same updates again undo them. */
    run(updates);
    for (uint64_t i = 0; i < words; i++)
        wrong += table[i] != rank * words + i;
    MPI_Reduce(&wrong, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.2f million updates per second, %llu words wrong\n", updates / took * 1e-6,
               (unsigned long long)all);
    for (int i = 0; i < POSTED; i++) {
        MPI_Cancel(&receives[i]);
        MPI_Request_free(&receives[i]);
    }
    MPI_Finalize();
    return all != 0;
}
