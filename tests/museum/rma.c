/* Two endpoints of libfabric's efa provider in one process; the first reads from, or writes to, the memory of the second.
 *
 *   rma read API_MINOR          ten reads, by a program that asks for libfabric's API 1.API_MINOR
 *   rma more COUNT open|closed  COUNT writes with immediate data, each with FI_MORE; "closed": but for the last
 *
 * Prints "done" and how many of them the other side has seen, or what went wrong. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(call)                                                                   \
    do {                                                                              \
        int ret = (call);                                                             \
        if (ret) {                                                                    \
            fprintf(stderr, "%s: %s\n", #call, fi_strerror(-ret));                    \
            exit(2);                                                                  \
        }                                                                             \
    } while (0)

enum { LENGTH = 4096, MOST = 64, WAIT_S = 3 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_mr *mr;
    char *memory;
    fi_addr_t other;
};

static void open_side(struct side *side)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .size = 1024};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    CHECK(fi_cq_open(domain, &cq, &side->cq, NULL));
    CHECK(fi_av_open(domain, &av, &side->av, NULL));
    CHECK(fi_endpoint(domain, info, &side->ep, NULL));
    CHECK(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
    CHECK(fi_ep_bind(side->ep, &side->av->fid, 0));
    CHECK(fi_enable(side->ep));
    side->memory = aligned_alloc(4096, MOST * LENGTH);
    memset(side->memory, 1, MOST * LENGTH);
    uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
    CHECK(fi_mr_reg(domain, side->memory, MOST * LENGTH, access, 0, 0, 0, &side->mr, NULL));
}

static void introduce(struct side *side, struct side *other)
{
    char name[256];
    size_t length = sizeof name;
    CHECK(fi_getname(&other->ep->fid, name, &length));
    if (fi_av_insert(side->av, name, 1, &side->other, 0, NULL) != 1) {
        fprintf(stderr, "fi_av_insert failed\n");
        exit(2);
    }
}

/* Takes completions of a side. How many had that flag. */
static int take(struct side *side, uint64_t flag)
{
    struct fi_cq_data_entry entries[16];
    ssize_t got = fi_cq_read(side->cq, entries, 16);
    if (got == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(side->cq, &error, 0);
        printf("failed: %s (%d)\n", fi_strerror(error.err), error.prov_errno);
        exit(1);
    }
    int count = 0;
    for (ssize_t i = 0; i < got; i++)
        count += (entries[i].flags & flag) != 0;
    return count;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int reads = argc == 3 && !strcmp(argv[1], "read");
    if (!reads && !(argc == 4 && !strcmp(argv[1], "more"))) {
        fprintf(stderr, "usage: rma read API_MINOR | rma more COUNT open|closed\n");
        return 2;
    }
    int count = reads ? 10 : atoi(argv[2]);
    struct fi_info *hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("efa");
    CHECK(fi_getinfo(FI_VERSION(1, reads ? atoi(argv[2]) : 18), NULL, NULL, 0, hints, &info));
    CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK(fi_domain(fabric, info, &domain, NULL));
    static struct side a, b;
    open_side(&a);
    open_side(&b);
    introduce(&a, &b);
    introduce(&b, &a);

    static struct fi_context contexts[MOST];
    int seen = 0, completed = 0;
    for (int i = 0; i < count; i++) {
        struct iovec local = {a.memory + i * LENGTH, LENGTH};
        void *desc = fi_mr_desc(a.mr);
        struct fi_rma_iov remote = {(uint64_t)(b.memory + i * LENGTH), LENGTH, fi_mr_key(b.mr)};
        struct fi_msg_rma message = {
            .msg_iov = &local, .desc = &desc, .iov_count = 1, .addr = a.other, .rma_iov = &remote, .rma_iov_count = 1,
            .context = &contexts[i], .data = i + 1,
        };
        int last = i == count - 1;
        uint64_t more = reads || (last && !strcmp(argv[3], "closed")) ? 0 : FI_MORE;
        ssize_t ret;
        do {
            ret = reads ? fi_readmsg(a.ep, &message, FI_COMPLETION)
                        : fi_writemsg(a.ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA | more);
            /* Until the peers know each other, and only then: who looks at the queue of completions closes what is open. */
            if (ret == -FI_EAGAIN) {
                completed += take(&a, FI_READ | FI_WRITE);
                seen += take(&b, FI_REMOTE_CQ_DATA);
            }
        } while (ret == -FI_EAGAIN);
        CHECK((int)ret);
    }
    double end = now() + WAIT_S;
    while ((completed < count || (!reads && seen < count)) && now() < end) {
        completed += take(&a, FI_READ | FI_WRITE);
        seen += take(&b, FI_REMOTE_CQ_DATA);
    }
    printf("done: %d of %d completed, %d seen by the other side\n", completed, count, seen);
    return completed < count || (!reads && seen < count);
}
