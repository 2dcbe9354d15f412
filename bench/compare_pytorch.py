#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch and `odyssey bench kernel` on the same shapes, by turns, and prints both.

Takes the attention and matmul lines of a set (see `odyssey bench --help`); other kernels are left
out. For each problem the two run A B A B, a fresh odyssey process and this process, with the same
number of threads; the table has the median of the rounds' medians. Both use wall time.

What is compared:
  attention forward   scaled_dot_product_attention without gradients
  attention backward  torch.autograd.grad of its output, the forward not counted
                      (odyssey: delta, zeros, attend_backward; gradients in fp32, PyTorch: in dtype)
  matmul              y = x w^T; dx = dy w; dw = dy^T x (odyssey adds to an fp32 dw, PyTorch writes dtype)
Tensors lie as [B, S, heads, D] in both. Grouped queries: see --gqa.

PyTorch is not needed for anything else here. The first call makes a virtual environment in
build/pytorch-venv and installs torch and numpy from PyPI there (several GB).
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
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "pytorch-venv"
FEWEST_RUNS, MOST_RUNS = 3, 31  # as odyssey bench does


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", nargs="?", default=ROOT / "bench/sets/compare.txt", type=pathlib.Path,
                        help="set file (default bench/sets/compare.txt)")
    parser.add_argument("--odyssey", type=pathlib.Path, help="program (default build/release/odyssey or build/odyssey)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: the cores")
    parser.add_argument("--seconds", type=float, default=1.0, help="for how long to repeat in each round (default 1)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of A B (default 2)")
    parser.add_argument("--gqa", choices=("auto", "native", "repeat"), default="auto",
                        help="native: enable_gqa=True; repeat: keys and values repeated in the timed call; "
                             "auto: tries both, takes the faster (default)")
    parser.add_argument("--json", type=pathlib.Path, help="also write each row as a line of JSON")
    return parser.parse_args()


def enter_venv(threads):
    """Starts this script again inside the virtual environment, after making it if need be."""
    python = VENV / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not python.exists():
        venv.create(VENV, with_pip=True)
    if subprocess.run([python, "-c", "import torch, numpy"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode != 0:
        print(f"installing torch and numpy in {VENV}", file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy"], check=True)
    # OpenMP reads its variable once, at the start of the process.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


def read_set(path):
    """The attention and matmul lines, as (line, words), and the number of lines left out."""
    problems, left_out = [], 0
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words and words[0] in ("attention", "matmul"):
            problems.append((" ".join(words), words))
        elif words:
            left_out += 1
    return problems, left_out


def run_odyssey(program, line, options):
    """The row of one problem, as `odyssey bench kernel --json` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        set_file, rows = pathlib.Path(folder) / "one.txt", pathlib.Path(folder) / "rows.jsonl"
        set_file.write_text(line + "\n")
        done = subprocess.run([program, "bench", "kernel", set_file, "--json", rows, "--threads", str(options.threads),
                               "--seconds", str(options.seconds)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS=str(options.threads)))
        if done.returncode != 0:
            sys.exit(f"{line}\n{done.stderr}")
        return json.loads(rows.read_text())


def attention_call(torch, words, gqa):
    _, direction, dtype, mask, *numbers = words
    batch, sequence, heads, kv_heads, head_dim = map(int, numbers)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]

    def tensor(count):  # [B, S, heads, D] in memory, seen as [B, heads, S, D]
        return torch.randn(batch, sequence, count, head_dim, dtype=dtype).transpose(1, 2)

    q, k, v, dout = tensor(heads), tensor(kv_heads), tensor(kv_heads), tensor(heads)
    group = heads // kv_heads

    def forward():
        keys, values = k, v
        if gqa == "repeat" and group > 1:
            keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        return torch.nn.functional.scaled_dot_product_attention(
            q, keys, values, is_causal=mask == "causal", enable_gqa=gqa == "native" and group > 1)

    if direction == "forward":
        def call():
            with torch.no_grad():
                forward()
        return call
    for one in (q, k, v):
        one.requires_grad_()
    out = forward()
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def matmul_call(torch, words):
    _, direction, dtype, *numbers = words
    t, n, k = map(int, numbers)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    x, w, dy = (torch.randn(*shape, dtype=dtype) for shape in ((t, k), (n, k), (t, n)))
    call = {"forward": lambda: torch.nn.functional.linear(x, w), "backward_input": lambda: dy @ w,
            "backward_weight": lambda: dy.t() @ x}[direction]

    def without_gradients():
        with torch.no_grad():
            call()
    return without_gradients


def median_seconds(call, seconds):
    call()  # warms up
    runs = []
    while len(runs) < FEWEST_RUNS or (sum(runs) < seconds and len(runs) < MOST_RUNS):
        start = time.perf_counter()
        call()
        runs.append(time.perf_counter() - start)
    return statistics.median(runs)


def pytorch_call(torch, words, gqa):
    """The call, and how it treats grouped queries."""
    if words[0] == "matmul":
        return matmul_call(torch, words), "-"
    if words[5 + 1] == words[5 + 2]:  # heads, kv_heads
        return attention_call(torch, words, "repeat"), "-"
    ways = ("native", "repeat") if gqa == "auto" else (gqa,)
    calls = [(attention_call(torch, words, way), way) for way in ways]
    if len(calls) == 1:
        return calls[0]

    def once(call):
        call()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    return min(calls, key=lambda pair: once(pair[0]))


def compare(torch, program, line, words, options):
    call, gqa = pytorch_call(torch, words, options.gqa)
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(run_odyssey(program, line, options))
        theirs.append(median_seconds(call, options.seconds))
    odyssey = statistics.median(row["median_seconds"] for row in ours)
    pytorch = statistics.median(theirs)
    ratios = [their / our["median_seconds"] for our, their in zip(ours, theirs)]
    return {"problem": line, "isa": ours[0]["isa"], "threads": options.threads, "gqa": gqa,
            "odyssey_seconds": odyssey, "pytorch_seconds": pytorch, "speedup": pytorch / odyssey,
            "least_speedup": min(ratios), "most_speedup": max(ratios),
            "share_of_peak": statistics.median(row["share_of_peak"] for row in ours),
            "pytorch_version": torch.__version__}


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def find_program(given):
    for path in [given] if given else [ROOT / "build/release/odyssey", ROOT / "build/odyssey"]:
        if path.exists():
            return path.resolve()
    sys.exit(f"{given or 'build/release/odyssey'}: no such program; build it first, or name it with --odyssey")


def main():
    options = parse_arguments()
    program = find_program(options.odyssey)
    if not options.set.is_file():
        sys.exit(f"{options.set}: no such set file")
    enter_venv(options.threads)
    import torch
    torch.set_num_threads(options.threads)
    problems, left_out = read_set(options.set)
    print(f"{datetime.date.today()}, {machine()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), {options.threads} threads, "
          f"{options.rounds} rounds of A B; {left_out} lines of other kernels left out")
    print(f"{'problem':<52} {'isa':<8} {'GQA':<7} {'odyssey ms':>10} {'PyTorch ms':>10} {'ratio':>6}  least..most  share")
    rows = options.json.open("w") if options.json else None
    for line, words in problems:
        row = compare(torch, program, line, words, options)
        print(f"{line:<52} {row['isa']:<8} {row['gqa']:<7} {1e3 * row['odyssey_seconds']:>10.2f} "
              f"{1e3 * row['pytorch_seconds']:>10.2f} {row['speedup']:>5.2f}x  {row['least_speedup']:>5.2f}..{row['most_speedup']:<5.2f} "
              f"{100 * row['share_of_peak']:>4.0f}%", flush=True)
        if rows:
            rows.write(json.dumps(row) + "\n")
            rows.flush()
    print("ratio: time of PyTorch / time of odyssey, above 1 odyssey is faster; share: of odyssey, of the live peak;\n"
          "GQA: how PyTorch had grouped queries, native (enable_gqa) or repeat (keys and values repeated, timed too)")


if __name__ == "__main__":
    main()
