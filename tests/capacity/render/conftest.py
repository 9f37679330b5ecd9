"""A browser for the page: Debian's chromium and chromium-driver.

PRECISION_TIME_REQUIRE with the word ``browser`` in it makes a missing one a failure, not a skip.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_report
from browser_page import Browser

from predictor.capacity.render import render_html


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if programs[0] is None or programs[1] is None:
        if "browser" in os.environ.get("PRECISION_TIME_REQUIRE", "").split():
            pytest.fail("PRECISION_TIME_REQUIRE wants a browser: chromium and chromium-driver")
        pytest.skip("chromium and chromium-driver are not installed")
    with Browser.started(programs[0], programs[1]) as found:
        yield found


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_html(sample_report.full()), "utf-8")
    return path


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(render_html(sample_report.hostile()), "utf-8")
    return path
