"""One headless Chromium for all tests of pages.

Needs Chromium (`make browser` installs it where it can) and playwright; without them these tests are skipped, and say why.
"""

from __future__ import annotations

import os
import shutil

import pytest

from patience import TIMEOUT

CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `make browser` installs it, or name one in $CHROMIUM")
    sync = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'bettersafe[dev]'"
    )
    with sync.sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=1000 * TIMEOUT)
        except sync.Error as error:
            pytest.skip(f"{CHROMIUM} does not start: {str(error).splitlines()[0]}")
        yield found
        found.close()
