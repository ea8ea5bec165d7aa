"""Names and looks of methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.studies.gridworld.plan import PLANS
from bettersafe.studies.styles import STYLES, plain_name


def test_methods_have_plain_names_and_looks_of_their_own():
    names = {
        "linearized": "Linearized",
        "adv-linearized": "Adv-Linearized",
        "s-opt 0.1": "S-OPT ε = 0.1",
        "s-opt tuned": "S-OPT ε tuned",
        "soft-spibb 1.0": "Soft-SPIBB ε = 1.0",
        "h-opt published dr": "H-OPT (published code)",
        "h-opt paper dr": "H-OPT (paper)",
        "lagrangian 0.01 norm=50": "Lagrangian η = 0.01, B = 50",
        "lagrangian 0.01 max_rounds=100": "Lagrangian η = 0.01, rounds = 100",
        "h-opt paper-linearized dr": "H-OPT (paper, Linearized)",
        "h-opt paired dr": "H-OPT (paired)",
        "h-opt uncovered dr": "H-OPT (sequential, coverage ignored)",
        "h-opt sequential dr": "H-OPT (sequential)",
        "h-opt sequential cwpdis": "H-OPT (sequential, CWPDIS)",
        "h-opt published tuned": "H-OPT (published code, tuned)",
        "lagrangian 0.01": "Lagrangian η = 0.01",
        "g-opt 1.0": "G-OPT ε = 1.0",
        "b-opt": "B-OPT",
    }
    assert {words: plain_name(words) for words in names} == names
    for plan in PLANS.values():
        drawn = [STYLES[method] for method in plan.methods if method in STYLES]
        assert len({style.marker for style in drawn}) == len({style.colour for style in drawn}) == len(drawn)
        assert plan is PLANS["gridworld/tuned"] or plan.drawn == "nothing" or len(drawn) == len(plan.methods)
    with pytest.raises(AttributeError):
        replace(STYLES["linearized"]).colour = "red"


SIGHT = {
    "normal": np.eye(3),
    # what is left of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}


def seen(colour, sight):
    """CIELAB of a colour as it is seen."""
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    linear = np.clip(
        np.array(sight) @ np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4), 0.0, 1.0
    )
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(f > 0.008856, np.cbrt(f), 7.787 * f + 16.0 / 116.0)
    return np.array([116.0 * f[1] - 16.0, 500.0 * (f[0] - f[1]), 200.0 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_b_opt_and_g_opt_are_told_apart_by_everybody(sight):
    for plan in PLANS.values():
        if plan.has_b_opt:
            looks = {method: seen(STYLES[method].colour, SIGHT[sight]) for method in plan.methods}
            for ours in ("b-opt", "g-opt 0.1", "g-opt 1.0"):
                nearest = min(np.linalg.norm(looks[ours] - look) for method, look in looks.items() if method != ours)
                assert nearest > 15.0  # 2.3 is just noticeable
