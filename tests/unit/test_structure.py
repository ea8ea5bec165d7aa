"""The shape of the house: imports point one way, and names are where the package says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import bettersafe

SOURCE = Path(bettersafe.__file__).parent
ROOT = Path(__file__).parents[2]

# Each module may import those before it (and its own folder). Only envs, demo and studies may see a true MDP.
ORDER = [
    "errors", "saving", "memory", "engines", "_kernel", "linear", "mdp", "lp", "data", "exact", "tally", "counts", "merging", "episodes", "logs", "countfile", "sharding", "discretize", "description", "model", "bounds", "terms", "judging", "evaluate", "improve", "safety", "hcpi", "theory", "cmdp", "gopt", "game", "posterior", "steps", "drawing", "bopt",
    "certificate", "policies", "runs", "report", "envs", "demo", "studies", "task", "starting", "pipeline", "evidence", "explore", "printing", "cli",
]  # fmt: skip
LAZY = {
    ("data", "logs"),
    ("counts", "logs"),
    ("episodes", "logs"),
}  # a verb that hands its work on, imported when it is called


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """Parts of the package that a module imports when it runs (not those for type checkers)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "bettersafe":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bettersafe."):
            yield node.module.split(".")[1]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    if part == "__init__":
        return
    assert part in ORDER, f"say in ORDER where {part} stands"
    for other in imports(path):
        if other != part and (part, other) not in LAZY:
            assert ORDER.index(other) < ORDER.index(part), f"{part} must not import {other}"
        if other == "envs":
            assert part in ("envs", "demo", "studies")


def test_every_public_name_is_there_and_documented():
    assert set(bettersafe.__all__) == set(bettersafe._MODULE)
    for name in bettersafe.__all__:
        assert getattr(bettersafe, name).__doc__, name
    assert dir(bettersafe) == sorted(bettersafe.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bettersafe.nothing


def test_nothing_unsafe_or_global():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bpickle\b|allow_pickle=True|np\.random\.(seed|rand|normal|choice)\(", text), path


def test_links_of_the_docs_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_command_is_in_the_docs():
    from bettersafe.cli import app

    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"`bettersafe {command.callback.__name__}" in text
