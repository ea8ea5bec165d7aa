"""Which options the sepsis studies take."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import make_study


# ---- the catalogue
def test_options_belong_to_their_studies():
    study = make_study("sepsis/icu", seeds=2, patients=500, unseen="end", cohort="fixed", cmdps=None)
    assert [job["repetition"] for job in study.jobs] == [0, 1]
    assert {(job["patients"], job["unseen"], job["cohort"], job["preset"]) for job in study.jobs} == {
        (500, "end", "fixed", "ours")
    }
    assert {job["preset"] for job in make_study("sepsis/icu-published").jobs} == {"published"}
    for study_id, options, match in (
        ("sepsis/icu", {"cmdps": 3}, "`cmdps` does not belong to the study sepsis/icu, which takes `seeds`"),
        ("gridworld/fixed", {"patients": 9}, "`patients` does not belong .* takes `cmdps`, `delta`. Leave it out"),
        ("sepsis/mimic", {}, "needs `data`, a folder that `prepare_mimic` wrote"),
        ("sepsis/mimic", {"data": ["."], "cohort": "fixed"}, "`cohort` does not belong"),
        ("sepsis/icu", {"unseen": "deth"}, "unseen must be one of death, end, baseline.*'death'"),
        ("sepsis/icu", {"patients": 5}, "at least 100 patients"),
        ("sepsis/icu", {"seeds": 0}, "at least 1 seed"),
        ("sepsis/mimic", {"data": ["."], "seed": 2}, "takes no seed; .* `prepare_mimic` with `seed` 2"),
    ):
        with pytest.raises(ParameterError, match=match):
            make_study(study_id, **options)
