"""Independent answers to judge the package by. Nothing here imports bettersafe.

`state_program` is the program of one state, by HiGHS; `slow_s_opt` is policy iteration with a dense solve and one
HiGHS program per state. Both are written from the paper's equations, for clarity alone.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def state_program(baseline, objective, error, rows, epsilon):
    """The best Σ_a (π − π_b) Q of one state: [n], [n], [n], [d, n] and ε. Rows and Q are scaled for the solver's sake."""
    free = np.ones(baseline.size, dtype=bool) if math.isinf(epsilon) else np.isfinite(error)
    b, q, a = baseline[free], objective[free], rows[:, free]
    e = error[free]
    n = b.size
    if n < 2 or b.sum() == 0.0:
        return 0.0
    # Σδ = 0, so a constant may be taken off Q and off every row; it keeps HiGHS away from cancellation.
    q, a = q - q.mean(), a - a.mean(axis=1, keepdims=True)
    q_scale = np.max(np.abs(q))
    if q_scale == 0.0:
        return 0.0
    a = a[np.max(np.abs(a), axis=1) > 0.0]
    a = a / np.max(np.abs(a), axis=1, keepdims=True)
    inequality, limit = [np.hstack([-a, a])], [np.zeros(a.shape[0])]
    upper = np.concatenate([np.full(n, b.sum()), b])
    if math.isfinite(epsilon):
        positive = e > 0.0
        if epsilon == 0.0:
            upper[np.concatenate([positive, positive])] = 0.0
        elif np.any(positive):
            size = e.max()
            inequality.append(np.concatenate([e, e])[None, :] / size)
            limit.append(np.array([epsilon / size]))
    for method in ("highs-ds", "highs-ipm"):
        answer = linprog(
            -np.concatenate([q, -q]) / q_scale,
            A_ub=np.vstack(inequality),
            b_ub=np.concatenate(limit),
            A_eq=np.concatenate([np.ones(n), -np.ones(n)])[None, :],
            b_eq=[0.0],
            bounds=np.column_stack([np.zeros(2 * n), upper]),
            method=method,
            options=TOLERANCES,
        )
        if answer.status == 0:
            return -float(answer.fun) * q_scale
    raise AssertionError(f"the oracle could not solve its program: {answer.message}")


def nearest_program(baseline, objective, error, rows, epsilon, slack):
    """Least Σ|π − π_b| among policies within ``slack`` (share of Q's scale) of the best."""
    best = state_program(baseline, objective, error, rows, epsilon)
    free = np.ones(baseline.size, dtype=bool) if math.isinf(epsilon) else np.isfinite(error)
    if math.isfinite(epsilon) and epsilon == 0.0:
        free &= error == 0.0
    b, q, a, e = baseline[free], objective[free], rows[:, free], error[free]
    n = b.size
    if n < 2 or b.sum() == 0.0 or np.ptp(q) == 0.0:
        return 0.0
    q, a = q - q.mean(), a - a.mean(axis=1, keepdims=True)
    scale = np.max(np.abs(q))
    a = a[np.max(np.abs(a), axis=1) > 0.0]
    a = a / np.max(np.abs(a), axis=1, keepdims=True)
    inequality = [np.hstack([-a, a]), -np.concatenate([q, -q])[None, :] / scale]
    limit = [np.zeros(a.shape[0]), np.array([slack - best / scale])]
    if math.isfinite(epsilon) and epsilon > 0.0 and e.max() > 0.0:
        inequality.append(np.concatenate([e, e])[None, :] / e.max())
        limit.append(np.array([epsilon / e.max()]))
    answer = linprog(
        np.ones(2 * n),
        A_ub=np.vstack(inequality),
        b_ub=np.concatenate(limit),
        A_eq=np.concatenate([np.ones(n), -np.ones(n)])[None, :],
        b_eq=[0.0],
        bounds=np.column_stack([np.zeros(2 * n), np.concatenate([np.full(n, b.sum()), b])]),
        method="highs-ds",
        options=TOLERANCES,
    )
    assert answer.status == 0, answer.message
    return float(answer.fun)


def dense_values(transition, reward, discount, policy):
    """v [d, X] and q [d, X, A] of a policy, by a dense solve per objective."""
    n_states = policy.shape[0]
    matrix = np.einsum("xa,xay->xy", policy, transition)
    v = np.array(
        [
            np.linalg.solve(np.eye(n_states) - g * matrix, np.sum(policy * r, axis=1))
            for g, r in zip(discount, reward, strict=True)
        ]
    )
    q = np.array([r + g * transition @ value for g, r, value in zip(discount, reward, v, strict=True)])
    return v, q


def state_policy(baseline, objective, error, rows, epsilon):
    """A best row π of one state, solved in deviations with HiGHS."""
    free = np.ones(baseline.size, dtype=bool) if math.isinf(epsilon) else np.isfinite(error)
    n = baseline.size
    cost = -np.concatenate([objective, -objective])
    scale = np.max(np.abs(cost)) or 1.0
    upper = np.concatenate([np.ones(n), baseline])
    upper[np.concatenate([~free, ~free])] = 0.0
    inequality, limit = [], []
    for row in rows:
        size = np.max(np.abs(row))
        if size > 0.0:
            inequality.append(np.concatenate([-row, row]) / size)
            limit.append(0.0)
    if math.isfinite(epsilon):
        finite = np.where(free, error, 0.0)
        inequality.append(np.concatenate([finite, finite]))
        limit.append(epsilon)
    answer = linprog(
        cost / scale,
        A_ub=np.array(inequality) if inequality else None,
        b_ub=limit if inequality else None,
        A_eq=np.concatenate([np.ones(n), -np.ones(n)])[None, :],
        b_eq=[0.0],
        bounds=np.column_stack([np.zeros(2 * n), upper]),
        method="highs-ds",
        options=TOLERANCES,
    )
    assert answer.status == 0, answer.message
    return np.maximum(baseline + answer.x[:n] - answer.x[n:], 0.0)


def slow_s_opt(
    transition,
    reward,
    discount,
    initial,
    baseline,
    error,
    preference,
    epsilon,
    *,
    constrained=True,
    rounds=60,
):
    """Policy iteration as in the paper, dense and slow; returns the best J_λ met and its policy.

    Shapes: transition [X, A, X], reward [d, X, A], error [X, A], baseline [X, A].
    """
    base_v, base_q = dense_values(transition, reward, discount, baseline)
    advantage = base_q - base_v[:, :, None]
    # what is smaller than rounding is no advantage
    for k in range(advantage.shape[0]):
        advantage[k][np.abs(advantage[k]) <= 1e-11 * max(np.max(np.abs(base_q[k])), 1e-300)] = 0.0
    policy, best, best_policy = baseline, -math.inf, baseline
    for _ in range(rounds):
        v, q = dense_values(transition, reward, discount, policy)
        value = float(preference @ v @ initial)
        if value <= best + 1e-12 * max(abs(best), 1e-300) and best > -math.inf:
            break
        best, best_policy = value, policy
        target = np.einsum("k,kxa->xa", preference, q - v[:, :, None])
        rows = advantage if constrained else advantage[:0]
        policy = np.array(
            [state_policy(baseline[x], target[x], error[x], rows[:, x], epsilon) for x in range(baseline.shape[0])]
        )
        policy /= policy.sum(axis=1, keepdims=True)
    return best, best_policy


def slow_marginal_terms(
    transition, reward, discount, initial, policy, baseline, episodes, *, steps=None, own_model=False
):
    """Terms [n, d] of a marginalised estimator, row by row and step by step, from a dense model in which every pair has data.

    Shapes: transition [X, A, X], reward [d, X, A]. An episode is a list of rows (x, a, rewards, x'), where x' is None at an end and
    -1 if it is not known. Without ``steps``, sums run until the discount has made them negligible.
    """
    n_states, n_actions, n_objectives = reward.shape[1], reward.shape[2], reward.shape[0]
    many = steps is None
    steps = 4000 if many else steps
    visits = [[0] * n_actions for _ in range(n_states)]
    for episode in episodes:
        for x, a, _, _ in episode:
            visits[x][a] += 1
    there = [np.array(initial)]
    for _ in range(steps - 1):
        there.append(np.einsum("x,xa,xay->y", there[-1], policy, transition))
    terms = np.zeros((len(episodes), n_objectives))
    for k in range(n_objectives):
        to_go = [np.zeros(n_states)]  # values with 0, 1, … steps to go
        for _ in range(steps):
            to_go.append(np.einsum("xa,xa->x", policy, reward[k] + discount[k] * transition @ to_go[-1]))
        for i, episode in enumerate(episodes):
            terms[i, k] = to_go[-1][episode[0][0]]
            for x, a, r, after in episode:
                total = 0.0
                for t in range(1 if many else steps):
                    v = to_go[-1] if many else to_go[steps - t - 1]
                    expected = transition[x, a] @ v
                    following = 0.0 if after is None else expected if after == -1 else v[after]
                    residual = r[k] + discount[k] * following - reward[k, x, a] - discount[k] * expected
                    share = (
                        sum(discount[k] ** s * there[s][x] for s in range(steps))
                        if many
                        else discount[k] ** t * there[t][x]
                    )
                    total += share * residual
                n = visits[x][a]
                factor = n / max(n - 1, 1) if own_model else 1.0
                terms[i, k] += factor * total * policy[x, a] / baseline[x, a] * len(episodes) / sum(visits[x])
    return terms


def slow_guarantee(transition, reward, counts, baseline, policy, *, discount, initial, low, high, n_rows, delta, d):
    """Lower bounds (gain, baseline's return) on one objective from the counts alone, state by state and pair by pair.

    For the paper's remark on constrained RL: a threshold c may be promised if c ≤ baseline's return + gain. Pairs without data
    end with value 0 in the model, and their error is the whole span.

    Args:
        transition: p̂, shape [X, A, X]; rows may sum to less than 1.
        reward: r̂, shape [X, A].
        counts: n, shape [X, A].
    """
    n_states, n_actions = reward.shape
    span = max(high, 0.0) / (1.0 - discount) - min(low, 0.0) / (1.0 - discount)
    own = np.empty((n_states, n_actions))
    for x in range(n_states):
        for a in range(n_actions):
            size = (
                np.log(2.0 * n_states * n_actions * d * n_rows / delta) / (2.0 * counts[x, a])
                if counts[x, a]
                else np.inf
            )
            own[x, a] = min((high - low + discount * span) * np.sqrt(size), span)
    v = dense_values(transition, reward[None], np.array([discount]), baseline)[0][0]
    q = reward + discount * transition @ v
    u = np.full((n_states, n_actions), span)
    for _ in range(20_000):
        at_state = np.sum(baseline * u, axis=1)
        new = own + discount * transition @ at_state
        new[counts == 0] = span
        new = np.minimum(new, u)
        if np.max(u - new) < 1e-13:
            break
        u = new
    guard = np.empty(n_states)
    for x in range(n_states):
        gained = sum(policy[x, a] * (q[x, a] - v[x]) for a in range(n_actions))
        doubt = sum(u[x, a] * abs(policy[x, a] - baseline[x, a]) for a in range(n_actions))
        guard[x] = gained - doubt if np.any(policy[x] != baseline[x]) else 0.0
    # the least Σ_x d(x) g(x) over all visits d with d(x) ≥ μ(x) and Σ_x d(x) ≤ 1/(1 − γ)
    spare = 1.0 / (1.0 - discount) - np.sum(initial)
    gain = float(initial @ guard) + min(0.0, spare * float(np.min(guard)))
    return gain, float(initial @ (v - np.sum(baseline * u, axis=1)))


def slow_returns(episode, policy, baseline, discount, k, kind, v=None, q=None, low=0.0):
    """Estimated return of one episode [(x, a, rewards, next x, ended), …] on objective ``k``; ``low`` is taken off its return first."""
    weight, total = 1.0, 0.0
    if kind == "is":
        for x, a, *_ in episode:
            weight *= policy[x, a] / baseline[x, a]
        return weight * (sum(discount**t * step[2][k] for t, step in enumerate(episode)) - low)
    if kind == "pdis":
        for t, (x, a, rewards, _, _) in enumerate(episode):
            weight *= policy[x, a] / baseline[x, a]
            total += discount**t * weight * rewards[k]
        return total
    estimate = 0.0 if episode[-1][4] else v[k][episode[-1][3]]  # Jiang and Li, from the last step to the first
    for x, a, rewards, _, _ in reversed(episode):
        ratio = policy[x, a] / baseline[x, a]
        estimate = v[k][x] + ratio * (rewards[k] + discount * estimate - q[k][x, a])
    return estimate


def slow_bernstein(values, cs, delta):
    """Theorem 1 of Thomas et al. 2015 as it is written, with a threshold for every value (≥ 0)."""
    n = len(values)
    y = [min(x, c) for x, c in zip(values, cs, strict=True)]
    scale = 1.0 / sum(1.0 / c for c in cs)
    first = sum(a / c for a, c in zip(y, cs, strict=True))
    second = 7.0 * n * np.log(2.0 / delta) / (3.0 * (n - 1))
    spread = sum((y[i] / cs[i] - y[j] / cs[j]) ** 2 for i in range(n) for j in range(n))
    return scale * (first - second - np.sqrt(np.log(2.0 / delta) / (n - 1) * spread))


def slow_h_opt(
    train, safety, target, baseline, preference, *, discount, delta, kind, bound, quantile=None, values=None, edges=None
):
    """The paper's H-OPT, word by word: argmax over α of IS_λ(D_tr), subject to IS_k(D_s) − CI_k(D_s, δ/d) ≥ μ_k for every k.

    Args:
        train: Episodes D_tr.
        safety: Episodes D_s.
        target: π_t, shape [X, A].
        preference: λ, length d.
        bound: "t", or the share c of the range of returns at which Theorem 1 truncates.
        quantile: t_{1−δ/d, n−1}, for "t".
        values: Function from a policy to v [d, X] and q [d, X, A] of the trained model, for "dr".
        edges: Lowest and highest return, for the other bound.

    Returns:
        α of the chosen candidate (1 for the baseline), and the bounds of all candidates by α.
    """
    d, best, chosen, bounds = len(preference), -np.inf, 1.0, {}
    for step in range(9, -1, -1):
        mix = step / 10.0
        policy = (1.0 - mix) * target + mix * baseline
        v, q = values(policy) if values else (None, None)
        passed, merit = True, 0.0
        bounds[mix] = []
        for k in range(d):
            own = [slow_returns(e, baseline, baseline, discount, k, "is") for e in safety]
            mu = sum(own) / len(own)
            if bound == "t":
                terms = [slow_returns(e, policy, baseline, discount, k, kind, v, q) for e in safety]
                mean = sum(terms) / len(terms)
                sd = np.sqrt(sum((term - mean) ** 2 for term in terms) / (len(terms) - 1))
                low = mean - sd / np.sqrt(len(terms)) * quantile
            else:
                least, most = edges
                unit = [
                    slow_returns(e, policy, baseline, discount, k, kind, low=least) / (most - least) for e in safety
                ]
                low = least + (most - least) * max(slow_bernstein(unit, [bound] * len(unit), delta / d), 0.0)
            bounds[mix].append(low - mu)
            passed = passed and low >= mu
            on_train = [slow_returns(e, policy, baseline, discount, k, kind, v, q) for e in train]
            merit += preference[k] * sum(on_train) / len(on_train)
        if passed and merit > best:
            best, chosen = merit, mix
    return chosen, bounds
