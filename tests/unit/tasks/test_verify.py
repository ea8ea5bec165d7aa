"""What `verify` must notice."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bettersafe.errors import BettersafeError, RunError
from bettersafe.logs.dataset import Columns
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.runs.policy_file import write_policy
from bettersafe.runs.run import _document_digest, load_run, save_certificate, save_run
from bettersafe.tasks.retest import certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.rules import PosteriorSettings
from bettersafe.tasks.run import run_task
from bettersafe.tasks.settings import OF_EACH_TEST, OF_POSTERIOR, SETTINGS, WITH_POSTERIOR
from bettersafe.tasks.task import Rare, Task
from bettersafe.tasks.verify import verify_run
from toy_runs import RANGED


def test_every_part_of_the_certificate_counts(tested, files):
    """An edit with a new digest is caught when the test is repeated; without one, at once."""
    file = tested / "certificate.json"
    original = json.loads(file.read_text(encoding="utf-8"))
    assert verify_run(tested, data=str(files / "later.parquet")).accepted

    def write(changes, *, digest):
        document = {**original, **changes}
        document.pop("sha256")
        document["sha256"] = _document_digest(document) if digest else original["sha256"]
        file.write_text(json.dumps(document), encoding="utf-8")

    loose = [{**row, "zeta": 5.0} for row in original["objectives"]]
    for changes in (
        {"grade": "exact"},
        {"objectives": loose},
        {"delta": 0.5},
        {"assumptions": ["trust me"]},
    ):
        write(changes, digest=False)
        with pytest.raises(RunError, match="digest"):
            verify_run(tested)
        write(changes, digest=True)
        with pytest.raises(RunError, match="repeated test"):
            verify_run(tested, data=str(files / "later.parquet"))
    for missing in ("policy_sha256", "run_sha256"):
        write({missing: None}, digest=True)
        with pytest.raises(RunError, match="has no digest of"):
            verify_run(tested)
    for name in ("policy", "run", "evaluation"):
        write({f"{name}_sha256": "0" * 64}, digest=True)
        with pytest.raises(RunError, match="was made for"):
            verify_run(tested)
    file.write_text(json.dumps(original), encoding="utf-8")
    verify_run(tested)


def test_every_field_of_run_json_counts(tested):
    file = tested / "run.json"
    original = json.loads(file.read_text(encoding="utf-8"))
    for key, value in original.items():
        other = not value if isinstance(value, bool) else (value + 1 if isinstance(value, int | float) else None)
        file.write_text(json.dumps({**original, key: other}), encoding="utf-8")
        with pytest.raises(BettersafeError):
            verify_run(tested)


def test_a_run_without_a_certificate_is_verified_as_far_as_it_goes(saved, files, tmp_path):
    run = dataclasses.replace(load_run(saved), certificate=None, evaluation=())
    folder = save_run(run, tmp_path / "RUN")
    assert verify_run(folder) is None
    with pytest.raises(RunError, match="there is no test to repeat"):
        verify_run(folder, data=str(files / "later.parquet"))
    (folder / "policy.parquet").write_bytes((saved / "policy.parquet").read_bytes()[:-1])
    with pytest.raises(RunError, match="is not the file that this run was saved with"):
        verify_run(folder)


def test_columns_are_kept_for_verifying(tested, files, tmp_path):
    import pyarrow.parquet as pq

    table = pq.read_table(files / "later.parquet")
    pq.write_table(
        table.rename_columns([{"state": "cluster"}.get(c, c) for c in table.column_names]), tmp_path / "c.parquet"
    )
    run = load_run(tested)
    save_certificate(
        tested, *certify_run(run, str(tmp_path / "c.parquet"), columns=Columns(state="cluster"), force=True)
    )
    again = verify_run(tested, data=str(tmp_path / "c.parquet"))
    assert any("tested 1 time before" in text for text in again.assumptions)


def test_what_improve_asked_of_the_posterior_can_be_asked_again(files, tmp_path):
    log = str(files / "log.parquet")
    rare = Rare(name="rare", below=5, reward=-1.0)
    task = Task(data=log, objectives=RANGED, derived=(rare,), zeta={"harm": 0.01}, draws=60, seed=3)
    save_run(run_task(task), tmp_path / "RUN")
    assert verify_run(tmp_path / "RUN", data=log).accepted
    assert "epsilon" not in load_run(tmp_path / "RUN").info.settings
    with pytest.raises(RunError, match="its digest differs"):
        verify_run(tmp_path / "RUN", data=str(files / "later.parquet"))
    file = tmp_path / "RUN" / "certificate.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    del document["sha256"]
    document["beliefs"][0]["p_safe"] = 0.999
    file.write_text(json.dumps({**document, "sha256": _document_digest(document)}), encoding="utf-8")
    with pytest.raises(RunError, match="gives another result: beliefs"):
        verify_run(tmp_path / "RUN", data=log)
    few = str(files / "few.parquet")
    save_run(run_task(dataclasses.replace(task, data=few, derived=(), zeta={})), tmp_path / "FEW")
    assert not load_run(tmp_path / "FEW").has_proposal
    with pytest.raises(RunError, match="a refused policy"):
        verify_run(tmp_path / "FEW", data=few)


OTHERS = {
    "draws": 60,
    "form": "linearised",
    "prior": "support",
    "pessimism": 2.0,
    "events": (DeclaredEvent(name="flood", cost={"harm": 0.5}, rate=1e-4, actions=[1]),),
    "candidates": ("ours.csv",),
}


@pytest.mark.parametrize("row", [row for row in SETTINGS if row.methods == WITH_POSTERIOR], ids=lambda row: row.name)
def test_every_setting_of_the_posterior_goes_from_improve_to_certify_and_verify(row, files, tmp_path, monkeypatch):
    log, value, asked = str(files / "log.parquet"), OTHERS[row.name], []

    def repeat(run, data, test, **more):
        asked.append(test)
        return certify_run_posterior(run, data, test, **more)

    monkeypatch.setattr("bettersafe.tasks.verify.certify_run_posterior", repeat)
    task = Task(data=log, objectives=RANGED, draws=40)
    if row.name == "candidates":
        made = run_task(task)
        write_policy(tmp_path / "ours.csv", made.proposal, made.state_labels, made.action_labels)
        value = (str(tmp_path / "ours.csv"),)
    save_run(run_task(dataclasses.replace(task, **{row.name: value})), tmp_path / "RUN")
    verify_run(tmp_path / "RUN", data=log)
    if row.name in OF_POSTERIOR:
        assert getattr(asked.pop(), row.name) == value != row.default
    again = PosteriorTest(**({row.name: value} if row.name in OF_EACH_TEST else {}))
    save_certificate(tmp_path / "RUN", certify_run_posterior(load_run(tmp_path / "RUN"), log, again))
    verify_run(tmp_path / "RUN", data=log)
    if row.name in OF_POSTERIOR:
        assert getattr(asked.pop(), row.name) == value


def test_a_certificate_from_the_posterior_has_every_setting_of_it():
    fields = {field.name for field in dataclasses.fields(PosteriorTest)}
    assert fields == {"delta", "zeta", "seed", "optimism", *OF_POSTERIOR}
    properties = {name for name in vars(PosteriorSettings) if isinstance(vars(PosteriorSettings)[name], property)}
    assert properties == {"delta", "zeta", "seed", *OF_POSTERIOR}
    assert {row.name for row in SETTINGS if row.methods == WITH_POSTERIOR} == {"candidates", *OF_POSTERIOR}
