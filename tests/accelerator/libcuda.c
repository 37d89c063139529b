/* Stands in for libcuda.so.1 in tests: a "GPU" whose memory the processor cannot touch. What programs get as an address is mapped without
 * any right, so that a load or store ends the process; the bytes lie behind a second mapping, which the copies of this library use.
 * Copies are made when their stream is waited for, and no sooner. Names and numbers are those of the CUDA Driver API's reference. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { HOST = 1, DEVICE = 2 };
enum { ATTRIBUTE_CONTEXT = 1, ATTRIBUTE_MEMORY_TYPE = 2, ATTRIBUTE_SYNC_MEMOPS = 6, ATTRIBUTE_IS_MANAGED = 8, ATTRIBUTE_DEVICE_ORDINAL = 9 };
enum { MOST = 4096, PAGE = 4096 };

struct memory {
    uint64_t addr;
    size_t len;
    unsigned char *bytes;
    int type, managed, has_context, freed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory all[MOST];
static int count, initialised;
static long copies[3]; /* to the host, to the device, within it */
static int context_of_program, other_context;
static __thread void *current[16];
static __thread int depth;

struct copy {
    void *to;
    const void *from;
    size_t len;
    struct copy *next;
};
struct stream {
    void *context;
    struct copy *first, **last;
};

static struct memory *find(uint64_t addr, size_t len)
{
    for (int i = 0; i < count; i++) {
        struct memory *it = &all[i];
        if (!it->freed && addr >= it->addr && addr - it->addr < it->len && len <= it->len - (addr - it->addr))
            return it;
    }
    return NULL;
}

static int make(uint64_t *addr, size_t len, int type, int managed, int has_context)
{
    if (!initialised)
        return NOT_INITIALIZED;
    size_t whole = (len + PAGE - 1) / PAGE * PAGE;
    int file = memfd_create("gpu", 0);
    if (file < 0 || ftruncate(file, whole) || count == MOST)
        return INVALID_VALUE;
    int rights = type == DEVICE && !managed ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *shown = mmap(NULL, whole, rights, MAP_SHARED, file, 0);
    void *bytes = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shown == MAP_FAILED || bytes == MAP_FAILED)
        return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    all[count++] = (struct memory){(uint64_t)shown, len, bytes, type, managed, has_context, 0};
    pthread_mutex_unlock(&lock);
    *addr = (uint64_t)shown;
    return SUCCESS;
}

int cuInit(unsigned flags)
{
    (void)flags;
    if (getenv("STUB_CUDA_NO_DEVICE"))
        return NO_DEVICE;
    initialised = 1;
    return SUCCESS;
}

int cuDeviceGetCount(int *devices)
{
    *devices = 1;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

int cuGetErrorName(int error, const char **name)
{
    switch (error) {
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case NOT_INITIALIZED: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *addr, size_t len) { return make(addr, len, DEVICE, 0, 1); }
int cuMemAllocManaged(uint64_t *addr, size_t len, unsigned flags) { (void)flags; return make(addr, len, DEVICE, 1, 1); }
int cuMemHostAlloc(void **addr, size_t len, unsigned flags) { (void)flags; return make((uint64_t *)addr, len, HOST, 0, 1); }
/* As memory of cuMemCreate, which belongs to no context. */
int stub_alloc_without_context(uint64_t *addr, size_t len) { return make(addr, len, DEVICE, 0, 0); }

/* The address stays as it is, and is given to nobody else. */
int cuMemFree_v2(uint64_t addr)
{
    pthread_mutex_lock(&lock);
    struct memory *it = find(addr, 1);
    if (it)
        it->freed = 1;
    pthread_mutex_unlock(&lock);
    return it ? SUCCESS : INVALID_VALUE;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t addr)
{
    if (!initialised)
        return NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    struct memory *it = find(addr, 1);
    pthread_mutex_unlock(&lock);
    if (!it)
        return INVALID_VALUE;
    switch (attribute) {
    case ATTRIBUTE_CONTEXT: *(void **)value = it->has_context ? &context_of_program : NULL; return SUCCESS;
    case ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = it->type; return SUCCESS;
    case ATTRIBUTE_IS_MANAGED: *(unsigned *)value = it->managed; return SUCCESS;
    case ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = 0; return SUCCESS;
    default: return INVALID_VALUE;
    }
}

int cuPointerSetAttribute(const void *value, int attribute, uint64_t addr)
{
    (void)value;
    return attribute == ATTRIBUTE_SYNC_MEMOPS && find(addr, 1) ? SUCCESS : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &other_context;
    return device == 0 ? SUCCESS : INVALID_VALUE;
}

int cuCtxPushCurrent_v2(void *context)
{
    if ((context != &context_of_program && context != &other_context) || depth == 16)
        return INVALID_CONTEXT;
    current[depth++] = context;
    return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context)
{
    if (!depth)
        return INVALID_CONTEXT;
    *context = current[--depth];
    return SUCCESS;
}

int cuStreamCreate(struct stream **stream, unsigned flags)
{
    if (!depth)
        return INVALID_CONTEXT;
    if (flags != 1) /* CU_STREAM_NON_BLOCKING: others would wait for the program's work */
        return INVALID_VALUE;
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = current[depth - 1];
    (*stream)->last = &(*stream)->first;
    return SUCCESS;
}

static int enqueue(struct stream *stream, void *to, const void *from, size_t len, int which)
{
    if (!depth)
        return INVALID_CONTEXT;
    if (!stream || stream->context != current[depth - 1])
        return INVALID_HANDLE;
    struct copy *copy = malloc(sizeof *copy);
    *copy = (struct copy){to, from, len, NULL};
    pthread_mutex_lock(&lock);
    *stream->last = copy;
    stream->last = &copy->next;
    copies[which]++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static void *bytes_at(uint64_t addr, size_t len)
{
    pthread_mutex_lock(&lock);
    struct memory *it = find(addr, len);
    pthread_mutex_unlock(&lock);
    return it ? it->bytes + (addr - it->addr) : NULL;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, struct stream *stream)
{
    void *bytes = bytes_at(from, len);
    return bytes ? enqueue(stream, to, bytes, len, 0) : INVALID_VALUE;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, struct stream *stream)
{
    void *bytes = bytes_at(to, len);
    return bytes ? enqueue(stream, bytes, from, len, 1) : INVALID_VALUE;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t len, struct stream *stream)
{
    void *there = bytes_at(to, len), *here = bytes_at(from, len);
    return there && here ? enqueue(stream, there, here, len, 2) : INVALID_VALUE;
}

int cuStreamSynchronize(struct stream *stream)
{
    pthread_mutex_lock(&lock);
    struct copy *copy = stream->first;
    stream->first = NULL;
    stream->last = &stream->first;
    while (copy) {
        struct copy *next = copy->next;
        memmove(copy->to, copy->from, copy->len);
        free(copy);
        copy = next;
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    static __thread unsigned now;
    unsigned before = now;
    now = *mode;
    *mode = before;
    return SUCCESS;
}

/* For tests: bytes of the "GPU", and how many copies there were of each kind since the last time. */
int stub_write(uint64_t addr, const void *from, size_t len)
{
    void *bytes = bytes_at(addr, len);
    return bytes ? (memcpy(bytes, from, len), SUCCESS) : INVALID_VALUE;
}

int stub_read(uint64_t addr, void *to, size_t len)
{
    void *bytes = bytes_at(addr, len);
    return bytes ? (memcpy(to, bytes, len), SUCCESS) : INVALID_VALUE;
}

void stub_copies(long counted[3])
{
    pthread_mutex_lock(&lock);
    memcpy(counted, copies, sizeof copies);
    memset(copies, 0, sizeof copies);
    pthread_mutex_unlock(&lock);
}
