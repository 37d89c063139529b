/* srd_sim.h: a simulated fabric of OpenSRD under another simulator (libsrd-sim.so).
 *
 * A program opens a fabric file, places the ranks of its jobs on hosts, and sends and receives messages between them; it is
 * called back when they are sent and have come, and at moments that it asks for. What carries the messages is the transport
 * of the file: SRD, RoCE, NSCC, RCCC, MRC, TCP or iWARP, packet by packet. docs/TRAINING.md has a guide, docs/SCENARIOS.md the file.
 *
 * Units: time in nanoseconds of the simulation, from 0 on; sizes in bytes. Hosts, jobs and ranks are counted from 0.
 *
 * Errors: functions return SRD_SIM_OK or a negative enum srd_sim_status. srd_sim_message() then has the reason as a sentence.
 * A call that has failed has changed nothing, but for the run functions, which stop where they are.
 *
 * Threads: a simulation belongs to the thread that opened it; for all others it does not exist (SRD_SIM_NO_SIMULATION).
 * Threads may have simulations of their own at the same time. A simulation uses one thread and starts none.
 *
 * Callbacks run inside srd_sim_run or srd_sim_run_until, in the thread that called that, never inside another function, and one
 * after the other. A callback may send, receive, schedule and ask; it may not run or close (SRD_SIM_BUSY), and must return:
 * no longjmp, no C++ exception.
 *
 * What happens depends on the file, the sets and the calls alone: the same calls have the same times on any machine.
 */
#ifndef SRD_SIM_H
#define SRD_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A library with another srd_sim_version() is not this header's. */
#define SRD_SIM_VERSION 1

enum srd_sim_status {
  SRD_SIM_OK = 0,
  SRD_SIM_INVALID = -1,       /* an argument is wrong */
  SRD_SIM_FILE = -2,          /* the fabric file cannot be read, or is wrong */
  SRD_SIM_BUSY = -3,          /* not inside a callback */
  SRD_SIM_NO_SIMULATION = -4, /* closed, of another thread, or never opened */
  SRD_SIM_LATE = -5,          /* jobs are added before the simulation begins */
  SRD_SIM_UNMATCHED = -6,     /* nothing is under way any more, and receives have no message */
  SRD_SIM_FAILED = -7,        /* to a callback: the transport has given the message up */
  SRD_SIM_TRUNCATED = -8,     /* to a callback: the message has more bytes than its receive */
  SRD_SIM_OUT_OF_TIME = -9,   /* the file's `end_us` has come */
  SRD_SIM_DEADLOCK = -10,     /* ports of the fabric wait for each other for ever */
  SRD_SIM_INTERNAL = -11,     /* an error of the library's; the simulation can only be closed */
  SRD_SIM_NO_MEMORY = -12     /* it does not fit into the memory that is free; the message has what takes most, and what helps */
};

/* A simulation; 0 is none. */
typedef uint64_t srd_sim;

/* What is called back: `argument` as it was given, and SRD_SIM_OK, SRD_SIM_FAILED or SRD_SIM_TRUNCATED. */
typedef void (*srd_sim_callback)(void *argument, int status);

/* SRD_SIM_VERSION of the library. */
uint32_t srd_sim_version(void);

/* Why this thread's last call that failed has failed; in a callback with another status than SRD_SIM_OK, the reason for that;
 * after srd_sim_open, what in the file was passed over, or nothing. Never NULL. It stays until the next call of this thread. */
const char *srd_sim_message(void);

/* Opens a fabric: the file of `srd sim mpirun` and `srd sim`, without [[program]]. Its [[workload]] is traffic of others, which begins at time 0.
 * `sets` are `set_count` overrides, each "section.key=value", as of `srd sim --set`; NULL if there are none.
 *
 * What needs more memory than is free (or than the control group leaves) is refused with SRD_SIM_NO_MEMORY, before it takes it: here for hosts,
 * cables, and the flows of [[workload]] with what they have in flight; and for ranks by srd_sim_add_job, or, if there are no jobs, by the call that
 * begins the simulation. The estimate is that of `srd sim` (docs/SCENARIOS.md, "Memory"). Not counted, as nobody knows it yet, is what
 * messages take: some 25 KB for each pair of ranks that talks, and 60 KB with 100 packets in flight between them. The set "memory_check=false",
 * which is no key of the file, goes on without asking. */
int srd_sim_open(const char *file, const char *const *sets, size_t set_count, srd_sim *simulation);

/* How many hosts the fabric has. */
int srd_sim_hosts(srd_sim simulation, uint32_t *hosts);

/* Adds a job: `hosts` has the host of each of its `ranks`. A host may have up to 512 ranks of all jobs; each has a network endpoint of its
 * own, and those of a host talk through its memory. `transport` names one of the file's, [transport] or a [[rival]]; NULL is the first.
 * All jobs are added before anything is sent, received, scheduled, run or asked for its time. If none is, job 0 has a rank on each host. */
int srd_sim_add_job(srd_sim simulation, const char *transport, const uint32_t *hosts, uint32_t ranks, uint32_t *job);

/* Sends `bytes` bytes (0 to 2^33) from one rank of a job to another, from now on. `callback` is called when the sender has every byte
 * acknowledged; NULL: nobody is. At most 65,536 messages are on their way to a rank at a time. */
int srd_sim_send(srd_sim simulation, uint32_t job, uint32_t from, uint32_t to, uint64_t tag, int64_t bytes, srd_sim_callback callback,
                 void *argument);

/* Receives a message of at most `bytes` bytes: the n-th receive of a job, sender, receiver and tag gets the n-th message that was sent
 * so, whichever comes first. `callback` is called when it has come; NULL: nobody is. */
int srd_sim_recv(srd_sim simulation, uint32_t job, uint32_t from, uint32_t to, uint64_t tag, int64_t bytes, srd_sim_callback callback,
                 void *argument);

/* Calls back `delay_ns` from now. Those of one moment are called in the order in which they were asked for, after what comes there. */
int srd_sim_schedule(srd_sim simulation, uint64_t delay_ns, srd_sim_callback callback, void *argument);

/* The present. */
int srd_sim_now(srd_sim simulation, uint64_t *now_ns);

/* Runs until nothing is under way and no callback is due. May be called again when there is more to do. */
int srd_sim_run(srd_sim simulation);

/* Runs up to and including that moment, which then is the present; for programs with a clock of their own. */
int srd_sim_run_until(srd_sim simulation, uint64_t time_ns);

/* What the messages of a job have come to. */
struct srd_sim_totals {
  uint64_t messages_sent;     /* begun */
  uint64_t bytes_sent;        /* their payload */
  uint64_t messages_received; /* receives that have ended well */
  uint64_t failed;            /* sends and receives that have not */
  uint64_t last_ns;           /* when the last send or receive ended */
};
int srd_sim_job_totals(srd_sim simulation, uint32_t job, struct srd_sim_totals *totals);

/* What the run has come to, as JSON with the fields of `srd sim --json` (docs/OUTPUTS.md): packets sent, retransmitted, dropped, marked,
 * the longest queues, `jobs`. It stays until the next call for this simulation; NULL if that failed. */
const char *srd_sim_statistics(srd_sim simulation);

/* Closes a simulation. What is under way is never called back. */
int srd_sim_close(srd_sim simulation);

#ifdef __cplusplus
}
#endif

#endif
