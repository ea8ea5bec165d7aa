"""A hospital's log, from CSV to a certificate: describe the log, improve the policy, and test it on later stays.

python examples/hospital_log.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ward_log import write_ward_log

from bettersafe import Columns, Objective, Task, certify_run, count_files, describe, run_task
from bettersafe.runs import largest_changes

COLUMNS = Columns(
    episode="stay", step="block", state="condition", action="treatment", next_state="condition afterwards",
    terminated="went home", truncated="moved",
)  # fmt: skip
OBJECTIVES = (
    Objective(name="recovered", label="Recovery"),
    Objective(name="pain", weight=0.0, lower_is_better=True, unit="points"),
    Objective(name="cost_eur", weight=0.0, lower_is_better=True, label="Cost", unit="EUR"),
)


def main(folder: Path) -> None:
    """Run all steps, with the files in ``folder``."""
    log, later = str(folder / "ward.csv"), str(folder / "later.csv")
    write_ward_log(log)
    write_ward_log(later, seed=1)

    counts = count_files(log, objectives=OBJECTIVES, columns=COLUMNS)
    found = describe(counts)
    print(f"{counts.n_episodes} stays, {counts.n_rows} decisions, {counts.n_states} conditions")
    for problem in found.problems:
        print("  problem:", problem)

    # Objectives of weight 0 are protected: recovery is maximised, and neither pain nor cost may rise.
    run = run_task(Task(data=log, objectives=OBJECTIVES, columns=COLUMNS))
    print(run.decision.sentence)
    for objective, before, after in zip(run.objectives, run.baseline_return, run.proposal_return, strict=True):
        sign = -1.0 if objective.lower_is_better else 1.0
        print(
            f"  {objective.title}: {sign * before:.4g} -> {sign * after:.4g} {objective.unit}, in the estimated model"
        )
    for change in largest_changes(run, 4):
        print(f"  {change.state}: less of {change.less[0][0]}, more of {change.more[0][0]}")

    # One test, on stays that were not used to compute the policy.
    certificate, _ = certify_run(run, later)
    print(certificate.verdict)
    for finding in certificate.findings:
        print(f"  {finding.title}: gain at least {finding.lower_bound:+.4g} at risk {finding.level:g}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
