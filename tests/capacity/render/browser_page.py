"""Chromium without a window, as far as the tests of the page need it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
)


class Browser:
    """One browser; every page is opened afresh."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    @classmethod
    @contextmanager
    def started(cls, chromium: str, driver: str) -> Iterator[Browser]:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ARGUMENTS:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        found = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield cls(found)
        finally:
            found.quit()

    def open(self, path: Path, *, width: int = 1440, dark: bool = False, media: str = "") -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._do("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        self.ask("try { localStorage.clear(); } catch { }")

    def ask(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def said(self) -> list[str]:
        """What the console got since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def pdf(self) -> bytes:
        found = self._do("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(found["data"])

    def _do(self, command: str, **given: Any) -> dict[str, Any]:
        return dict(self.driver.execute_cdp_cmd(command, given))
