// What a bad wire does to packets, at the end where they arrive: behind the sender's queue, which has counted and shaped
// them, and before the receiver has seen them. A program each; the numbers of one come with it when it is loaded.

#include "packet.h"

// The fault's number, which is also the place of its program among those of a device.
const volatile __u32 fault = 0;
// Of 2^32, how often.
const volatile __u64 chance = 0;
// Down for so long of each period.
const volatile __u64 period_ns = 1;
const volatile __u64 down_ns = 0;
// Where to.
const volatile __u32 device = 0;

// A packet that comes by again says by its mark which fault it has been through; the ones before have had it, too.
#define THROUGH 0x73720000u

static int is_through(const struct __sk_buff *packet)
{
    return (packet->mark & 0xffff0000u) == THROUGH && (packet->mark & 0xffffu) >= fault;
}

static int strikes(const struct __sk_buff *packet)
{
    return !is_through(packet) && random_number() < chance;
}

SECTION("classifier")
int lose(struct __sk_buff *packet)
{
    if (!strikes(packet))
        return NEXT;
    count(0);
    return TC_ACT_SHOT;
}

SECTION("classifier")
int flap(struct __sk_buff *packet)
{
    if (is_through(packet) || clock_ns() % period_ns >= down_ns)
        return NEXT;
    count(0);
    return TC_ACT_SHOT;
}

// One bit of what follows the Ethernet and IP headers: a damaged IP header would be dropped by the next router, and so be
// a loss.
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
        count(0);
    return NEXT;
}

SECTION("classifier")
int duplicate(struct __sk_buff *packet)
{
    if (!strikes(packet))
        return NEXT;
    __u32 mark = packet->mark;
    packet->mark = THROUGH | fault;
    if (clone_to(packet, packet->ifindex, BPF_F_INGRESS) == 0)
        count(0);
    packet->mark = mark;
    return NEXT;
}

// Hands every packet to another device, out of which a program takes it, to put it in again there.
SECTION("classifier")
int divert(struct __sk_buff *packet)
{
    if (is_through(packet))
        return NEXT;
    count(0);
    return redirect(device, 0);
}

// On that other device: packets come back as if they had just arrived on the first.
SECTION("classifier")
int give_back(struct __sk_buff *packet)
{
    packet->mark = THROUGH | fault;
    return redirect(device, BPF_F_INGRESS);
}

char terms[] SECTION("license") = "Dual MIT/GPL";
