"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_starts_without_numpy():
    code = "import sys, bettersafe.cli.main; print([m for m in ('numpy', 'pyarrow', 'scipy', 'duckdb') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
