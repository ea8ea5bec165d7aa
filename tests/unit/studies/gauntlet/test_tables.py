"""Tables of the gauntlet."""

from __future__ import annotations

from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.gauntlet.tables import gauntlet_tables
from gauntlet_rows import row, table

NAN = float("nan")


def line(page, section, start):
    """Cells of the first line of a section that begins so."""
    part = page.split(f"## {section}")[1].split("\n## ")[0]
    return next(
        [cell.strip() for cell in text.strip("|").split("|")]
        for text in part.splitlines()
        if text.startswith(f"| {start} ")
    )


def test_what_is_too_much_is_marked():
    rows = table(
        *(row(log, failure=log < 4, above=1.0, covered=1.0, z_mean=-0.8, z_pursued=0.2, kept=0.3) for log in range(10)),
        *(row(log, kind="taxi", half="confirm", episodes=100, above=0.0) for log in range(10)),
    )
    page = gauntlet_tables(rows, note="This is small.")
    assert "This is small." in page
    assert "10 worlds of each kind and size" in page
    assert line(page, "Kinds to choose", "Garnets, weak baseline") == [
        "Garnets, weak baseline", "20", "4/10 [0.12, 0.74]", "**0.013**", "**50 %**", "50 %", "+0.2", "**−0.8**", "30 %", "100 %",
    ]  # fmt: skip
    assert line(page, "Kinds to look at once", "Taxi, small") == [
        "Taxi, small", "100", "0/10 [0.00, 0.31]", "1", "0 %", "100 %", "+0.0", "+0.0", "50 %", "100 %",
    ]  # fmt: skip
    fresh = gauntlet_tables(table(row(0, kind="grants", half="fresh", episodes=50)))
    assert line(fresh, "Fresh kinds", "30 objectives (grants for 29 groups)")[1:3] == ["50", "0/1 [0.00, 0.97]"]
    fourth = gauntlet_tables(table(row(0, kind="shifts", half="fourth", episodes=40)))
    assert line(fourth, "Fourth set", "four unknown shifts at a kiln")[1:3] == ["40", "0/1 [0.00, 0.97]"]
    fifth = gauntlet_tables(table(row(0, kind="windy", half="fifth", episodes=30)))
    assert line(fifth, "Fifth set", "windy gridworld with slippery cells")[1:3] == ["30", "0/1 [0.00, 0.97]"]
    sixth = gauntlet_tables(table(row(0, kind="insurer", half="sixth", episodes=60)))
    assert line(sixth, "Sixth set", KINDS["insurer"].title)[1:3] == ["60", "0/1 [0.00, 0.97]"]
    seventh = gauntlet_tables(table(row(0, kind="lake", half="seventh", episodes=30)))
    assert line(seventh, "Seventh set", KINDS["lake"].title)[1:3] == ["30", "0/1 [0.00, 0.97]"]
    assert line(page, "Averages", "B-OPT")[:3] == ["B-OPT", "40 %", "1 of 1"]


def test_other_methods_and_what_can_not_be_learned_have_tables():
    rows = table(
        row(0, failure=True, kept=0.0),
        row(0, method="s-opt", parameter="0.1", kept=0.25, above=NAN, covered=NAN, z_mean=NAN, z_pursued=NAN),
        row(0, kind="unseen", unlearnable=True, failure=True, kept=0.0, share=NAN),
        row(
            0, kind="cold-store", kept=NAN, share=NAN, proposed=False, above=NAN, covered=NAN, z_mean=NAN, z_pursued=NAN
        ),
    )
    page = gauntlet_tables(rows)
    assert "| kind | S-OPT ε = 0.1 | B-OPT |" in page
    assert "| Garnets, weak baseline | 0/1 | 1/1 |" in page
    assert "| Garnets, weak baseline | 25 % | 0 % |" in page
    assert "| aggregated states (a cold store) | – | 0/1 |" in page
    assert line(page, "Kinds to choose", "aggregated states (a cold store)")[4:] == ["–", "–", "–", "–", "–", "0 %"]
    assert "hardly ever seen" not in page.split("## Harm that the log can't show")[0]
    assert line(page, "Averages", "B-OPT")[1] == "50 %"  # of two kinds, without the unseen
