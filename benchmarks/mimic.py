"""How long `bettersafe sepsis prepare` takes on a made-up cohort of the real one's size, and its peak memory."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import synthetic_mimic


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stays", type=int, default=20_954)
    parser.add_argument("--quick", action="store_true", help="mini-batch k-means")
    parser.add_argument("--starts", type=int, default=10, help="starts of the full k-means")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = synthetic_mimic.write(folder, *synthetic_mimic.cohort(options.stays))
        how = ["--quick"] if options.quick else ["--starts", str(options.starts)]
        command = Path(sys.executable).parent / "bettersafe"
        start = time.perf_counter()
        done = subprocess.run(
            [command, "sepsis", "prepare", *files, "-o", folder / "out", "--json", *how],
            check=True,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(done.stdout)
    print(
        "| stays | rows | k-means | seconds | CPU seconds | peak memory | variance kept: train, test |\n|---|---|---|---|---|---|---|"
    )
    counts, parts = document["counts"], document["parts"]
    kept = ", ".join(f"{100 * parts[part]['explained']:.1f} %" for part in ("train", "test"))
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024**2
    print(
        f"| {counts['stays']:,} | {counts['rows']:,} | {' '.join(how)} | {seconds:.0f} | {cpu:.0f} | {peak:.2f} GB | {kept} |"
    )


if __name__ == "__main__":
    main()
