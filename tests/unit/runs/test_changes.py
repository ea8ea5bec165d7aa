"""Which objectives decide."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from bettersafe.runs.changes import deciding
from toy_runs import many_run


def test_of_many_objectives_those_that_decide_come_first():
    run = many_run()
    assert run.certificate.doubt_order[:3] == (5, 11, 3)
    assert set(deciding(run, 4)) == {0, 3, 5, 11}
    assert deciding(run, 17) == list(range(17))
    failed = dataclasses.replace(run.certificate.findings[9], lower_bound=-0.1)
    findings = tuple(failed if k == 9 else f for k, f in enumerate(run.certificate.findings))
    assert dataclasses.replace(run.certificate, findings=findings).doubt_order[:2] == (9, 5)
    unknown = dataclasses.replace(failed, estimate=math.nan, lower_bound=math.nan)
    findings = tuple(unknown if k == 9 else f for k, f in enumerate(run.certificate.findings))
    assert dataclasses.replace(run.certificate, findings=findings).doubt_order[0] == 9
    untested = dataclasses.replace(run, certificate=None, proposal_return=run.baseline_return - np.arange(17.0))
    assert 16 in deciding(untested, 4)  # what looks worst in the model
