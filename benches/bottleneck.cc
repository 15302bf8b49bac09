// The benchmark's scenario in ns-3 (3.37): bulk TCP flows over one droptail bottleneck between two
// nodes, the least that ns-3 can be asked to simulate. Prints one JSON object.
//
// usage: bottleneck --cc=TcpCubic --rate=100 --rtt=40 --queue=333 --flows=1 --duration=60
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <cstdio>
#include <ctime>
#include <string>
#include <sys/resource.h>

using namespace ns3;

static double CpuSeconds()
{
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char* argv[])
{
    std::string cc = "TcpCubic";
    double rateMbps = 100, rttMs = 40, durationS = 60;
    uint32_t queue = 333, flows = 1;
    CommandLine line;
    line.AddValue("cc", "congestion control, a TypeId without ns3::", cc);
    line.AddValue("rate", "bottleneck in Mbit/s", rateMbps);
    line.AddValue("rtt", "round-trip propagation in ms", rttMs);
    line.AddValue("queue", "packets that may wait", queue);
    line.AddValue("flows", "bulk flows", flows);
    line.AddValue("duration", "simulated seconds", durationS);
    line.Parse(argc, argv);

    const uint32_t mss = 1448;
    const double pipeBytes = rateMbps * 1e6 / 8 * rttMs * 1e-3 + queue * 1500.0;
    const uint32_t buffer = std::max(524288.0, flows <= 16 ? 2 * pipeBytes : 8 * pipeBytes / flows);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName("ns3::" + cc)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(mss));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));

    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.DisableFlowControl();
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rateMbps * 1e6))));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(int64_t(rttMs * 5e5))));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize",
                  QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, queue)));
    NetDeviceContainer devices = link.Install(nodes);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    const Ipv4Address receiver = addresses.Assign(devices).GetAddress(1);

    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t flow = 0; flow < flows; flow++)
    {
        const uint16_t port = 10000 + flow;
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(nodes.Get(1)).Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(receiver, port));
        bulk.Install(nodes.Get(0)).Start(Seconds(start->GetValue(0, rttMs * 1e-3)));
    }

    Simulator::Stop(Seconds(durationS));
    const double before = CpuSeconds();
    Simulator::Run();
    const double cpuS = CpuSeconds() - before;

    uint64_t bytes = 0;
    for (const auto& sink : sinks)
    {
        bytes += sink->GetTotalRx();
    }
    Ptr<Queue<Packet>> fifo = DynamicCast<PointToPointNetDevice>(devices.Get(0))->GetQueue();
    const uint64_t sent = fifo->GetTotalReceivedPackets() - fifo->GetNPackets();
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("{\"packets_delivered\": %lu, \"goodput_bps\": %.0f, \"cpu_s\": %.6f, "
                "\"max_rss_kib\": %ld}\n",
                (unsigned long)sent, bytes * 8.0 / durationS, cpuS, usage.ru_maxrss);
    Simulator::Destroy();
    return 0;
}
