"""Labels and lists of names."""

from __future__ import annotations

from bettersafe.text.names import listed, shorten


def test_names_are_listed_and_cut():
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"
    assert listed(["a"] * 17, of=17) == "all 17 objectives"
    assert listed(["a"] * 16, of=17) == "16 of 17 objectives"
    assert shorten("a long\n\u202ename", 8) == "a long\ufffd…"
