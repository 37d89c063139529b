/*
 * What an MPI program of two ranks gets from its transport, in the shapes of the OSU benchmarks: half round trip,
 * all-reduce, rate of small messages, bandwidth.
 *
 *   mpi_bench [--seconds S] [--warmup S]
 *
 * Each measurement first finds how many rounds fill a fifth of S seconds, then runs five such batches and reports
 * their median, so that one pause of the machine does not decide. Rank 0 prints one JSON line per measurement:
 *
 *   {"test": "latency", "bytes": 8, "us": 4.61}
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCHES = 5,
    CALIBRATION_ROUNDS = 20,
    RATE_WINDOW = 64,
    BANDWIDTH_WINDOW = 16,
    LARGEST = 4 << 20,
    TAG = 1,
    ACK_TAG = 2,
};

static int rank;
static double seconds = 0.5, warmup_seconds = 0.1;
static char *sent, *received;

struct measurement {
    const char *test, *unit;
    size_t bytes;
    int window;
    void (*rounds)(const struct measurement *, long rounds);
    double (*value)(const struct measurement *, double seconds_per_round);
};

/* ---- the exchanges: all ranks run the same number of rounds ---- */

static void ping_pong(const struct measurement *m, long rounds)
{
    int bytes = (int)m->bytes;
    for (long k = 0; k < rounds; k++) {
        if (rank == 0) {
            MPI_Send(sent, bytes, MPI_CHAR, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(received, bytes, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(received, bytes, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(sent, bytes, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

static void all_reduce(const struct measurement *m, long rounds)
{
    int count = (int)(m->bytes / sizeof(double));
    for (long k = 0; k < rounds; k++)
        MPI_Allreduce(sent, received, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* A window of messages one way, then a word back: the receiver has them all. */
static void window(const struct measurement *m, long rounds)
{
    MPI_Request requests[RATE_WINDOW];
    char word[4] = "";
    int bytes = (int)m->bytes;
    for (long k = 0; k < rounds; k++) {
        for (int w = 0; w < m->window; w++) {
            if (rank == 0)
                MPI_Isend(sent, bytes, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &requests[w]);
            else
                MPI_Irecv(received, bytes, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &requests[w]);
        }
        MPI_Waitall(m->window, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(word, sizeof word, MPI_CHAR, 1, ACK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(word, sizeof word, MPI_CHAR, 0, ACK_TAG, MPI_COMM_WORLD);
    }
}

/* ---- what a round's time means ---- */

static double half_round_trip_us(const struct measurement *m, double per_round)
{
    (void)m;
    return per_round / 2 * 1e6;
}

static double round_us(const struct measurement *m, double per_round)
{
    (void)m;
    return per_round * 1e6;
}

static double messages_per_second(const struct measurement *m, double per_round)
{
    return m->window / per_round;
}

static double megabytes_per_second(const struct measurement *m, double per_round)
{
    return (double)m->bytes * m->window / per_round * 1e-6;
}

static const struct measurement measurements[] = {
    {"latency", "us", 8, 1, ping_pong, half_round_trip_us},
    {"latency", "us", 1024, 1, ping_pong, half_round_trip_us},
    {"latency", "us", 8192, 1, ping_pong, half_round_trip_us},
    {"allreduce", "us", 8, 1, all_reduce, round_us},
    {"message_rate", "messages_per_s", 8, RATE_WINDOW, window, messages_per_second},
    {"bandwidth", "megabytes_per_s", 64 << 10, BANDWIDTH_WINDOW, window, megabytes_per_second},
    {"bandwidth", "megabytes_per_s", 1 << 20, BANDWIDTH_WINDOW, window, megabytes_per_second},
    {"bandwidth", "megabytes_per_s", 4 << 20, BANDWIDTH_WINDOW, window, megabytes_per_second},
};

static double timed(const struct measurement *m, long rounds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    m->rounds(m, rounds);
    return (MPI_Wtime() - start) / (double)rounds;
}

/* Rounds that take `duration`, as rank 0 sees it, which all ranks agree on. */
static long rounds_for(const struct measurement *m, double duration, long tried)
{
    double per_round = timed(m, tried);
    long rounds = (long)(duration / per_round);
    if (rounds < 1)
        rounds = 1;
    MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return rounds;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct measurement *m)
{
    /* Large messages: even twenty rounds would take long. */
    long tried = m->bytes * (size_t)m->window >= (1 << 20) ? 2 : CALIBRATION_ROUNDS;
    long warmup = rounds_for(m, warmup_seconds, tried);
    long rounds = rounds_for(m, seconds / BATCHES, warmup);
    double batches[BATCHES];
    for (int k = 0; k < BATCHES; k++)
        batches[k] = timed(m, rounds);
    if (rank == 0) {
        qsort(batches, BATCHES, sizeof batches[0], ascending);
        printf("{\"test\": \"%s\", \"bytes\": %zu, \"%s\": %.6g}\n", m->test, m->bytes, m->unit,
               m->value(m, batches[BATCHES / 2]));
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int k = 1; k + 1 < argc; k += 2) {
        if (!strcmp(argv[k], "--seconds"))
            seconds = atof(argv[k + 1]);
        else if (!strcmp(argv[k], "--warmup"))
            warmup_seconds = atof(argv[k + 1]);
    }
    sent = malloc(LARGEST);
    received = malloc(LARGEST);
    if (ranks != 2 || !sent || !received) {
        fprintf(stderr, "mpi_bench: needs two ranks, and memory for two messages\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    memset(sent, 0, LARGEST); /* also a sum of doubles that stays one */
    memset(received, 2, LARGEST);
    for (size_t k = 0; k < sizeof measurements / sizeof measurements[0]; k++)
        measure(&measurements[k]);
    MPI_Finalize();
    return 0;
}
