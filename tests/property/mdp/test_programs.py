"""The per-state program: the native engine and the HiGHS engine against an independent HiGHS formulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.mdp.programs import ACCEPTED_GAP, Programs, WarmStart, _highs_block, solve
from oracles import nearest_program, state_program
from quick import rest_slow

KINDS = (
    "plain", "zero_errors", "frozen", "ties", "no_preference", "sparse_baseline", "one_hot", "scales", "duplicates",
    "opposites", "many_rows", "tiny_budget", "degenerate",
)  # fmt: skip


def random_program(rng, kind):
    """One program: baseline [n], objective [n], error [n], rows [d, n], ε."""
    n = int(rng.integers(1, 31))
    d = int(rng.integers(0, 5))
    if kind == "many_rows":
        d = int(rng.integers(8, 65))
    baseline = rng.dirichlet(np.ones(n))
    objective = rng.normal(size=n)
    rows = rng.normal(size=(d, n))
    error = np.sqrt(2.0 / rng.integers(1, 200, n) * 10.0)
    epsilon = float(rng.choice([0.0, 0.01, 0.1, 1.0, 3.0, 30.0, math.inf]))
    if kind == "zero_errors":
        error[rng.random(n) < 0.7] = 0.0
    elif kind == "frozen":
        error[rng.random(n) < 0.8] = math.inf
    elif kind == "ties":
        objective = rng.integers(-2, 3, n).astype(float)
        rows = rng.integers(-1, 2, (d, n)).astype(float)
        error = rng.integers(1, 3, n).astype(float)
        baseline = np.ones(n) / n
    elif kind == "no_preference":
        objective = np.zeros(n)
    elif kind == "sparse_baseline":
        baseline[rng.random(n) < 0.6] = 0.0
        baseline = baseline / baseline.sum() if baseline.sum() > 0.0 else np.eye(n)[0]
    elif kind == "one_hot":
        baseline = np.eye(n)[rng.integers(n)]
    elif kind == "scales":
        rows *= 10.0 ** rng.uniform(-9, 6, (d, 1))
        objective *= 10.0 ** rng.uniform(-9, 6)
    elif kind == "duplicates" and d:
        rows = np.repeat(rows, 2, axis=0)
    elif kind == "opposites" and d:
        rows = np.vstack([rows, -rows])
    elif kind == "tiny_budget":
        epsilon = 10.0 ** rng.uniform(-12, -3)
    elif kind == "degenerate":
        baseline[rng.random(n) < 0.5] = 0.0
        baseline = baseline / baseline.sum() if baseline.sum() > 0.0 else np.eye(n)[0]
        rows = rng.integers(-1, 2, (int(rng.integers(2, 12)), n)).astype(float)
        objective = rng.integers(-1, 2, n).astype(float)
    # advantages: centred under the baseline, as policy evaluation gives them
    return baseline, objective, error, rows - (rows @ baseline)[:, None], epsilon


def pack(programs):
    """Programs with the same ε (and padded to the same d) as one call."""
    d = max(rows.shape[0] for _, _, _, rows, _ in programs)
    ptr = np.cumsum([0, *(b.size for b, *_ in programs)])
    padded = [np.vstack([rows, np.zeros((d - rows.shape[0], rows.shape[1]))]) for _, _, _, rows, _ in programs]
    return (
        Programs(
            ptr=ptr,
            baseline=np.concatenate([p[0] for p in programs]),
            error=np.concatenate([p[2] for p in programs]),
            rows=np.hstack(padded),
            epsilon=programs[0][4],
        ),
        np.concatenate([p[1] for p in programs]),
    )


def check_answer(program, row, best, *, obj_tol=1e-8, feasible_tol=1e-9):
    """Everything that is promised of one row."""
    baseline, objective, error, rows, epsilon = program
    free = np.ones(baseline.size, dtype=bool) if math.isinf(epsilon) else np.isfinite(error)
    delta = row - baseline
    scale = max(np.ptp(objective[free]) if free.any() else 0.0, 1e-300)
    assert abs(float(objective @ delta) - best) <= obj_tol * scale
    assert np.all(row >= 0.0)
    assert abs(row.sum() - baseline.sum()) <= 1e-12
    assert np.array_equal(row[~free], baseline[~free])
    for constraint in rows:
        assert float(constraint @ delta) >= -feasible_tol * max(np.max(np.abs(constraint[free]), initial=0.0), 1e-300)
    if math.isfinite(epsilon):
        spent = float(np.where(free, error, 0.0) @ np.abs(delta))
        assert spent <= epsilon + feasible_tol * max(np.max(error[free], initial=0.0), 1e-300)
        if epsilon == 0.0:
            assert np.array_equal(row[error > 0.0], baseline[error > 0.0])


def run_batch(seed, n_programs):
    rng = np.random.default_rng(seed)
    programs = [random_program(rng, KINDS[i % len(KINDS)]) for i in range(n_programs)]
    for program in programs:
        packed, objective = pack([program])
        answer = solve(packed, objective, engine="native")
        assert answer.solved.all()
        best = state_program(*program)
        check_answer(program, answer.policy, best)
        # the certificate is true: nothing feasible is better by more than the gap
        assert best - float(objective @ (answer.policy - program[0])) <= answer.gap[0] + 1e-9 * max(
            np.ptp(objective), 1e-300
        )


@pytest.mark.parametrize("seed", rest_slow(range(4), 0, 1))
def test_native_against_the_oracle(seed):
    run_batch(seed, 325)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_native_against_the_oracle_long(seed):
    run_batch(seed, 520)  # 40 × 520 = 20,800 programs


@pytest.mark.parametrize("kind", KINDS)
def test_highs_engine_against_the_oracle(kind):
    rng = np.random.default_rng(7)
    for _ in range(12):
        program = random_program(rng, kind)
        packed, objective = pack([program])
        answer = solve(packed, objective, engine="highs")
        assert answer.solved.all()
        check_answer(program, answer.policy, state_program(*program), obj_tol=3e-8, feasible_tol=2e-8)


@pytest.mark.parametrize("kind", ["ties", "degenerate", "zero_errors", "one_hot"])
def test_ties_go_to_the_nearest(kind):
    rng = np.random.default_rng(11)
    for _ in range(60):
        program = random_program(rng, kind)
        packed, objective = pack([program])
        row = solve(packed, objective, engine="native").policy
        exact, loose = (nearest_program(*program, slack) for slack in (1e-9, 1e-7))
        distance = float(np.abs(row - program[0]).sum())
        assert loose - 1e-6 <= distance <= exact + 1e-6


def test_flat_objective_keeps_the_baseline_to_the_bit():
    rng = np.random.default_rng(3)
    for value in (0.0, 5.0, -1e9):
        program = random_program(rng, "plain")
        packed, _ = pack([program])
        for engine in ("native", "highs"):
            answer = solve(packed, np.full(program[0].size, value), engine=engine)
            assert np.array_equal(answer.policy, program[0])
            assert answer.gap[0] == 0.0


def test_blocks_and_warm_starts_give_the_same_answers():
    rng = np.random.default_rng(5)
    programs = []
    while len(programs) < 200:
        program = random_program(rng, "plain")
        programs.append((*program[:4], 0.5))
    packed, objective = pack(programs)
    cold = solve(packed, objective, engine="native")
    for move in (0.0, 0.01, 1.0):
        other = objective + move * rng.normal(size=objective.size)
        again = solve(packed, other, engine="native")
        warm = solve(packed, other, engine="native", warm=cold.warm)
        value = np.add.reduceat(other * again.policy, packed.ptr[:-1])
        assert np.allclose(np.add.reduceat(other * warm.policy, packed.ptr[:-1]), value, rtol=0, atol=1e-9)
        assert warm.solved.all()


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(6)
    programs = [(*random_program(rng, KINDS[i % len(KINDS)])[:4], 0.5) for i in range(1500)]
    packed, objective = pack(programs)
    one = solve(packed, objective, engine="native", threads=1)
    two = solve(packed, objective, engine="native", threads=2)
    assert np.array_equal(one.policy, two.policy)
    assert np.array_equal(one.gap, two.gap)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"error": np.array([-1.0, 1.0])}, "errors"),
        ({"rows": np.array([[math.nan, 1.0]])}, "rows finite"),
        ({"rows": np.zeros((1, 3))}, "entries"),
        ({"ptr": np.array([0, 1])}, "ptr"),
        ({"baseline": np.array([-0.5, 1.5])}, "baseline"),
    ],
)
def test_bad_programs_are_refused(change, message):
    good = {
        "ptr": np.array([0, 2]),
        "baseline": np.array([0.5, 0.5]),
        "error": np.ones(2),
        "rows": np.zeros((1, 2)),
        "epsilon": 1.0,
    }
    with pytest.raises(ParameterError, match=message):
        Programs(**{**good, **change})
    with pytest.raises(ParameterError, match="objective"):
        solve(Programs(**good), np.array([1.0, math.inf]))
    with pytest.raises(ParameterError, match="engine"):
        solve(Programs(**good), np.zeros(2), engine="gurobi")


def near_parallel(seed):
    """Rows that are multiples of one row, of both signs, but for 1e-10 to 1e-7: the feasible set is a sliver that thin, so
    most stay unsolved; bases go singular, and once the kernel wrote out of bounds."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 30)), int(rng.integers(4, 30))
    baseline, objective = rng.dirichlet(np.ones(n)), rng.normal(size=n)
    rows = np.repeat(rng.normal(size=(1, n)), d, 0) * rng.choice([-1, 1], (d, 1))
    rows = rows + 10.0 ** rng.uniform(-10, -7) * rng.normal(size=(d, n))
    return baseline, objective, np.zeros(n), rows, math.inf


def degenerate_corner(seed):
    """Up to 70 integer rows, all tight at the baseline."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 50)), int(rng.integers(30, 71))
    rows = rng.integers(-1, 2, (d, n)).astype(float)
    return rng.dirichlet(np.ones(n)), rng.integers(-2, 3, n).astype(float), np.ones(n), rows, 0.7


def wide_rows(seed):
    """Entries from 1e-12 to 1e6 within one row, and baselines down to 1e-15."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 20)), int(rng.integers(1, 6))
    baseline = rng.dirichlet(np.ones(n)) * 10.0 ** rng.uniform(-15, 0, n)
    rows = rng.normal(size=(d, n)) * 10.0 ** rng.uniform(-12, 6, (d, n))
    return baseline / baseline.sum(), rng.normal(size=n), np.sqrt(20.0 / rng.integers(1, 200, n)), rows, 0.5


@pytest.mark.parametrize(
    ("family", "seeds", "unsolved_at_most"),
    [
        (near_parallel, (363_250, 309_510, *range(400)), 0.8),
        (degenerate_corner, range(250), 0.02),
        (wide_rows, range(400), 0.03),
    ],
    ids=["near-parallel", "degenerate", "wide"],
)
def test_hard_programs_never_break_it(family, seeds, unsolved_at_most):
    """Whatever is not solved keeps its baseline and says so; whatever is solved is feasible and its gap small."""
    unsolved = 0
    for seed in seeds:
        program = family(seed)
        packed, objective = pack([program])
        warm = None
        for change in (0.0, 1.0):  # cold, and warm after a large change
            q = objective + change * np.random.default_rng(seed).normal(size=objective.size)
            answer = solve(packed, q, engine="native", warm=warm)
            warm = answer.warm
            reached = float(q @ (answer.policy - program[0]))
            check_answer((program[0], q, *program[2:]), answer.policy, reached, feasible_tol=2e-9)
            if answer.solved[0]:
                assert answer.gap[0] <= ACCEPTED_GAP * max(np.ptp(q), 1e-300)
            else:
                unsolved += 1
                assert np.array_equal(answer.policy, program[0])
                assert answer.gap[0] == math.inf
    assert unsolved <= 2 * unsolved_at_most * len(seeds)


@pytest.mark.parametrize("engine", ["native", "highs"])
@pytest.mark.parametrize("decades", [6, 9, 12, 17, 25])
def test_a_penalty_on_an_action_that_is_never_played_hides_no_loss(engine, decades):
    """One row has a penalty 6 to 25 decades larger than its other entries. The answer is that without the penalised actions, and
    the row loses nothing, compared with what it could gain. Where a penalty is just not large enough to forbid its action, one of
    twenty may stay unsolved, with its baseline."""
    unsolved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, small, d = int(rng.integers(3, 12)), 10.0 ** rng.uniform(-14, 0), int(rng.integers(1, 4))
        baseline, objective, error = (
            rng.dirichlet(np.ones(n)),
            rng.normal(size=n),
            np.sqrt(20.0 / rng.integers(1, 200, n)),
        )
        rows = rng.normal(size=(d, n))
        rows[0] *= small
        rows -= (rows @ baseline)[:, None]
        epsilon = float(rng.choice([0.1, 1.0, math.inf]))
        best = state_program(baseline, objective, error, rows, epsilon)
        m = int(rng.integers(1, 4))
        penalised = rng.normal(size=(d, m))
        penalised[0] = -small * 10.0**decades * rng.uniform(0.5, 1.0, m)
        program = (
            np.append(baseline, np.zeros(m)), np.append(objective, 1.0 + rng.random(m)), np.append(error, np.ones(m)),
            np.hstack([rows, penalised]), epsilon,
        )  # fmt: skip
        packed, q = pack([program])
        answer = solve(packed, q, engine=engine)
        unsolved += not answer.solved.all()
        reach = rows.max(axis=1)
        delta = answer.policy - program[0]
        assert np.all(program[3] @ delta >= -1e-5 * reach), (seed, program[3] @ delta / reach)
        assert np.all(answer.policy[n:] <= 10.0 ** (2 - decades))
        assert not answer.solved.all() or abs(float(q @ delta) - best) <= (3e-8 + 10.0 ** (2 - decades)) * np.ptp(q)
    assert unsolved <= (1 if decades == 9 else 0)


def test_warm_starts_of_all_kinds():
    rng = np.random.default_rng(12)
    for i in range(400):
        program = random_program(rng, KINDS[i % len(KINDS)])
        packed, objective = pack([program])
        first = solve(packed, objective, engine="native")
        other = rng.normal(size=objective.size)
        warm = solve(packed, other, engine="native", warm=first.warm)
        assert warm.solved.all()
        check_answer((program[0], other, *program[2:]), warm.policy, state_program(program[0], other, *program[2:]))


def test_a_foreign_warm_start_is_refused_or_harmless():
    program = random_program(np.random.default_rng(0), "plain")
    packed, objective = pack([program])
    n, rows = objective.size, packed.rows.shape[0] + 2
    with pytest.raises(ParameterError, match="other programs"):
        solve(packed, objective, warm=WarmStart(basis=np.zeros((1, 1), np.int32), at_upper=np.zeros(n, np.uint8)))
    rng = np.random.default_rng(1)
    best = solve(packed, objective, engine="native")
    for _ in range(200):
        garbage = WarmStart(
            basis=rng.integers(-(2**31), 2**31 - 1, (1, rows)).astype(np.int32) if rng.random() < 0.5
            else rng.integers(0, 3 * n, (1, rows)).astype(np.int32),
            at_upper=rng.integers(0, 256, n).astype(np.uint8),
        )  # fmt: skip
        answer = solve(packed, objective, engine="native", warm=garbage)
        if answer.solved[0]:
            assert float(objective @ answer.policy) == pytest.approx(float(objective @ best.policy), abs=1e-8)


def test_without_the_kernel_the_slower_engine_answers_and_says_so_once(monkeypatch):
    from bettersafe import _kernel

    program = random_program(np.random.default_rng(3), "plain")
    packed, objective = pack([program])
    native = solve(packed, objective)
    monkeypatch.setattr(_kernel, "compiled", None)
    with pytest.warns(RuntimeWarning, match="without its native kernel") as caught:
        slow = solve(packed, objective)
    assert len(caught) == 1
    assert slow.policy == pytest.approx(native.policy, abs=1e-7)
    with pytest.raises(ParameterError, match="not installed"):
        solve(packed, objective, engine="native")


def test_one_hard_state_does_not_spoil_its_neighbours(monkeypatch):
    """HiGHS fails on the block and on one of its states: the others are solved alone, that one keeps its baseline."""
    rng = np.random.default_rng(4)
    programs = [(*random_program(rng, "plain")[:4], 0.5) for _ in range(6)]
    programs = [p for p in programs if p[0].size > 2][:3]
    packed, objective = pack(programs)
    expected = solve(packed, objective, engine="highs")
    real = _highs_block

    def stubborn(states):
        return None if len(states) > 1 or states[0].index == 1 else real(states)

    monkeypatch.setattr("bettersafe.mdp.programs._highs_block", stubborn)
    answer = solve(packed, objective, engine="highs")
    assert answer.solved.tolist() == [True, False, True]
    assert answer.gap[1] == math.inf
    rows = [slice(packed.ptr[x], packed.ptr[x + 1]) for x in range(3)]
    assert np.array_equal(answer.policy[rows[1]], programs[1][0])
    for x in (0, 2):
        assert answer.policy[rows[x]] == pytest.approx(expected.policy[rows[x]], abs=1e-7)

    # a block whose answer is too far from optimal is not taken either
    monkeypatch.setattr(
        "bettersafe.mdp.programs._highs_block", lambda states: [(np.zeros(s.base.size), 1.0) for s in states]
    )
    assert not solve(packed, objective, engine="highs").solved.any()
