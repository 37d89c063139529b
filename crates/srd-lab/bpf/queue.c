// What a switch does to packets before it queues them, by what its queue really holds: marking, and cutting to the header.

#include "packet.h"

// Mark while the queue holds more; nothing is marked with the largest number.
const volatile __u32 mark_above_bytes = 0xffffffff;
// Cut what would make the queue longer than this; nothing is cut with the largest number.
const volatile __u32 cut_above_bytes = 0xffffffff;

// Only those fields of the kernel's structures that are on the way to the queue's length; where they lie is found when the
// program is loaded, from the kernel's own description (BTF).
#define FOUND_AT_LOAD __attribute__((preserve_access_index))
struct gnet_stats_queue { __u32 backlog; } FOUND_AT_LOAD;
struct Qdisc { struct gnet_stats_queue qstats; } FOUND_AT_LOAD;
struct netdev_queue { struct Qdisc *qdisc; } FOUND_AT_LOAD;
struct net_device { struct netdev_queue *_tx; } FOUND_AT_LOAD;
struct sk_buff { struct net_device *dev; } FOUND_AT_LOAD;

// A classifier's context is the kernel's own sk_buff, although the verifier shows it as __sk_buff.
static __u32 queued_bytes(const struct __sk_buff *packet)
{
    const struct sk_buff *real = (const void *)packet;
    struct net_device *device = 0;
    struct netdev_queue *queue = 0;
    struct Qdisc *discipline = 0;
    __u32 bytes = 0;
    read_kernel(&device, sizeof(device), &real->dev);
    read_kernel(&queue, sizeof(queue), &device->_tx);
    read_kernel(&discipline, sizeof(discipline), &queue->qdisc);
    read_kernel(&bytes, sizeof(bytes), &discipline->qstats.backlog);
    return bytes;
}

#define ETHERNET 14
#define IP 20
#define UDP 8
// Headers, and as much of the payload as holds the transport's own headers, SRD's first ones, too.
#define CUT_LENGTH (ETHERNET + IP + UDP + 128)
// The class of HTB that is served first: 1:10.
#define HEADERS_FIRST 0x00010010
// On a packet that has been cut and comes by again.
#define CUT 0x73730001u

static __u16 from_network(__u16 value) { return __builtin_bswap16(value); }

// Cuts a UDP packet and puts lengths and checksums right, so that the receiver's kernel hands it on.
static int cut(struct __sk_buff *packet)
{
    __u16 ip[IP / 2];
    if (load_bytes(packet, ETHERNET, ip, IP) < 0)
        return NEXT;
    // Version 4 without options, protocol 17, no fragment.
    if ((ip[0] & 0xff) != 0x45 || (ip[4] >> 8) != 17 || (ip[3] & 0xff3f))
        return NEXT;
    if (change_length(packet, CUT_LENGTH, 0) < 0)
        return NEXT;
    // Class selector 6 (RFC 2474), and the ECN bits as they were.
    ip[0] = 0x45 | ((ip[0] & 0x0300) | 0xc000);
    ip[1] = from_network(CUT_LENGTH - ETHERNET);
    ip[5] = 0;
    __u32 sum = 0;
    for (int k = 0; k < IP / 2; k++)
        sum += ip[k];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ip[5] = ~sum;
    __u16 udp[2] = {from_network(CUT_LENGTH - ETHERNET - IP), 0};
    store_bytes(packet, ETHERNET, ip, IP, 0);
    store_bytes(packet, ETHERNET + IP + 4, udp, sizeof(udp), 0);
    packet->priority = HEADERS_FIRST;
    packet->mark = CUT;
    count(2 * packet->ifindex + 1);
    // Sent anew: the kernel has noted the length for the queue before it was cut.
    return redirect(packet->ifindex, 0);
}

SECTION("classifier")
int queue(struct __sk_buff *packet)
{
    if (packet->mark == CUT)
        return NEXT;
    __u32 bytes = queued_bytes(packet);
    if (bytes > mark_above_bytes && mark_congestion(packet) > 0)
        count(2 * packet->ifindex);
    if (cut_above_bytes != 0xffffffff && bytes + packet->len > cut_above_bytes && packet->len > CUT_LENGTH)
        return cut(packet);
    return NEXT;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
