/* Tagged messages to and fro between two endpoints of one process, polled by one thread: fi_trecv, fi_tsend, fi_cq_read.
 *
 *   provider NAME ADDRESS LENGTH...
 *
 * NAME: of a libfabric provider. ADDRESS: of the second end; the first is at 127.0.0.1. After the messages of each length polls that find
 * nothing.
 */
#include "../call.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define WARM_UP 300
#define MESSAGES 600
#define POLLS 300
#define ROOM (1 << 20)

struct end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t peer;
	char *buffer;
	long sent, received;
};

static void open_end(struct end *end, const char *provider, const char *address)
{
	struct fi_info *hints = fi_allocinfo();
	hints->caps = FI_TAGGED | FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup(provider);
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	if (!strcmp(provider, "shm"))
		address = NULL; /* it has names of its own */
	DO(fi_getinfo(FI_VERSION(1, 14), address, NULL, address ? FI_SOURCE : 0, hints, &end->info));
	DO(fi_fabric(end->info->fabric_attr, &end->fabric, NULL));
	DO(fi_domain(end->fabric, end->info, &end->domain, NULL));
	DO(fi_endpoint(end->domain, end->info, &end->ep, NULL));
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
	DO(fi_cq_open(end->domain, &cq, &end->cq, NULL));
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	DO(fi_av_open(end->domain, &av, &end->av, NULL));
	DO(fi_ep_bind(end->ep, &end->av->fid, 0));
	DO(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
	DO(fi_enable(end->ep));
	end->buffer = aligned_alloc(4096, 2 * ROOM);
	memset(end->buffer, 1, 2 * ROOM);
	fi_freeinfo(hints);
}

static void meet(struct end *end, struct end *other)
{
	char name[256];
	size_t len = sizeof(name);
	DO(fi_getname(&other->ep->fid, name, &len));
	if (fi_av_insert(end->av, name, 1, &end->peer, 0, NULL) != 1) {
		fprintf(stderr, "the other end's address is refused\n");
		exit(1);
	}
}

static void poll_end(struct end *end)
{
	struct fi_cq_tagged_entry entries[8];
	ssize_t count = fi_cq_read(end->cq, entries, 8);
	if (count == -FI_EAGAIN)
		return;
	DO(count);
	for (ssize_t i = 0; i < count; i++)
		*(entries[i].flags & FI_RECV ? &end->received : &end->sent) += 1;
}

/* A message until its receive has completed. Its send does so with the ACK, which the next message back carries. */
static __attribute__((noinline)) void one_message(struct end *from, struct end *to, size_t len)
{
	long received = to->received + 1;
	ssize_t result;
	while ((result = fi_trecv(to->ep, to->buffer + ROOM, len, NULL, FI_ADDR_UNSPEC, 7, 0, NULL)) == -FI_EAGAIN)
		poll_end(to);
	DO(result);
	while ((result = fi_tsend(from->ep, from->buffer, len, NULL, from->peer, 7, NULL)) == -FI_EAGAIN) {
		poll_end(from);
		poll_end(to); /* a connection may have to be made */
	}
	DO(result);
	while (to->received < received) {
		poll_end(to);
		if (to->received < received)
			poll_end(from);
	}
}

static __attribute__((noinline)) void idle_poll(struct end *end)
{
	poll_end(end);
}

static __attribute__((noinline)) void next_length(size_t len)
{
	__asm__ volatile("" : : "r"(len) : "memory");
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: provider NAME ADDRESS LENGTH...\n");
		return 2;
	}
	struct end ends[2] = { 0 };
	open_end(&ends[0], argv[1], "127.0.0.1");
	open_end(&ends[1], argv[1], argv[2]);
	meet(&ends[0], &ends[1]);
	meet(&ends[1], &ends[0]);
	for (int i = 3; i < argc; i++) {
		size_t len = strtoul(argv[i], NULL, 10);
		if (len > ROOM) {
			fprintf(stderr, "LENGTH %s: up to %d\n", argv[i], ROOM);
			return 2;
		}
		for (int message = 0; message < MESSAGES; message++) {
			if (message == WARM_UP)
				next_length(len);
			one_message(&ends[message % 2], &ends[1 - message % 2], len);
		}
		next_length(0);
	}
	usleep(2000); /* whatever was still to be acknowledged */
	for (int poll = 0; poll < 2 * POLLS; poll++) {
		if (poll == POLLS)
			next_length(0);
		idle_poll(&ends[0]);
	}
	next_length(0);
	fflush(stdout);
	_exit(0);
}
