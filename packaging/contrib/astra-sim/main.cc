// astra-sim-srd: ASTRA-sim's workloads on a fabric of OpenSRD.
//
//   astra-sim-srd --fabric FILE --ranks N --workload PREFIX --system FILE --memory FILE [--every M] [--set KEY=VALUE ...]
//
// PREFIX.RANK.et are Chakra's traces; system and memory are ASTRA-sim's own files; FILE is a fabric of OpenSRD's, on
// which every M-th host has a rank (1). Ends with 1 if any rank
// has not come to its end.
#include "network.hh"

#include "astra-sim/common/Logging.hh"
#include "astra-sim/system/Sys.hh"
#include "astra-sim/workload/Workload.hh"
#include "remote_memory_backend/analytical/AnalyticalRemoteMemory.hh"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

int main(int argc, char **argv) {
  std::map<std::string, std::string> given{{"--comm-groups", "empty"}, {"--logging", "empty"}, {"--every", "1"}};
  std::vector<const char *> sets;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) {
      std::fprintf(stderr, "%s wants a value\n", argv[i]);
      return 2;
    }
    if (key == "--set") {
      sets.push_back(argv[i + 1]);
    } else {
      given[key] = argv[i + 1];
    }
  }
  for (const char *key : {"--fabric", "--ranks", "--workload", "--system", "--memory"}) {
    if (!given.count(key)) {
      std::fprintf(stderr, "%s is missing: astra-sim-srd --fabric FILE --ranks N --workload PREFIX --system FILE --memory FILE\n", key);
      return 2;
    }
  }
  const int ranks = std::atoi(given["--ranks"].c_str());
  const int every = std::atoi(given["--every"].c_str());
  if (ranks < 1 || every < 1) {
    std::fprintf(stderr, "--ranks %s --every %s: write numbers from 1 on\n", given["--ranks"].c_str(), given["--every"].c_str());
    return 2;
  }

  AstraSim::LoggerFactory::init(given["--logging"]);
  const srd_sim fabric = opensrd::open_fabric(given["--fabric"].c_str(), sets.data(), sets.size(), ranks, every);
  Analytical::AnalyticalRemoteMemory memory(given["--memory"]);
  int unfinished = ranks;
  std::vector<std::unique_ptr<opensrd::Network>> networks;
  std::vector<AstraSim::Sys *> systems;  // ASTRA-sim deletes them itself when their work is done
  for (int rank = 0; rank < ranks; ++rank) {
    networks.push_back(std::make_unique<opensrd::Network>(fabric, rank, &unfinished));
    // One dimension: how ranks are joined is the fabric's business.
    systems.push_back(new AstraSim::Sys(rank, given["--workload"], given["--comm-groups"], given["--system"], &memory,
                                        networks.back().get(), {ranks}, {1}, 1, 1, false));
  }
  for (AstraSim::Sys *system : systems) {
    system->workload->fire();
  }
  opensrd::check(srd_sim_run(fabric), "run");

  srd_sim_totals totals;
  opensrd::check(srd_sim_job_totals(fabric, 0, &totals), "totals");
  std::printf("%llu messages of %llu bytes, the last at %.3f us\n", (unsigned long long)totals.messages_sent,
              (unsigned long long)totals.bytes_sent, totals.last_ns / 1e3);
  std::printf("%s\n", srd_sim_statistics(fabric));
  AstraSim::LoggerFactory::shutdown();
  if (unfinished > 0) {
    std::fprintf(stderr, "%d of %d ranks have not come to their end\n", unfinished, ranks);
  }
  opensrd::check(srd_sim_close(fabric), "close");
  return unfinished > 0;
}
