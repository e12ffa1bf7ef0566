/* The rows of `cargo bench --bench peers` on UCX's protocol layer: tagged messages, active messages (of RandomAccess) and one-sided access
 * between two processes, which
 * this program starts itself. Rank 0 prints a line for each row: its name and the value, in the unit that the bench has for the row.
 * The argument divides all counts (1 for figures). */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <signal.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { WINDOW = 64, LARGEST = 1 << 20 };

static int rank, link_to_other;
static long divisor = 1;
static char *block;
static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;

static void check(ucs_status_t status, const char *what) {
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
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

static void all(ssize_t done, size_t wanted) {
    if (done != (ssize_t)wanted) {
        fprintf(stderr, "the other process is gone\n");
        exit(1);
    }
}

/* What the other process calls with at the same time. */
static void *exchange(const void *own, size_t len) {
    size_t theirs;
    all(write(link_to_other, &len, sizeof len), sizeof len);
    all(write(link_to_other, own, len), len);
    all(recv(link_to_other, &theirs, sizeof theirs, MSG_WAITALL), sizeof theirs);
    void *found = malloc(theirs);
    all(recv(link_to_other, found, theirs, MSG_WAITALL), theirs);
    return found;
}

static void finish(ucs_status_ptr_t request, const char *what) {
    if (request == NULL)
        return;
    if (UCS_PTR_IS_ERR(request))
        check(UCS_PTR_STATUS(request), what);
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    check(status, what);
    ucp_request_free(request);
}

static const ucp_request_param_t plain;

static ucs_status_ptr_t send_to(size_t len, ucp_tag_t tag) {
    return ucp_tag_send_nbx(endpoint, block, len, tag, &plain);
}

static ucs_status_ptr_t receive(size_t len, ucp_tag_t tag) {
    return ucp_tag_recv_nbx(worker, block, len, tag, ~(ucp_tag_t)0, &plain);
}

static void meet(void) {
    ucs_status_ptr_t out = send_to(0, 9);
    finish(receive(0, 9), "meeting");
    finish(out, "meeting");
}

/* Microseconds of a message of eight bytes there and one back. */
static void round_trip(void) {
    long trips = count(200000);
    double start = 0;
    for (long trip = -trips / 10; trip < trips; trip++) {
        if (trip == 0) {
            meet();
            start = now();
        }
        if (rank == 0)
            finish(send_to(8, 1), "sending");
        finish(receive(8, 1), "receiving");
        if (rank == 1)
            finish(send_to(8, 1), "sending");
    }
    tell("round-trip", (now() - start) * 1e6 / trips);
}

/* Seconds of `windows` windows of messages one way, each window answered by an empty message. */
static double stream(size_t bytes, long windows, int window) {
    ucs_status_ptr_t requests[WINDOW];
    double start = 0;
    for (long done = -1 - windows / 10; done < windows; done++) {
        if (done == 0) {
            meet();
            start = now();
        }
        for (int i = 0; i < window; i++)
            requests[i] = rank == 0 ? send_to(bytes, 2) : receive(bytes, 2);
        for (int i = 0; i < window; i++)
            finish(requests[i], "streaming");
        finish(rank == 0 ? receive(0, 3) : send_to(0, 3), "answering");
    }
    return now() - start;
}

/* Nanoseconds of a put, or get, of eight bytes that is done at the target before the next begins; and large puts. */
static void one_sided(void) {
    ucp_mem_map_params_t wanted = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = LARGEST,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_h memory;
    check(ucp_mem_map(context, &wanted, &memory), "mapping memory");
    ucp_mem_attr_t known = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    check(ucp_mem_query(memory, &known), "asking for an address");
    memset(known.address, 1, LARGEST);
    uint64_t own = (uintptr_t)known.address, *theirs = exchange(&own, sizeof own);
    void *packed, *their_key;
    size_t len;
    check(ucp_rkey_pack(context, memory, &packed, &len), "packing a key");
    their_key = exchange(packed, len);
    ucp_rkey_h key;
    check(ucp_ep_rkey_unpack(endpoint, their_key, &key), "unpacking a key");
    if (rank == 0) {
        long times = count(500000);
        for (int get = 0; get < 2; get++) {
            double start = 0;
            for (long i = -times / 10; i < times; i++) {
                if (i == 0)
                    start = now();
                uint64_t at = *theirs + (i & 1023) * 8;
                if (get) {
                    finish(ucp_get_nbx(endpoint, block, 8, at, key, &plain), "getting");
                } else {
                    finish(ucp_put_nbx(endpoint, block, 8, at, key, &plain), "putting");
                    finish(ucp_ep_flush_nbx(endpoint, &plain), "flushing");
                }
            }
            tell(get ? "get" : "put", (now() - start) * 1e9 / times);
        }
        long blocks = count(2000);
        double start = 0;
        for (long i = -blocks / 10; i < blocks; i++) {
            if (i == 0)
                start = now();
            finish(ucp_put_nbx(endpoint, block, LARGEST, *theirs, key, &plain), "putting");
            finish(ucp_ep_flush_nbx(endpoint, &plain), "flushing");
        }
        tell("put-1m", (double)blocks * LARGEST / (now() - start) / 1e9);
    }
    meet();
    ucp_rkey_destroy(key);
    ucp_rkey_buffer_release(packed);
    ucp_mem_unmap(context, memory);
    free(theirs);
    free(their_key);
}

#include "random_access.h"

/* Kinds of active messages of RandomAccess, and sends that may be under way. */
enum { UPDATES = 1, LAST, SENDS = 64 };

static uint64_t ra_out[SENDS][RA_HELD];
static ucs_status_ptr_t ra_sends[SENDS];
static int ra_turn, ra_ended;
/* Updates sent, taken, and those that the other rank has sent. */
static uint64_t ra_sent, ra_taken, ra_theirs;

static ucs_status_t updates_arrive(void *unused, const void *header, size_t header_len, void *data, size_t len,
                                   const ucp_am_recv_param_t *param) {
    (void)unused, (void)header, (void)header_len, (void)param;
    ra_take(data, (int)(len / sizeof(uint64_t)));
    ra_taken += len / sizeof(uint64_t);
    return UCS_OK;
}

static ucs_status_t last_arrives(void *unused, const void *header, size_t header_len, void *data, size_t len,
                                 const ucp_am_recv_param_t *param) {
    (void)unused, (void)data, (void)len, (void)param, (void)header_len;
    memcpy(&ra_theirs, header, sizeof ra_theirs);
    ra_ended++;
    return UCS_OK;
}

static void ra_handle(unsigned kind, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
        .id = kind,
        .cb = callback,
    };
    check(ucp_worker_set_am_recv_handler(worker, &handler), "setting a handler");
}

static const ucp_request_param_t eager = {
    .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
    .flags = UCP_AM_SEND_FLAG_EAGER,
};

static void ra_poll(void) {
    while (ucp_worker_progress(worker) != 0)
        ;
}

static void ra_prepare(int buckets) {
    (void)buckets;
}

static uint64_t *ra_room(void) {
    ra_turn = (ra_turn + 1) % SENDS;
    finish(ra_sends[ra_turn], "sending updates");
    ra_sends[ra_turn] = NULL;
    return ra_out[ra_turn];
}

static void ra_send(const uint64_t *values, int length) {
    ra_sends[ra_turn] = ucp_am_send_nbx(endpoint, UPDATES, NULL, 0, values, length * sizeof *values, &eager);
    ra_sent += length;
}

static void ra_send_one(uint64_t value) {
    uint64_t *room = ra_room();
    *room = value;
    ra_send(room, 1);
}

static void ra_end(void) {
    uint64_t sent = ra_sent;
    finish(ucp_am_send_nbx(endpoint, LAST, &sent, sizeof sent, NULL, 0, &eager), "ending");
    while (ra_ended == 0 || ra_taken < ra_theirs)
        ucp_worker_progress(worker);
    ra_ended--;
}

static void random_access(void) {
    ra_handle(UPDATES, updates_arrive);
    ra_handle(LAST, last_arrives);
    meet();
    ra_rows();
    for (int i = 0; i < SENDS; i++)
        finish(ra_sends[i], "sending updates");
}

int main(int argc, char **argv) {
    divisor = argc == 2 ? atol(argv[1]) : 0;
    if (divisor < 1) {
        fprintf(stderr, "usage: %s DIVISOR\n", argv[0]);
        return 2;
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        perror("socketpair");
        return 1;
    }
    pid_t child = fork();
    rank = child == 0;
    link_to_other = ends[rank];
    close(ends[1 - rank]);
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    block = malloc(LARGEST);
    memset(block, 2, LARGEST);

    ucp_params_t features = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM};
    check(ucp_init(&features, NULL, &context), "starting UCX");
    ucp_worker_params_t single = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    check(ucp_worker_create(context, &single, &worker), "making a worker");
    ucp_address_t *address;
    size_t len;
    check(ucp_worker_get_address(worker, &address, &len), "asking for an address");
    ucp_ep_params_t other = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = exchange(address, len)};
    check(ucp_ep_create(worker, &other, &endpoint), "connecting");

    round_trip();
    long windows = count(20000);
    tell("rate", windows * WINDOW / stream(8, windows, WINDOW) / 1e6);
    windows = count(1000);
    tell("stream-64k", windows * 16 * 65536.0 / stream(65536, windows, 16) / 1e9);
    windows = count(300);
    tell("stream-1m", windows * 4 * (double)LARGEST / stream(LARGEST, windows, 4) / 1e9);
    one_sided();
    random_access();

    meet();
    // Closing by force is for endpoints that handle errors of peers; this one flushes, and nothing is under way.
    const ucp_request_param_t flushed = {.op_attr_mask = 0};
    finish(ucp_ep_close_nbx(endpoint, &flushed), "closing");
    free(exchange("", 1));
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    if (rank == 1)
        return 0;
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
