#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds include_direction.py to its word: a good tree passes, each kind of fault is found and named."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"
GOOD = {
    "odyssey/base/error.h": HEADER,
    "odyssey/comm/group.h": HEADER + '#include "odyssey/base/error.h"\n// MPI_Send is no concern of this file.\n',
    "odyssey/comm/mpi_group.cc": SPDX + "#include <mpi.h>\nint a = MPI_COMM_WORLD;\n",
    "odyssey/config/yaml.cc": SPDX + "#include <yaml-cpp/yaml.h>\n",
    "odyssey/train/loop.cc": SPDX + '#include "odyssey/comm/group.h"\nconst char* a = "MPI_Init";\n',
    "apps/main.cc": SPDX + '#include <CLI/CLI.hpp>\n#include "apps/commands.h"\n#include "odyssey/comm/group.h"\n',
    "apps/commands.h": HEADER,
}


def check(changes):
    """Exit code and output for the good tree with some files added or replaced."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **changes}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        script = Path(__file__).with_name("include_direction.py")
        done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class IncludeDirection(unittest.TestCase):
    def expect_fault(self, changes, text):
        code, output = check(changes)
        self.assertEqual(code, 1, output)
        self.assertIn(text, output)
        self.assertIn(", 1 violations", output)

    def test_good_tree_passes(self):
        self.assertEqual(check({}), (0, "7 files, 0 violations\n"))

    def test_no_folder_includes_what_stands_right_of_it(self):
        self.expect_fault({"odyssey/base/a.h": HEADER + '#include "odyssey/comm/group.h"\n'}, "a.h:3: base may not include comm")

    def test_folders_of_one_group_do_not_include_each_other(self):
        self.expect_fault({"odyssey/io/a.cc": SPDX + '#include "odyssey/comm/group.h"\n'}, "io may not include comm")

    def test_tests_of_a_folder_follow_the_order_too(self):
        self.expect_fault({"odyssey/base/a_test.cc": SPDX + '#include "odyssey/comm/group.h"\n'}, "base may not include comm")

    def test_included_files_exist(self):
        self.expect_fault({"odyssey/io/a.cc": SPDX + '#include "odyssey/base/gone.h"\n'}, "gone.h does not exist")

    def test_project_files_are_named_from_the_root(self):
        self.expect_fault({"odyssey/comm/a.cc": SPDX + '#include "group.h"\n'}, "name project files from the root")
        self.expect_fault({"odyssey/comm/a.cc": SPDX + "#include <odyssey/comm/group.h>\n"}, "in quotes")

    def test_unknown_folders_have_no_place(self):
        self.expect_fault({"odyssey/utils/a.h": HEADER}, "folder utils has no place")

    def test_mpi_stays_in_its_file(self):
        self.expect_fault({"odyssey/comm/a.cc": SPDX + "int a = MPI_COMM_WORLD;\n"}, "a.cc:2: MPI_ outside")
        self.expect_fault({"odyssey/comm/a.cc": SPDX + "#include <mpi.h>\n"}, "belongs into odyssey/comm/mpi_group.cc")

    def test_heavy_headers_stay_in_one_file(self):
        self.expect_fault({"odyssey/config/yaml.h": HEADER + "#include <yaml-cpp/yaml.h>\n"}, "belongs into odyssey/config/yaml.cc")
        self.expect_fault({"odyssey/train/a.cc": SPDX + "#include <nlohmann/json.hpp>\n"}, "belongs into odyssey/io/json.cc")
        self.expect_fault({"apps/second.cc": SPDX + "#include <CLI/CLI.hpp>\n"}, "one file only")
        self.expect_fault({"apps/b.h": HEADER + "#include <CLI/CLI.hpp>\n"}, "belongs into apps alone")

    def test_files_begin_as_they_should(self):
        self.expect_fault({"odyssey/base/a.cc": "int a;\n"}, "the first line must be")
        self.expect_fault({"odyssey/base/a.h": SPDX}, "no #pragma once")

    def test_a_tree_without_sources_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(__file__).with_name("include_direction.py")
            self.assertEqual(subprocess.run([sys.executable, script, folder], capture_output=True, check=False).returncode, 1)


if __name__ == "__main__":
    unittest.main()
