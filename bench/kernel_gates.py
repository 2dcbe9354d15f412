#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the kernels against the shares of the machine's live peak that they are meant to reach.

Prints two markdown tables: for each problem the median share of the live peak on one thread, the gate
(needed) and the target (wanted); and how much faster two threads are, which take turns with one, run
by run, on problems of some 50 ms. Each round runs every problem in a process of its own that
calibrates its own peak; the tables have the median of the rounds, and least and most.

Shares are what `odyssey bench kernel` prints (docs/performance.md). A time on a machine that others
use says little; a share says more, and least and most say how far to trust it. "Undisturbed" is the
fastest single run of all rounds over the highest peak that was measured for that instruction set, of
what is held to another problem: over the fastest run of that one, too.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
TWO_THREADS = (1.85, 1.95)  # gate and target of the speed of two threads over one
# Short runs: the clock hardly changes from one to the next.
TWO_THREADS_PROBLEMS = [
    "attention forward bf16 causal 1 4096 8 2 128", "attention forward bf16 full 1 2048 8 2 128",
    "attention backward bf16 causal 1 2048 8 2 128", "attention backward bf16 full 1 2048 4 1 128",
    "attention forward bf16 full 1 512 32 8 128", "attention backward bf16 full 1 512 32 8 128",
    "attention forward fp32 causal 1 1024 8 2 128", "attention backward fp32 causal 1 1024 8 2 128",
    "matmul forward bf16 2048 4096 4096", "matmul backward_input bf16 2048 4096 4096",
    "matmul backward_weight bf16 2048 4096 4096"]


@dataclass
class Group:
    """Problems that share a gate. Shares are in percent of the live peak, or, with `base`, of the share of the problem
    at the same place of that group."""
    name: str
    gate: float
    target: float
    problems: list
    base: str = ""
    isa: str = ""  # ODYSSEY_MAX_ISA, where not the machine's best


def attention(direction, dtype, *shapes):
    return [f"attention {direction} {dtype} {shape}" for shape in shapes]


def matmul(*problems):
    return [f"matmul {direction} bf16 {shape}" for direction, shape in problems]


CAUSAL, FULL = "causal 1 8192", "full 1 8192"
GROUPS = [
    Group("forward bf16 causal", 44, 52, attention("forward", "bf16", f"{CAUSAL} 8 2 128", f"{CAUSAL} 32 8 128")),
    Group("forward bf16 full", 48, 56, attention("forward", "bf16", f"{FULL} 8 2 128", f"{FULL} 32 8 128")),
    Group("backward bf16 causal", 36, 46,
          attention("backward", "bf16", f"{CAUSAL} 8 2 128", f"{CAUSAL} 32 8 128", "causal 1 4096 8 2 128")),
    Group("forward bf16 causal, heads of 64", 85, 100, attention("forward", "bf16", f"{CAUSAL} 16 4 64"),
          base="forward bf16 causal"),
    Group("backward bf16 causal, heads of 64", 85, 100, attention("backward", "bf16", f"{CAUSAL} 16 4 64"),
          base="backward bf16 causal"),
    Group("forward bf16 full, blocks of 512", 80, 100,
          attention("forward", "bf16", "full 1 512 8 2 128", "full 1 512 32 8 128"), base="forward bf16 full"),
    # The long run of the backward pass is causal: the blocks of its diagonal cost a little more.
    Group("backward bf16 full, blocks of 512", 80, 100,
          attention("backward", "bf16", "full 1 512 8 2 128", "full 1 512 32 8 128"), base="backward bf16 causal"),
    Group("forward fp32 avx512", 64, 73, attention("forward", "fp32", "causal 1 4096 8 2 128", "full 1 4096 8 2 128"),
          isa="avx512"),
    Group("backward fp32 avx512", 55, 66, attention("backward", "fp32", "causal 1 4096 8 2 128", "full 1 2048 8 2 128"),
          isa="avx512"),
    Group("forward fp32 avx2", 72, 81, attention("forward", "fp32", "causal 1 4096 8 2 128", "full 1 4096 8 2 128"),
          isa="avx2"),
    Group("matmul y, dx bf16, reduction up to 4096", 46, 57,
          matmul(("forward", "2048 4096 4096"), ("backward_input", "2048 4096 4096"), ("forward", "2048 14336 4096"),
                 ("backward_input", "2048 4096 14336"))),
    Group("matmul y, dx bf16, reduction of 14336", 39, 50,
          matmul(("forward", "2048 4096 14336"), ("backward_input", "2048 14336 4096"))),
    Group("matmul dw bf16", 40, 50,
          matmul(("backward_weight", "2048 4096 4096"), ("backward_weight", "2048 4096 14336"),
                 ("backward_weight", "8192 4096 4096"))),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="", help="only groups with this word in their name")
    parser.add_argument("--odyssey", type=pathlib.Path, default=ROOT / "build/release/odyssey", help="program")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of A B (default 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for how long to repeat each problem (default 1)")
    parser.add_argument("--one-thread", action="store_true", help="leave the table of two threads out")
    parser.add_argument("--json", type=pathlib.Path, help="also write each row as a line of JSON")
    return parser.parse_args()


def measure(options, problem, threads, isa=""):
    """The rows that `odyssey bench kernel --json` writes, one for each number of threads; none where the machine lacks
    the instruction set."""
    with tempfile.TemporaryDirectory() as folder:
        set_file, rows = pathlib.Path(folder) / "one.txt", pathlib.Path(folder) / "rows.jsonl"
        set_file.write_text(problem + "\n")
        environment = dict(os.environ)
        if isa:
            environment["ODYSSEY_MAX_ISA"] = isa
        done = subprocess.run([options.odyssey, "bench", "kernel", set_file, "--json", rows, "--threads",
                               ",".join(map(str, threads)), "--seconds", str(options.seconds)], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        if done.returncode != 0:
            sys.exit(f"{problem}\n{done.stderr}")
        found = [json.loads(line) for line in rows.read_text().splitlines()]
        return [row for row in found if not isa or row["isa"] == isa]


def measure_all(options, groups):
    """{(group name, problem): [row of each round]}"""
    rows = {}
    for _ in range(options.rounds):
        for group in groups:
            for problem in group.problems:
                rows.setdefault((group.name, problem), []).extend(measure(options, problem, [1], group.isa))
    return {key: found for key, found in rows.items() if found}


def undisturbed(problem_rows, all_rows):
    """The fastest run as a share of the highest peak, in percent."""
    kind = [(row["isa"], row["dtype"]) for row in problem_rows][0]
    fastest = max(row["tflops"] * row["median_seconds"] / row["min_seconds"] for row in problem_rows)
    peak = max(row["live_peak_tflops"] for rows in all_rows for row in rows if (row["isa"], row["dtype"]) == kind)
    return 100 * fastest / peak


def shares(rows):
    return [100 * row["share_of_peak"] for row in rows]


def verdict(value, gate, target):
    return "target" if value >= target else "gate" if value >= gate else "**below**"


def table(groups, rows):
    """One dictionary per problem that was measured."""
    lines = []
    for group in groups:
        for place, problem in enumerate(group.problems):
            found = rows.get((group.name, problem))
            if found is None:
                continue
            share = statistics.median(shares(found))
            gate, target = group.gate, group.target
            best, best_base = undisturbed(found, rows.values()), 100
            if group.base:
                base_rows = rows[group.base, next(g for g in GROUPS if g.name == group.base).problems[place]]
                base, best_base = statistics.median(shares(base_rows)), undisturbed(base_rows, rows.values())
                gate, target = gate * base / 100, target * base / 100
            lines.append({
                "group": group.name, "problem": problem.split(" ", 3)[3], "isa": found[0]["isa"], "share": share,
                "least": min(shares(found)), "most": max(shares(found)), "gate": gate, "target": target,
                "tflops": statistics.median(row["tflops"] for row in found), "undisturbed": best,
                "reached": verdict(share, gate, target),
                "reached_undisturbed": verdict(100 * best / best_base, group.gate, group.target)})
    return lines


def print_table(lines):
    print("| kernel | shape | isa | TFLOP/s | share of peak | least..most | gate | target | reached "
          "| undisturbed | reached |")
    print("|---|---|---|--:|--:|--:|--:|--:|---|--:|---|")
    for line in lines:
        print(f"| {line['group']} | {line['problem']} | {line['isa']} | {line['tflops']:.3f} | {line['share']:.1f} % | "
              f"{line['least']:.1f}..{line['most']:.1f} | {line['gate']:.1f} | {line['target']:.1f} | {line['reached']} | "
              f"{line['undisturbed']:.1f} % | {line['reached_undisturbed']} |")


def two_threads(options):
    """One dictionary per problem: how much faster two threads are, and two live peaks over one."""
    lines = []
    for problem in (p for p in TWO_THREADS_PROBLEMS if options.word in p):
        found = [measure(options, problem, [1, 2]) for _ in range(options.rounds)]
        speedups = [two["speedup"] for _, two in found]
        speedup = statistics.median(speedups)
        lines.append({"problem": problem, "speedup": speedup, "least": min(speedups), "most": max(speedups),
                      "peaks": statistics.median(two["live_peak_tflops"] / one["live_peak_tflops"] for one, two in found),
                      "shares": statistics.median(2 * two["share_of_peak"] / one["share_of_peak"] for one, two in found),
                      "reached": verdict(speedup, *TWO_THREADS)})
    return lines


def print_two_threads(lines):
    print(f"\n| two threads against one, gate {TWO_THREADS[0]}x, target {TWO_THREADS[1]}x | speedup | least..most | reached |"
          " in shares of the peaks | two peaks over one |")
    print("|---|--:|--:|---|--:|--:|")
    for line in lines:
        print(f"| {line['problem']} | {line['speedup']:.2f}x | {line['least']:.2f}..{line['most']:.2f} | {line['reached']} | "
              f"{line['shares']:.2f}x | {line['peaks']:.2f}x |")


def main():
    options = parse_arguments()
    if not options.odyssey.exists():
        sys.exit(f"{options.odyssey}: no such program; build it first, or name it with --odyssey")
    groups = [group for group in GROUPS if options.word in group.name]
    # A group that is held to another one needs it measured too.
    groups = [g for g in GROUPS if g in groups or any(g.name == other.base for other in groups)]
    if not groups and not any(options.word in problem for problem in TWO_THREADS_PROBLEMS):
        sys.exit(f"no group has the word '{options.word}'; there are: {', '.join(g.name for g in GROUPS)}")
    lines = table(groups, measure_all(options, groups))
    if lines:
        print_table(lines)
    twos = [] if options.one_thread or len(os.sched_getaffinity(0)) < 2 else two_threads(options)
    if twos:
        print_two_threads(twos)
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    print(f"\n{datetime.date.today()}, {model}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, "
          f"{options.rounds} rounds")
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines + twos))


if __name__ == "__main__":
    main()
