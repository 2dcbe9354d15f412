// SPDX-License-Identifier: Apache-2.0
#include "odyssey/train/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "odyssey/model/decoder.h"

namespace odyssey {
namespace {

// The first number in a file, or -1; "max" in a control group means no limit.
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

}  // namespace

MemoryNeed memory_need(const RunConfig& config) {
  const std::vector<ParameterGroup> groups = parameter_groups(config.model);
  const int shards = config.parallel.ranks() / config.parallel.data;
  int64_t shard = 0;
  for (const ParameterGroup& group : groups) shard += part_size(group.size, shards, 0);
  const bool narrow = config.model.data_type == DataType::kBfloat16;
  const int64_t parameters = narrow ? ShardedParameters<bf16>::bytes_of_rank(groups, shards)
                                    : ShardedParameters<float>::bytes_of_rank(groups, shards);
  MemoryNeed need;
  need.state = 4 * 4 * shard;  // master weights, gradients, two moments
  need.whole_group = parameters - 2 * 4 * shard;
  need.activations =
      narrow ? Decoder<bf16>::activation_bytes(config) : Decoder<float>::activation_bytes(config);
  return need;
}

int64_t available_memory() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name; meminfo >> name;) {
    int64_t kibibytes = 0;
    std::string rest;
    if (name == "MemAvailable:" && meminfo >> kibibytes) available = kibibytes * 1024;
    std::getline(meminfo, rest);
  }
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) available = std::min(available, std::max<int64_t>(0, limit - used));
  return available;
}

}  // namespace odyssey
