// SPDX-License-Identifier: Apache-2.0
#include "apps/calibrate_help.h"

namespace odyssey {

const std::string_view kBenchPlanHelp =
    R"(odyssey bench plan: holds the planner against this machine

Usage: odyssey bench plan FILE.yml [key=value ...] [options]
  FILE.yml   this machine, as odyssey calibrate wrote it
  key=value  as in odyssey bench attention; here 8 query heads and 2 key/value heads are the default

Runs attention forward and backward on every layout, by turns, and prints each beside its prediction;
then the mean error, and how many pairs of layouts are in the right order. Calls after the first are
counted. Where other guests share the machine its speed changes within seconds: the share of attention
in a time is held to the live peak just before and after, and the median of the repeats is shown.

Example:
  odyssey bench plan here.yml --lengths 4096 --repeats 8

Options:
  --ranks LIST              numbers of ranks (default 4,8)
  --lengths LIST            lengths of the sequence (default 2048,4096,8192)
  --strategies LIST         of all_gather, ring, ulysses, usp (default: all)
  --placements LIST         of contiguous, dual_chunk_swap, striped (default: the first two)
  --repeats N               how often the table is run (default 3)
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  --json FILE               also writes each row as a line of JSON; a file that is there is emptied
  -h, --help                this text
)";

const std::string_view kCalibrateHelp =
    R"(odyssey calibrate: measures this machine for odyssey plan

Usage: odyssey calibrate [key=value ...] [options]
  key=value  base_num_query_heads (default 8), base_num_kv_heads (2), head_dim (128), dtype
             (bfloat16): of the attention that is measured; plan refuses another dtype

Measures attention on blocks of several sizes, products with weights, passes over memory and
transfers, and six whole attention calls, on all ranks at once, and prints a file that odyssey plan
hardware=FILE.yml takes. Under mpirun or srun it measures all hosts. Takes half a minute. odyssey
bench plan tells how good the file is; docs/planner.md describes it.

Example:
  odyssey calibrate --output here.yml

Options:
  --output FILE             writes the file, as a whole or not at all; a file that is there is
                            replaced
  --quick                   small blocks, seconds only: rough
  --ranks N                 ranks that work at once (default: two a core, or all processes)
  --comm auto|threads|mpi   what ranks are (default auto: processes under mpirun or srun, else
                            threads)
  -h, --help                this text
)";

}  // namespace odyssey
