#!/usr/bin/env python3
"""TCP of ns-3 on the fabric of this project's own tests of TCP, to compare the two (docs/BASELINES.md).

Needs ns-3 for Python, which is not part of this project:

    python3 -m venv V; V/bin/pip install ns3==3.44.post0 cppyy==3.5.0
    V/bin/python scripts/ns3_tcp.py TcpCubic --loss 0.003

The algorithm is a class of ns-3: TcpNewReno, TcpCubic, TcpDctcp, TcpBbr.

Senders, a router and a receiver, all links of one rate, four of them to a round trip; segments of 1448 bytes, SACK,
one ACK for each. Prints goodput over the second half of the time, the mean window over all of it in segments (what
was delivered in an unloaded round trip), and the queue in front of the receiver over the second half in packets,
sampled every 10 us. Lines of cppyy about symbols that it could not materialize mean nothing.
"""
import argparse

SEGMENT = 1448
SAMPLER = """
namespace ns3 {
std::vector<double> g_samples;
void Sample(Ptr<Queue<Packet>> queue, Ptr<QueueDisc> disc) {
  g_samples.push_back(queue->GetNPackets() + (disc ? disc->GetNPackets() : 0));
  Simulator::Schedule(MicroSeconds(10), &Sample, queue, disc);
}
void StartSampling(Ptr<NetDevice> device, Ptr<QueueDisc> disc) {
  Sample(DynamicCast<PointToPointNetDevice>(device)->GetQueue(), disc);
}
}
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm")
    parser.add_argument("--flows", type=int, default=1)
    parser.add_argument("--loss", type=float, default=0.0, help="share of data packets that a sender's link loses")
    parser.add_argument("--rate", default="10Gbps")
    parser.add_argument("--delay-us", type=float, default=25, help="of each of the four links of a round trip")
    parser.add_argument("--queue", type=int, default=100_000, help="packets in front of the receiver")
    parser.add_argument("--mark", type=int, default=0, help="packets from which on all are marked; 0: none are")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--buffer", type=int, default=6_291_456, help="bytes of each socket's buffers")
    parser.add_argument("--acks", type=int, default=1, help="segments to an ACK")
    parser.add_argument("--min-rto-us", type=int, default=1000, help="least retransmission timeout")
    parser.add_argument("--seed", type=int, default=1, help="ns-3's run number")
    return parser.parse_args()


def configure(ns, want: argparse.Namespace) -> None:
    set_default = ns.Config.SetDefault
    set_default("ns3::TcpL4Protocol::SocketType", ns.StringValue("ns3::" + want.algorithm))
    for name, value in (("SegmentSize", SEGMENT), ("InitialCwnd", 10), ("DelAckCount", want.acks)):
        set_default("ns3::TcpSocket::" + name, ns.UintegerValue(value))
    for name in ("SndBufSize", "RcvBufSize"):
        set_default("ns3::TcpSocket::" + name, ns.UintegerValue(want.buffer))
    set_default("ns3::TcpSocket::DelAckTimeout", ns.TimeValue(ns.MilliSeconds(1)))
    set_default("ns3::TcpSocketBase::MinRto", ns.TimeValue(ns.MicroSeconds(want.min_rto_us)))
    # By itself 4 Gb/s, which senders with pacing never exceed.
    set_default("ns3::TcpSocketState::MaxPacingRate", ns.DataRateValue(ns.DataRate(want.rate)))
    if want.algorithm == "TcpDctcp":
        set_default("ns3::TcpSocketBase::UseEcn", ns.StringValue("On"))
    ns.RngSeedManager.SetSeed(1)
    ns.RngSeedManager.SetRun(want.seed)


def pair(ns, one, other):
    nodes = ns.NodeContainer()
    nodes.Add(one)
    nodes.Add(other)
    return nodes


def marking(ns, want: argparse.Namespace, devices):
    """A queue that marks all from so many packets on, in front of the receiver."""
    red = "ns3::RedQueueDisc::"
    for name, value in (("UseEcn", True), ("UseHardDrop", False)):
        ns.Config.SetDefault(red + name, ns.BooleanValue(value))
    for name in ("MinTh", "MaxTh"):
        ns.Config.SetDefault(red + name, ns.DoubleValue(want.mark))
    ns.Config.SetDefault(red + "QW", ns.DoubleValue(1))
    ns.Config.SetDefault(red + "MeanPktSize", ns.UintegerValue(1500))
    ns.Config.SetDefault(red + "MaxSize", ns.QueueSizeValue(ns.QueueSize(f"{want.queue}p")))
    control = ns.TrafficControlHelper()
    control.SetRootQueueDisc("ns3::RedQueueDisc", "LinkBandwidth", ns.StringValue(want.rate), "LinkDelay",
                             ns.StringValue(f"{want.delay_us}us"))
    return control.Install(devices).Get(0)


def main() -> None:
    want = arguments()
    from ns import ns

    configure(ns, want)
    nodes = ns.NodeContainer()
    nodes.Create(want.flows + 2)
    router, receiver = nodes.Get(0), nodes.Get(1)
    link = ns.PointToPointHelper()
    link.SetDeviceAttribute("DataRate", ns.StringValue(want.rate))
    link.SetChannelAttribute("Delay", ns.StringValue(f"{want.delay_us}us"))
    link.SetQueue("ns3::DropTailQueue", "MaxSize", ns.StringValue("100000p"))
    ns.InternetStackHelper().Install(nodes)
    plain, addresses = ns.TrafficControlHelper(), ns.Ipv4AddressHelper()
    mask = ns.Ipv4Mask("255.255.255.0")
    for flow in range(want.flows):
        devices = link.Install(pair(ns, nodes.Get(flow + 2), router))
        addresses.SetBase(ns.Ipv4Address(f"10.1.{flow + 1}.0"), mask)
        addresses.Assign(devices)
        plain.Uninstall(devices)
        if want.loss > 0:
            errors = ns.CreateObject[ns.RateErrorModel]()
            errors.SetAttribute("ErrorRate", ns.DoubleValue(want.loss))
            errors.SetAttribute("ErrorUnit", ns.StringValue("ERROR_UNIT_PACKET"))
            devices.Get(1).SetAttribute("ReceiveErrorModel", ns.PointerValue(errors))
    length = 1 if want.mark else want.queue
    link.SetQueue("ns3::DropTailQueue", "MaxSize", ns.StringValue(f"{length}p"))
    devices = link.Install(pair(ns, router, receiver))
    addresses.SetBase(ns.Ipv4Address("10.2.1.0"), mask)
    disc = marking(ns, want, devices) if want.mark else ns.cppyy.gbl.ns3.Ptr["ns3::QueueDisc"]()
    interfaces = addresses.Assign(devices)
    if not want.mark:
        plain.Uninstall(devices)
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()
    sinks = []
    for flow in range(want.flows):
        to = ns.InetSocketAddress(interfaces.GetAddress(1), 5001 + flow)
        bulk = ns.BulkSendHelper("ns3::TcpSocketFactory", to.ConvertTo())
        bulk.SetAttribute("MaxBytes", ns.UintegerValue(0))
        bulk.SetAttribute("SendSize", ns.UintegerValue(16 * SEGMENT))
        bulk.Install(nodes.Get(flow + 2)).Start(ns.MicroSeconds(flow))
        at = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), 5001 + flow)
        sink = ns.PacketSinkHelper("ns3::TcpSocketFactory", at.ConvertTo()).Install(receiver)
        sink.Start(ns.Seconds(0))
        sinks.append(sink.Get(0))
    ns.cppyy.cppdef(SAMPLER)
    ns.cppyy.gbl.ns3.StartSampling(devices.Get(0), disc)

    def received_by(seconds: float) -> list[int]:
        ns.Simulator.Stop(ns.Seconds(seconds))
        ns.Simulator.Run()
        return [ns.cppyy.gbl.ns3.DynamicCast["ns3::PacketSink"](sink).GetTotalRx() for sink in sinks]

    half = received_by(want.seconds / 2)
    whole = received_by(want.seconds / 2)
    gbps = [(after - before) * 16 / want.seconds / 1e9 for before, after in zip(half, whole)]
    queue = list(ns.cppyy.gbl.ns3.g_samples)
    queue = sorted(queue[len(queue) // 2:])
    window = sum(whole) / SEGMENT * 4e-6 * want.delay_us / want.seconds
    rates = " + ".join(f"{rate:.3f}" for rate in gbps)
    fifth, median, most = queue[len(queue) // 20], queue[len(queue) // 2], queue[-1]
    print(f"{want.algorithm}: {rates} = {sum(gbps):.3f} Gb/s; window {window:.1f} segments; "
          f"queue {fifth:.0f} (5 of 100 below), {median:.0f} (median), {most:.0f} (most)")


if __name__ == "__main__":
    main()
