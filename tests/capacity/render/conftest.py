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

from predictor.estimate.fitting import Fitted
from predictor.site.capacity.jobs import of_file
from predictor.site.capacity.render.page import render_html
from predictor.site.capacity.report import Wanted, make_report
from predictor.site.capacity.whatif import ClusterChange
from predictor.site.history.ingest import Period
from predictor.site.replay import Pool

SAMPLE = Path(__file__).parents[3] / "profiles" / "samples" / "history.csv.gz"
DEMO_GPUS = ("v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb")


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


@pytest.fixture(scope="session")
def demo_page(tmp_path_factory: pytest.TempPathFactory, fitted: Fitted) -> Path:
    """The report that ``make demo`` makes of the shipped sample."""
    path = tmp_path_factory.mktemp("demo") / "report.html"
    period = Period(since_s=1_738_368_000.0, until_s=1_740_787_200.0)  # February 2025
    pools = tuple(Pool(name=name, gpus=24, gpus_per_node=8) for name in DEMO_GPUS)
    plan = ClusterChange(add=(Pool(name="a100-sxm4-80gb", gpus=8),))
    wanted = Wanted(pools=pools, plan=plan, most_configurations=40)
    found = make_report(of_file(SAMPLE), period, fitted.predictor, wanted)
    path.write_text(render_html(found), "utf-8")
    return path
