"""The page as a browser shows it: fits, sorts, folds, prints, reads in light and dark."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from browser_page import Browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

TABLE = "#by-account ~ .scroll table"
ROWS = f"[...document.querySelector('{TABLE}').tBodies[0].rows]"
ORDERS = f"return {ROWS}.map(r => r.cells[arguments[0]].dataset.order)"
SEEN = f"return {ROWS}.filter(r => r.checkVisibility()).length"
# Ratio of WCAG 2 of text, or of a fill, to the nearest painted background.
CONTRAST = """
const rgb = s => s.match(/[\\d.]+/g).map(Number);
const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = s => {
  const [r, g, b] = rgb(s).map(v => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const under = e => {
  for (; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (rgb(colour).length < 4 || rgb(colour)[3] > 0) return colour;
  }
};
const given = arguments[0];
const ink = e => {
  const style = getComputedStyle(e);
  if (!given.includes('svg')) return style.color;
  return style.fill == 'none' ? style.stroke : style.fill;
};
return [...document.querySelectorAll(given)].filter(e => e.checkVisibility())
  .map(e => ratio(ink(e), under(e)));
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_it_fits_without_a_word_on_the_console(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert browser.ask("return document.documentElement.scrollWidth") == width
    outside = browser.ask(
        "return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility()"
        " && !e.closest('.scroll') && !e.closest('.plot')"
        " && (e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1"
        " && getComputedStyle(e).display == 'block')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []
    assert browser.said() == []


@pytest.mark.parametrize("width", [390, 1440])
def test_plots_are_drawn_and_their_text_is_inside_and_large_enough(
    browser: Browser, page: Path, width: int
) -> None:
    browser.open(page, width=width)
    drawn = browser.ask(
        "return [...document.querySelectorAll('figure .plot')].map(f => {"
        " const box = f.getBoundingClientRect();"
        " const texts = [...f.querySelectorAll('span, b, small')].filter(t => t.textContent)"
        " .map(t => [t.getBoundingClientRect(), parseFloat(getComputedStyle(t).fontSize)]);"
        " return [box.height, Math.min(...texts.map(t => t[1])),"
        " texts.filter(([t]) => t.left < box.left - 2 || t.right > box.right + 2).length,"
        " f.querySelectorAll('.track i, path').length]; })"
    )
    assert len(drawn) == 6
    for height, smallest_px, outside, shapes in drawn:
        assert height > 100
        assert smallest_px >= 11
        assert outside == 0
        assert shapes >= 4


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast_is_that_of_wcag_aa(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    for text in (
        "p",
        "td",
        "th",
        "a",
        "dd",
        "dt",
        "button",
        ".banner",
        "caption",
        ".plot small",
        ".ticks span",
    ):
        assert min(browser.ask(CONTRAST, text)) >= 4.5, text
    for shape in ("completed", "running", "cancelled", "lost"):
        fills = browser.ask(CONTRAST, f"figure svg path.{shape}")
        assert min(fills) >= 3.0, shape


def test_the_switch_goes_to_dark_and_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    background = "return getComputedStyle(document.body).backgroundColor"
    light = browser.ask(background)
    switch = browser.driver.find_element(By.ID, "theme")
    switch.click()
    dark = browser.ask(background)
    switch.click()
    assert dark != light == browser.ask(background)
    browser.ask("try { localStorage.clear(); } catch { }")


@pytest.mark.parametrize(("column", "first"), [(2, "descending"), (0, "ascending")])
def test_a_table_is_sorted_by_keyboard(
    browser: Browser, page: Path, column: int, first: str
) -> None:
    browser.open(page)
    heads = browser.driver.find_elements(By.CSS_SELECTOR, f"{TABLE} thead th")[:11]
    button = heads[column].find_element(By.TAG_NAME, "button")
    read = (lambda text: float(text)) if column else str
    for turn in (first, "descending" if first == "ascending" else "ascending"):
        button.send_keys(Keys.ENTER)
        assert heads[column].get_attribute("aria-sort") == turn
        values = [read(text) for text in browser.ask(ORDERS, column)]
        assert len(values) == 30
        assert all(a >= b if turn == "descending" else a <= b for a, b in pairwise(values))


def test_a_long_table_unfolds(browser: Browser, page: Path) -> None:
    browser.open(page)
    button = browser.driver.find_element(By.CSS_SELECTOR, "#by-account ~ .fold")
    assert browser.ask(SEEN) == 12
    button.send_keys(Keys.ENTER)
    assert browser.ask(SEEN) == 30
    assert button.get_attribute("aria-expanded") == "true"


def test_it_prints_on_pages_that_nothing_leaves(browser: Browser, page: Path) -> None:
    browser.open(page, width=720, dark=True, media="print")
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") in (
        "rgba(0, 0, 0, 0)",
        "rgb(255, 255, 255)",
    )
    wide = browser.ask(
        "return [...document.querySelectorAll('table, figure, p')].filter(e =>"
        " e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 16


def test_it_is_built_as_a_screen_reader_needs_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    levels = browser.ask(
        "return [...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    for missing in (
        "table:not(:has(> caption))",
        "thead th:not([scope=col])",
        "tbody tr:not(:has(th[scope=row]))",
        "figure:not(:has(figcaption))",
        "section:not([aria-labelledby])",
        ".scroll:not([tabindex])",
    ):
        assert browser.ask("return document.querySelectorAll(arguments[0]).length", missing) == 0
    ids = browser.ask("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_every_plot_has_its_csv_and_a_hint_on_hover(browser: Browser, page: Path) -> None:
    browser.open(page)
    for name in ("use", "by-account", "waits", "forecast"):
        link = browser.driver.find_element(By.CSS_SELECTOR, f"a[download='{name}.csv']")
        text = browser.ask("return fetch ? atob(arguments[0].href.split(',')[1]) : ''", link)
        assert text.count("\n") > 2
        tips = f"#{name} + figure title, #{name} + figure [title]"
        assert browser.ask("return document.querySelectorAll(arguments[0]).length", tips) > 0


@pytest.mark.parametrize("width", [390, 1440])
def test_no_name_can_run_a_script_or_break_the_page(
    browser: Browser, hostile_page: Path, width: int
) -> None:
    browser.open(hostile_page, width=width)
    assert "owned" not in browser.driver.title.replace("document.title='owned'", "")
    assert browser.ask("return document.scripts.length") == 1
    assert browser.ask("return document.querySelectorAll('img, iframe, object').length") == 0
    assert browser.ask("return document.documentElement.scrollWidth") == width
    assert browser.ask("return document.querySelectorAll('figure .plot').length") == 6
    assert browser.said() == []
    first = browser.ask("return document.querySelector('#by-user ~ .scroll tbody th').textContent")
    assert first == "<script>document.title='owned'</script>"


def test_evidence_and_commands_are_shown_on_demand(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    first = browser.driver.find_element(By.CSS_SELECTOR, "#opportunities ~ .scroll td.detail")
    seen = "return arguments[0].querySelector('code').checkVisibility()"
    assert not browser.ask(seen, first)
    first.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert browser.ask(seen, first)
    assert "precision-time compare" in first.text
    assert browser.ask("return document.documentElement.scrollWidth") == 390


def test_every_table_is_in_the_contents(browser: Browser, page: Path) -> None:
    browser.open(page)
    links = browser.ask("return [...document.querySelectorAll('.contents a')].map(a => a.hash)")
    heads = browser.ask("return [...document.querySelectorAll('main h3[id]')].map(h => '#' + h.id)")
    assert links == heads


@pytest.mark.parametrize("width", [390, 1440])
def test_the_report_of_the_shipped_sample_opens(
    browser: Browser, demo_page: Path, width: int
) -> None:
    browser.open(demo_page, width=width)
    assert browser.ask("return document.documentElement.scrollWidth") == width
    drawn = browser.ask(
        "return [...document.querySelectorAll('figure .plot')].map(f => f.getBoundingClientRect())"
        ".filter(box => box.height > 100).length"
    )
    assert drawn == 6
    assert "generated" in browser.driver.find_element(By.CSS_SELECTOR, ".banner").text
    assert browser.said() == []
