/* Time that passes with each look at it, and not otherwise: what a program does then follows from what it is given alone, and its
 * instructions can be counted. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 500

int clock_gettime(clockid_t id, struct timespec *t)
{
	static long times[2];
	if (id > CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, id, t);
	if (!times[id]) {
		syscall(SYS_clock_gettime, id, t);
		times[id] = t->tv_sec * 1000000000L + t->tv_nsec;
	}
	times[id] += LOOK_NS;
	t->tv_sec = times[id] / 1000000000L;
	t->tv_nsec = times[id] % 1000000000L;
	return 0;
}
