"""Off-policy evaluation: six estimators at once, beside padded NumPy and pandas."""

from __future__ import annotations

import numpy as np
from measuring import alone, apart, attempt, beside, forget_peak, peak_bytes, say, shown, size, timed, times

from bettersafe import _kernel, count, estimate_baseline, estimate_model, evaluate_many, s_opt
from bettersafe.envs.icu_sepsis import clinician_policy, icu_sepsis
from bettersafe.envs.tabular import sample_episodes
from bettersafe.evaluation.estimators import trajectory_terms

EPISODES, LENGTH, D = 20_954, 13, 2
GROWTH = (EPISODES, 100_000, 400_000, 1_600_000)
QUICK_GROWTH = (5_000, EPISODES, 80_000)
WORDS = """IS, PDIS, WIS, CWPDIS, DR and WDR of 2 objectives, what every episode contributes to each: logged rows, density ratios and a model's
values are given as arrays, episodes are 13 steps long on average. *Padded NumPy* is what the package itself does without its kernel;
*pandas* is group-by and cumulative sums on a frame of the rows, all six
estimators. The estimates of all three agree to 1e-9, or the section fails."""


def trajectories(n, *, seed=0):
    """The arguments of `trajectory_terms`: ``n`` episodes of geometric length."""
    rng = np.random.default_rng(seed)
    ptr = np.concatenate([[0], np.cumsum(rng.geometric(1.0 / LENGTH, n))])
    rows = int(ptr[-1])
    log_ratio = 0.1 * rng.normal(size=rows)
    reward, v, q = (rng.normal(size=(rows, D)) for _ in range(3))
    return ptr, log_ratio, reward, np.full(D, 0.99), v, q, np.zeros((n, D))


def in_numpy(arguments):
    """The package's own NumPy engine."""
    kernel, _kernel.compiled = _kernel.compiled, None
    try:
        return trajectory_terms(*arguments)[0]
    finally:
        _kernel.compiled = kernel


def in_pandas(arguments):
    """What every episode adds to the six estimates, [6, n, d], as one would write it on a frame of rows.

    An episode that has ended keeps its weight in the averages of later steps, for CWPDIS and WDR. Of these and of WIS ours are
    influences, for the standard error: another spread, the same mean.
    """
    import pandas as pd

    ptr, log_ratio, reward, discount, v, q, _ = arguments
    n = ptr.size - 1
    frame = pd.DataFrame({"episode": np.repeat(np.arange(n), np.diff(ptr)), "log_ratio": log_ratio})
    groups = frame.groupby("episode", sort=False)
    frame["t"] = groups.cumcount()
    frame["rho"] = np.exp(groups["log_ratio"].cumsum())
    frame["before"] = frame.groupby("episode", sort=False)["rho"].shift(fill_value=1.0)
    whole = frame.groupby("episode", sort=False)["rho"].last()
    last = frame.groupby("episode", sort=False)["t"].last()
    ended = pd.DataFrame({"t": last.to_numpy() + 1, "rho": whole.to_numpy()}).groupby("t")["rho"].sum()
    running = frame.groupby("t")["rho"].sum()
    total = running + ended.reindex(running.index, fill_value=0.0).cumsum()
    frame["share"] = frame["rho"] / frame["t"].map(total) * n
    mean_before = total.shift(fill_value=float(n))
    frame["share_before"] = frame["before"] / frame["t"].map(mean_before) * n
    terms = np.empty((6, n, discount.size))
    for k, gamma in enumerate(discount):
        power = gamma ** frame["t"]
        frame["r"] = power * reward[:, k]
        frame["pdis"], frame["cwpdis"] = frame["rho"] * frame["r"], frame["share"] * frame["r"]
        frame["dr"] = frame["pdis"] - power * (frame["rho"] * q[:, k] - frame["before"] * v[:, k])
        frame["wdr"] = frame["cwpdis"] - power * (frame["share"] * q[:, k] - frame["share_before"] * v[:, k])
        sums = frame.groupby("episode", sort=False)[["r", "pdis", "cwpdis", "dr", "wdr"]].sum()
        plain = sums["r"] * whole
        columns = [plain, sums["pdis"], plain / whole.mean(), sums["cwpdis"], sums["dr"], sums["wdr"]]
        terms[:, :, k] = [column.to_numpy() for column in columns]
    return terms


def whole_evaluation():
    """The public function, log and policies in: its timing, and the rows of the log."""
    data = sample_episodes(icu_sepsis(), clinician_policy(), EPISODES, np.random.default_rng(0))
    counts = count(data)
    model, baseline = estimate_model(counts), estimate_baseline(counts)
    target = 0.9 * baseline + 0.1 * s_opt(model, baseline, preference=[1.0], epsilon=1.0).policy
    timing, _ = timed(lambda: evaluate_many(data, target, baseline, model=model))
    return timing, data.n_rows


def one(n):
    arguments = trajectories(n)
    forget_peak()
    timing, _ = timed(lambda: trajectory_terms(*arguments), repeats=7)
    return {"episodes": n, "rows": int(arguments[0][-1]), "timing": timing, "peak": peak_bytes()}


def measure(quick):
    arguments = trajectories(EPISODES)
    say("six estimators")
    ours, (terms, _) = timed(lambda: trajectory_terms(*arguments))
    rows, instead = [["bettersafe", shown(ours), "1"]], []
    for name, run in (("padded NumPy", in_numpy), ("pandas", in_pandas)):
        say(f"six estimators, {name}")
        timing, theirs = attempt(lambda r=run: r(arguments))
        if theirs is not None:
            np.testing.assert_allclose(theirs.mean(axis=1), terms.mean(axis=1), rtol=1e-9, atol=1e-9, err_msg=name)
        rows.append([name, shown(timing), times(timing, ours)])
        instead.append(beside(name, timing))
    say("a whole evaluation")
    whole, n_rows = whole_evaluation()
    grown = []
    for n in QUICK_GROWTH if quick else GROWTH:
        say(f"six estimators, {n:,} episodes")
        grown.append(apart(one, n))
    return {
        "title": "Off-policy evaluation",
        "words": WORDS,
        "tables": [
            {
                "title": f"{EPISODES:,} episodes, {int(arguments[0][-1]):,} rows",
                "columns": ["what", "time", "times slower"],
                "rows": rows,
                "note": f"A whole `evaluate_many` on a sepsis cohort of {EPISODES:,} episodes ({n_rows:,} rows, one objective, a model given), with every check and"
                f" diagnostic: {shown(whole)}.",
            },
            {
                "title": "Growth with the rows",
                "columns": ["episodes", "rows", "time", "rows per second", "peak memory"],
                "rows": [
                    [
                        f"{g['episodes']:,}",
                        f"{g['rows']:,}",
                        shown(g["timing"]),
                        f"{g['rows'] / g['timing']['seconds'] / 1000000.0:.3g} M",
                        size(g["peak"]),
                    ]
                    for g in grown
                ],
            },
        ],
        "found": {"evaluate": {"values": {"seconds": ours["seconds"]}, "repeats": ours["repeats"], "instead": instead}},
        "growth": [
            {"what": "six estimators", "by": "rows", "x": [g["rows"] for g in grown]}
            | {"seconds": [g["timing"]["seconds"] for g in grown]}
        ],
    }


if __name__ == "__main__":
    alone(measure)
