"""The shape of the house: imports point one way, and names are where the package says."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bettersafe
from bettersafe.cli.main import app
from places import ROOT

SOURCE = Path(bettersafe.__file__).parent

# A folder or module imports those before it, and its own. Only envs and studies may see a true MDP.
ORDER = [
    "errors", "typing", "_system", "_kernel", "mdp", "logs", "model", "posterior", "evaluation", "methods", "certificate", "runs", "tasks",
    "text", "report", "envs", "studies", "explore", "cli",
]  # fmt: skip
MODULES = {
    ".".join(("bettersafe", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}


LEVELS = ("unit", "property", "statistical", "e2e")
# Modules without tests of their name, and the module whose tests are theirs too: tables of words, and parts of one thing.
TESTED_WITH = {
    "cli.show.evaluation": "cli.runs",
    "cli.show.logs": "cli.logs",
    "cli.show.plan": "cli.runs",
    "cli.show.studies": "cli.studies",
    "cli.show.tables": "cli.show.runs",
    "evaluation.choices": "tasks.settings",
    "evaluation.support": "evaluation.held_out",
    "logs._reader.blocks": "logs.episodes",
    "mdp.choices": "tasks.settings",
    "methods.choices": "tasks.settings",
    "posterior.choices": "tasks.settings",
    "studies.garnet.figures": "studies.garnet.experiment",
    "studies.gauntlet.choose": "studies.gauntlet.kinds",
    "studies.gauntlet.confirm": "studies.gauntlet.kinds",
    "studies.gauntlet.fifth": "studies.gauntlet.kinds",
    "studies.gauntlet.fourth": "studies.gauntlet.kinds",
    "studies.gauntlet.fresh": "studies.gauntlet.kinds",
    "studies.gauntlet.seventh": "studies.gauntlet.kinds",
    "studies.gauntlet.sixth": "studies.gauntlet.kinds",
    "studies.rules": "studies.case",
    "tasks.draft.words": "tasks.draft.guess",
    "tasks.plan": "cli.runs",
}
# Test files that are not about one module.
WHOLE = {
    "test_structure.py",
    "test_public.py",
    "_kernel/test_kernel.py",
    "test_benchmarks.py",
    "test_killed.py",
    "logs/test_units.py",
    "evaluation/test_units.py",
}


def imports(path):
    """Modules of the package that a module imports when it runs, lazily or not (not those for type checkers)."""
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
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if inner in MODULES:
                yield inner
            elif node.module in MODULES:
                yield node.module


def test_both_forms_of_imports_are_seen(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "def f():\n    import bettersafe.cli.main\n    from bettersafe.mdp import values\n", encoding="utf-8"
    )
    assert list(imports(path)) == ["bettersafe.cli.main", "bettersafe.mdp.values"]


def room_of(module):
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("module", [name for name in MODULES if name != "bettersafe"])
def test_imports_point_one_way(module):
    room = room_of(module)
    assert room in ORDER, f"say in ORDER where {room} stands"
    for other in imports(MODULES[module]):
        assert room_of(other) in ORDER, f"{module} must import from a module, not from the package's face"
        assert ORDER.index(room_of(other)) <= ORDER.index(room), f"{module} must not import {other}"
        if room_of(other) == "envs":
            assert room in ("envs", "studies")


def test_there_is_no_cycle_of_imports():
    order = TopologicalSorter({name: set(imports(path)) - {name} for name, path in MODULES.items()})
    order.prepare()  # raises CycleError, which names the modules of a cycle


def test_every_module_has_tests_of_its_name():
    """Those of ``folder.module`` are in tests/LEVEL/folder/test_module.py, and there are no others."""
    modules = {name.removeprefix("bettersafe.") for name, path in MODULES.items() if path.name != "__init__.py"}
    tested = set()
    for level in LEVELS:
        for path in sorted((ROOT / "tests" / level).rglob("test_*.py")):
            place = path.relative_to(ROOT / "tests" / level)
            if place.as_posix() not in WHOLE:
                module = ".".join((*place.parent.parts, place.stem.removeprefix("test_")))
                assert module in modules, f"{path} is named after no module"
                tested.add(module)
    assert sorted(modules - tested) == sorted(TESTED_WITH)
    assert set(TESTED_WITH.values()) <= tested


def test_array_types_have_one_home():
    shared = re.compile(
        r"^(Floats|Ints|Bools|Bytes|Labels|Flags|Json|Row|Record|Log|Event|Progress)\b\s*(:[^=]+)?=|^class (Log|Event|Progress)\b",
        re.M,
    )
    assert [name for name, path in MODULES.items() if shared.search(path.read_text(encoding="utf-8"))] == [
        "bettersafe.typing"
    ]


def test_every_public_name_is_there_and_documented():
    for name in bettersafe.__all__:
        assert getattr(bettersafe, name).__doc__, name
    assert dir(bettersafe) == sorted(bettersafe.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = bettersafe.nothing


FLAG = re.compile(r"(?<![\w-])--[a-z]")
COMMAND = re.compile(
    r"\bbettersafe (init|describe|count|merge|improve|explore|evaluate|certify|verify|report|show|demo|discretize|study|sepsis)\b"
)
WITH_FLAGS = {  # where options are made, and the command that makes a task again
    "bettersafe.tasks.settings": {"--", "--candidate", "--event", "--objective", "--rare-below", "--rare-reward", "--rare-weight", "--rare-discount"},
    "bettersafe.tasks.task": {"--task"},
    "bettersafe.explore.keeping": {"--posterior"},
}  # fmt: skip


def texts(tree):
    """Texts in the code, docstrings left out."""
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    after = {  # docstrings of attributes
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told | after:
            yield node.value


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) != "cli"])
def test_the_library_speaks_of_settings_and_functions(module):
    """Options and commands are the command line's words: `bettersafe.cli.main` puts them in the place of names in backticks."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    flags = {text for text in texts(tree) if FLAG.search(text)}
    assert flags <= WITH_FLAGS.get(module, set())
    for error in ast.walk(tree):
        if isinstance(error, ast.Raise):
            assert not [text for text in texts(error) if COMMAND.search(text)]


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
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"`bettersafe {command.callback.__name__}" in text


LONG = {"discretize_log"}  # the whole command in one call: its parameters are independent


@pytest.mark.parametrize("module", MODULES)
def test_functions_are_short(module):
    """At most 100 lines and 10 parameters; `given`, the settings of a command, comes on top."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name not in LONG:
            arguments = node.args
            given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            names = [one.arg for one in given if one is not None and one.arg not in ("self", "cls", "given")]
            assert len(names) <= 10, node.name
            assert node.end_lineno - node.lineno < 100, node.name
