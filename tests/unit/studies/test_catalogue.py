"""The catalogue of studies."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import CATALOGUE, find_study, make_study
from bettersafe.studies.gridworld.experiment import experiment
from bettersafe.studies.gridworld.plan import gridworld_study
from study_rows import gridworld_job


def test_the_catalogue():
    for study_id, entry in CATALOGUE.items():
        if entry.needs:  # files, which its own tests have
            continue
        study = make_study(study_id, seed=5, **{entry.options[0]: 2})
        assert study.id == study_id
        assert {gridworld_job["seed"] for gridworld_job in study.jobs} == {5}
        assert len(make_study(study_id).jobs) == len(study.jobs) // 2 * entry.full
    with pytest.raises(ParameterError, match="Did you mean 'gridworld/fixed'"):
        find_study("gridworld/fixd")
    with pytest.raises(ParameterError, match="at least 2 CMDPs"):
        gridworld_study("gridworld/tuned", cmdps=1)
    with pytest.raises(ParameterError, match="at least 1 CMDP"):
        gridworld_study("gridworld/fixed", cmdps=0)
    with pytest.raises(ParameterError, match=r"method must be one of .*; got 'magic'"):
        experiment(gridworld_job("gridworld/fixed", methods=["magic 1"]))
