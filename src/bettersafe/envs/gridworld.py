"""Gridworlds with pits, the environments of the paper's first study: reach the goal quickly and avoid acting in pits.

    r_0 = +1000 on the transition that reaches the goal (which ends the episode), −1 on every other
    r_k = −1 for any action taken in a pit of kind k, k = 1 … K
    p(move | x, a) = α(x, a) ~ U(0.5, 1); otherwise, and at a wall, the agent stays in its cell

The start is the bottom-right cell, the goal the top-left. The goal is terminal and therefore not a state: X = size² − 1,
the states are the other cells row by row, and index X denotes the goal in outcomes and observations. Labels are
``(row, column)`` with leading zeros where needed, and actions are sorted by name, so that indices stay the same when a
log is written and read back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe.envs.tabular import World, true_mdp
from bettersafe.errors import (
    NoSolutionError,
    ParameterError,
    PolicyError,
    as_numbers,
    check_integer,
    check_number,
    check_type,
)
from bettersafe.logs.dataset import Objective
from bettersafe.mdp.constrained import cmdp_optimum
from bettersafe.mdp.policy import check_policy
from bettersafe.typing import check_arrays, frozen, generator

if TYPE_CHECKING:
    from bettersafe.mdp.constrained import CMDPOptimum
    from bettersafe.typing import Bools, Bytes, Floats, Ints, Rng

ACTIONS = ("down", "left", "right", "up")
MOVES = ((1, 0), (0, -1), (0, 1), (-1, 0))  # rows down, columns to the right
GOAL_REWARD, STEP_REWARD, PIT_REWARD = 1000.0, -1.0, -1.0
HORIZON = 200
"""Steps after which the study truncates an episode."""

THRESHOLD, THRESHOLD_MANY_KINDS = -2.0, -10.0
"""Lower bound on the return of every pit objective in the study: with one kind of pit, and with several."""

MAX_DRAWS = 1000
"""Maximal number of draws in the search for a feasible gridworld."""


@dataclass(frozen=True, kw_only=True)
class Gridworld:
    """A gridworld with K kinds of pits.

    Attributes:
        world: The environment: d = 1 + K objectives, "goal" first, then "pits" (or "pits_1", "pits_2", …).
        size: Cells on a side.
        pits: Whether a state is a pit of kind k, shape [K, X].
        success_prob: α(x,a), shape [X, A]; ignored for moves into a wall.
    """

    world: World
    size: int
    pits: Bools
    success_prob: Floats

    def __post_init__(self) -> None:
        check_type("world", self.world, World)
        check_integer("size", self.size, least=2)
        check_arrays(self)

    @property
    def start(self) -> int:
        """The state in the bottom-right corner, X − 1."""
        return self.world.n_states - 1

    @property
    def goal(self) -> int:
        """The outcome in the top-left corner, X. It ends the episode and is not a state."""
        return self.world.n_states


def pit_gridworld(
    rng: Rng, *, size: int = 10, n_pit_kinds: int = 1, pit_prob: float = 0.3, discount: float = 0.99
) -> Gridworld:
    """A random gridworld.

    Args:
        rng: Seed or generator.
        size: Cells on a side.
        n_pit_kinds: K.
        pit_prob: Probability that a cell (including the start) is a pit; drawn independently for each kind.
        discount: γ of every objective.

    Examples:
        >>> from bettersafe.envs import pit_gridworld
        >>> pit_gridworld(0, size=4).world.n_states  # all cells except the goal
        15
    """
    check_integer("size", size, least=2)
    check_integer("n_pit_kinds", n_pit_kinds, least=1)
    check_number("pit_prob", pit_prob)
    if not 0.0 <= pit_prob <= 1.0:
        raise ParameterError(f"pit_prob must be a probability in [0, 1]; got {pit_prob!r}.")
    draw, n_states = generator(rng), size * size - 1
    return make_gridworld(
        pits=draw.random((n_pit_kinds, n_states)) < pit_prob,
        success_prob=draw.uniform(0.5, 1.0, size=(n_states, len(ACTIONS))),
        discount=discount,
    )


def make_gridworld(*, pits: npt.ArrayLike, success_prob: npt.ArrayLike, discount: float = 0.99) -> Gridworld:
    """Gridworld with given pits and success probabilities; its size is √(X + 1).

    Args:
        pits: Whether a state is a pit of kind k, shape [K, X].
        success_prob: Probability α(x,a) that a move succeeds, shape [X, A].
        discount: γ of every objective.

    Examples:
        >>> from bettersafe.envs import make_gridworld, render_text
        >>> small = make_gridworld(pits=[[False, True, False]], success_prob=np.ones((3, 4)))
        >>> print(render_text(small), end="")
        G ·
        o S
    """
    pit = np.atleast_2d(as_numbers("pits", pits) != 0.0)
    moved = as_numbers("success_prob", success_prob)
    if pit.ndim != 2:
        raise ParameterError(f"pits must have shape [K, X]; got {list(pit.shape)}.")
    n_kinds, n_states = pit.shape
    n_actions, size = len(ACTIONS), math.isqrt(n_states + 1)
    if size < 2 or size * size != n_states + 1:
        raise ParameterError(f"pits must have size² − 1 columns, one per cell except the goal; got {n_states}.")
    if moved.shape != (n_states, n_actions) or not np.all((moved >= 0.0) & (moved <= 1.0)):
        raise ParameterError(f"success_prob must be probabilities [{n_states}, {n_actions}]; got shape {moved.shape}.")

    here = np.repeat(np.arange(n_states), n_actions)
    row, column = cell_of(size, np.arange(n_states))
    step = np.array(MOVES)
    to_row, to_column = row[:, None] + step[:, 0], column[:, None] + step[:, 1]
    inside = (to_row >= 0) & (to_row < size) & (to_column >= 0) & (to_column < size)
    there = np.where(inside, (to_row * size + to_column - 1) % (size * size), here.reshape(n_states, n_actions)).ravel()
    leave = np.where(inside, moved, 0.0).ravel()

    # Each pair has two outcomes, staying and moving. Outcomes of probability 0 are left out.
    probability = np.column_stack([1.0 - leave, leave]).ravel()
    outcomes = np.column_stack([here, there]).ravel()
    of_pair = np.repeat(np.arange(here.size), 2)
    possible = probability > 0.0
    probability, outcomes, of_pair = probability[possible], outcomes[possible], of_pair[possible]
    reward = np.vstack(
        [
            np.where(outcomes == n_states, GOAL_REWARD, STEP_REWARD),
            np.where(pit[:, here[of_pair]], PIT_REWARD, 0.0),
        ]
    )
    width = len(str(size - 1))
    kinds = ["pits"] if n_kinds == 1 else [f"pits_{k + 1}" for k in range(n_kinds)]
    world = World(
        n_states=n_states,
        n_actions=n_actions,
        n_terminals=1,
        pair_state=here,
        pair_action=np.tile(np.arange(n_actions), n_states),
        outcome=sparse.csr_array(
            (probability, outcomes, np.searchsorted(of_pair, np.arange(here.size + 1))),
            shape=(here.size, n_states + 1),
        ),
        outcome_reward=reward,
        initial=np.eye(1, n_states, n_states - 1)[0],
        objectives=tuple(Objective(name=name, discount=discount) for name in ("goal", *kinds)),
        state_labels=np.array([f"({r:0{width}d}, {c:0{width}d})" for r, c in zip(row, column, strict=True)]),
        action_labels=np.array(ACTIONS),
        terminal_labels=np.array(["goal"]),
    )
    return Gridworld(world=world, size=size, pits=frozen(pit, np.bool_), success_prob=frozen(moved, np.float64))


def cell_of(size: int, index: npt.ArrayLike) -> tuple[Ints, Ints]:
    """Rows and columns of states, or of the goal (index X), in a grid of ``size``² cells."""
    row, column = np.divmod((np.asarray(index, dtype=np.int64) + 1) % (size * size), size)
    return row, column


def known_rewards(gridworld: Gridworld) -> Floats:
    """Expected rewards r_k(x,a), shape [d, X, A]. Studies with known rewards pass them to the model.

    Args:
        gridworld: The gridworld.

    Examples:
        >>> from bettersafe.envs import known_rewards, pit_gridworld
        >>> known_rewards(pit_gridworld(0, size=4)).shape
        (2, 15, 4)
    """
    check_type("gridworld", gridworld, Gridworld)
    world = gridworld.world
    return true_mdp(world).reward.reshape(world.n_objectives, world.n_states, world.n_actions)


def feasible_gridworld(
    rng: Rng,
    *,
    size: int = 10,
    n_pit_kinds: int = 1,
    pit_prob: float = 0.3,
    discount: float = 0.99,
    threshold: float | None = None,
) -> tuple[Gridworld, CMDPOptimum, int]:
    """Draw gridworlds until one has a policy with J_k ≥ ``threshold`` for every pit objective k.

    Args:
        rng: Seed or generator.
        size: As in ``pit_gridworld``.
        n_pit_kinds: As in ``pit_gridworld``.
        pit_prob: As in ``pit_gridworld``.
        discount: As in ``pit_gridworld``.
        threshold: Lower bound on J_k. Default: −2 with one kind of pit, −10 with several, as in the study.

    Returns:
        The gridworld, its constrained optimum π*, and the number of infeasible gridworlds drawn before it.

    Examples:
        >>> from bettersafe.envs import feasible_gridworld
        >>> gridworld, optimum, redraws = feasible_gridworld(0, size=4)
        >>> bool(optimum.returns[1] >= -2.0 - 1e-9)
        True
    """
    check_integer("n_pit_kinds", n_pit_kinds, least=1)
    if threshold is None:
        threshold = THRESHOLD if n_pit_kinds == 1 else THRESHOLD_MANY_KINDS
    check_number("threshold", threshold)
    draw = generator(rng)
    for redraws in range(MAX_DRAWS):
        gridworld = pit_gridworld(draw, size=size, n_pit_kinds=n_pit_kinds, pit_prob=pit_prob, discount=discount)
        try:
            optimum = cmdp_optimum(true_mdp(gridworld.world), np.full(n_pit_kinds, threshold))
        except NoSolutionError:
            continue
        return gridworld, optimum, redraws
    raise NoSolutionError(
        f"none of {MAX_DRAWS} gridworlds has a policy that meets the threshold {threshold:g}. Lower the threshold"
        f" or pit_prob ({pit_prob:g})."
    )


def quality_baseline(best: npt.ArrayLike, quality: float) -> Floats:
    """Baseline of quality ρ: π_b = ρ π* + (1−ρ)/|A|, shape [X, A].

    Args:
        best: π*, shape [X, A].
        quality: ρ, from 0 (uniform) to 1 (π*).

    Examples:
        >>> from bettersafe.envs import quality_baseline
        >>> quality_baseline([[1.0, 0.0]], 0.5)
        array([[0.75, 0.25]])
    """
    check_number("quality", quality)
    if not 0.0 <= quality <= 1.0:
        raise ParameterError(f"quality must be between 0 (uniform) and 1 (the best policy); got {quality!r}.")
    table = as_numbers("the best policy", best)
    if table.ndim != 2:
        raise PolicyError(f"the best policy must have shape [X, A] (states, actions); got {table.shape}.")
    return np.asarray(quality * table + (1.0 - quality) / table.shape[1])


# ---------------------------------------------------------------------------------------------------------- pictures

ARROWS = "↓←→↑"  # of ACTIONS


def render_text(gridworld: Gridworld, policy: npt.ArrayLike | None = None, *, agent: int | None = None) -> str:
    """Draw the grid as text: G goal, S start, @ agent, o pit.

    With two to nine kinds of pits, digits name the kinds in a cell; with more, +n gives their number.

    Args:
        gridworld: Gridworld to draw.
        policy: Policy, shape [X, A]; an arrow shows the most probable action of every state.
        agent: State of the agent, or the goal.

    Examples:
        >>> from bettersafe.envs import make_gridworld, render_text
        >>> small = make_gridworld(pits=[[False, True, False]], success_prob=np.ones((3, 4)))
        >>> print(render_text(small, np.full((3, 4), 0.25), agent=1), end="")
        G   ↓
        @↓o ↓S
    """
    check_type("gridworld", gridworld, Gridworld)
    size, n_kinds = gridworld.size, gridworld.pits.shape[0]
    cells = ["G"]
    table = _checked(gridworld, policy, agent)
    for x, pits in enumerate(gridworld.pits.T):
        kinds = np.flatnonzero(pits) + 1
        if n_kinds == 1:
            mark = "o" * kinds.size
        else:
            mark = "".join(map(str, kinds)) if n_kinds <= 9 else f"+{kinds.size}" * bool(kinds.size)
        arrow = "" if table is None else ARROWS[int(table[x].argmax())]
        cells.append(arrow + "S" * (x == gridworld.start) + mark or "·")
    width = max(map(len, cells))
    if agent is not None:
        width += 1  # constant, so that the grid keeps its width when the agent moves
        row, column = cell_of(size, agent)
        cells[row * size + column] = "@" + cells[row * size + column].replace("·", "")
    lines = [" ".join(cell.ljust(width) for cell in cells[i : i + size]).rstrip() for i in range(0, size * size, size)]
    return "\n".join(lines) + "\n"


Colour = tuple[int, int, int]
# Okabe and Ito's colour-blind safe palette. Its green is used only for the goal.
PIT_COLOURS: tuple[Colour, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (204, 121, 167),
    (240, 228, 66),
    (213, 94, 0),
    (0, 114, 178),
)
GOAL_COLOUR: Colour = (0, 158, 115)
PAPER, LINES, INK, AGENT_COLOUR = (250, 250, 247), (222, 222, 217), (34, 34, 40), (0, 73, 134)


def render_image(
    gridworld: Gridworld, policy: npt.ArrayLike | None = None, *, agent: int | None = None, cell: int = 32
) -> Bytes:
    """Draw the grid as an RGB image, shape [H, W, 3] with H = W = size·cell + 1.

    Each kind of pit has a colour and a position within the cell. The goal is green with a star, the start has a ring,
    the agent is a dark blue disc. The length of an arrow is proportional to the probability of its action.

    Args:
        gridworld: Gridworld to draw.
        policy: Policy to draw as arrows, shape [X, A].
        agent: State of the agent, or the goal.
        cell: Side of a cell in pixels; at least 8.

    Examples:
        >>> from bettersafe.envs import pit_gridworld, render_image
        >>> render_image(pit_gridworld(0, size=4), cell=16).shape
        (65, 65, 3)
    """
    check_type("gridworld", gridworld, Gridworld)
    check_integer("cell", cell, least=8)
    table = _checked(gridworld, policy, agent)
    size = gridworld.size
    canvas = np.empty((size * cell + 1, size * cell + 1, 3))
    canvas[:] = PAPER
    # Pixel centres of one cell, relative to its middle. Neighbouring cells share a line, hence the extra pixel.
    span = np.arange(cell + 1, dtype=np.float64) - cell / 2.0
    right, down = span[None, :], span[:, None]
    radius = np.hypot(right, down)

    def tile(index: int) -> Floats:
        row, column = (int(i) * cell for i in cell_of(size, index))
        return canvas[row : row + cell + 1, column : column + cell + 1]

    columns = math.ceil(math.sqrt(gridworld.pits.shape[0]))
    rows = math.ceil(gridworld.pits.shape[0] / columns)
    margin = 1 + round(0.05 * cell)  # separates the pits of neighbouring cells
    inner = cell + 1 - 2 * margin
    for k, x in np.argwhere(gridworld.pits):
        top, bottom = (margin + round(i * inner / rows) for i in (k // columns, k // columns + 1))
        left, end = (margin + round(i * inner / columns) for i in (k % columns, k % columns + 1))
        tile(x)[top:bottom, left:end] = PIT_COLOURS[k % len(PIT_COLOURS)]
    tile(gridworld.goal)[:] = GOAL_COLOUR
    canvas[::cell], canvas[:, ::cell] = LINES, LINES

    if agent is not None:  # drawn before arrows and star, so that they stay visible
        _paint(tile(agent), radius - 0.35 * cell, PAPER)
        _paint(tile(agent), radius - 0.30 * cell, AGENT_COLOUR)
    _paint(tile(gridworld.goal), _star(right, down, 0.36 * cell), PAPER)
    ring = np.abs(radius - 0.42 * cell) - max(0.03 * cell, 0.5)
    _paint(tile(gridworld.start), ring - 1.0, PAPER)
    _paint(tile(gridworld.start), ring, INK)
    if table is not None:
        shapes = [
            (tile(x), _arrow(right, down, MOVES[a], float(table[x, a]), cell))
            for x, a in np.argwhere(table > 0.01)  # shorter arrows would be dots
        ]
        for place, arrow in shapes:  # all halos first, so that none covers another arrow
            _paint(place, arrow - 1.0, PAPER)
        for place, arrow in shapes:
            _paint(place, arrow, INK)
    return np.rint(canvas).astype(np.uint8)


def _checked(gridworld: Gridworld, policy: npt.ArrayLike | None, agent: int | None) -> Floats | None:
    """Check policy and agent against the gridworld; return the policy as a table [X, A], or None."""
    world = gridworld.world
    if agent is not None:
        check_type("agent", agent, int, np.integer)
    if agent is not None and not 0 <= agent <= gridworld.goal:
        raise ParameterError(
            f"agent must be a state below {world.n_states}, or {gridworld.goal} for the goal; got {agent}."
        )
    if policy is None:
        return None
    return check_policy(policy, world.n_states, world.n_actions, state_labels=world.state_labels)


def _paint(tile: Floats, distance: Floats, colour: Colour) -> None:
    """Fill a shape, given the signed distance of every pixel to its edge (< 0 inside), with antialiasing."""
    cover = np.clip(0.5 - distance, 0.0, 1.0)[:, :, None]
    tile += cover * (np.array(colour) - tile)


def _arrow(right: Floats, down: Floats, move: tuple[int, int], share: float, cell: int) -> Floats:
    """Signed distance to the edge of an arrow along ``move`` (rows, columns) with ``share`` of the full length."""
    ahead, aside = move[0] * down + move[1] * right, np.abs(move[1] * down - move[0] * right)
    begin = 0.05 * cell  # a gap in the middle, so that the four arrows do not overlap
    end = begin + 0.38 * cell * share
    neck = max(end - 0.17 * cell, begin)  # a short arrow has no shaft
    shaft = np.maximum(np.maximum(begin - ahead, ahead - neck), aside - 0.03 * cell)
    slope = 0.6  # half the width of the head divided by its length
    head = np.maximum((aside - slope * (end - ahead)) / math.hypot(1.0, slope), neck - ahead)
    return np.minimum(shaft, head)


def _star(right: Floats, down: Floats, radius: float) -> Floats:
    """Signed distance to the edge of a five-pointed star with its points at ``radius``."""
    turn = 2.0 * math.pi / 5.0
    # Use the symmetry: angle to the nearest point of the star, the first point at the top.
    angle = np.abs((np.arctan2(right, -down) + turn / 2.0) % turn - turn / 2.0)
    along, across = np.hypot(right, down) * np.cos(angle), np.hypot(right, down) * np.sin(angle)
    # The edge runs from the point to the notch, half a turn further, at 0.4 of the radius.
    notch_along, notch_across = 0.4 * radius * math.cos(turn / 2.0), 0.4 * radius * math.sin(turn / 2.0)
    edge = math.hypot(radius - notch_along, notch_across)
    return ((along - radius) * notch_across + across * (radius - notch_along)) / edge
