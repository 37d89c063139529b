// What the lab's BPF programs share: the helpers they call, and how they count.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))

// The next program's turn; without another, the packet goes on.
#define NEXT TC_ACT_UNSPEC

// linux/bpf.h numbers the helpers, bpf-helpers(7) describes them.
static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*clock_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u32 (*random_number)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*load_bytes)(const void *packet, __u32 offset, void *to, __u32 length) = (void *)BPF_FUNC_skb_load_bytes;
static long (*store_bytes)(struct __sk_buff *packet, __u32 offset, const void *from, __u32 length,
                           __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*clone_to)(struct __sk_buff *packet, __u32 device, __u64 flags) = (void *)BPF_FUNC_clone_redirect;
static long (*redirect)(__u32 device, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*read_kernel)(void *to, __u32 size, const void *from) = (void *)BPF_FUNC_probe_read_kernel;
static long (*mark_congestion)(struct __sk_buff *packet) = (void *)BPF_FUNC_skb_ecn_set_ce;
static long (*change_length)(struct __sk_buff *packet, __u32 length, __u64 flags) = (void *)BPF_FUNC_skb_change_tail;

// Two for each device, by its index (setup.rs gives those).
#define COUNTERS 32768

struct {
    int (*type)[BPF_MAP_TYPE_ARRAY];
    int (*max_entries)[COUNTERS];
    __u32 *key;
    __u64 *value;
} met SECTION(".maps");

static void count(__u32 index)
{
    __u64 *number = map_lookup(&met, &index);
    if (number)
        __sync_fetch_and_add(number, 1);
}
