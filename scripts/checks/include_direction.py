#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the sources: who includes whom, where outside libraries may show, how files begin.

include_direction.py [ROOT]   prints each violation as file:line: text; exit code 1 when there is one.
"""
import re
import sys
from pathlib import Path

# A folder includes itself and what stands left of it; folders of one group may not include each other.
ORDER = [
    ["base"],
    ["sequence"],
    ["config", "comm", "io", "kernels"],
    ["schedule", "data"],
    ["context", "plan"],
    ["model"],
    ["train"],
]
LEVEL = {folder: level for level, group in enumerate(ORDER) for folder in group}

# Outside libraries with slow or leaky headers: the one file that may include each.
OUTSIDE = {
    "CLI/": "apps",  # any one .cc of apps/
    "mpi.h": "odyssey/comm/mpi_group.cc",
    "nlohmann/": "odyssey/io/json.cc",
    "oneapi/dnnl/": "odyssey/kernels/matmul.cc",
    "yaml-cpp/": "odyssey/config/yaml.cc",
}
SOURCES = ["odyssey", "apps", "examples", "bench", "tests"]
# Stands in front of MPI itself, in tests.
SHIM = "odyssey/comm/synchronous_sends.cc"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SPDX = "// SPDX-License-Identifier: Apache-2.0"


def without_comments(lines):
    """The same lines with // and /* */ comments and string literals blanked."""
    inside = False
    for line in lines:
        if inside:
            end = line.find("*/")
            if end < 0:
                yield ""
                continue
            line, inside = line[end + 2 :], False
        if not INCLUDE.match(line):
            line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
        line = re.sub(r"/\*.*?\*/", " ", line)
        line = re.sub(r"//.*", "", line)
        start = line.find("/*")
        if start >= 0:
            line, inside = line[:start], True
        yield line


class Checker:
    def __init__(self, root):
        self.root = root
        self.violations = []
        self.users = {prefix: set() for prefix in OUTSIDE}  # files of apps/ by library

    def report(self, path, number, text):
        self.violations.append(f"{path.as_posix()}:{number}: {text}")

    def check_include(self, path, number, kind, name):
        mine = path.parts[1] if path.parts[0] == "odyssey" else None
        if name.startswith("odyssey/"):
            if kind != '"':
                self.report(path, number, f'write "{name}" in quotes')
            if not (self.root / name).is_file():
                self.report(path, number, f"{name} does not exist")
            theirs = name.split("/")[1]
            if mine is not None and mine != theirs and LEVEL.get(theirs, 99) >= LEVEL.get(mine, -1):
                self.report(path, number, f"{mine} may not include {theirs}")
        elif kind == '"' and not (path.parts[0] != "odyssey" and (self.root / name).is_file()):
            self.report(path, number, f'"{name}": name project files from the root, as "odyssey/folder/file.h"')
        for prefix, owner in OUTSIDE.items():
            if name.startswith(prefix) and kind == "<":
                self.check_outside(path, number, name, prefix, owner)

    def check_outside(self, path, number, name, prefix, owner):
        if owner != path.as_posix() and not (owner == path.parts[0] and path.suffix == ".cc"):
            self.report(path, number, f"<{name}> belongs into {owner} alone")
        elif owner == "apps":
            self.users[prefix].add(path.as_posix())
            if len(self.users[prefix]) > 1:
                self.report(path, number, f"<{name}> may be included by one file only, not by {sorted(self.users[prefix])}")

    def check_file(self, path):
        lines = (self.root / path).read_text(encoding="utf-8").splitlines()
        if not lines or lines[0] != SPDX:
            self.report(path, 1, f"the first line must be {SPDX}")
        if path.suffix == ".h" and "#pragma once" not in lines:
            self.report(path, 1, "no #pragma once")
        if path.parts[0] == "odyssey" and path.parts[1] not in LEVEL:
            self.report(path, 1, f"folder {path.parts[1]} has no place in the order: add it to this check and to DESIGN.md")
        for number, line in enumerate(without_comments(lines), start=1):
            include = INCLUDE.match(line)
            if path.as_posix() == SHIM and re.search(r"\bP?MPI_|<mpi\.h>", line):
                continue
            if include:
                self.check_include(path, number, include.group(1), include.group(2))
            elif re.search(r"\bMPI_", line) and path.as_posix() != "odyssey/comm/mpi_group.cc":
                self.report(path, number, "MPI_ outside of odyssey/comm/mpi_group.cc")

    def run(self):
        count = 0
        for top in SOURCES:
            for path in sorted((self.root / top).rglob("*")):
                if path.suffix in (".h", ".cc") and path.is_file():
                    self.check_file(path.relative_to(self.root))
                    count += 1
        if count == 0:
            self.violations.append(f"{self.root}: no source files here")
        return count


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    checker = Checker(root)
    count = checker.run()
    for violation in checker.violations:
        print(violation)
    print(f"{count} files, {len(checker.violations)} violations")
    return 1 if checker.violations else 0


if __name__ == "__main__":
    sys.exit(main())
