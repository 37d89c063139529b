#include "network.hh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace opensrd {

namespace {

// The job of all ranks.
constexpr uint32_t job = 0;

// What ASTRA-sim wants to have called: its handlers know no status.
struct Call {
  void (*handler)(void *);
  void *argument;
};

void call(void *argument, int status) {
  check(status, "a message");
  const Call it = *static_cast<Call *>(argument);
  delete static_cast<Call *>(argument);
  it.handler(it.argument);
}

// Nanoseconds of a time span of ASTRA-sim's.
uint64_t nanoseconds(AstraSim::timespec_t span) {
  long double unit = 1;
  switch (span.time_res) {
    case AstraSim::SE: unit = 1e9L; break;
    case AstraSim::MS: unit = 1e6L; break;
    case AstraSim::US: unit = 1e3L; break;
    case AstraSim::NS: unit = 1; break;
    case AstraSim::FS: unit = 1e-6L; break;
  }
  return static_cast<uint64_t>(std::llround(span.time_val * unit));
}

}  // namespace

void check(int status, const char *what) {
  if (status != SRD_SIM_OK) {
    std::fprintf(stderr, "%s: %s\n", what, srd_sim_message());
    std::exit(1);
  }
}

srd_sim open_fabric(const char *file, const char *const *sets, size_t set_count, uint32_t ranks, uint32_t every) {
  if (srd_sim_version() != SRD_SIM_VERSION) {
    std::fprintf(stderr, "libsrd-sim.so has version %u of its interface, and this program is built for %d: build it again\n",
                 srd_sim_version(), SRD_SIM_VERSION);
    std::exit(1);
  }
  srd_sim fabric = 0;
  check(srd_sim_open(file, sets, set_count, &fabric), "fabric");
  std::vector<uint32_t> hosts;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    hosts.push_back(rank * every);
  }
  uint32_t number = 0;
  check(srd_sim_add_job(fabric, nullptr, hosts.data(), ranks, &number), "ranks");
  return fabric;
}

Network::Network(srd_sim fabric, int rank, int *unfinished)
    : AstraNetworkAPI(rank), fabric(fabric), unfinished(unfinished) {}

int Network::sim_send(void *, uint64_t count, int, int dst, int tag, AstraSim::sim_request *, void (*handler)(void *),
                      void *argument) {
  check(srd_sim_send(fabric, job, rank, dst, static_cast<uint32_t>(tag), static_cast<int64_t>(count), call,
                     new Call{handler, argument}),
        "sim_send");
  return 0;
}

int Network::sim_recv(void *, uint64_t count, int, int src, int tag, AstraSim::sim_request *, void (*handler)(void *),
                      void *argument) {
  check(srd_sim_recv(fabric, job, src, rank, static_cast<uint32_t>(tag), static_cast<int64_t>(count), call,
                     new Call{handler, argument}),
        "sim_recv");
  return 0;
}

void Network::sim_schedule(AstraSim::timespec_t delta, void (*handler)(void *), void *argument) {
  check(srd_sim_schedule(fabric, nanoseconds(delta), call, new Call{handler, argument}), "sim_schedule");
}

AstraSim::timespec_t Network::sim_get_time() {
  uint64_t now = 0;
  check(srd_sim_now(fabric, &now), "sim_get_time");
  return {AstraSim::NS, static_cast<long double>(now)};
}

void Network::sim_notify_finished() { --*unfinished; }

}  // namespace opensrd
