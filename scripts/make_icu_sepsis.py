"""Write src/bettersafe/envs/icu_sepsis.npz: the part of the ICU-Sepsis data that carries information.

    python scripts/make_icu_sepsis.py [icu_sepsis-2.0.1-py3-none-any.whl | .../envs/assets/dynamics.npz]

Without an argument the installed package `icu-sepsis` is used; it is found but never imported (it would
import `gym` and print). The dense tensor [716, 25, 716] shrinks to the rows of the 2,238 admissible pairs,
because every other row follows from them; that claim, like the others the loader rests on, is checked before
anything is written.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

SHA256 = "36498f924c693c6be7ae18f3ce9e1a8e48d41f80f2cc553b3993b1373c8a9109"  # dynamics.npz of icu-sepsis 2.0.1
ASSETS = "icu_sepsis/envs/assets"
TARGET = Path(__file__).resolve().parents[1] / "src" / "bettersafe" / "envs" / "icu_sepsis.npz"
SCHEMA = 1  # bettersafe.envs.icu_sepsis refuses any other

N_PATIENTS, N_ACTIONS = 713, 25
DEATH, SURVIVAL, SINK = 713, 714, 715
MEAN_TOL = 1e-15  # the package normalised its rows once more after averaging: equal to a few last bits

Arrays = dict[str, npt.NDArray[Any]]


def installed_dynamics() -> Path:
    """Where the installed package keeps dynamics.npz."""
    spec = importlib.util.find_spec("icu_sepsis")
    if spec is None or spec.origin is None:
        raise SystemExit("icu-sepsis is not installed; give the path of its wheel or of its dynamics.npz.")
    return Path(spec.origin).parent / "envs" / "assets" / "dynamics.npz"


def read_original(path: Path) -> tuple[Arrays, list[list[int]]]:
    """The arrays of dynamics.npz, and the admissible actions of every state, listed in the file beside it."""
    folder = zipfile.Path(path, ASSETS + "/") if path.suffix == ".whl" else path.parent
    dynamics = (folder / "dynamics.npz").read_bytes()
    digest = hashlib.sha256(dynamics).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"dynamics.npz must have sha256 {SHA256} (icu-sepsis 2.0.1); in {path} it has {digest}.")
    with np.load(io.BytesIO(dynamics), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    listing = (folder / "admissible_actions.txt").read_text(encoding="utf-8")
    # The first line counts the actions of every state; each further line lists those of one state.
    return arrays, [[int(a) for a in line.split()] for line in listing.splitlines()[1:]]


def admissible_rows(arrays: Arrays, admissible: list[list[int]]) -> Arrays:
    """What the loader needs, after checking everything that it will take for granted."""
    table, initial = arrays["tx_mat"], arrays["d_0"]
    assert table.shape == (SINK + 1, N_ACTIONS, SINK + 1)
    assert not np.any(initial[N_PATIENTS:]), "an episode starts dead, cured or in the sink"
    assert not np.any(table[:N_PATIENTS, :, SINK]), "a patient falls into the sink"
    assert np.all(table[N_PATIENTS:, :, SINK] == 1.0), "death or survival does not end the episode"
    assert not np.any(arrays["expert_policy"][N_PATIENTS:]), "clinicians treat the dead or the cured"
    for x in range(N_PATIENTS):
        filled = np.setdiff1d(np.arange(N_ACTIONS), admissible[x])
        mean = table[x, admissible[x]].mean(axis=0)
        assert np.all(np.abs(table[x, filled] - mean) <= MEAN_TOL), f"state {x}: a row is not the mean"
        assert np.array_equal(mean > 0.0, np.any(table[x] > 0.0, axis=0)), f"state {x}: supports differ"

    pair = np.concatenate([N_ACTIONS * x + np.array(admissible[x]) for x in range(N_PATIENTS)])
    assert np.all(np.diff(pair) > 0), "pairs are not sorted"
    rows = sparse.csr_array(table[:N_PATIENTS, :, :SINK].reshape(-1, SINK)[pair])
    return {
        "schema": np.array(SCHEMA, dtype=np.int64),
        "pair": pair.astype(np.int16),
        "indptr": rows.indptr.astype(np.int32),
        "indices": rows.indices.astype(np.int16),
        "data": rows.data,
        "initial": initial[:N_PATIENTS],
        "clinician": arrays["expert_policy"][:N_PATIENTS],
        "sofa": arrays["sofa_scores"][:N_PATIENTS],
    }


def write_archive(arrays: Arrays, path: Path) -> None:
    """As np.savez_compressed, with fixed dates and order, so that the same data gives the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # 3: Unix, on every system
            archive.writestr(entry, buffer.getvalue())


def main(arguments: list[str]) -> None:
    """Read, check, write, and say what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", nargs="?", type=Path, help="the wheel, or an installed dynamics.npz")
    source = parser.parse_args(arguments).source or installed_dynamics()
    arrays = admissible_rows(*read_original(source))
    write_archive(arrays, TARGET)
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, {arrays['pair'].size:,} admissible pairs")


if __name__ == "__main__":
    main(sys.argv[1:])
