"""Values read off the paper's figures, for comparison with ours.

By study and method: (improvement, failure rate) at each of `plan.SIZES`. Linearized and Adv-Linearized have no parameters
and no δ, and the Lagrangian figure uses S-OPT and H-OPT with the parameters of Figure 1(a); their values in all figures are
those of Figure 1(a). H-OPT's values are those of the published code. The scaling figure can't be read accurately.
"""

from __future__ import annotations

Points = tuple[tuple[float, float], ...]

_PLAIN: dict[str, Points] = {
    "linearized": ((169, 0.51), (173, 0.60), (180, 0.60), (182, 0.585)),
    "adv-linearized": ((137, 0.43), (165, 0.245), (175, 0.14), (176, 0.085)),
}
_OURS: dict[str, Points] = {  # the paper's own methods, δ = 0.1
    "s-opt 0.01": ((2, 0.005), (5, 0.0), (16, 0.0), (32, 0.0)),
    "s-opt 0.1": ((16, 0.005), (44, 0.005), (117, 0.035), (159, 0.055)),
    "s-opt 1.0": ((99, 0.10), (160, 0.19), (175, 0.14), (176, 0.085)),
    "h-opt published dr": ((86, 0.05), (148, 0.05), (168, 0.04), (171, 0.035)),
}

PUBLISHED: dict[str, dict[str, Points]] = {
    "gridworld/fixed": {**_PLAIN, **_OURS},  # Figure 1(a)
    "gridworld/tuned": {  # Figure 1(b)
        **_PLAIN,
        "s-opt tuned": ((133, 0.07), (162, 0.07), (175, 0.01), (176, 0.01)),
        "h-opt published tuned": ((87, 0.045), (149, 0.045), (168, 0.035), (169, 0.04)),
        "s-opt tuned once": ((133, 0.07), (162, 0.07), (175, 0.01), (176, 0.01)),
        "h-opt published tuned once": ((87, 0.045), (149, 0.045), (168, 0.035), (169, 0.04)),
    },
    "gridworld/delta-0.9": {  # the appendix on fixed parameters
        **_PLAIN,
        "s-opt 0.01": ((2, 0.005), (5.5, 0.0), (18, 0.0), (36, 0.0)),
        "s-opt 0.1": ((18, 0.005), (49, 0.005), (126, 0.04), (164, 0.055)),
        "s-opt 1.0": ((105, 0.11), (161, 0.21), (175, 0.14), (176, 0.085)),
        "h-opt published dr": ((110, 0.25), (153, 0.14), (172, 0.10), (173, 0.07)),
    },
    "gridworld/lagrangian": {  # the appendix on Le et al. 2019
        **_OURS,
        "lagrangian 0.01": ((170, 0.36), (174, 0.335), (180, 0.245), (182, 0.14)),
        "lagrangian 0.1": ((170, 0.36), (174, 0.345), (179, 0.365), (181, 0.29)),
        "lagrangian 1.0": ((170, 0.365), (173, 0.35), (176, 0.395), (177, 0.375)),
    },
}
