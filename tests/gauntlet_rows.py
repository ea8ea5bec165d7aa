"""Rows of the gauntlet that nobody ran, for the tests of its tables and figures."""

from __future__ import annotations

import pyarrow as pa


def row(log, **more):
    return {
        "log": log,
        "kind": "garnet-weak",
        "episodes": 20,
        "delta": 0.1,
        "half": "choose",
        "unlearnable": False,
        "objectives": 2,
        "method": "b-opt",
        "parameter": "",
        "failure": False,
        "share": 0.5,
        "kept": 0.5,
        "proposed": True,
        "above": 0.0,
        "covered": 2.0,
        "z_pursued": 0.0,
        "z_mean": 0.0,
        "z_worst": 0.0,
        "p_safe": 0.95,
    } | more


def table(*rows):
    return pa.Table.from_pylist(list(rows))
