"""How long it takes until anything happens: the command's --help, and the import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from measuring import alone, say, shown, timed

COMMANDS = {
    "nothing": ("python, doing nothing", [sys.executable, "-c", ""]),
    "import": ("import bettersafe", [sys.executable, "-c", "import bettersafe"]),
    "names": ("import bettersafe and all its names", [sys.executable, "-c", "from bettersafe import *"]),
    "help": ("bettersafe --help", [str(Path(sys.executable).parent / "bettersafe"), "--help"]),
}


def measure(quick):
    rows, found = [], {}
    usual = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }  # as people have it
    for key, (name, command) in COMMANDS.items():
        say(name)
        timing, _ = timed(
            lambda c=command: subprocess.run(c, capture_output=True, check=True, env=usual), repeats=2 if quick else 9
        )
        rows.append([name, shown(timing)])
        found[key] = timing
    return {
        "title": "Starting",
        "words": "Whole processes, from the call to the end, Python's own start in them; in brackets how often.",
        "tables": [{"columns": ["what", "time"], "rows": rows}],
        "found": {
            f"start-{key}": {
                "values": {"seconds": found[key]["seconds"]}
                | ({"names": found["names"]["seconds"]} if key == "import" else {}),
                "repeats": found[key]["repeats"],
                "instead": [],
            }
            for key in ("help", "import")
        },
    }


if __name__ == "__main__":
    alone(measure)
