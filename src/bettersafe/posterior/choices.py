"""Neutral priors and forms of the posterior; without NumPy, for the command line."""

from __future__ import annotations

from typing import Literal

Neutral = Literal["support", "hierarchical"]
NEUTRAL: dict[str, str] = {
    "hierarchical": "a state's actions resemble each other as much as the log says",
    "support": "they do not",
}

Form = Literal["auto", "draws", "linearised"]
FORMS: dict[str, str] = {
    "auto": "draws, unless the log has so many transitions that they take very long",
    "draws": "processes drawn from the posterior",
    "linearised": "to first order, without draws",
}
