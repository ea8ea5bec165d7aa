"""The demonstration in small: a cohort, two policies, the truth, and the files for other commands."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import RunError
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files
from bettersafe.runs.run import load_run
from bettersafe.studies.demo import check_demo_free, demo_json, run_demo, write_demo


@pytest.fixture(scope="module")
def demo():
    return run_demo(patients=400, seed=3)


def test_bettersafe_is_no_worse_in_the_model_and_plain_rl_treats_rarely_seen(demo):
    assert np.all(demo.safe.policy_return >= demo.safe.baseline_return - 1e-9)
    assert demo.true_greedy[1] < demo.true_clinician[1]
    assert demo.dataset.baseline_prob is None  # as with a real log
    document = demo_json(demo)
    assert (document["patients"], document["seed"], document["objectives"]) == (400, 3, ["survival", "rare_treatment"])
    assert set(document["policies"]) == {"the clinicians", "plain RL", "bettersafe"}
    assert document["policies"]["bettersafe"]["true"]["survival"] == demo.true_safe[0]


def test_what_is_written_can_be_read(demo, tmp_path):
    write_demo(demo, tmp_path / "demo")
    run = load_run(tmp_path / "demo" / "run")
    np.testing.assert_array_equal(run.proposal, demo.safe.policy)
    assert run.info.data.episodes == 400
    later = count_files(tmp_path / "demo" / "later.parquet", objectives=[Objective(name="survival")])
    assert later.n_episodes == 400
    with pytest.raises(RunError, match=r"cohort.parquet exists; choose another name, or replace it"):
        check_demo_free(tmp_path / "demo", force=False)
    check_demo_free(tmp_path / "demo", force=True)
