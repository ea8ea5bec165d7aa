"""Make the pictures of the pages in docs/images again: explore.png and report.png, both on the demonstration's cohort.

    python scripts/make_images.py

Needs playwright and Chromium (`make browser`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
BETTERSAFE = Path(sys.executable).with_name("bettersafe")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
SETTLED = "() => !busy && shown && belief && here >= 0 && same(path[here].settings, settings)"
RARE, EPSILON = 1, 2  # number fields: the weight of rare treatments, the budget
VISITS = (
    (EPSILON, "0.01"), (EPSILON, "0.03"), (EPSILON, "0.1"), (EPSILON, "0.3"), (RARE, "0.5"), (RARE, "1"), (RARE, "0.1"),
)  # fmt: skip


def main() -> None:
    """Write both pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name) / "sepsis"
        subprocess.run([BETTERSAFE, "demo", "-o", folder], check=True, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        take_report(browser, folder)
        take_explorer(browser, folder)
        browser.close()


def take_report(browser: Browser, folder: Path) -> None:
    """The top of the report of the demonstration's run, certified on the second cohort."""
    subprocess.run(
        [BETTERSAFE, "certify", folder / "run", folder / "later.parquet"], check=True, stdout=subprocess.DEVNULL
    )
    page = browser.new_page(viewport={"width": 1180, "height": 1500})
    page.goto((folder / "run" / "report.html").as_uri())
    page.screenshot(path=IMAGES / "report.png")


def take_explorer(browser: Browser, folder: Path) -> None:
    """The explorer after some visits."""
    command = [BETTERSAFE, "explore", folder / "cohort.parquet", "--objective", "survival", "--rare-below", "10"]
    server = subprocess.Popen(
        [*command, "-o", folder / "runs", "--no-browser", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        page = browser.new_page(viewport={"width": 1360, "height": 987})
        page.goto(json.loads(server.stdout.readline())["url"])
        page.wait_for_function(SETTLED, timeout=120_000)
        for field, value in VISITS:
            page.locator("input[inputmode=decimal]").nth(field).fill(value)
            page.wait_for_timeout(1000)  # the page counts a visit when its controls have not moved for a while
            page.wait_for_function(SETTLED, timeout=120_000)
        page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
        page.screenshot(path=IMAGES / "explore.png")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
