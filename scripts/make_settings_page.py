"""Print docs/settings.md, the page of all settings, from the table in bettersafe.tasks.settings."""

from __future__ import annotations

from bettersafe.tasks.settings import COLUMNS, EVENT, GROUPS, OBJECTIVE, RARE, SETTINGS, Setting

HEAD = """# Settings

Every setting of a task: its key in a [task file](task-file.md), its option on the [command line](command-line.md), and its field in
Python (`Task`, `Objective`, `Columns`, `Rare`, `DeclaredEvent`). This page is made from the table that they all follow from (`scripts/make_settings_page.py`).
What b-opt uses to ask the posterior, `certify --posterior` and the [explorer](explore.md) use too.
"""

REQUIRED = ("data", "name", "rate")
"""Settings without a default."""

SECTIONS = (
    (
        "Each objective",
        "Keys of `[objectives.NAME]`; options are repeated, with the column before the value.",
        OBJECTIVE,
    ),
    (
        "Rare decisions",
        "Keys of `[derived]`, such as `rare = { below = 10 }`: an objective that penalises rarely tried decisions. Options describe one, 'rare'; its discount is then that of the first objective, if not given.",
        RARE,
    ),
    (
        "Declared events",
        "Keys of `[[event]]`, one table for each event, and of `--event`: harm that the log [has never shown](guarantees.md#harm-that-the-log-has-never-shown).",
        EVENT,
    ),
    ("Which column is which", "Keys of `[columns]`.", COLUMNS),
)


def table(rows: tuple[Setting, ...]) -> str:
    """A Markdown table of rows."""
    lines = ["| key | option | what it is | if left out |", "|---|---|---|---|"]
    for row in rows:
        option = f"`{row.flag} {row.metavar}`" if row.flag.startswith("--") else f"`{row.flag}`"
        if row in EVENT:
            option = f"`{row.name}={row.metavar}`"
        default = (
            f"{row.default:g}"
            if row in RARE
            else row.default_text or ("must be given" if row.name in REQUIRED else "none")
        )
        cells = (f"`{row.toml_key}`", option, meaning(row), default)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def meaning(row: Setting) -> str:
    """Help, what each choice means, and which methods use it."""
    parts = [f"{row.help}{':' if row.choices else '.'}"]
    parts += [f"<br>`{name}`{f': {text}' if text else ''}" for name, text in row.choices.items()]
    parts += [f"{'<br>' if row.choices else ' '}{row.more}"] if row.more else []
    if row.by_objective and row in SETTINGS:
        parts.append("<br>In a task file it is a key of the objective.")
    if row.methods:
        parts.append(f"<br>Used by {', '.join(row.methods)}.")
    return "".join(parts)


def page() -> str:
    """The page."""
    parts = [HEAD]
    for group in GROUPS:
        rows = tuple(row for row in SETTINGS if row.group == group)
        if rows:
            parts.append(f"## {group}\n\n{table(rows)}\n")
    parts += [f"## {title}\n\n{text}\n\n{table(rows)}\n" for title, text, rows in SECTIONS]
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
