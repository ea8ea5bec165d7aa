"""How S-OPT and policy evaluation grow with states, actions and objectives, and what a pass over the model takes."""

from __future__ import annotations

import time

import numpy as np
from measuring import alone, apart, cores, forget_peak, peak_bytes, say, seconds, shown, size, timed
from models import random_model

from bettersafe import _kernel, policy_values, s_opt

BASE = {"n_states": 752, "n_actions": 25, "visited": 5, "successors": 20, "n_objectives": 2}
STATES = (752, 10_000, 100_000, 1_000_000)
QUICK_STATES = (752, 7_520, 50_000)
ACTIONS = (5, 10, 25, 50, 100)
OBJECTIVES = (2, 4, 8, 17, 32, 64)
WORDS = """Made-up models: every state has tried actions with 20 successors each, 2 % of every row ends the episode, γ = 0.99, ε = 0.1. Each line
is a process of its own; its peak memory has the model in it, not the making of it. *Evaluation* is `policy_values` of the baseline,
all objectives. In brackets: how often it was timed."""


def one(shape, repeats):
    """Times and peaks of S-OPT and of policy evaluation on one model, and what its passes take."""
    model, baseline = random_model(**shape)
    mdp = model.mdp
    preference = np.ones(mdp.n_objectives)
    forget_peak()
    improving, result = timed(lambda: s_opt(model, baseline, preference=preference, epsilon=0.1), repeats=repeats)
    peak = peak_bytes()
    evaluating, _ = timed(lambda: policy_values(mdp, baseline), repeats=repeats)
    return {
        "shape": shape,
        "nonzeros": int(mdp.transition.nnz),
        "rounds": result.rounds,
        "kept": int(result.kept.size),
        "s_opt": improving,
        "evaluation": evaluating,
        "peak": peak,
    }


def passes(shape):
    """Seconds and bytes of one pass over the transitions: within an evaluation, and as SciPy multiplies.

    v ← r + γ P_π v reads the transitions (probability, successor), the rows' pointers, the weight of every pair, v and r, and
    writes v. v is read at random, and counted once: it fits into the cache up to some millions of states.
    """
    model, baseline = random_model(**shape)
    mdp = model.mdp
    p = mdp.transition
    bytes_of_pass = p.data.nbytes + p.indices.nbytes + p.indptr.nbytes + 8 * mdp.n_pairs + 3 * 8 * mdp.n_states
    bytes_of_product = p.data.nbytes + p.indices.nbytes + p.indptr.nbytes + 8 * mdp.n_pairs + 8 * mdp.n_states
    name = f"{mdp.n_states:,} states, {p.nnz:,} transitions"
    found = []
    if _kernel.compiled is not None:
        watched = Watched(_kernel.compiled)
        _kernel.compiled = watched
        evaluating, _ = timed(lambda: policy_values(mdp, baseline), repeats=5)
        _kernel.compiled = watched.kernel
        within = float(np.median([taken / max(products, 1) for taken, products in watched.calls]))
        products = watched.calls[-1][1]
        found.append(
            {"what": f"evaluation, {name}: one of its {products} passes", "bytes": bytes_of_pass, "seconds": within}
            | {"threads": cores(), "repeats": len(watched.calls)}
        )
        found.append(
            {
                "what": f"evaluation, {name}: all of it, in passes",
                "bytes": bytes_of_pass,
                "seconds": evaluating["seconds"],
            }
            | {"threads": cores(), "repeats": evaluating["repeats"]}
        )
    v = np.ones(mdp.n_states)
    product, _ = timed(lambda: p @ v, repeats=5)
    found.append(
        {"what": f"SciPy's product p v, {name}", "bytes": bytes_of_product, "seconds": product["seconds"], "threads": 1}
        | {"repeats": product["repeats"]}
    )
    return found


class Watched:
    """The kernel, with a note of how long every evaluation took and how many matrix products that were."""

    def __init__(self, kernel):
        self.kernel, self.calls = kernel, []

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def solve_values(self, *arguments):
        start = time.perf_counter()
        residual, products = self.kernel.solve_values(*arguments)
        self.calls.append((time.perf_counter() - start, products))
        return residual, products


def measure(quick):
    states = QUICK_STATES if quick else STATES
    wide = {"n_states": 2_000 if quick else 10_000, "successors": 5}
    lines = {
        "states": [BASE | {"n_states": n} for n in states],
        "actions": [BASE | wide | {"n_actions": n, "visited": n} for n in (ACTIONS[:3] if quick else ACTIONS)],
        "objectives": [
            BASE | wide | {"visited": 25, "n_objectives": d} for d in (OBJECTIVES[:4] if quick else OBJECTIVES)
        ],
    }
    of = {"states": "n_states", "actions": "n_actions", "objectives": "n_objectives"}
    tables, growth, found = [], [], {}
    for by, shapes in lines.items():
        done = []
        for shape in shapes:
            say(f"S-OPT, {shape[of[by]]:,} {by}")
            done.append(apart(one, shape, 3 if quick else 7))
        x = [line["shape"][of[by]] for line in done]
        for what, key in (("S-OPT", "s_opt"), ("policy evaluation", "evaluation")):
            growth.append({"what": what, "by": by, "x": x, "seconds": [line[key]["seconds"] for line in done]})
        tables.append(
            {
                "title": f"Growth with the {by}",
                "columns": [by, "transitions", "S-OPT", "rounds", "per state and round", "evaluation", "peak memory"],
                "rows": [
                    [
                        f"{n:,}",
                        f"{line['nonzeros']:,}",
                        shown(line["s_opt"]),
                        line["rounds"],
                        seconds(line["s_opt"]["seconds"] / line["shape"]["n_states"] / line["rounds"]),
                        shown(line["evaluation"]),
                        size(line["peak"]),
                    ]
                    for n, line in zip(x, done, strict=True)
                ],
                "note": note(by, shapes[0], of[by]),
            }
        )
        if by == "states":
            growth.append({"what": "S-OPT", "by": "transitions", "x": [line["nonzeros"] for line in done]})
            growth[-1]["seconds"] = [line["s_opt"]["seconds"] for line in done]
            found = {
                f"s-opt-{line['shape']['n_states']}": {
                    "values": {"seconds": line["s_opt"]["seconds"], "bytes": line["peak"]},
                    "repeats": line["s_opt"]["repeats"],
                    "note": f"{line['nonzeros']:,} transitions",
                    "instead": [],
                }
                for line in done
                if line["shape"]["n_states"] > 752
            }
    moved = []
    for n_states in states[-1:] if quick else states[-2:]:
        say(f"passes over {n_states:,} states")
        moved += apart(passes, BASE | {"n_states": n_states, "n_objectives": 1})
    return {
        "title": "Growth of S-OPT and policy evaluation",
        "words": WORDS,
        "tables": tables,
        "growth": growth,
        "found": found,
        "passes": moved,
    }


def note(by, shape, varied):
    names = {"n_states": "states", "n_actions": "actions", "visited": "of them tried", "n_objectives": "objectives"}
    fixed = [
        f"{shape[key]:,} {name}"
        for key, name in names.items()
        if key != varied and not (by == "actions" and key == "visited")
    ]
    return f"{', '.join(fixed)}, {shape['successors']} successors per pair" + (
        ", every action tried." if by == "actions" else "."
    )


if __name__ == "__main__":
    alone(measure)
