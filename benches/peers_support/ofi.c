/* The rows of `cargo bench --bench peers` on libfabric's provider for shared memory: messages and one-sided access between two
 * processes, which this program starts itself. Rank 0 prints a line for each row: its name and the value, in the unit that the bench
 * has for the row. The argument divides all counts (1 for figures). */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, LARGEST = 1 << 20 };

static int rank, link_to_other;
static long divisor = 1;
static char *block, *window_of_memory;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *addresses;
static struct fid_cq *sent, *received;
static struct fid_ep *endpoint;
static struct fid_mr *registered, *open_to_other;
static void *descriptor;
static fi_addr_t other;

static void check(ssize_t status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-status));
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
static void exchange(const void *own, void *theirs, size_t len) {
    all(write(link_to_other, own, len), len);
    all(recv(link_to_other, theirs, len, MSG_WAITALL), len);
}

/* Completions of one queue that are there now, and have not been waited for. */
struct finished {
    struct fid_cq *queue;
    long there;
};

static struct finished sends, receives;

static void look(struct finished *of) {
    struct fi_cq_entry entries[WINDOW];
    ssize_t found = fi_cq_read(of->queue, entries, WINDOW);
    if (found == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(of->queue, &error, 0);
        check(-error.err, "a completion");
    }
    if (found != -FI_EAGAIN) {
        check(found, "reading completions");
        of->there += found;
    }
}

static void wait_for(struct finished *of, long completions) {
    while (of->there < completions) {
        look(of);
        /* Some providers move one queue's operations only when the other one is read. */
        if (of->there < completions)
            look(of == &sends ? &receives : &sends);
    }
    of->there -= completions;
}

/* Begins an operation, as often as the provider is busy. */
#define BEGIN(operation, what)                        \
    do {                                              \
        ssize_t status_;                              \
        while ((status_ = (operation)) == -FI_EAGAIN) { \
            look(&sends);                             \
            look(&receives);                          \
        }                                             \
        check(status_, what);                         \
    } while (0)

/* A message that leaves no completion, where it is small enough. */
static long send_to(size_t len) {
    if (len <= info->tx_attr->inject_size) {
        BEGIN(fi_inject(endpoint, block, len, other), "sending");
        return 0;
    }
    BEGIN(fi_send(endpoint, block, len, descriptor, other, NULL), "sending");
    return 1;
}

static void receive(size_t len) {
    BEGIN(fi_recv(endpoint, block, len, descriptor, FI_ADDR_UNSPEC, NULL), "receiving");
}

static void meet(void) {
    receive(8);
    wait_for(&sends, send_to(8));
    wait_for(&receives, 1);
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
        receive(8);
        if (rank == 0)
            wait_for(&sends, send_to(8));
        wait_for(&receives, 1);
        if (rank == 1)
            wait_for(&sends, send_to(8));
    }
    tell("round-trip", (now() - start) * 1e6 / trips);
}

/* Seconds of `windows` windows of messages one way, each window answered by a small message. */
static double stream(size_t bytes, long windows, int window) {
    double start = 0;
    for (long done = -1 - windows / 10; done < windows; done++) {
        if (done == 0) {
            meet();
            start = now();
        }
        if (rank == 0) {
            receive(8);
            long owed = 0;
            for (int i = 0; i < window; i++)
                owed += send_to(bytes);
            wait_for(&sends, owed);
            wait_for(&receives, 1);
        } else {
            for (int i = 0; i < window; i++)
                receive(bytes);
            wait_for(&receives, window);
            wait_for(&sends, send_to(8));
        }
    }
    return now() - start;
}

/* Nanoseconds of a put, or get, of eight bytes that is done at the target before the next begins; and large puts. */
static void one_sided(void) {
    struct place {
        uint64_t address, key;
    } own = {0, fi_mr_key(open_to_other)}, theirs;
    if (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        own.address = (uintptr_t)window_of_memory;
    exchange(&own, &theirs, sizeof own);
    if (rank == 0) {
        struct iovec from = {.iov_base = block, .iov_len = 8};
        struct fi_rma_iov to = {.len = 8, .key = theirs.key};
        struct fi_msg_rma put = {
            .msg_iov = &from, .desc = &descriptor, .iov_count = 1, .addr = other, .rma_iov = &to, .rma_iov_count = 1};
        long times = count(500000);
        for (int get = 0; get < 2; get++) {
            double start = 0;
            for (long i = -times / 10; i < times; i++) {
                if (i == 0)
                    start = now();
                to.addr = theirs.address + (i & 1023) * 8;
                if (get)
                    BEGIN(fi_read(endpoint, block, 8, descriptor, other, to.addr, theirs.key, NULL), "getting");
                else
                    BEGIN(fi_writemsg(endpoint, &put, FI_DELIVERY_COMPLETE | FI_COMPLETION), "putting");
                wait_for(&sends, 1);
            }
            tell(get ? "get" : "put", (now() - start) * 1e9 / times);
        }
        long blocks = count(2000);
        double start = 0;
        from.iov_len = to.len = LARGEST;
        to.addr = theirs.address;
        for (long i = -blocks / 10; i < blocks; i++) {
            if (i == 0)
                start = now();
            BEGIN(fi_writemsg(endpoint, &put, FI_DELIVERY_COMPLETE | FI_COMPLETION), "putting");
            wait_for(&sends, 1);
        }
        tell("put-1m", (double)blocks * LARGEST / (now() - start) / 1e9);
        /* The other one moves what the provider leaves to the target until it is told. */
        wait_for(&sends, send_to(8));
    } else {
        receive(8);
        wait_for(&receives, 1);
    }
}

static void open_all(void) {
    struct fi_info *wanted = fi_allocinfo();
    wanted->caps = FI_MSG | FI_RMA;
    wanted->mode = FI_CONTEXT;
    wanted->ep_attr->type = FI_EP_RDM;
    wanted->fabric_attr->prov_name = strdup("shm");
    wanted->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    wanted->domain_attr->threading = FI_THREAD_DOMAIN;
    check(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, wanted, &info), "asking for the provider shm");
    fi_freeinfo(wanted);
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "opening a fabric");
    check(fi_domain(fabric, info, &domain, NULL), "opening a domain");
    struct fi_av_attr table = {.type = FI_AV_TABLE, .count = 2};
    check(fi_av_open(domain, &table, &addresses, NULL), "opening addresses");
    struct fi_cq_attr queue = {.size = 4096, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
    check(fi_cq_open(domain, &queue, &sent, NULL), "opening a queue");
    check(fi_cq_open(domain, &queue, &received, NULL), "opening a queue");
    sends.queue = sent;
    receives.queue = received;
    check(fi_endpoint(domain, info, &endpoint, NULL), "opening an endpoint");
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "binding addresses");
    check(fi_ep_bind(endpoint, &sent->fid, FI_TRANSMIT), "binding a queue");
    check(fi_ep_bind(endpoint, &received->fid, FI_RECV), "binding a queue");
    check(fi_enable(endpoint), "enabling an endpoint");
    const uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    check(fi_mr_reg(domain, block, LARGEST, access, 0, 1, 0, &registered, NULL), "registering memory");
    descriptor = fi_mr_desc(registered);
    const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
    check(fi_mr_reg(domain, window_of_memory, LARGEST, remote, 0, 2, 0, &open_to_other, NULL), "registering memory");

    char own[256] = {0}, theirs[256];
    size_t len = sizeof own;
    check(fi_getname(&endpoint->fid, own, &len), "asking for an address");
    exchange(own, theirs, sizeof own);
    if (fi_av_insert(addresses, theirs, 1, &other, 0, NULL) != 1) {
        fprintf(stderr, "the other one's address is not taken\n");
        exit(1);
    }
}

static void close_all(void) {
    fi_close(&open_to_other->fid);
    fi_close(&registered->fid);
    fi_close(&endpoint->fid);
    fi_close(&sent->fid);
    fi_close(&received->fid);
    fi_close(&addresses->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
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
    block = aligned_alloc(4096, LARGEST);
    window_of_memory = aligned_alloc(4096, LARGEST);
    memset(block, 2, LARGEST);
    memset(window_of_memory, 1, LARGEST);
    open_all();

    round_trip();
    long windows = count(20000);
    tell("rate", windows * WINDOW / stream(8, windows, WINDOW) / 1e6);
    windows = count(1000);
    tell("stream-64k", windows * 16 * 65536.0 / stream(65536, windows, 16) / 1e9);
    windows = count(300);
    tell("stream-1m", windows * 4 * (double)LARGEST / stream(LARGEST, windows, 4) / 1e9);
    one_sided();

    char last[1] = {0}, theirs[1];
    exchange(last, theirs, 1);
    close_all();
    if (rank == 1)
        return 0;
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
