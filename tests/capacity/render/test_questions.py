"""What a planner asks, answered within two clicks; axe, links and the filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser_page import Browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

AXE = Path(__file__).with_name("axe") / "axe.min.js"
# A question, what is clicked, where the answer is then read, and the answer.
QUESTIONS = (
    ("How much of the GPUs is used?", (), ".figures > div:nth-child(1)", "88.5 %"),
    ("When is the queue empty?", (), ".figures > div:nth-child(4)", "2 d"),
    ("Where could most GPU time be had back?", (), ".action li", "Idle while jobs waited"),
    (
        "Which user wastes most?",
        (".contents summary", ".contents a[href='#by-user']"),
        "#reading-by-user",
        "most were lost by ada",
    ),
    (
        "What should that user do?",
        ("nav a[href='#lost']",),
        "#losses ~ .scroll tbody tr",
        "write checkpoints",
    ),
    (
        "Which jobs leave GPUs idle?",
        ("nav a[href='#opportunities-section']",),
        "#waste ~ .scroll tbody tr",
        "its GPUs did nothing",
    ),
    (
        "What would 8 more A100 bring?",
        ("nav a[href='#what-if-section']",),
        "#alternatives ~ .scroll tbody tr:nth-child(2)",
        "+8 a100-sxm4-80gb 1,200 50 min -40 min (-1 h 20 min to -20 min)",
    ),
    ("Why do jobs wait?", ("nav a[href='#waiting']",), "#wait-causes ~ .scroll tbody tr", "fewer"),
    (
        "When are there too few GPUs?",
        ("nav a[href='#plan']",),
        "#reading-forecast",
        "v100-sxm2-16gb is the first whose demand exceeds its capacity",
    ),
    (
        "When does job 4003 start?",
        ("nav a[href='#queue-section']", "#queue ~ .scroll tbody tr:nth-child(4) a.find"),
        "#queue ~ .scroll tbody tr:nth-child(4)",
        "30 min",
    ),
    ("May I trust its predictions?", ("nav a[href='#trust']",), "#predictions ~ .scroll", "9.0 %"),
)


@pytest.mark.parametrize(
    ("clicks", "place", "answer"), [each[1:] for each in QUESTIONS], ids=[q[0] for q in QUESTIONS]
)
def test_a_question_is_answered_within_two_clicks(
    browser: Browser, page: Path, clicks: tuple[str, ...], place: str, answer: str
) -> None:
    browser.open(page)
    for each in clicks:
        browser.driver.find_element(By.CSS_SELECTOR, each).click()
    found = browser.driver.find_element(By.CSS_SELECTOR, place)
    assert len(clicks) <= 2
    assert answer in found.text
    top = browser.ask("return arguments[0].getBoundingClientRect().top", found)
    assert 0 <= top < 1.5 * 900 or not clicks


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_serious(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    browser.ask(AXE.read_text("utf-8"))
    found: list[dict[str, Any]] = browser.driver.execute_async_script(
        "axe.run().then(r => arguments[arguments.length - 1](r.violations))"
    )
    told = [(each["id"], each["nodes"][0]["html"][:120]) for each in found if is_serious(each)]
    assert told == []


def is_serious(found: dict[str, Any]) -> bool:
    return found["impact"] in ("serious", "critical")


def test_a_name_leads_to_all_that_is_told_of_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    first = browser.driver.find_element(By.CSS_SELECTOR, "#waste ~ .scroll a.find[href*=grace]")
    first.send_keys(Keys.ENTER)
    filtered = "return document.body.classList.contains('filtered')"  # hashchange comes later
    WebDriverWait(browser.driver, 20).until(lambda _: browser.ask(filtered))
    seen = (
        "return [...document.querySelectorAll('tbody tr')].filter(r => r.checkVisibility())"
        ".map(r => r.closest('.scroll').getAttribute('aria-labelledby'))"
    )
    assert {"waste", "losses", "measured", "by-user"} <= set(browser.ask(seen))
    rows = browser.ask(
        "return [...document.querySelectorAll('tbody tr')].filter(r => r.checkVisibility())"
        ".map(r => r.textContent)"
    )
    assert all("grace" in row for row in rows)
    assert browser.driver.find_element(By.ID, "found").text.startswith(f"{len(rows)} of ")


def test_a_filter_is_typed_and_taken_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    box = browser.driver.find_element(By.ID, "filter")
    count = "return [...document.querySelectorAll('tbody tr')].filter(r => !r.hidden).length"
    every = browser.ask(count)
    box.send_keys("LAB07")
    assert browser.ask(count) == 1
    box.send_keys(Keys.BACKSPACE * 5)
    assert browser.ask(count) == every


def test_a_link_with_a_name_opens_filtered(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.driver.get(f"{page.as_uri()}#find=edsger")
    browser.driver.refresh()
    assert browser.driver.find_element(By.ID, "filter").get_attribute("value") == "edsger"
    assert "edsger" in browser.driver.find_element(By.CSS_SELECTOR, "#losses ~ .scroll").text
