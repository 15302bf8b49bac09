// One bottleneck for csg-htsim: bulk TCP flows over a drop-tail queue, for benches/simulators.py.
//
// usage: htsim RATE_MBPS RTT_MS QUEUE_PACKETS FLOWS SECONDS
// Prints delivered packets, goodput in bit/s and processor time in seconds as JSON.

#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "config.h"
#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "tcp.h"

namespace {

constexpr int PACKET_BYTES = 1500;
constexpr int PAYLOAD_BYTES = 1448;

double processor_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: htsim RATE_MBPS RTT_MS QUEUE_PACKETS FLOWS SECONDS\n");
        return 2;
    }
    const auto rate_mbps = static_cast<uint64_t>(std::atoll(argv[1]));
    const double rtt_ms = std::atof(argv[2]);
    const int queue_packets = std::atoi(argv[3]);
    const int flows = std::atoi(argv[4]);
    const double duration_s = std::atof(argv[5]);

    std::cout.setstate(std::ios::failbit);  // it prints each timeout
    srand(1);
    EventList events;
    events.setEndtime(timeFromSec(duration_s));
    Packet::set_packet_size(PACKET_BYTES);

    Queue bottleneck(speedFromMbps(rate_mbps), memFromPkt(queue_packets), events, nullptr);
    Pipe there(timeFromMs(rtt_ms / 2), events);
    Pipe back(timeFromMs(rtt_ms / 2), events);
    TcpRtxTimerScanner timers(timeFromMs(10), events);

    std::vector<std::unique_ptr<TcpSrc>> sources;
    std::vector<std::unique_ptr<TcpSink>> sinks;
    std::vector<std::unique_ptr<route_t>> routes;
    for (int flow = 0; flow < flows; flow++) {
        sources.push_back(std::make_unique<TcpSrc>(nullptr, nullptr, events));
        sinks.push_back(std::make_unique<TcpSink>());
        timers.registerTcp(*sources.back());
        auto out = std::make_unique<route_t>();
        out->push_back(&bottleneck);
        out->push_back(&there);
        out->push_back(sinks.back().get());
        auto in = std::make_unique<route_t>();
        in->push_back(&back);
        in->push_back(sources.back().get());
        const auto start = static_cast<simtime_picosec>(drand() * timeFromMs(rtt_ms));
        sources.back()->connect(*out, *in, *sinks.back(), start);
        routes.push_back(std::move(out));
        routes.push_back(std::move(in));
    }

    const double before_s = processor_s();
    while (events.doNextEvent()) {
    }
    const double cpu_s = processor_s() - before_s;
    uint64_t bytes = 0;
    for (const auto& sink : sinks) {
        bytes += sink->cumulative_ack();
    }
    const double packets = static_cast<double>(bytes) / PACKET_BYTES;
    std::printf("{\"packets_delivered\": %.0f, \"goodput_bps\": %.0f, \"cpu_s\": %.6f}\n", packets,
                packets * PAYLOAD_BYTES * 8 / duration_s, cpu_s);
    std::fflush(stdout);
    std::_Exit(0);  // its destructors expect an empty event list
}
