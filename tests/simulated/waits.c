/* Waits until a time, of each kind there is: waits 1|3, the level of threads that MPI is asked for. Each must last three milliseconds of
 * the simulation's, and say that it is over; a thread that waits must end when it is cancelled. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int rank, level, wrong;
static double began;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER, steady;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static unsigned word;
static sem_t none, one;
static int silent[2], epoll;
static volatile double result;

static struct timespec until(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  time.tv_nsec += 3000000;
  if (time.tv_nsec >= 1000000000) time.tv_nsec -= 1000000000, time.tv_sec++;
  return time;
}

static void lasted(const char *what, int ended, double wanted) {
  double took = (MPI_Wtime() - began) * 1e6;
  if (!ended || took < wanted - 1 || took > wanted + 10)
    fprintf(stderr, "rank %d: %s: %s after %.1f us\n", rank, what, ended ? "ended" : "did not end as it should", took), wrong = 1;
  began = MPI_Wtime();
}

static void timed_waits(void) {
  struct timespec at, span = {.tv_nsec = 3000000};
  struct timeval wait = {.tv_usec = 3000};
  struct epoll_event event;
  struct pollfd polled = {.fd = silent[0], .events = POLLIN};
  fd_set set;
  began = MPI_Wtime();
#define UNTIL(clock) (at = until(clock), &at)
  pthread_mutex_lock(&lock);
  lasted("pthread_cond_timedwait", pthread_cond_timedwait(&never, &lock, UNTIL(CLOCK_REALTIME)) == ETIMEDOUT, 3000);
  lasted("pthread_cond_timedwait, CLOCK_MONOTONIC", pthread_cond_timedwait(&steady, &lock, UNTIL(CLOCK_MONOTONIC)) == ETIMEDOUT, 3000);
  lasted("pthread_cond_clockwait", pthread_cond_clockwait(&never, &lock, CLOCK_MONOTONIC, UNTIL(CLOCK_MONOTONIC)) == ETIMEDOUT, 3000);
  pthread_mutex_unlock(&lock);
  lasted("pthread_mutex_timedlock", pthread_mutex_timedlock(&held, UNTIL(CLOCK_REALTIME)) == ETIMEDOUT, 3000);
  lasted("pthread_mutex_clocklock", pthread_mutex_clocklock(&held, CLOCK_MONOTONIC, UNTIL(CLOCK_MONOTONIC)) == ETIMEDOUT, 3000);
  lasted("sem_timedwait", sem_timedwait(&none, UNTIL(CLOCK_REALTIME)) == -1 && errno == ETIMEDOUT, 3000);
  lasted("sem_clockwait", sem_clockwait(&none, CLOCK_MONOTONIC, UNTIL(CLOCK_MONOTONIC)) == -1 && errno == ETIMEDOUT, 3000);
  lasted("pthread_rwlock_timedrdlock", pthread_rwlock_timedrdlock(&written, UNTIL(CLOCK_REALTIME)) == ETIMEDOUT, 3000);
  lasted("pthread_rwlock_clockwrlock", pthread_rwlock_clockwrlock(&written, CLOCK_MONOTONIC, UNTIL(CLOCK_MONOTONIC)) == ETIMEDOUT, 3000);
  lasted("futex by syscall", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0) == -1 && errno == ETIMEDOUT, 3000);
  lasted("futex by syscall, CLOCK_MONOTONIC", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, UNTIL(CLOCK_MONOTONIC), NULL, -1) == -1 && errno == ETIMEDOUT, 3000);
  lasted("futex by syscall, CLOCK_REALTIME", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, UNTIL(CLOCK_REALTIME), NULL, -1) == -1 && errno == ETIMEDOUT, 3000);
  lasted("futex of another value", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &span, NULL, 0) == -1 && errno == EAGAIN, 0);
  FD_ZERO(&set);
  FD_SET(silent[0], &set);
  lasted("select", select(silent[0] + 1, &set, NULL, NULL, &wait) == 0 && wait.tv_sec == 0 && wait.tv_usec == 0, 3000);
  FD_ZERO(&set);
  FD_SET(silent[0], &set);
  lasted("pselect", pselect(silent[0] + 1, &set, NULL, NULL, &span, NULL) == 0, 3000);
  lasted("poll", poll(&polled, 1, 3) == 0, 3000);
  lasted("ppoll", ppoll(&polled, 1, &span, NULL) == 0, 3000);
  lasted("epoll_wait", epoll_wait(epoll, &event, 1, 3) == 0, 3000);
  lasted("epoll_pwait", epoll_pwait(epoll, &event, 1, 3, NULL) == 0, 3000);
  lasted("nanosleep", nanosleep(&span, NULL) == 0, 3000);
  lasted("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, UNTIL(CLOCK_MONOTONIC), NULL) == 0, 3000);
  lasted("usleep", usleep(3000) == 0, 3000);
  sem_post(&one);
  lasted("sem_timedwait of one that is there", sem_timedwait(&one, UNTIL(CLOCK_REALTIME)) == 0, 0);
}

static void *in_condition(void *given) {
  pthread_mutex_lock(&lock);
  pthread_cleanup_push((void (*)(void *))pthread_mutex_unlock, &lock);
  while (1) pthread_cond_wait(&never, &lock);
  pthread_cleanup_pop(1);
  return given;
}

static void *in_sleep(void *given) {
  while (1) usleep(1000000);
  return given;
}

static void *in_semaphore(void *given) {
  while (1) sem_wait(&none);
  return given;
}

static void *in_poll(void *given) {
  struct pollfd polled = {.fd = silent[0], .events = POLLIN};
  while (1) poll(&polled, 1, -1);
  return given;
}

static void cancelled(const char *what, void *(*start)(void *), double at_most) {
  pthread_t thread;
  void *ended = NULL;
  pthread_create(&thread, NULL, start, NULL);
  usleep(100);
  began = MPI_Wtime();
  pthread_cancel(thread);
  pthread_join(thread, &ended);
  double took = (MPI_Wtime() - began) * 1e6;
  if (ended != PTHREAD_CANCELED || took > at_most)
    fprintf(stderr, "rank %d: a thread in %s was cancelled: it ended after %.1f us\n", rank, what, took), wrong = 1;
}

static void *compute(void *given) {
  double sum = 0;
  for (long i = 1; i < (long)given; i++) sum += 1.0 / (double)i;
  result = sum;
  return NULL;
}

static void *post_later(void *given) {
  usleep(2000);
  sem_post(&one);
  return given;
}

static void *come_later(void *given) {
  usleep(2000);
  pthread_barrier_wait(&barrier);
  return given;
}

static void *write_for_long(void *given) {
  pthread_rwlock_wrlock(&shared);
  usleep(2000);
  pthread_rwlock_unlock(&shared);
  return given;
}

static void *read_for_long(void *given) {
  pthread_rwlock_rdlock(&shared);
  usleep(1000);
  pthread_rwlock_unlock(&shared);
  return given;
}

static void *wake_later(void *given) {
  usleep(2000);
  __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  return given;
}

/* What threads wait for from each other lasts as long as they take. */
static void of_threads(void) {
  pthread_t thread, readers[2];
  struct timespec span = {.tv_sec = 1};
  pthread_create(&thread, NULL, post_later, NULL);
  began = MPI_Wtime();
  lasted("sem_wait for a thread that posts after two milliseconds", sem_wait(&one) == 0, 2000);
  pthread_join(thread, NULL);
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_create(&thread, NULL, come_later, NULL);
  began = MPI_Wtime();
  pthread_barrier_wait(&barrier);
  lasted("pthread_barrier_wait for a thread that comes after two milliseconds", 1, 2000);
  pthread_join(thread, NULL);
  lasted("pthread_barrier_destroy", pthread_barrier_destroy(&barrier) == 0, 0);
  pthread_create(&thread, NULL, write_for_long, NULL);
  usleep(500);
  for (int i = 0; i < 2; i++) pthread_create(&readers[i], NULL, read_for_long, NULL);
  began = MPI_Wtime();
  lasted("pthread_rwlock_rdlock behind a writer", pthread_rwlock_rdlock(&shared) == 0, 1500);
  pthread_rwlock_unlock(&shared);
  lasted("pthread_rwlock_wrlock behind readers", pthread_rwlock_wrlock(&shared) == 0, 1000);
  pthread_rwlock_unlock(&shared);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
  pthread_create(&thread, NULL, wake_later, NULL);
  began = MPI_Wtime();
  while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0);
  lasted("futex by syscall for a thread that wakes after two milliseconds", 1, 2000);
  pthread_join(thread, NULL);
}

/* What computing costs in a thread that is joined, beside the same in this one. */
static void measured(void) {
  pthread_t thread;
  void *work = (void *)30000000L;
  began = MPI_Wtime();
  compute(work);
  double here = MPI_Wtime() - began;
  began = MPI_Wtime();
  pthread_create(&thread, NULL, compute, work);
  pthread_join(thread, NULL);
  double there = MPI_Wtime() - began;
  if (there < here / 2 || there > here * 2)
    fprintf(stderr, "rank %d: computing took %.0f us, in a thread %.0f us\n", rank, here * 1e6, there * 1e6), wrong = 1;
}

int main(int count, char **arguments) {
  int provided;
  level = count > 1 ? atoi(arguments[1]) : MPI_THREAD_SINGLE;
  MPI_Init_thread(&count, &arguments, level, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&steady, &attributes);
  sem_init(&none, 0, 0), sem_init(&one, 0, 0);
  if (pipe(silent) != 0) return 2;
  epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(epoll, EPOLL_CTL_ADD, silent[0], &event);
  pthread_mutex_lock(&held);
  pthread_rwlock_wrlock(&written);
  if (count > 2 && strcmp(arguments[2], "measured") == 0) {
    measured();
  } else {
    timed_waits();
    /* Without threads of MPI's the others keep the machine's time, and time is not theirs to say. */
    double at_most = level == MPI_THREAD_MULTIPLE ? 10 : 1e9;
    cancelled("a condition", in_condition, at_most);
    cancelled("a sleep", in_sleep, at_most);
    cancelled("a semaphore", in_semaphore, at_most);
    cancelled("poll", in_poll, at_most < 1e9 ? 1010 : at_most);
    if (level == MPI_THREAD_MULTIPLE) of_threads();
    began = MPI_Wtime();
    FILE *child = popen("sleep 0.3; echo hi", "r");
    char said[8] = "";
    int heard = child && fgets(said, sizeof said, child) && strcmp(said, "hi\n") == 0 && pclose(child) == 0;
    lasted("a child that says something after 0.3 s of the machine's", heard, 0);
  }
  int any;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("waits: %s\n", any ? "wrong" : "right");
  MPI_Finalize();
  return any;
}
