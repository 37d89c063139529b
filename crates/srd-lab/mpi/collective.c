/*
 * A collective operation again and again, each time stamped: what `srd lab experiment` measures beside a congestor.
 *
 *   collective all-reduce BYTES     every rank gets the sum of all ranks' vectors of BYTES
 *   collective all-to-all BYTES     every rank gets BYTES from every rank
 *
 * Says "ready", then obeys the lines that rank 0 reads: "measure SECONDS" is answered with lines
 * {"times_us": [...]}, an operation's time being that of the rank for which it took longest, and "done"; any other line
 * ends the program. Every result is checked. Between two orders all ranks sleep.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Operations between two looks at the clock: as many as fill BATCH_S, so that agreeing on the end costs little. */
static const double BATCH_S = 0.02;
enum { MOST_IN_BATCH = 64, WARM_UP = 16, PER_LINE = 500 };

static int rank, ranks, count;
static bool reduces;
static long *out, *in;

static void operate(void)
{
    if (reduces)
        MPI_Allreduce(out, in, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Alltoall(out, count, MPI_LONG, in, count, MPI_LONG, MPI_COMM_WORLD);
}

/* What rank `from` contributes to position `k` of operation `n`. */
static long part(long n, int from, int k)
{
    return n + from + k;
}

static void fill(long n)
{
    for (int k = 0; k < count; k++)
        out[k] = part(n, rank, k);
    for (int to = 1; !reduces && to < ranks; to++)
        memcpy(out + (size_t)to * (size_t)count, out, sizeof *out * (size_t)count);
}

static void check(long n)
{
    long of_ranks = (long)ranks * (ranks - 1) / 2;
    for (int k = 0; k < (reduces ? count : count * ranks); k++) {
        long right = reduces ? ranks * part(n, 0, k) + of_ranks : part(n, k / count, k % count);
        if (in[k] != right) {
            fprintf(stderr, "collective: rank %d, operation %ld: position %d is %ld and should be %ld\n", rank, n, k, in[k], right);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static double timed(long n)
{
    fill(n);
    double begin = MPI_Wtime();
    operate();
    double took = MPI_Wtime() - begin;
    check(n);
    return took;
}

/* A broadcast from rank 0 for which the others wait asleep: a rank that polls would take the processor from others. */
static double tell(double value)
{
    MPI_Request request;
    MPI_Ibcast(&value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return value;
}

static void measure(double seconds)
{
    long capacity = 1 << 12, n = 0, batch = 4;
    double *times = malloc(sizeof *times * (size_t)capacity);
    for (long k = 0; k < WARM_UP; k++)
        timed(-1 - k);
    double begin = MPI_Wtime();
    for (;;) {
        double batch_begin = MPI_Wtime();
        if (n + batch > capacity)
            times = realloc(times, sizeof *times * (size_t)(capacity *= 2));
        for (long end = n + batch; n < end; n++)
            times[n] = timed(n);
        double now = MPI_Wtime();
        long next = now - begin >= seconds ? 0 : batch;
        if (next && now - batch_begin < BATCH_S / 2 && batch < MOST_IN_BATCH)
            next = batch * 2;
        else if (next && now - batch_begin > BATCH_S * 2 && batch > 1)
            next = batch / 2;
        MPI_Bcast(&next, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (!next)
            break;
        batch = next;
    }
    double *longest = malloc(sizeof *longest * (size_t)n);
    MPI_Reduce(times, longest, (int)n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (long k = 0; k < n; k++) {
            bool first = k % PER_LINE == 0, last = k % PER_LINE == PER_LINE - 1 || k == n - 1;
            printf("%s%.1f%s", first ? "{\"times_us\": [" : "", longest[k] * 1e6, last ? "]}\n" : ", ");
        }
        printf("done\n");
        fflush(stdout);
    }
    free(longest);
    free(times);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long bytes = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    reduces = argc == 3 && !strcmp(argv[1], "all-reduce");
    if (bytes < (long)sizeof *out || (!reduces && (argc != 3 || strcmp(argv[1], "all-to-all")))) {
        fprintf(stderr, "usage: collective all-reduce|all-to-all BYTES (at least %zu)\n", sizeof *out);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    count = (int)((size_t)bytes / sizeof *out);
    size_t total = (size_t)count * (size_t)(reduces ? 1 : ranks);
    out = malloc(sizeof *out * total);
    in = malloc(sizeof *in * total);
    timed(0); /* connects */
    if (rank == 0) {
        printf("ready\n");
        fflush(stdout);
    }
    for (;;) {
        double seconds = 0;
        char line[64];
        if (rank == 0 && (!fgets(line, sizeof line, stdin) || sscanf(line, "measure %lf", &seconds) != 1))
            seconds = 0;
        seconds = tell(seconds);
        if (seconds <= 0)
            break;
        measure(seconds);
    }
    MPI_Finalize();
    return 0;
}
