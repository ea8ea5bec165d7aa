"""The public names of the package, as its faces list them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import bettersafe

SOURCE = Path(bettersafe.__file__).parent
FOLDERS = (
    "mdp", "logs", "posterior", "evaluation", "methods", "certificate", "runs", "tasks", "report", "envs", "studies",
)  # fmt: skip
MODULES = ("model", "errors", "typing")


def stub(folder: str = "") -> dict[str, str]:
    """Names in the __init__.pyi of a folder, or of the package itself, each with its module."""
    tree = ast.parse((SOURCE / folder / "__init__.pyi").read_text(encoding="utf-8"))
    inner = ".".join(("bettersafe", folder)).rstrip(".")
    return {
        a.name: f"{inner}.{node.module}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for a in node.names
    }


def homes() -> dict[str, str]:
    """The module of every public name."""
    found = {name: module for folder in FOLDERS for name, module in stub(folder).items()}
    for name in MODULES:
        module = importlib.import_module(f"bettersafe.{name}")
        found |= dict.fromkeys(module.__all__, module.__name__)
    return found


def load(name: str) -> Any:
    """What a public name stands for."""
    return getattr(importlib.import_module(homes()[name]), name)
