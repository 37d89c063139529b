/* Two SRD queue pairs of one process; the first writes to the memory of the second, more often than its send queue is long.
 *
 *   full_queue hurry|patient|short|long
 *
 * "hurry" takes a full send queue (ENOMEM of ibv_wr_complete) for fatal; "patient" polls the completion queue and posts again.
 * "short" and "long" post a send queue full of writes and look at the completions a second later, which fit the completion queue
 * or do not. */
#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 128, LENGTH = 4096, QKEY = 0x1234, WAIT_S = 20 };

static void fail(const char *what)
{
    printf("failed: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp *make_queue_pair(void)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_DRIVER,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
    };
    struct efadv_qp_init_attr efa = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
    struct ibv_qp *qp = efadv_create_qp_ex(context, &init, &efa, sizeof efa);
    if (!qp)
        fail("efadv_create_qp_ex");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
        fail("to INIT");
    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
        fail("to RTR");
    attr.qp_state = IBV_QPS_RTS;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
        fail("to RTS");
    return qp;
}

/* Takes completions. How many there were. */
static int take(void)
{
    struct ibv_wc done[32];
    int count = ibv_poll_cq(cq, 32, done);
    for (int i = 0; i < count; i++)
        if (done[i].status != IBV_WC_SUCCESS) {
            printf("failed: a write completed with status %d\n", done[i].status);
            exit(1);
        }
    return count;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    int patient = !strcmp(mode, "patient"), lazy = !strcmp(mode, "short") || !strcmp(mode, "long");
    if (!patient && !lazy && strcmp(mode, "hurry")) {
        fprintf(stderr, "usage: full_queue hurry|patient|short|long\n");
        return 2;
    }
    int writes = lazy ? DEPTH : 1000;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    if (!devices || !devices[0] || !(context = ibv_open_device(devices[0])))
        fail("no device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, strcmp(mode, "short") ? DEPTH : DEPTH / 4, NULL, NULL, 0);
    char *memory = aligned_alloc(4096, 2 * LENGTH);
    memset(memory, 1, LENGTH);
    memset(memory + LENGTH, 0, LENGTH);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    union ibv_gid gid;
    if (!pd || !cq || !mr || ibv_query_gid(context, 1, 0, &gid))
        fail("objects");
    struct ibv_qp *first = make_queue_pair(), *second = make_queue_pair();
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    if (!ah)
        fail("ibv_create_ah");
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(first);

    int posted = 0, completed = 0, refused = 0;
    time_t end = time(NULL) + (lazy ? 3 : WAIT_S);
    while (completed < writes && time(NULL) < end) {
        if (posted == writes) {
            if (lazy && !completed)
                sleep(1);
            completed += take();
            continue;
        }
        ibv_wr_start(qp);
        qp->wr_id = posted;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + LENGTH);
        ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, LENGTH);
        ibv_wr_set_ud_addr(qp, ah, second->qp_num, QKEY);
        int error = ibv_wr_complete(qp);
        if (!error) {
            posted++;
        } else if (error == ENOMEM && patient) {
            refused++;
            completed += take();
        } else {
            errno = error;
            printf("after %d writes: ", posted);
            fail("ibv_wr_complete");
        }
    }
    int same = !memcmp(memory, memory + LENGTH, LENGTH);
    printf("%d of %d writes completed; the send queue was full %d times; the memory is %s\n", completed, writes, refused,
           same ? "the same" : "different");
    return completed < writes || !same;
}
