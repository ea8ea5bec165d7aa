"""The explorer's page in a real browser: what it shows is what the library says, and it survives its server."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from bettersafe.explore import answers, requests
from bettersafe.explore import session as explore
from bettersafe.logs.dataset import Objective
from bettersafe.runs.run import load_run
from bettersafe.tasks.task import Task
from bettersafe.text import numbers
from bettersafe.text.headlines import summarise
from patience import TIMEOUT, until

BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")
EXPECTED = ("ERR_CONNECTION_REFUSED", "403 (Forbidden)", "409 (Conflict)", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
"""That a server is gone, or refuses, is logged by the browser itself."""

LOCAL = ("http://127.0.0.1:", "data:", "about:")


def write_clinic(path, n=300, seed=5):
    """A log of 15 states whose names are hostile; calm is a reward, cost a cost."""
    rng, kind = np.random.default_rng(seed), np.random.default_rng(8)
    good, dear = kind.uniform(0, 1, (15, 3)), kind.uniform(0, 2, (15, 3))
    lines = ["episode,step,state,action,calm,cost,next_state,terminated"]
    for episode in range(n):
        x = int(rng.integers(15))
        for step in range(6):
            a = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
            end = step == 5 or rng.random() < 0.2
            y = int((x + 1 + a * rng.integers(1, 4)) % 15)
            after = "" if end else f"<img src=x onerror=alert({y})>"
            lines.append(
                f"{episode},{step},<img src=x onerror=alert({x})>,act {a},{rng.random() < good[x, a]:d},{dear[x, a] + rng.integers(2):.1f},{after},{str(end).lower()}"
            )
            if end:
                break
            x = y
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    return write_clinic(tmp_path_factory.mktemp("clinic") / "clinic.csv")


@pytest.fixture(scope="module")
def library(clinic):
    objectives = (Objective(name="calm"), Objective(name="cost", lower_is_better=True))
    return explore.open_session(Task(data=str(clinic), objectives=objectives))


class Server:
    """The command, running."""

    def __init__(
        self, log, folder, port=0, words=("--objective", "calm", "--objective", "cost", "--lower-is-better", "cost")
    ):
        self.folder = folder
        self.process = subprocess.Popen(
            [BETTERSAFE, "explore", str(log), *words, "-o", str(folder), "--no-browser", "--json", "--port", str(port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.port = urlsplit(self.url).port

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=TIMEOUT)
        self.process.stdout.close()


@pytest.fixture
def server(clinic, tmp_path):
    server = Server(clinic, tmp_path / "runs")
    yield server
    server.stop()


@pytest.fixture
def visitor(browser):
    """People with a browser of their own: no test may leave an error in its console, or ask anybody but the explorer."""
    contexts, troubles = [], []

    def enter():
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.set_default_timeout(1000 * TIMEOUT)
        context.on("console", lambda said: said.type != "error" or troubles.append(said.text))
        context.on("weberror", lambda error: troubles.append(str(error.error)))
        context.on("request", lambda asked: asked.url.startswith(LOCAL) or troubles.append(asked.url))
        contexts.append(context)
        return context

    enter.troubles = troubles
    yield enter
    for context in contexts:
        context.close()
    assert [text for text in troubles if not any(e in text for e in EXPECTED)] == []


@pytest.fixture
def page(server, visitor):
    """The explorer, entered by its link."""
    page = visitor().new_page()
    page.goto(server.url)
    settled(page, visits=1)
    return page


def settled(page, visits=None):
    """Wait until what is asked for is drawn, believed and a dot of the path; returns the page's own document."""
    script = (
        "() => !busy && shown && belief && here >= 0 && same(shown.settings, settings) && same(belief.settings, settings)"
        " && same(path[here].settings, settings) ? {settings, shown, belief, visits: path.length, here} : null"
    )
    return until(lambda: (found := page.evaluate(script)) and (visits in (None, found["visits"])) and found)


def press(page, place, key, times=1):
    for _ in range(times):
        page.locator(place).press(key)


def text_of(page, css):
    return page.locator(css).all_inner_texts()


def assert_shows(page, library, found):
    """The page's numbers, its picture and its table are what the library says of the page's settings."""
    settings = requests.read_settings(found["settings"], library)
    solved = explore.solve(library, settings)
    spread = explore.spread(library, solved.policy) if solved.changed.size else None
    expected = json.loads(json.dumps(answers.answer(library, settings, solved)))
    belief = json.loads(json.dumps(answers.believe(library, settings, solved, spread)))
    assert found["shown"] == expected
    assert found["belief"] == belief
    assert text_of(page, "#sentence") == [belief["verdict"]]
    for row, was, now in zip(expected["objectives"], text_of(page, ".values .was"), text_of(page, ".now"), strict=True):
        decimals = numbers.change_precision(row["baseline"], row["policy"])
        assert was == f"model, optimistic: baseline {numbers.number(row['baseline'], decimals=decimals)}"
        assert now == f"→ {numbers.number(row['policy'], decimals=decimals)}"
    assert text_of(page, "#changes tbody th") == [row["state"] for row in expected["changes"]]
    return expected


def ring(page):
    return tuple(float(page.locator("#now").get_attribute(name)) for name in ("cx", "cy"))


@pytest.mark.slow
def test_moving_a_slider_moves_numbers_and_picture(page, library):
    first = settled(page)
    before = assert_shows(page, library, first)
    place = ring(page)
    press(page, "#epsilon-slider", "ArrowRight", 12)
    second = settled(page, visits=2)
    assert second["settings"]["epsilon"] > first["settings"]["epsilon"]
    after = assert_shows(page, library, second)
    assert after["preferred_gain"] > before["preferred_gain"]
    assert page.locator("#epsilon-slider").get_attribute("aria-valuetext") == numbers.number(
        second["settings"]["epsilon"], trim=True
    )
    # better is to the right and up, also where less is better
    gains = [b["gain"] - a["gain"] for a, b in zip(before["objectives"], after["objectives"], strict=True)]
    assert gains[0] > 0
    assert ring(page)[0] > place[0]
    # both ends of the budget
    press(page, "#epsilon-slider", "Home")
    found = settled(page, visits=3)
    assert found["settings"]["epsilon"] == 0
    assert found["belief"]["level"] == "baseline"
    assert_shows(page, library, found)
    press(page, "#epsilon-slider", "End")
    found = settled(page, visits=4)
    assert found["settings"]["epsilon"] == "inf"
    assert_shows(page, library, found)
    # one objective alone, by its number; a wrong one is said and not sent
    number = page.locator("#preference-0-number")
    number.fill("much")
    assert number.get_attribute("aria-invalid") == "true"
    assert settled(page)["settings"] == found["settings"]
    number.fill("0")
    found = settled(page, visits=5)
    assert found["settings"]["preference"] == {"calm": 0, "cost": 1}
    assert number.get_attribute("aria-invalid") == "false"
    assert_shows(page, library, found)
    # back to a dot, by mouse and by keyboard
    page.locator('[data-visit="1"]').dispatch_event("click")
    found = until(lambda: (p := settled(page)) and p["here"] == 1 and p)
    assert found["settings"] == second["settings"]
    assert found["visits"] == 5
    assert_shows(page, library, found)
    press(page, '[data-visit="0"]', "Enter")
    found = until(lambda: (p := settled(page)) and p["here"] == 0 and p)
    assert found["settings"] == first["settings"]
    assert page.locator("#epsilon-slider-number").input_value() == "0.1"
    # an accepted loss changes the belief, and the policy not at all
    page.locator("#losses summary").click()
    press(page, "#zeta-1", "ArrowRight", 30)
    found = settled(page, visits=6)
    assert found["shown"]["changes"] == first["shown"]["changes"]
    assert found["belief"]["p_safe"] >= first["belief"]["p_safe"]
    assert_shows(page, library, found)


def test_states_are_found_and_their_names_are_only_text(page):
    wanted = [row["state"] for row in settled(page)["shown"]["changes"] if "alert(1)" in row["state"]]
    page.locator("#search").fill("alert(1)")
    until(lambda: text_of(page, "#changes tbody th") == wanted)
    assert page.locator("#changes img").count() == 0


def test_one_is_kept_as_improve_would(page, server, visitor, library):
    page.get_by_role("button", name="Keep this one").click()
    kept = until(lambda: text_of(page, "#kept-path"))[0]
    assert kept == str(server.folder / "kept-1")
    assert text_of(page, "#kept-report") == [str(server.folder / "kept-1" / "report.html")]
    settings = requests.read_settings(settled(page)["settings"], library)
    np.testing.assert_array_equal(load_run(kept).policy, explore.solve(library, settings).policy)
    assert text_of(page, "#kept-headline") == [summarise(load_run(kept)).headline]
    assert text_of(page, "#kept-command")[0].startswith("bettersafe improve")
    name = page.get_by_label("Save the run as")
    assert name.input_value() == "kept-2"
    for wrong, words in (("../out", "must be 1 to 64 letters"), ("kept-1", "already has a run; choose another name")):
        name.fill(wrong)
        page.get_by_role("button", name="Keep this one").click()
        until(lambda words=words: words in "".join(text_of(page, "#kept")))
    assert [path.name for path in server.folder.iterdir()] == ["kept-1"]
    assert not (server.folder.parent / "out").exists()
    # the browser itself logs an answer of 400; anything else stays for the check of the console
    visitor.troubles[:] = [text for text in visitor.troubles if "400 (Bad Request)" not in text]


@pytest.mark.slow
def test_a_bad_or_used_link_is_refused_and_a_reload_goes_on(server, visitor):
    page = visitor().new_page()
    page.goto(f"http://127.0.0.1:{server.port}/?token=guess")
    assert "works once" in page.locator("main").inner_text()
    page.goto(server.url)
    settled(page)
    assert page.url == f"http://127.0.0.1:{server.port}/"
    press(page, "#epsilon-slider", "ArrowRight", 5)
    found = settled(page, visits=2)
    page.goto(server.url)  # the same link again, in the same browser
    again = settled(page)
    assert (again["settings"], again["visits"]) == (found["settings"], 2)
    other = visitor().new_page()
    other.goto(server.url)
    assert "works once" in other.locator("main").inner_text()


def test_two_tabs_explore_on_their_own(page, server, library):
    other = page.context.new_page()
    other.goto(f"http://127.0.0.1:{server.port}/")
    settled(other)
    press(other, "#epsilon-slider", "ArrowRight", 9)
    two = settled(other, visits=2)
    assert_shows(other, library, two)
    press(page, "#delta-slider", "ArrowRight", 9)
    one = settled(page, visits=2)
    assert one["settings"]["epsilon"] == 0.1  # as it was in this tab
    assert one["settings"]["delta"] == 0.19
    assert_shows(page, library, one)
    assert settled(other)["settings"] == two["settings"]


@pytest.mark.slow
def test_a_server_that_is_gone_is_missed_and_found_again(page, server, library, clinic, tmp_path):
    server.stop(signal.SIGKILL)
    press(page, "#epsilon-slider", "ArrowRight", 7)
    banner = page.locator("#gone")
    until(lambda: "has stopped" in banner.inner_text())
    successor = Server(clinic, tmp_path / "runs", port=server.port)
    try:
        until(lambda: "open the new link" in banner.inner_text())
        other = page.context.new_page()
        other.goto(successor.url)
        settled(other)
        other.close()
        found = settled(page, visits=2)  # what was asked in vain is answered now
        assert not banner.is_visible()
        assert_shows(page, library, found)
        page.goto("about:blank")  # before its server goes
    finally:
        successor.stop()


def test_a_phone_and_the_dark(page):
    for width in (375, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.evaluate(CONTRAST) == []


def test_a_screen_reader_finds_its_way(page):
    for landmark in ("banner", "main"):
        assert page.get_by_role(landmark).count() == 1, landmark
    assert page.get_by_role("form", name="Settings").count() == 1
    bare = "all => all.filter((e) => !e.labels.length && !e.ariaLabel).map((e) => e.id)"
    assert page.eval_on_selector_all("input, select", bare) == []
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("#sentence").get_attribute("aria-live") == "polite"


def test_many_objectives_are_folded(visitor, tmp_path):
    """Of twelve objectives one is pursued: knobs and rows of the others are a fold away, and the least sure come first."""
    rng = np.random.default_rng(2)
    names = [f"r{k:02d}" for k in range(12)]
    lines = ["episode,step,state,action," + ",".join(names)]
    for episode in range(150):
        for step in range(3):
            a = int(rng.integers(2))
            lines.append(
                f"{episode},{step},s{step},a{a}," + ",".join(f"{a * (k - 2) / 9 + rng.normal():.2f}" for k in range(12))
            )
    (tmp_path / "many.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [word for name in names for word in ("--objective", f"{name}={1 if name == 'r11' else 0}")]
    server = Server(tmp_path / "many.csv", tmp_path / "runs", words=[*words, "--method", "soft-spibb"])
    try:
        page = visitor().new_page()
        page.goto(server.url)
        found = settled(page)
        belief = {row["name"]: row for row in found["belief"]["objectives"]}
        assert page.locator(".knob:visible").count() == 3  # one weight, ε and δ
        page.locator("#protected summary").click()
        assert page.locator(".knob:visible").count() == 14
        shown = page.eval_on_selector_all("#returns > .objective", "all => all.map((n) => n.dataset.name)")
        rest = page.eval_on_selector_all("#returns details .objective", "all => all.map((n) => n.dataset.name)")
        assert shown[0] == "r11"
        assert sorted([*shown, *rest]) == names
        sure = {name: min(row["p_no_worse"], row["p_no_worse_pessimistic"]) for name, row in belief.items()}
        assert max(sure[name] for name in shown[1:]) <= min(sure[name] for name in rest)
        page.goto("about:blank")
    finally:
        server.stop()


# text whose contrast with what is behind it is below 4.5 (WCAG AA)
CONTRAST = """() => {
const part = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const rgba = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const colour = rgba(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || node.disabled) continue;
  const colour = getComputedStyle(node)[node instanceof SVGElement ? "fill" : "color"];
  const [a, b] = [light(rgba(colour)), light(behind(node))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) bad.push([walker.currentNode.textContent.trim().slice(0, 40), colour]);
}
return bad;
}"""
