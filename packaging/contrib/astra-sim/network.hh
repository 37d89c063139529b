// ASTRA-sim's network as a fabric of OpenSRD: AstraNetworkAPI over srd_sim.h. One for each rank; all share a simulation.
#pragma once

#include "astra-sim/common/AstraNetworkAPI.hh"
#include <srd_sim.h>

namespace opensrd {

// Opens the fabric and places the ranks: rank i on host i times `every`, as many as `ranks`. Ends the program with a message if that cannot be.
srd_sim open_fabric(const char *file, const char *const *sets, size_t set_count, uint32_t ranks, uint32_t every);

// Ends the program with the library's message unless the status is SRD_SIM_OK.
void check(int status, const char *what);

class Network final : public AstraSim::AstraNetworkAPI {
 public:
  // `unfinished` counts the ranks that still have work, for all of them.
  Network(srd_sim fabric, int rank, int *unfinished);

  int sim_send(void *buffer, uint64_t count, int type, int dst, int tag, AstraSim::sim_request *request,
               void (*handler)(void *), void *argument) override;
  int sim_recv(void *buffer, uint64_t count, int type, int src, int tag, AstraSim::sim_request *request,
               void (*handler)(void *), void *argument) override;
  void sim_schedule(AstraSim::timespec_t delta, void (*handler)(void *), void *argument) override;
  AstraSim::timespec_t sim_get_time() override;
  void sim_notify_finished() override;

 private:
  srd_sim fabric;
  int *unfinished;
};

}  // namespace opensrd
