"""The log of a ward, and what can be asked about it, for the tests of the explorer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bettersafe.explore import answers
from bettersafe.explore import session as explore
from bettersafe.logs.counts import visit_table
from bettersafe.logs.dataset import Objective
from bettersafe.mdp.values import policy_values
from bettersafe.posterior.habits import informed
from bettersafe.posterior.judge import WIDENING, baseline_covariance
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.priors import PriorSet, pessimistic
from bettersafe.tasks.task import Task

ACTIONS = ("wait & see", "treat", "<b>operate</b>")


def write_ward(path, n=250, seed=3, never=0):
    """A log of a ward: 12 states, three actions, relief (a reward) and pain (a cost); no operations in the first ``never`` beds."""
    rng = np.random.default_rng(seed)
    kind = np.random.default_rng(1)
    good, hurt = kind.uniform(0, 1, (12, 3)), kind.uniform(0, 2, (12, 3))
    lines = ["episode,step,state,action,relief,pain,next_state,terminated"]
    for episode in range(n):
        x = int(rng.integers(12))
        for step in range(6):
            a = int(rng.choice(3, p=[0.5, 0.4, 0.1]))
            a = 0 if x < never and a == 2 else a
            end = rng.random() < 0.25 or step == 5
            y = int((x + 1 + a * rng.integers(1, 4)) % 12)
            after = "" if end else f"bed {y}"
            lines.append(
                f"{episode},{step},bed {x},{ACTIONS[a]},{rng.random() < good[x, a]:d},{hurt[x, a] + rng.integers(2):.1f},{after},{str(end).lower()}"
            )
            if end:
                break
            x = y
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def ward_task(log, **more):
    return Task(
        data=str(log),
        objectives=(Objective(name="relief", discount=0.9), Objective(name="pain", discount=0.9, lower_is_better=True)),
        **more,
    )


def settings_of(relief=1.0, pain=1.0, epsilon=0.5, delta=0.1, zeta=(0.0, 0.0)):
    return explore.Settings(preference=(relief, pain), epsilon=epsilon, delta=delta, zeta=zeta)


def document_of(**changes):
    document = {
        "preference": {"relief": 1.0, "pain": 1.0}, "epsilon": 0.5, "delta": 0.1, "zeta": {"relief": 0.0, "pain": 0.0},
    }  # fmt: skip
    return {**document, **changes}


def assert_belief(session, settings):
    zeta = settings.zeta
    found = explore.solve(session, settings)
    belief = answers.believe(session, settings, found, explore.spread(session, found.policy))
    learnt = session.priors[0].outcomes
    outcomes = replace(learnt, effects=learnt.effects[:-2])  # without the two of habits
    neutral = informed(
        outcomes, PriorSet(neutral=session.task.prior, pessimism=session.task.pessimism), session.baseline
    )
    mean, covariance = linearised_gains(neutral, found.policy[None], session.baseline)
    visits = visit_table(session.counts)
    doubt = baseline_covariance(session.model, session.baseline, visits)  # the ward's baseline is estimated
    covariance = WIDENING**2 * covariance + doubt
    v, _ = policy_values(session.model.mdp, session.baseline)
    dark_lost = 0.0
    for k, row in enumerate(belief["objectives"]):
        sd = covariance[0, k, k] ** 0.5
        assert row["gain"] == pytest.approx(mean[0, k])
        low, high = stats.norm.interval(1.0 - settings.delta, mean[0, k], sd)
        assert (row["low"], row["high"]) == pytest.approx((low, high))
        assert row["p_no_worse"] == pytest.approx(stats.norm.sf(-zeta[k], mean[0, k], sd), abs=1e-8)
        dark = pessimistic(neutral, k, v)
        dark_mean, dark_covariance = linearised_gains(dark, found.policy[None], session.baseline)
        dark_sd = (WIDENING**2 * dark_covariance[0, k, k] + doubt[k, k]) ** 0.5
        risk = stats.norm.cdf(-zeta[k], dark_mean[0, k], dark_sd)
        assert row["p_no_worse_pessimistic"] == pytest.approx(1.0 - risk, abs=1e-8)
        dark_lost += risk
    normal = stats.multivariate_normal(mean[0], covariance[0], allow_singular=True)
    p_safe = float(normal.cdf(np.full(len(zeta), np.inf), lower_limit=-np.array(zeta)))
    assert belief["p_safe"] == pytest.approx(p_safe, abs=2e-3)
    assert belief["p_pessimistic"] == pytest.approx(max(0.0, 1.0 - dark_lost), abs=1e-8)
    safe = p_safe >= 1.0 - settings.delta and dark_lost <= settings.delta
    assert belief["level"] == ("likely" if safe else "doubtful")
    assert belief["verdict"].startswith("Believed" if safe else "In doubt")
    assert "not a test" in belief["evidence"]


# Keeping
def documents(folder):
    """A run's documents without times and the digests that hang on them; and its policy's bytes."""
    run, certificate = (json.loads((folder / name).read_text()) for name in ("run.json", "certificate.json"))
    for document in (run, certificate):
        assert document.pop("created")
    for name in ("run_sha256", "sha256"):
        assert certificate.pop(name)
    return run, certificate, (folder / "policy.parquet").read_bytes()
