/*
 * Checks an MPI library's transport by content: every byte of every message is a function of who sent it, to whom,
 * how long it is and in which iteration, so that a lost, doubled, swapped, stale or damaged message shows.
 *
 *   mpi_check [--rma] [--scale N]
 *
 * --rma also checks one-sided operations (put, get, fetch_and_op). --scale N repeats everything N times.
 * Rank 0 prints one summary line and exits 0. The first difference found is told on standard error, and the
 * job aborts with status 1.
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZE = 4 << 20,
    GUARD = 64,          /* bytes behind every receive buffer that must stay untouched */
    GUARD_BYTE = 0xA5,
    STORM_DEPTH = 64,
    STORM_ROUNDS = 4,
};

static int rank, ranks;
static long checked_messages;

static void differs(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "mpi_check: rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* What the message is, and so what its bytes are. */
struct identity {
    int source, destination;
    size_t size;
    unsigned iteration;
};

/* SplitMix64 (Steele, Lea, Flood 2014): a well-mixed 64-bit function of its argument. */
static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(struct identity id)
{
    uint64_t seed = mix((uint64_t)id.source << 32 | (uint32_t)id.destination);
    return mix(seed ^ mix((uint64_t)id.size << 32 | id.iteration));
}

/* The 8 bytes at word `index` of a message. An odd multiplier makes every word of a message distinct. */
static uint64_t word_at(uint64_t seed, size_t index)
{
    return seed + index * 0x9E3779B97F4A7C15u;
}

static void fill(unsigned char *buffer, struct identity id)
{
    uint64_t seed = seed_of(id);
    for (size_t at = 0; at < id.size; at += 8) {
        uint64_t word = word_at(seed, at / 8);
        memcpy(buffer + at, &word, id.size - at < 8 ? id.size - at : 8);
    }
}

static void expect(const unsigned char *buffer, struct identity id, const char *what)
{
    uint64_t seed = seed_of(id);
    for (size_t at = 0; at < id.size; at += 8) {
        uint64_t word = word_at(seed, at / 8);
        size_t length = id.size - at < 8 ? id.size - at : 8;
        if (memcmp(buffer + at, &word, length) == 0)
            continue;
        unsigned char wanted[8];
        memcpy(wanted, &word, 8);
        size_t k = 0;
        while (buffer[at + k] == wanted[k])
            k++;
        differs("%s from rank %d, %zu bytes, iteration %u: byte %zu is 0x%02x, should be 0x%02x", what, id.source,
                id.size, id.iteration, at + k, buffer[at + k], wanted[k]);
    }
    for (size_t k = 0; k < GUARD; k++)
        if (buffer[id.size + k] != GUARD_BYTE)
            differs("%s from rank %d, %zu bytes, iteration %u: wrote %zu bytes past the end", what, id.source, id.size,
                    id.iteration, k + 1);
    checked_messages++;
}

/* Poisons a receive buffer, so that data left from an earlier message cannot pass for this one's. */
static void poison(unsigned char *buffer, size_t size)
{
    memset(buffer, 0x5A, size);
    memset(buffer + size, GUARD_BYTE, GUARD);
}

static unsigned char *allocate(size_t size)
{
    unsigned char *buffer = malloc(size + GUARD);
    if (!buffer)
        differs("out of memory for %zu bytes", size);
    return buffer;
}

static void expect_status(const MPI_Status *status, struct identity id, int tag, const char *what)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE != id.source || status->MPI_TAG != tag || (size_t)count != id.size)
        differs("%s: status says source %d tag %d count %d, should be %d, %d, %zu", what, status->MPI_SOURCE,
                status->MPI_TAG, count, id.source, tag, id.size);
}

/* Sizes around every boundary a transport may have: words, inline limits, MTUs, eager limits, powers of two. */
static const size_t sizes[] = {
    0,     1,     2,     3,     7,     8,     9,      31,     32,     33,     63,     64,         65,
    127,   128,   129,   255,   256,   1000,  1024,   1447,   1448,   1473,   2048,   4095,       4096,
    4097,  8191,  8192,  8193,  8760,  8928,  9000,   12345,  16384,  17000,  32768,  65535,      65536,
    65537, 99999, 131072, 262143, 262144, 1 << 20, (1 << 20) + 1, 2 << 20, MAX_SIZE - 1, MAX_SIZE,
};
static const size_t size_count = sizeof sizes / sizeof *sizes;

static unsigned iterations_for(size_t size)
{
    return size <= 16384 ? 12 : size <= 262144 ? 4 : 2;
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Both directions at once, and then one after the other, between every pair of ranks. */
static void check_point_to_point(unsigned round)
{
    unsigned char *out = allocate(MAX_SIZE), *in = allocate(MAX_SIZE);
    for (int shift = 1; shift < ranks; shift++) {
        int to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
        /* The ranks a shift connects form as many rings as the greatest common divisor; one rank of each goes first. */
        int leads = rank < common_divisor(ranks, shift);
        for (size_t s = 0; s < size_count; s++) {
            for (unsigned i = 0; i < iterations_for(sizes[s]); i++) {
                unsigned iteration = round * 1000 + i;
                struct identity sent = {rank, to, sizes[s], iteration};
                struct identity wanted = {from, rank, sizes[s], iteration};
                int tag = (int)(s * 16 + i);
                MPI_Status status;
                fill(out, sent);
                poison(in, sizes[s]);
                if (i % 2 == 0) {
                    MPI_Sendrecv(out, (int)sizes[s], MPI_BYTE, to, tag, in, (int)sizes[s], MPI_BYTE, from, tag,
                                 MPI_COMM_WORLD, &status);
                } else if (leads) {
                    MPI_Send(out, (int)sizes[s], MPI_BYTE, to, tag, MPI_COMM_WORLD);
                    MPI_Recv(in, (int)sizes[s], MPI_BYTE, from, tag, MPI_COMM_WORLD, &status);
                } else {
                    MPI_Recv(in, (int)sizes[s], MPI_BYTE, from, tag, MPI_COMM_WORLD, &status);
                    MPI_Send(out, (int)sizes[s], MPI_BYTE, to, tag, MPI_COMM_WORLD);
                }
                expect_status(&status, wanted, tag, "point-to-point");
                expect(in, wanted, "point-to-point message");
            }
        }
    }
    free(out);
    free(in);
}

/* Small messages mostly; every eighth is beyond any eager limit. */
static size_t storm_size(int source, int index)
{
    return index % 8 == 7 ? 100000 + (size_t)index : mix((uint64_t)source * STORM_DEPTH + index) % 3000;
}

/*
 * Every rank sends 64 messages to every other before anybody receives, then takes them with wildcards. Checked: each
 * comes once, whole, and those of one sender in the order they were sent (MPI-4.1, section 3.5: non-overtaking).
 */
static void check_storm(unsigned round)
{
    int total = STORM_DEPTH * (ranks - 1);
    MPI_Request *requests = malloc(sizeof *requests * (size_t)total);
    unsigned char **buffers = malloc(sizeof *buffers * (size_t)total);
    int *next_from = calloc((size_t)ranks, sizeof *next_from);
    unsigned char *in = allocate(MAX_SIZE);
    int posted = 0;
    for (int index = 0; index < STORM_DEPTH; index++) {
        for (int shift = 1; shift < ranks; shift++) {
            struct identity id = {rank, (rank + shift) % ranks, storm_size(rank, index), round};
            buffers[posted] = allocate(id.size);
            fill(buffers[posted], id);
            MPI_Isend(buffers[posted], (int)id.size, MPI_BYTE, id.destination, index, MPI_COMM_WORLD, &requests[posted]);
            posted++;
        }
    }
    /* Everybody has sent; the collective keeps progress going while the messages arrive with no receive posted. */
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < total; k++) {
        MPI_Status status;
        if (k % 2) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            poison(in, storm_size(status.MPI_SOURCE, status.MPI_TAG));
            MPI_Recv(in, MAX_SIZE, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        } else {
            /* The size is not known before: guard every size that may come. */
            memset(in, GUARD_BYTE, 110000 + GUARD);
            MPI_Recv(in, MAX_SIZE, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        }
        int source = status.MPI_SOURCE;
        if (source < 0 || source >= ranks || source == rank)
            differs("storm: message from impossible rank %d", source);
        if (status.MPI_TAG != next_from[source])
            differs("storm: round %u, message %d of rank %d came when %d was due (overtaken, lost or doubled)", round,
                    status.MPI_TAG, source, next_from[source]);
        struct identity id = {source, rank, storm_size(source, next_from[source]++), round};
        expect_status(&status, id, status.MPI_TAG, "storm");
        expect(in, id, "storm message");
    }
    MPI_Waitall(total, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < total; k++)
        free(buffers[k]);
    free(buffers);
    free(requests);
    free(next_from);
    free(in);
    /* Between two barriers, so that what the next round sends cannot be taken for a message too many of this one. */
    int extra;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &extra, MPI_STATUS_IGNORE);
    if (extra)
        differs("storm: round %u: one message more than was sent", round);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check_allreduce(unsigned round)
{
    static const int counts[] = {1, 17, 1000, 30000, 200000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int64_t *in = malloc(sizeof *in * (size_t)counts[c]), *out = malloc(sizeof *out * (size_t)counts[c]);
        for (int k = 0; k < counts[c]; k++)
            in[k] = (int64_t)(rank + 1) * (k + 1) + round;
        MPI_Allreduce(in, out, counts[c], MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        int64_t factor = (int64_t)ranks * (ranks + 1) / 2;
        for (int k = 0; k < counts[c]; k++)
            if (out[k] != factor * (k + 1) + (int64_t)ranks * round)
                differs("allreduce of %d: element %d is %lld, should be %lld", counts[c], k, (long long)out[k],
                        (long long)(factor * (k + 1) + (int64_t)ranks * round));
        free(in);
        free(out);
        checked_messages++;
    }
}

static void check_alltoall(unsigned round)
{
    static const size_t blocks[] = {1, 64, 1500, 9000, 70000, 300000};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        size_t block = blocks[b], total = block * (size_t)ranks;
        unsigned char *out = allocate(total), *in = allocate(total), *one = allocate(block);
        for (int r = 0; r < ranks; r++)
            fill(out + (size_t)r * block, (struct identity){rank, r, block, round});
        poison(in, total);
        MPI_Alltoall(out, (int)block, MPI_BYTE, in, (int)block, MPI_BYTE, MPI_COMM_WORLD);
        for (int r = 0; r < ranks; r++) {
            poison(one, block);
            memcpy(one, in + (size_t)r * block, block);
            expect(one, (struct identity){r, rank, block, round}, "alltoall block");
        }
        free(out);
        free(in);
        free(one);
    }
}

/* Every rank puts into its right neighbour and gets from its left, and all of them count on rank 0. */
static void check_one_sided(unsigned round)
{
    static const size_t lengths[] = {1, 8, 4096, 8193, 100000, 1 << 20};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        size_t length = lengths[l];
        int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
        unsigned char *memory, *local = allocate(length), *fetched = allocate(length);
        MPI_Win window;
        /* Layout: what the left neighbour puts, a guard, what the right neighbour gets. */
        MPI_Win_allocate((MPI_Aint)(2 * length + 2 * GUARD), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
        poison(memory, length);
        fill(memory + length + GUARD, (struct identity){rank, right, length, round + 500});
        fill(local, (struct identity){rank, right, length, round});
        poison(fetched, length);
        MPI_Win_fence(0, window);
        MPI_Put(local, (int)length, MPI_BYTE, right, 0, (int)length, MPI_BYTE, window);
        MPI_Get(fetched, (int)length, MPI_BYTE, left, (MPI_Aint)(length + GUARD), (int)length, MPI_BYTE, window);
        MPI_Win_fence(0, window);
        expect(memory, (struct identity){left, rank, length, round}, "put");
        expect(fetched, (struct identity){left, rank, length, round + 500}, "get");
        MPI_Win_free(&window);
        free(local);
        free(fetched);
    }

    int64_t *counter, one = 1, before, last = -1;
    MPI_Win window;
    MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
    *counter = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int k = 0; k < 50; k++) {
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        if (before <= last || before >= 50 * ranks)
            differs("fetch_and_op returned %lld after %lld", (long long)before, (long long)last);
        last = before;
        checked_messages++;
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        if (*counter != 50 * ranks)
            differs("fetch_and_op: the counter is %lld, should be %d", (long long)*counter, 50 * ranks);
        MPI_Win_unlock(0, window);
    }
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    int one_sided = 0;
    unsigned scale = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int k = 1; k < argc; k++) {
        if (!strcmp(argv[k], "--rma"))
            one_sided = 1;
        else if (!strcmp(argv[k], "--scale") && k + 1 < argc)
            scale = (unsigned)strtoul(argv[++k], NULL, 10);
        else
            differs("unknown argument %s", argv[k]);
    }
    if (ranks < 2)
        differs("needs at least two ranks");

    double start = MPI_Wtime();
    for (unsigned round = 0; round < scale; round++) {
        check_point_to_point(round);
        for (unsigned storm = 0; storm < STORM_ROUNDS; storm++)
            check_storm(round * STORM_ROUNDS + storm);
        check_allreduce(round);
        check_alltoall(round);
        if (one_sided)
            check_one_sided(round);
    }
    long total;
    MPI_Reduce(&checked_messages, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("mpi_check: ok, %d ranks, %ld messages checked (0 B to 4 MiB, storm, allreduce, alltoall%s) in %.1f s\n",
               ranks, total, one_sided ? ", one-sided" : "", MPI_Wtime() - start);
    MPI_Finalize();
    return 0;
}
