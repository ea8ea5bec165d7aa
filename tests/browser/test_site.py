"""The documentation's site, opened from disk: its search works there too."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from patience import TIMEOUT
from places import ROOT


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra 'docs'")
def test_the_search_works_from_disk(browser, tmp_path):
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        check=True, capture_output=True, cwd=ROOT, timeout=TIMEOUT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    page, troubles = browser.new_page(), []
    page.on("console", lambda said: said.type != "error" or troubles.append(said.text))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:", "about:")) or troubles.append(asked.url))
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.locator("input.md-search__input").fill("certificate")
    result = page.locator(".md-search-result__item a").first
    result.wait_for(timeout=1000 * TIMEOUT)
    assert result.get_attribute("href").startswith("file:")
    page.close()
    assert troubles == []
