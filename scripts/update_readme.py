#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands whose output README.md shows and puts their output in.

A block of the README looks so; the command runs in bash at the root of the built tree:
    <!-- output of: COMMAND -->
    ...
    <!-- end -->
Lines that start with "|" (a table) go in as they are, anything else as an indented block.
usage: update_readme.py [--file FILE] [WORD]
  --file FILE  another page than README.md
  WORD         only commands with that word
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- output of: (.*?) -->\n)(.*?)(<!-- end -->)", re.S)
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", PATH=f"{ROOT}/build/release:{os.environ['PATH']}")


def run(command):
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, env=ENVIRONMENT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 127:
        sys.exit(f"not built yet: {command}\n{done.stdout}")
    return done.stdout.rstrip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("word", nargs="?", default="")
    options = parser.parse_args()
    word, page = options.word, options.file

    def replace(match):
        head, command, old, end = match.groups()
        if word not in command:
            return match.group(0)
        print(f"running: {command}", flush=True)
        output = run(command)
        if not output:
            sys.exit(f"no output from: {command}")
        if not output.lstrip().startswith("|"):
            output = "\n".join(("    " + line).rstrip() for line in output.splitlines())
        return f"{head}\n{output}\n\n{end}"

    page.write_text(BLOCK.sub(replace, page.read_text()))


if __name__ == "__main__":
    main()
