/* What srd_sim.h promises, asked for by a program in C. Its arguments are files: a fabric of eight hosts with SRD and TCP, none, and a fabric on
 * which nothing passes, and one whose traffic fits into no memory. */
#include <pthread.h>
#include <srd_sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                        \
  do {                                                                                     \
    if (!(what)) {                                                                         \
      fprintf(stderr, "line %d: %s; message: %s\n", __LINE__, #what, srd_sim_message());   \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)
#define GOOD(call) CHECK((call) == SRD_SIM_OK)
/* The call is refused so, and the reason has these words. */
#define REFUSED(call, status, words)                 \
  do {                                               \
    CHECK((call) == (status));                       \
    CHECK(strstr(srd_sim_message(), words) != NULL); \
  } while (0)

static const char *file;
static srd_sim sim;

/* What callbacks have told, in their order. */
static struct {
  int what, status;
  uint64_t at;
} told[1000];
static int tolds;

static void tell(void *argument, int status) {
  told[tolds].what = (int)(intptr_t)argument;
  told[tolds].status = status;
  GOOD(srd_sim_now(sim, &told[tolds].at));
  ++tolds;
}

static void *what(int number) { return (void *)(intptr_t)number; }

static void open_fabric(void) {
  tolds = 0;
  GOOD(srd_sim_open(file, NULL, 0, &sim));
}

static void a_message_takes_its_time(void) {
  open_fabric();
  uint32_t hosts = 0;
  GOOD(srd_sim_hosts(sim, &hosts));
  CHECK(hosts == 8);
  GOOD(srd_sim_recv(sim, 0, 0, 7, 1, 1000000, tell, what(1)));
  GOOD(srd_sim_send(sim, 0, 0, 7, 1, 1000000, tell, what(2)));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 2 && told[0].what == 1 && told[1].what == 2);
  /* A megabyte takes 80 us at 100 Gb/s, with headers a little more. */
  CHECK(told[0].at > 80000 && told[0].at < 100000 && told[1].at > told[0].at);
  struct srd_sim_totals totals;
  GOOD(srd_sim_job_totals(sim, 0, &totals));
  CHECK(totals.messages_sent == 1 && totals.bytes_sent == 1000000 && totals.messages_received == 1 && totals.failed == 0);
  CHECK(totals.last_ns == told[1].at);
  const char *statistics = srd_sim_statistics(sim);
  CHECK(statistics != NULL && strstr(statistics, "\"packets_new\":") != NULL && strstr(statistics, "\"transport\":\"srd+tcp\"") != NULL);
  /* It may go on. */
  GOOD(srd_sim_send(sim, 0, 7, 0, 1, 0, tell, what(3)));
  GOOD(srd_sim_recv(sim, 0, 7, 0, 1, 0, tell, what(4)));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 4 && told[2].what == 4 && told[2].status == SRD_SIM_OK && told[3].at < told[1].at + 100000);
  GOOD(srd_sim_close(sim));
}

static void messages_match_by_tag_in_the_order_of_sending(void) {
  open_fabric();
  /* The short one overtakes the long one on the network, and still is the second of its tag. */
  GOOD(srd_sim_send(sim, 0, 1, 6, 5, 2000000, NULL, NULL));
  GOOD(srd_sim_send(sim, 0, 1, 6, 5, 100, NULL, NULL));
  GOOD(srd_sim_send(sim, 0, 1, 6, 9, 100, NULL, NULL));
  GOOD(srd_sim_recv(sim, 0, 1, 6, 9, 100, tell, what(3)));
  GOOD(srd_sim_recv(sim, 0, 1, 6, 5, 2000000, tell, what(1)));
  GOOD(srd_sim_recv(sim, 0, 1, 6, 5, 100, tell, what(2)));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 3);
  for (int i = 0; i < 3; ++i) CHECK(told[i].status == SRD_SIM_OK);
  /* A receive of 100 bytes for the message of two million would be too small: it was not what the second has got. */
  GOOD(srd_sim_send(sim, 0, 1, 6, 5, 200, NULL, NULL));
  GOOD(srd_sim_recv(sim, 0, 1, 6, 5, 100, tell, what(4)));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 4 && told[3].status == SRD_SIM_TRUNCATED);
  CHECK(strstr(srd_sim_message(), "more bytes than its receive") != NULL);
  GOOD(srd_sim_close(sim));
}

static void a_rank_of_another_job_is_another_rank(void) {
  open_fabric();
  const uint32_t first[] = {0, 4}, second[] = {4, 0, 0};
  uint32_t of_srd, of_tcp;
  GOOD(srd_sim_add_job(sim, NULL, first, 2, &of_srd));
  GOOD(srd_sim_add_job(sim, "tcp", second, 3, &of_tcp));
  CHECK(of_srd == 0 && of_tcp == 1);
  GOOD(srd_sim_send(sim, of_srd, 0, 1, 1, 3000000, NULL, NULL));
  GOOD(srd_sim_send(sim, of_tcp, 1, 0, 1, 3000000, NULL, NULL));
  GOOD(srd_sim_send(sim, of_tcp, 1, 2, 1, 3000000, NULL, NULL)); /* by the memory of host 0 */
  GOOD(srd_sim_recv(sim, of_tcp, 1, 0, 1, 3000000, tell, what(1)));
  GOOD(srd_sim_recv(sim, of_srd, 0, 1, 1, 3000000, tell, what(0)));
  GOOD(srd_sim_recv(sim, of_tcp, 1, 2, 1, 3000000, tell, what(2)));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 3);
  for (int i = 0; i < 3; ++i) {
    /* Both share a port: each takes longer than the 240 us that it would take alone; memory of 10 GB/s takes 300. */
    CHECK(told[i].what == 2 ? told[i].at >= 300000 && told[i].at < 301000 : told[i].at > 300000);
  }
  struct srd_sim_totals totals;
  GOOD(srd_sim_job_totals(sim, of_tcp, &totals));
  CHECK(totals.messages_sent == 2 && totals.bytes_sent == 6000000);
  REFUSED(srd_sim_add_job(sim, NULL, first, 2, &of_srd), SRD_SIM_LATE, "has begun");
  GOOD(srd_sim_close(sim));
}

/* A ring in which each rank sends on what it has got; rounds are what the argument of a callback points to. */
struct hop {
  uint32_t rank;
  int left;
};

static void hop(void *argument, int status) {
  struct hop *it = argument;
  CHECK(status == SRD_SIM_OK);
  uint32_t next = (it->rank + 1) % 8;
  if (it->left-- == 0) return;
  GOOD(srd_sim_recv(sim, 0, it->rank, next, 3, 4096, hop, it));
  GOOD(srd_sim_send(sim, 0, it->rank, next, 3, 4096, NULL, NULL));
  it->rank = next;
}

static uint64_t ring(void) {
  open_fabric();
  struct hop it = {0, 64};
  GOOD(srd_sim_schedule(sim, 500, hop, &it));
  GOOD(srd_sim_run(sim));
  CHECK(it.left == -1);
  uint64_t now;
  GOOD(srd_sim_now(sim, &now));
  GOOD(srd_sim_close(sim));
  return now;
}

static void callbacks_send_on_and_the_same_calls_take_the_same_time(void) {
  uint64_t once = ring();
  CHECK(once > 500 + 64 * 1000 && once == ring());
}

static void time_goes_on_to_a_moment(void) {
  open_fabric();
  GOOD(srd_sim_schedule(sim, 2000, tell, what(2)));
  GOOD(srd_sim_schedule(sim, 1000, tell, what(1)));
  GOOD(srd_sim_schedule(sim, 2000, tell, what(3)));
  GOOD(srd_sim_run_until(sim, 1500));
  uint64_t now;
  GOOD(srd_sim_now(sim, &now));
  CHECK(now == 1500 && tolds == 1 && told[0].at == 1000);
  GOOD(srd_sim_run_until(sim, 2000));
  CHECK(tolds == 3 && told[1].what == 2 && told[2].what == 3 && told[2].at == 2000);
  GOOD(srd_sim_run_until(sim, 10000));
  GOOD(srd_sim_now(sim, &now));
  CHECK(now == 10000);
  REFUSED(srd_sim_run_until(sim, 9999), SRD_SIM_INVALID, "are over");
  GOOD(srd_sim_close(sim));
}

static void run_again(void *argument, int status) {
  (void)argument, (void)status;
  REFUSED(srd_sim_run(sim), SRD_SIM_BUSY, "it runs");
  REFUSED(srd_sim_run_until(sim, 1000000), SRD_SIM_BUSY, "it runs");
  REFUSED(srd_sim_close(sim), SRD_SIM_BUSY, "it runs");
  ++tolds;
}

static void *other_thread(void *argument) {
  uint64_t now;
  REFUSED(srd_sim_now(*(srd_sim *)argument, &now), SRD_SIM_NO_SIMULATION, "this thread has no such simulation");
  return NULL;
}

static void what_is_wrong_is_refused_with_a_reason(const char *missing) {
  srd_sim none = 7;
  uint32_t number;
  uint64_t now;
  REFUSED(srd_sim_open(NULL, NULL, 0, &none), SRD_SIM_INVALID, "file is NULL");
  REFUSED(srd_sim_open(file, NULL, 0, NULL), SRD_SIM_INVALID, "simulation is NULL");
  REFUSED(srd_sim_open(file, NULL, 1, &none), SRD_SIM_INVALID, "sets is NULL");
  REFUSED(srd_sim_open(missing, NULL, 0, &none), SRD_SIM_FILE, missing);
  const char *set = "fabric.hosts_per_leaf=0";
  REFUSED(srd_sim_open(file, &set, 1, &none), SRD_SIM_FILE, "hosts_per_leaf");
  CHECK(none == 7);
  REFUSED(srd_sim_now(0, &now), SRD_SIM_NO_SIMULATION, "no such simulation");

  open_fabric();
  const uint32_t beyond[] = {0, 8};
  REFUSED(srd_sim_add_job(sim, NULL, beyond, 2, &number), SRD_SIM_INVALID, "no host 8");
  REFUSED(srd_sim_add_job(sim, "carrier pigeons", beyond, 1, &number), SRD_SIM_INVALID, "srd, tcp");
  REFUSED(srd_sim_add_job(sim, NULL, NULL, 2, &number), SRD_SIM_INVALID, "hosts is NULL");
  REFUSED(srd_sim_add_job(sim, NULL, beyond, 0, &number), SRD_SIM_INVALID, "at least one rank");
  REFUSED(srd_sim_hosts(sim, NULL), SRD_SIM_INVALID, "hosts is NULL");
  REFUSED(srd_sim_send(sim, 0, 0, 8, 1, 1, NULL, NULL), SRD_SIM_INVALID, "no rank 8");
  REFUSED(srd_sim_send(sim, 1, 0, 1, 1, 1, NULL, NULL), SRD_SIM_INVALID, "no job 1");
  REFUSED(srd_sim_send(sim, 0, 2, 2, 1, 1, NULL, NULL), SRD_SIM_INVALID, "itself");
  REFUSED(srd_sim_send(sim, 0, 0, 1, 1, -1, NULL, NULL), SRD_SIM_INVALID, "-1 bytes");
  REFUSED(srd_sim_send(sim, 0, 0, 1, 1, INT64_MAX, NULL, NULL), SRD_SIM_INVALID, "in parts");
  REFUSED(srd_sim_recv(sim, 0, 0, 1, 1, -5, NULL, NULL), SRD_SIM_INVALID, "-5 bytes");
  REFUSED(srd_sim_schedule(sim, 1, NULL, NULL), SRD_SIM_INVALID, "callback is NULL");
  REFUSED(srd_sim_now(sim, NULL), SRD_SIM_INVALID, "now_ns is NULL");
  REFUSED(srd_sim_job_totals(sim, 3, NULL), SRD_SIM_INVALID, "no job 3");
  GOOD(srd_sim_schedule(sim, 1, run_again, NULL));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 1);
  GOOD(srd_sim_recv(sim, 0, 3, 4, 77, 10, tell, NULL));
  REFUSED(srd_sim_run(sim), SRD_SIM_UNMATCHED, "rank 4 for one of rank 3 with tag 77");
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, other_thread, &sim) == 0 && pthread_join(thread, NULL) == 0);
  GOOD(srd_sim_close(sim));
  REFUSED(srd_sim_close(sim), SRD_SIM_NO_SIMULATION, "was closed");
  CHECK(srd_sim_statistics(sim) == NULL);
}

static void a_dead_fabric_fails_its_messages(const char *dead) {
  tolds = 0;
  GOOD(srd_sim_open(dead, NULL, 0, &sim));
  GOOD(srd_sim_recv(sim, 0, 0, 7, 1, 100, tell, what(1)));
  GOOD(srd_sim_send(sim, 0, 0, 7, 1, 100, tell, what(2)));
  GOOD(srd_sim_run(sim));
  CHECK(tolds == 2 && told[0].status == SRD_SIM_FAILED && told[1].status == SRD_SIM_FAILED);
  CHECK(strstr(srd_sim_message(), "gives up") != NULL);
  GOOD(srd_sim_close(sim));
  const char *soon = "end_us=50";
  GOOD(srd_sim_open(dead, &soon, 1, &sim));
  GOOD(srd_sim_send(sim, 0, 0, 7, 1, 100, tell, what(2)));
  REFUSED(srd_sim_run(sim), SRD_SIM_OUT_OF_TIME, "end_us");
  GOOD(srd_sim_close(sim));
}

static void what_does_not_fit_into_memory_is_refused(const char *huge) {
  srd_sim none = 7;
  REFUSED(srd_sim_open(huge, NULL, 0, &none), SRD_SIM_NO_MEMORY, "are available: ");
  CHECK(strstr(srd_sim_message(), "packets in flight") != NULL && strstr(srd_sim_message(), "What helps: ") != NULL);
  CHECK(strstr(srd_sim_message(), "memory_check=false") != NULL && none == 7);
  const char *set = "memory_check=perhaps";
  REFUSED(srd_sim_open(huge, &set, 1, &none), SRD_SIM_INVALID, "true or false");
  set = "memory_check=false";
  GOOD(srd_sim_open(huge, &set, 1, &sim));
  GOOD(srd_sim_close(sim));

  open_fabric();
  const uint32_t many = 100000000;
  uint32_t job, *all_on_the_first = calloc(many, sizeof *all_on_the_first);
  CHECK(all_on_the_first != NULL);
  REFUSED(srd_sim_add_job(sim, NULL, all_on_the_first, many, &job), SRD_SIM_NO_MEMORY, "100000000 ranks");
  GOOD(srd_sim_add_job(sim, NULL, all_on_the_first, 2, &job));
  CHECK(job == 0);
  free(all_on_the_first);
  GOOD(srd_sim_run(sim));
  GOOD(srd_sim_close(sim));
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  file = argv[1];
  CHECK(srd_sim_version() == SRD_SIM_VERSION);
  a_message_takes_its_time();
  messages_match_by_tag_in_the_order_of_sending();
  a_rank_of_another_job_is_another_rank();
  callbacks_send_on_and_the_same_calls_take_the_same_time();
  time_goes_on_to_a_moment();
  what_is_wrong_is_refused_with_a_reason(argv[2]);
  a_dead_fabric_fails_its_messages(argv[3]);
  what_does_not_fit_into_memory_is_refused(argv[4]);
  puts("good");
  return 0;
}
