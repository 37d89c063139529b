/* Two processes, each with one domain and an endpoint for each of its threads: every thread of the one sends to a thread of the other.
 *
 *   threads rate|latency NAME THREADS MESSAGES
 *
 * NAME: of a libfabric provider. `rate`: bursts of 64 messages of 8 bytes, each answered by one; prints messages a second of all threads.
 * `latency`: to and fro; prints the microseconds that one takes, the mean of all threads. MESSAGES: of each thread.
 */
#include <pthread.h>
#include "call.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64
#define MOST_BURST 64
#define LENGTH 8
#define NAME 64

struct end {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t peer;
	long sent, received;
	char buffer[LENGTH], rooms[MOST_BURST][LENGTH];
	pthread_t thread;
};

static struct end ends[MOST_THREADS];
static bool sends_first;
static long bursts, burst;

static void open_end(struct end *end, struct fid_domain *domain, struct fi_info *info)
{
	DO(fi_endpoint(domain, info, &end->ep, NULL));
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
	DO(fi_cq_open(domain, &cq, &end->cq, NULL));
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	DO(fi_av_open(domain, &av, &end->av, NULL));
	DO(fi_ep_bind(end->ep, &end->av->fid, 0));
	DO(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
	DO(fi_enable(end->ep));
}

static void poll_end(struct end *end)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t count = fi_cq_read(end->cq, entries, 16);
	if (count == -FI_EAGAIN)
		return;
	DO(count);
	for (ssize_t i = 0; i < count; i++)
		*(entries[i].flags & FI_RECV ? &end->received : &end->sent) += 1;
}

static void post_receives(struct end *end, long count)
{
	for (long i = 0; i < count; i++) {
		ssize_t result;
		while ((result = fi_trecv(end->ep, end->rooms[i], LENGTH, NULL, FI_ADDR_UNSPEC, 7, 0, NULL)) == -FI_EAGAIN)
			poll_end(end);
		DO(result);
	}
}

static void send_messages(struct end *end, long count)
{
	for (long i = 0; i < count; i++) {
		ssize_t result;
		while ((result = fi_tsend(end->ep, end->buffer, LENGTH, NULL, end->peer, 7, NULL)) == -FI_EAGAIN)
			poll_end(end);
		DO(result);
	}
}

static void receive(struct end *end, long count)
{
	long until = end->received + count;
	while (end->received < until)
		poll_end(end);
}

static void *run(void *arg)
{
	struct end *end = arg;
	for (long i = 0; i < bursts; i++) {
		if (sends_first) {
			post_receives(end, 1);
			send_messages(end, burst);
			receive(end, 1);
		} else {
			receive(end, burst);
			if (i + 1 < bursts)
				post_receives(end, burst);
			send_messages(end, 1);
		}
	}
	while (end->sent < bursts * (sends_first ? burst : 1))
		poll_end(end);
	return NULL;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void all(int fd, void *bytes, size_t len, bool out)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = out ? write(fd, (char *)bytes + done, len - done) : read(fd, (char *)bytes + done, len - done);
		if (n <= 0)
			exit(1);
		done += n;
	}
}

int main(int argc, char **argv)
{
	int threads = argc == 5 ? atoi(argv[3]) : 0;
	if (threads < 1 || threads > MOST_THREADS) {
		fprintf(stderr, "usage: threads rate|latency NAME THREADS MESSAGES\n");
		return 2;
	}
	bool rate = !strcmp(argv[1], "rate");
	burst = rate ? MOST_BURST : 1;
	bursts = atol(argv[4]) / burst;
	int sockets[2];
	DO(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid_t child = fork();
	sends_first = child != 0;
	int other = sockets[sends_first];

	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_TAGGED | FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup(argv[2]);
	hints->domain_attr->threading = FI_THREAD_SAFE;
	DO(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info));
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	DO(fi_fabric(info->fabric_attr, &fabric, NULL));
	DO(fi_domain(fabric, info, &domain, NULL));
	for (int i = 0; i < threads; i++) {
		struct end *end = &ends[i];
		open_end(end, domain, info);
		char name[NAME] = { 0 };
		size_t len = sizeof(name);
		DO(fi_getname(&end->ep->fid, name, &len));
		all(other, name, sizeof(name), true);
	}
	for (int i = 0; i < threads; i++) {
		char name[NAME];
		all(other, name, sizeof(name), false);
		if (fi_av_insert(ends[i].av, name, 1, &ends[i].peer, 0, NULL) != 1)
			return 1;
		if (!sends_first)
			post_receives(&ends[i], burst);
	}
	char ready = 1;
	all(other, &ready, 1, true);
	all(other, &ready, 1, false);
	double start = now();
	for (int i = 0; i < threads; i++)
		pthread_create(&ends[i].thread, NULL, run, &ends[i]);
	for (int i = 0; i < threads; i++)
		pthread_join(ends[i].thread, NULL);
	double took = now() - start;
	if (sends_first) {
		double messages = (double)bursts * burst;
		printf("%.2f\n", rate ? messages * threads / took : took * 1e6 / (2 * messages));
		fflush(stdout);
	}
	for (int i = 0; i < threads; i++) {
		DO(fi_close(&ends[i].ep->fid));
		DO(fi_close(&ends[i].cq->fid));
		DO(fi_close(&ends[i].av->fid));
	}
	DO(fi_close(&domain->fid));
	DO(fi_close(&fabric->fid));
	int status = 0;
	if (sends_first)
		waitpid(child, &status, 0);
	return status != 0;
}
