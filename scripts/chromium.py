"""Chromium without a screen, for scripts and tests that inspect pages."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MISSING", "browser", "is_there"]

MISSING = "expected Chromium and its driver: apt-get install chromium chromium-driver"


def is_there() -> bool:
    """Return whether this host has Chromium and its driver."""
    return None not in (shutil.which("chromium"), shutil.which("chromedriver"))


def browser(folder: Path, logs: Mapping[str, str] | None = None) -> Any:
    """Start Chromium; return a context manager that ends it.

    Parameters
    ----------
    folder
        Directory for its profile.
    logs
        What its driver logs for `get_log`, with the least level: `{"performance": "ALL"}`.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("headless=new", "no-sandbox", "hide-scrollbars", f"user-data-dir={folder}"):
        options.add_argument(f"--{argument}")
    if logs is not None:
        options.set_capability("goog:loggingPrefs", dict(logs))
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
