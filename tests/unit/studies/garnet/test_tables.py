"""Tables of the Garnet study."""

from __future__ import annotations

import pyarrow as pa

from bettersafe.studies.garnet.tables import garnet_tables


def test_failures_and_improvements_are_counted_against_the_baseline():
    rows = [
        {"cmdp": n, "family": "weak", "delta": 0.1, "episodes": 20, "method": "b-opt", "parameter": "",
         "improvement": 10.0 * n, "failure": n == 3}
        for n in range(4)
    ]  # fmt: skip
    page = garnet_tables(pa.Table.from_pylist(rows), note="This is small.")
    assert "0.250 [0.006, 0.806] (4)" in page
    assert "15.0 ± 6.5" in page
    assert "This is small." in page
    assert "near-optimal" not in page.split("\n\n", 2)[2]
