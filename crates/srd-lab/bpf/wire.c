// What a bad wire does to packets, at the end where they arrive: behind the sender's queue, which has counted and shaped
// them, and before the receiver has seen them. A program each; the numbers of one come with it when it is loaded.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))

// linux/bpf.h numbers the helpers, bpf-helpers(7) describes them.
static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*clock_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u32 (*random_number)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*load_bytes)(const void *packet, __u32 offset, void *to, __u32 length) = (void *)BPF_FUNC_skb_load_bytes;
static long (*store_bytes)(struct __sk_buff *packet, __u32 offset, const void *from, __u32 length,
                           __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*clone_to)(struct __sk_buff *packet, __u32 device, __u64 flags) = (void *)BPF_FUNC_clone_redirect;
static long (*redirect)(__u32 device, __u64 flags) = (void *)BPF_FUNC_redirect;

// The next program's turn; without another, the packet goes on.
#define NEXT TC_ACT_UNSPEC

// On packets that have been through all programs of a device once and come by again.
#define SEEN 0x73726401

// Of 2^32, how often.
const volatile __u64 chance = 0;
// Down for so long of each period.
const volatile __u64 period_ns = 1;
const volatile __u64 down_ns = 0;
// Where to.
const volatile __u32 device = 0;

// How many packets the fault has met.
struct {
    int (*type)[BPF_MAP_TYPE_ARRAY];
    int (*max_entries)[1];
    __u32 *key;
    __u64 *value;
} met SECTION(".maps");

static void count(void)
{
    __u32 first = 0;
    __u64 *number = map_lookup(&met, &first);
    if (number)
        __sync_fetch_and_add(number, 1);
}

static int strikes(const struct __sk_buff *packet)
{
    return packet->mark != SEEN && random_number() < chance;
}

SECTION("classifier")
int lose(struct __sk_buff *packet)
{
    if (!strikes(packet))
        return NEXT;
    count();
    return TC_ACT_SHOT;
}

SECTION("classifier")
int flap(struct __sk_buff *packet)
{
    if (packet->mark == SEEN || clock_ns() % period_ns >= down_ns)
        return NEXT;
    count();
    return TC_ACT_SHOT;
}

// One bit of what follows the Ethernet and IP headers: a damaged IP header would be dropped by the next router, and so be a loss.
SECTION("classifier")
int corrupt(struct __sk_buff *packet)
{
    const __u32 first = 14 + 20;
    if (!strikes(packet) || packet->len <= first)
        return NEXT;
    __u32 offset = first + random_number() % (packet->len - first);
    __u8 byte;
    if (load_bytes(packet, offset, &byte, 1) < 0)
        return NEXT;
    byte ^= 1 << (random_number() & 7);
    if (store_bytes(packet, offset, &byte, 1, 0) == 0)
        count();
    return NEXT;
}

SECTION("classifier")
int duplicate(struct __sk_buff *packet)
{
    if (!strikes(packet))
        return NEXT;
    __u32 mark = packet->mark;
    packet->mark = SEEN;
    if (clone_to(packet, packet->ifindex, BPF_F_INGRESS) == 0)
        count();
    packet->mark = mark;
    return NEXT;
}

// Hands every packet to another device, out of which a program takes it, to put it in again there.
SECTION("classifier")
int divert(struct __sk_buff *packet)
{
    if (packet->mark == SEEN)
        return NEXT;
    count();
    return redirect(device, 0);
}

// On that other device: packets come back as if they had just arrived on the first.
SECTION("classifier")
int give_back(struct __sk_buff *packet)
{
    packet->mark = SEEN;
    return redirect(device, BPF_F_INGRESS);
}

char terms[] SECTION("license") = "Dual MIT/GPL";
