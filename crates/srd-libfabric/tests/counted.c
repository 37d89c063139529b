/* What peers do to memory is counted where it lies (FI_RMA_EVENT): both ends in one process, each with a domain of its own.
 *
 *   counted mr|endpoint|late own|provider
 *
 * Counters are bound to the registration, to the endpoint, or to the endpoint once that is enabled; keys are the program's
 * own or the provider's. What is counted must be there when the counter says so, and each operation counts once. libfabric's
 * `sockets` passes with counters of the endpoint, but for atomic operations that fetch: it counts those as writes. */

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM (1 << 20)
#define PATIENCE_MS 60000

#define MUST(call) must(call, #call, __LINE__)

static void must(long code, const char *what, int line)
{
	if (code < 0) {
		fprintf(stderr, "line %d: %s: %s\n", line, what, fi_strerror((int)-code));
		exit(1);
	}
}

/* What posts may have to wait for room, or for a connection. */
#define POST(call)                                                                            \
	do {                                                                                  \
		long code_;                                                                   \
		while ((code_ = (call)) == -FI_EAGAIN)                                        \
			usleep(1000);                                                         \
		must(code_, #call, __LINE__);                                                 \
		posted++;                                                                     \
	} while (0)

#define CHECK(holds, ...)                                                                     \
	do {                                                                                  \
		if (!(holds)) {                                                               \
			fprintf(stderr, "line %d: ", __LINE__);                               \
			fprintf(stderr, __VA_ARGS__);                                         \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

struct end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
};

static struct fid_cntr *counter(struct end *end)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *made;
	MUST(fi_cntr_open(end->domain, &attr, &made, NULL));
	return made;
}

static void open_end(struct end *end, int mr_mode)
{
	struct fi_info *hints = fi_allocinfo();
	hints->caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = mr_mode;
	hints->fabric_attr->prov_name = strdup("srd");
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &end->info));
	fi_freeinfo(hints);
	CHECK(end->info->caps & FI_RMA_EVENT, "FI_RMA_EVENT is asked for and not there\n");
	MUST(fi_fabric(end->info->fabric_attr, &end->fabric, NULL));
	MUST(fi_domain(end->fabric, end->info, &end->domain, NULL));
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	MUST(fi_av_open(end->domain, &av, &end->av, NULL));
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE};
	MUST(fi_cq_open(end->domain, &cq, &end->cq, NULL));
	MUST(fi_endpoint(end->domain, end->info, &end->ep, NULL));
	MUST(fi_ep_bind(end->ep, &end->av->fid, 0));
	MUST(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
}

static fi_addr_t acquaint(struct end *here, struct end *there)
{
	char name[64];
	size_t len = sizeof name;
	fi_addr_t addr;
	MUST(fi_getname(&there->ep->fid, name, &len));
	CHECK(fi_av_insert(here->av, name, 1, &addr, 0, NULL) == 1, "fi_av_insert\n");
	return addr;
}

/* The initiator's program polls all the time: what is counted must not wait for anything else of it. */
static atomic_int completed;
static atomic_bool over;

static void *poll_initiator(void *queue)
{
	while (!over) {
		struct fi_cq_data_entry entry;
		ssize_t got = fi_cq_read(queue, &entry, 1);
		if (got == 1)
			completed++;
		else if (got == -FI_EAVAIL) {
			struct fi_cq_err_entry error = {0};
			fi_cq_readerr(queue, &error, 0);
			CHECK(0, "completed with error %d\n", error.err);
		}
	}
	return NULL;
}

/* Of operations, at the initiator. */
static int posted;

static struct end initiator, target;
static struct fid_cntr *reads, *writes;
static uint64_t read_count, write_count;

/* Until so much is counted, and not more. */
static void wait_for(struct fid_cntr *counter, uint64_t count, const char *what, size_t len)
{
	int code = fi_cntr_wait(counter, count, PATIENCE_MS);
	CHECK(code == 0, "%s of %zu: fi_cntr_wait for %lu: %s; it is at %lu\n", what, len, count, fi_strerror(-code),
	      fi_cntr_read(counter));
}

static void settle(int milliseconds)
{
	for (int i = 0; completed < posted; i++) {
		CHECK(i < PATIENCE_MS, "%d of %d operations are complete\n", (int)completed, posted);
		usleep(1000);
	}
	/* Whatever would be counted twice has come by then. */
	for (int i = 0; i < milliseconds; i++) {
		fi_cntr_read(reads);
		usleep(1000);
	}
	CHECK(fi_cntr_read(reads) == read_count && fi_cntr_read(writes) == write_count,
	      "%lu reads and %lu writes are counted, of %lu and %lu\n", fi_cntr_read(reads), fi_cntr_read(writes),
	      read_count, write_count);
	CHECK(fi_cntr_readerr(reads) == 0 && fi_cntr_readerr(writes) == 0, "errors are counted\n");
}

static void fill(char *bytes, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)(i * 31 + i / 251 + seed * 17);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3, "usage: counted mr|endpoint|late own|provider\n");
	const char *where = argv[1];
	int keys_of_provider = strcmp(argv[2], "provider") == 0;
	int mr_mode = keys_of_provider ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY : 0;

	open_end(&target, mr_mode);
	open_end(&initiator, mr_mode);
	reads = counter(&target);
	writes = counter(&target);
	if (strcmp(where, "endpoint") == 0) {
		MUST(fi_ep_bind(target.ep, &reads->fid, FI_REMOTE_READ));
		MUST(fi_ep_bind(target.ep, &writes->fid, FI_REMOTE_WRITE));
	}
	MUST(fi_enable(target.ep));
	MUST(fi_enable(initiator.ep));
	struct fid_cntr *done = counter(&initiator);
	if (strcmp(where, "late") == 0) {
		MUST(fi_ep_bind(target.ep, &reads->fid, FI_REMOTE_READ));
		MUST(fi_ep_bind(target.ep, &writes->fid, FI_REMOTE_WRITE));
		MUST(fi_ep_bind(initiator.ep, &done->fid, FI_WRITE));
	}

	char *there = calloc(1, ROOM), *here = malloc(ROOM), *back = malloc(ROOM);
	struct fid_mr *mr;
	int of_region = strcmp(where, "mr") == 0;
	MUST(fi_mr_reg(target.domain, there, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, of_region ? FI_RMA_EVENT : 0, &mr,
		       NULL));
	if (of_region) {
		MUST(fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ));
		MUST(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE));
		MUST(fi_mr_enable(mr));
	}
	uint64_t key = fi_mr_key(mr), base = keys_of_provider ? (uint64_t)there : 0;
	fi_addr_t to = acquaint(&initiator, &target);
	acquaint(&target, &initiator);
	pthread_t poller;
	pthread_create(&poller, NULL, poll_initiator, initiator.cq);

	static const size_t lengths[] = {8, 4096, 8000, 9000, 100000, ROOM};
	for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
		size_t len = lengths[i];
		fill(here, len, i);
		POST(fi_write(initiator.ep, here, len, NULL, to, base, key, NULL));
		wait_for(writes, ++write_count, "write", len);
		CHECK(memcmp(here, there, len) == 0, "a write of %zu is counted and not there\n", len);
		settle(2);

		POST(fi_read(initiator.ep, back, len, NULL, to, base, key, NULL));
		wait_for(reads, ++read_count, "read", len);
		settle(2);
		CHECK(memcmp(there, back, len) == 0, "what was read is not what is there\n");

		/* Several pieces are one operation. */
		fill(here, len, i + 100);
		struct iovec pieces[] = {{here, len / 2}, {here + len / 2, len - len / 2}};
		struct fi_rma_iov remote = {.addr = base, .len = len, .key = key};
		struct fi_msg_rma msg = {
			.msg_iov = pieces, .iov_count = 2, .addr = to, .rma_iov = &remote, .rma_iov_count = 1};
		POST(fi_writemsg(initiator.ep, &msg, FI_COMPLETION));
		wait_for(writes, ++write_count, "write in two pieces", len);
		CHECK(memcmp(here, there, len) == 0, "a write of %zu in two pieces is counted and not there\n", len);
		settle(2);

		fill(here, len, i + 200);
		POST(fi_writedata(initiator.ep, here, len, NULL, 0x5EED + i, to, base, key, NULL));
		wait_for(writes, ++write_count, "write with data", len);
		CHECK(memcmp(here, there, len) == 0, "a write of %zu with data is counted and not there\n", len);
		struct fi_cq_data_entry entry;
		while (fi_cq_read(target.cq, &entry, 1) != 1)
			;
		CHECK(entry.data == 0x5EEDu + i && entry.flags & FI_REMOTE_WRITE, "the data is %lx\n", entry.data);
		settle(2);
		CHECK(fi_cq_read(target.cq, &entry, 1) == -FI_EAGAIN, "something else is reported to the target\n");
	}

	uint64_t one = 1, before, *word = (uint64_t *)there;
	*word = 41;
	POST(fi_atomic(initiator.ep, &one, 1, NULL, to, base, key, FI_UINT64, FI_SUM, NULL));
	wait_for(writes, ++write_count, "atomic", 8);
	CHECK(*word == 42, "an atomic operation is counted and not there\n");
	settle(2);
	POST(fi_fetch_atomic(initiator.ep, &one, 1, NULL, &before, NULL, to, base, key, FI_UINT64, FI_SUM, NULL));
	/* fi_endpoint(3): what fetches is a read; fi_mr(3): what changes a region is a write. */
	if (of_region)
		wait_for(writes, ++write_count, "atomic that fetches", 8);
	else
		wait_for(reads, ++read_count, "atomic that fetches", 8);
	CHECK(*word == 43, "an atomic operation is counted and not there\n");
	settle(2);
	CHECK(before == 42, "it has fetched %lu\n", before);
	if (strcmp(where, "late") == 0)
		wait_for(done, write_count, "own write", 0);

	settle(50);
	over = 1;
	pthread_join(poller, NULL);
	/* A counter that something counts in cannot be closed. */
	CHECK(fi_close(&writes->fid) == -FI_EBUSY, "a counter in use is closed\n");
	MUST(fi_close(&mr->fid));
	MUST(fi_close(&target.ep->fid));
	MUST(fi_close(&initiator.ep->fid));
	struct fid *rest[] = {&reads->fid, &writes->fid, &done->fid, &target.cq->fid, &target.av->fid, &initiator.cq->fid,
			      &initiator.av->fid, &target.domain->fid, &initiator.domain->fid, &target.fabric->fid,
			      &initiator.fabric->fid};
	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
		MUST(fi_close(rest[i]));
	puts("counted: ok");
	return 0;
}
