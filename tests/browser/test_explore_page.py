"""The explorer's page in a real browser: what it shows is what the library says, and it survives its server."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from bettersafe.data import Objective
from bettersafe.explore import session as explore
from bettersafe.runs import load_run
from bettersafe.task import Task

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver on this machine"),
    # selenium leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1280,1000",
)  # fmt: skip
RIGHT, HOME, END, ALL = "\ue014", "\ue011", "\ue010", "\ue009a\ue000"


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

    def __init__(self, clinic, folder, port=0):
        self.folder = folder
        words = ["--objective", "calm", "--objective", "cost", "--lower-is-better", "cost", "-o", str(folder)]
        self.process = subprocess.Popen(
            [BETTERSAFE, "explore", str(clinic), *words, "--no-browser", "--json", "--port", str(port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.port = urlsplit(self.url).port

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=30)
        self.process.stdout.close()


@pytest.fixture
def server(clinic, tmp_path):
    server = Server(clinic, tmp_path / "runs")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def lasting(clinic, browser, tmp_path_factory):
    """A server for all tests that leave it as it was, entered by its link."""
    server = Server(clinic, tmp_path_factory.mktemp("kept") / "runs")
    browser.get(server.url)
    yield server
    server.stop()


@pytest.fixture
def page(lasting, browser):
    """A fresh page of it."""
    browser.get(f"http://127.0.0.1:{lasting.port}/")
    browser.execute_script("clearTimeout(settle); sessionStorage.clear()")
    browser.get(f"http://127.0.0.1:{lasting.port}/")
    return settled(browser, visits=1)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.get("about:blank")
    browser.get_log("performance")  # of the browser's own first page
    yield browser
    browser.quit()


@pytest.fixture(autouse=True)
def quiet(request):
    """No test may leave an error in the console, or ask anybody but the explorer."""
    yield
    if "browser" not in request.fixturenames:
        return
    browser = request.getfixturevalue("browser")
    # that a server is gone, or refuses, is logged by the browser itself
    expected = (
        "ERR_CONNECTION_REFUSED",
        "403 (Forbidden)",
        "409 (Conflict)",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
    )
    bad = [entry["message"] for entry in browser.get_log("browser") if not any(e in entry["message"] for e in expected)]
    assert bad == []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            assert url.startswith(("http://127.0.0.1:", "data:", "about:")), url


def until(what, seconds=20.0):
    """Wait for ``what`` to be true; returns it."""
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def settled(browser, visits=None):
    """Wait until what is asked for is drawn, believed and a dot of the path; returns the page's own document."""
    script = (
        "return !busy && shown && belief && here >= 0 && same(shown.settings, settings) && same(belief.settings, settings)"
        " && same(path[here].settings, settings) ? {settings, shown, belief, visits: path.length, here} : null"
    )
    return until(lambda: (found := browser.execute_script(script)) and (visits in (None, found["visits"])) and found)


def text_of(browser, css):
    return browser.execute_script("return [...document.querySelectorAll(arguments[0])].map((n) => n.innerText)", css)


def js_number(value):
    """As the page writes a number: four digits, and a true minus."""
    return f"{float(f'{value:.4g}'):.12g}".replace("-", "−")


def assert_shows(browser, library, page):
    """The page's numbers, its picture and its table are what the library says of the page's settings."""
    settings = explore.read_settings(page["settings"], library)
    found = explore.solve(library, settings)
    expected = json.loads(json.dumps(explore.answer(library, settings, found)))
    belief = json.loads(
        json.dumps(
            explore.believe(
                library, settings, found, explore.spread(library, found.policy) if found.changed.size else None
            )
        )
    )
    assert page["shown"] == expected
    assert page["belief"] == belief
    assert text_of(browser, "#sentence") == [belief["verdict"]]
    for row, was, now in zip(
        expected["objectives"], text_of(browser, ".values .was"), text_of(browser, ".now"), strict=True
    ):
        assert was.endswith(js_number(row["baseline"]))
        assert now == f"→ {js_number(row['policy'])}"
    states = text_of(browser, "#changes tbody th")
    assert states == [row["state"] for row in expected["changes"]]
    return expected


def ring(browser):
    node = browser.find_element("id", "now")
    return float(node.get_attribute("cx")), float(node.get_attribute("cy"))


def test_moving_a_slider_moves_numbers_and_picture(page, browser, library):
    first = page
    before = assert_shows(browser, library, first)
    place = ring(browser)
    slider = browser.find_element("id", "epsilon-slider")
    slider.send_keys(RIGHT * 12)
    second = settled(browser, visits=2)
    assert second["settings"]["epsilon"] > first["settings"]["epsilon"]
    after = assert_shows(browser, library, second)
    assert after["preferred_gain"] > before["preferred_gain"]
    assert slider.get_attribute("aria-valuetext") == js_number(second["settings"]["epsilon"])
    # better is to the right and up, also where less is better
    moved = ring(browser)
    gains = [b["gain"] - a["gain"] for a, b in zip(before["objectives"], after["objectives"], strict=True)]
    assert gains[0] > 0
    assert moved[0] > place[0]
    # both ends of the budget
    slider.send_keys(HOME)
    page = settled(browser, visits=3)
    assert page["settings"]["epsilon"] == 0
    assert page["belief"]["level"] == "baseline"
    assert_shows(browser, library, page)
    slider.send_keys(END)
    page = settled(browser, visits=4)
    assert page["settings"]["epsilon"] == "inf"
    assert_shows(browser, library, page)
    # one objective alone, by its number; a wrong one is said and not sent
    number = browser.find_element("id", "preference-0-number")
    number.send_keys(ALL, "much")
    assert number.get_attribute("aria-invalid") == "true"
    assert settled(browser)["settings"] == page["settings"]
    number.send_keys(ALL, "0")
    page = settled(browser, visits=5)
    assert page["settings"]["preference"] == {"calm": 0, "cost": 1}
    assert number.get_attribute("aria-invalid") == "false"
    assert_shows(browser, library, page)
    # back to a dot, by mouse and by keyboard
    browser.execute_script(
        "document.querySelector('[data-visit=\"1\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    page = until(lambda: (p := settled(browser)) and p["here"] == 1 and p)
    assert page["settings"] == second["settings"]
    assert page["visits"] == 5
    assert_shows(browser, library, page)
    browser.execute_script("document.querySelector('[data-visit=\"0\"]').focus()")
    browser.switch_to.active_element.send_keys("\ue007")
    page = until(lambda: (p := settled(browser)) and p["here"] == 0 and p)
    assert page["settings"] == first["settings"]
    assert browser.find_element("id", "epsilon-slider-number").get_attribute("value") == "0.1"
    # an accepted loss changes the belief, and the policy not at all
    browser.find_element("css selector", "#losses summary").click()
    browser.find_element("id", "zeta-1").send_keys(RIGHT * 30)
    page = settled(browser, visits=6)
    assert page["shown"]["changes"] == first["shown"]["changes"]
    assert page["belief"]["p_safe"] >= first["belief"]["p_safe"]
    assert_shows(browser, library, page)


def test_states_are_found_and_their_names_are_only_text(page, browser):
    browser.find_element("id", "search").send_keys("alert(1)")
    wanted = [row["state"] for row in page["shown"]["changes"] if "alert(1)" in row["state"]]
    until(lambda: text_of(browser, "#changes tbody th") == wanted)
    assert browser.find_elements("css selector", "#changes img") == []


def test_one_is_kept_as_improve_would(page, lasting, browser, library):
    folder = lasting.folder
    browser.find_element("css selector", "#keep button").click()
    kept = until(lambda: text_of(browser, "#kept-path"))[0]
    assert kept == str(folder / "kept-1")
    settings = explore.read_settings(page["settings"], library)
    np.testing.assert_array_equal(load_run(kept).policy, explore.solve(library, settings).policy)
    assert text_of(browser, "#kept-command")[0].startswith("bettersafe improve")
    name = browser.find_element("id", "name")
    assert name.get_attribute("value") == "kept-2"
    for wrong, words in (("../out", "must be 1 to 64 letters"), ("kept-1", "already has a run.json")):
        name.clear()
        name.send_keys(wrong)
        browser.execute_script("document.getElementById('kept').replaceChildren()")
        browser.find_element("css selector", "#keep button").click()
        until(lambda words=words: words in "".join(text_of(browser, "#kept")))
    assert [path.name for path in folder.iterdir()] == ["kept-1"]
    assert not (folder.parent / "out").exists()
    drop_bad_request(browser)


def drop_bad_request(browser):
    """The browser itself logs an answer of 400; anything else stays for the check of the console."""
    assert all("400 (Bad Request)" in e["message"] or "409" in e["message"] for e in browser.get_log("browser"))


def test_a_bad_or_used_link_is_refused_and_a_reload_goes_on(server, browser):
    browser.get(f"http://127.0.0.1:{server.port}/?token=guess")
    assert "works once" in browser.find_element("tag name", "main").text
    browser.get(server.url)
    settled(browser)
    assert browser.current_url == f"http://127.0.0.1:{server.port}/"
    browser.find_element("id", "epsilon-slider").send_keys(RIGHT * 5)
    page = settled(browser, visits=2)
    browser.get(server.url)  # the same link again, in the same browser
    again = settled(browser)
    assert (again["settings"], again["visits"]) == (page["settings"], 2)
    browser.delete_cookie(f"bettersafe-{server.port}")
    browser.get(server.url)
    assert "works once" in browser.find_element("tag name", "main").text


def test_two_tabs_explore_on_their_own(page, lasting, browser, library):
    one = browser.current_window_handle
    browser.switch_to.new_window("tab")
    try:
        browser.get(f"http://127.0.0.1:{lasting.port}/")
        settled(browser)
        browser.find_element("id", "epsilon-slider").send_keys(RIGHT * 9)
        two = settled(browser, visits=2)
        assert_shows(browser, library, two)
        other = browser.current_window_handle
        browser.switch_to.window(one)
        browser.find_element("id", "delta-slider").send_keys(RIGHT * 9)
        page = settled(browser, visits=2)
        assert page["settings"]["epsilon"] == 0.1  # as it was in this tab
        assert page["settings"]["delta"] == 0.19
        assert_shows(browser, library, page)
        browser.switch_to.window(other)
        assert settled(browser)["settings"] == two["settings"]
        browser.close()
    finally:
        browser.switch_to.window(one)


def test_a_server_that_is_gone_is_missed_and_found_again(server, browser, library, clinic, tmp_path):
    browser.get(server.url)
    settled(browser)
    server.stop(signal.SIGKILL)
    browser.find_element("id", "epsilon-slider").send_keys(RIGHT * 7)
    banner = browser.find_element("id", "gone")
    until(lambda: "has stopped" in banner.text)
    successor = Server(clinic, tmp_path / "runs", port=server.port)
    try:
        until(lambda: "open the new link" in banner.text)
        one = browser.current_window_handle
        browser.switch_to.new_window("tab")
        browser.get(successor.url)
        settled(browser)
        browser.close()
        browser.switch_to.window(one)
        page = settled(browser, visits=2)  # what was asked in vain is answered now
        assert not banner.is_displayed()
        assert_shows(browser, library, page)
    finally:
        successor.stop()


@pytest.mark.usefixtures("page")
def test_a_phone_and_the_dark(browser):
    try:
        for width in (375, 1280):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for scheme in ("light", "dark"):
                feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
                assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
                assert browser.execute_script(CONTRAST) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# text whose contrast with what is behind it is below 4.5 (WCAG AA)
CONTRAST = """
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
"""
