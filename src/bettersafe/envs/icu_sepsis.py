"""ICU-Sepsis: treatment of sepsis in intensive care, a finite environment estimated from MIMIC-III stays.

Choudhary, Gupta and Thomas (2024) clustered four-hour blocks of real stays into 713 patient states and counted the
transitions after each of 25 treatments. Their package icu-sepsis 2.0.1 (MIT) publishes the frequencies. The rewards
are those of the sepsis study in the S-OPT paper: +100 for survival, −100 for death, 0 before, with γ = 0.99.

Action a = 5·iv + vaso: the bins of intravenous fluid and of vasopressor given in four hours, 0 for none and 1
to 4 for the quartiles of the non-zero doses. Action 3 is labelled ``iv0/vaso3``.

Limitations:

- A pair is admissible if clinicians chose it more than 20 times. Only the 2,238 admissible pairs (of 17,825) were
  estimated. The outcome distribution of every other pair is *defined* as the unweighted mean over the admissible
  actions of the same state. For rarely tried treatments the true MDP is therefore a convention of the simulator;
  clinicians choose such pairs on about one visit in eight.
- Death means death within 90 days; the S-OPT paper counts deaths in hospital.
- This is a benchmark for algorithms, not medical advice.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe.envs.tabular import World
from bettersafe.errors import DataError
from bettersafe.logs.dataset import Objective
from bettersafe.typing import frozen

if TYPE_CHECKING:
    from bettersafe.typing import Bools, Floats

N_STATES = 713
N_ACTIONS = 25
TERMINALS = ("death", "survival")
RETURN_OF_DEATH, RETURN_OF_SURVIVAL = -100.0, 100.0
DISCOUNT = 0.99
SCHEMA = 1  # of icu_sepsis.npz, as scripts/make_icu_sepsis.py writes it


def icu_sepsis() -> World:
    """The ICU-Sepsis world: 713 patient states, 25 treatments (all 17,825 pairs stored), two terminal outcomes.

    It has one objective, ``survival``. States are labelled 0 to 712 as in the package icu-sepsis. The package's states
    713 (death) and 714 (survival) are terminal here, and its absorbing state 715 is left out.

    Examples:
        >>> from bettersafe.envs import icu_sepsis
        >>> icu = icu_sepsis()
        >>> icu.n_states, icu.n_actions
        (713, 25)
    """
    data = _archive()
    pair = data["pair"].astype(np.int64)
    n_outcomes = N_STATES + len(TERMINALS)
    known = sparse.csr_array((data["data"], data["indices"], data["indptr"]), shape=(pair.size, n_outcomes))
    # Stack the rows of `known` and one mean row per state; `source` is the row of every pair.
    state = pair // N_ACTIONS
    share = 1.0 / np.bincount(state, minlength=N_STATES)[state]
    mean = sparse.csr_array((share, (state, np.arange(pair.size))), shape=(N_STATES, pair.size)) @ known
    source = np.repeat(pair.size + np.arange(N_STATES), N_ACTIONS)
    source[pair] = np.arange(pair.size)
    outcome = sparse.csr_array(sparse.vstack([known, mean], format="csr")[source])
    outcome.sort_indices()  # the order of a sparse product is not specified, and logs depend on it

    reward = np.zeros((1, outcome.nnz))
    reward[0, outcome.indices == N_STATES] = RETURN_OF_DEATH
    reward[0, outcome.indices == N_STATES + 1] = RETURN_OF_SURVIVAL
    return World(
        n_states=N_STATES,
        n_actions=N_ACTIONS,
        n_terminals=len(TERMINALS),
        pair_state=np.repeat(np.arange(N_STATES), N_ACTIONS),
        pair_action=np.tile(np.arange(N_ACTIONS), N_STATES),
        outcome=outcome,
        outcome_reward=reward,
        initial=data["initial"],
        objectives=(Objective(name="survival", discount=DISCOUNT, label="survival (±100)", unit="points"),),
        state_labels=np.arange(N_STATES),
        action_labels=np.array([f"iv{a // 5}/vaso{a % 5}" for a in range(N_ACTIONS)]),
        terminal_labels=np.array(TERMINALS),
    )


def clinician_policy() -> Floats:
    """Frequency of each treatment in each patient state, shape [713, 25]; 9,252 entries are positive.

    Examples:
        >>> from bettersafe.envs import clinician_policy, icu_sepsis, sample_episodes
        >>> sample_episodes(icu_sepsis(), clinician_policy(), 10, rng=0).n_episodes
        10
    """
    return frozen(_archive()["clinician"], np.float64)


def admissible_pairs() -> Bools:
    """True for pairs whose outcomes were estimated, False for those set to the state's mean, shape [713, 25].

    Examples:
        >>> from bettersafe.envs import admissible_pairs
        >>> float(admissible_pairs().mean().round(2))  # share of pairs
        0.13
    """
    table = np.zeros(N_STATES * N_ACTIONS, dtype=np.bool_)
    table[_archive()["pair"]] = True
    return frozen(table.reshape(N_STATES, N_ACTIONS), np.bool_)


def sofa_scores() -> Floats:
    """Mean SOFA score of every patient state (organ failure, 0 to 24, higher is worse), shape [713].

    Examples:
        >>> from bettersafe.envs import sofa_scores
        >>> sofa_scores().shape
        (713,)
    """
    return frozen(_archive()["sofa"], np.float64)


def _archive() -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of icu_sepsis.npz."""
    with (
        resources.files("bettersafe.envs").joinpath("icu_sepsis.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        arrays = {name: archive[name] for name in archive.files}
    if int(arrays["schema"]) != SCHEMA:
        raise DataError(
            f"icu_sepsis.npz must have schema {SCHEMA}; it has {int(arrays['schema'])}. Reinstall bettersafe,"
            " or write the file again with scripts/make_icu_sepsis.py."
        )
    return arrays
