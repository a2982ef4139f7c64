"""A real browser and a real server: Debian's chromium, driven by playwright."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from browsing import Server, Tab


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.fail("no chromium: apt-get install chromium, or name one in CHROMIUM")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.stop()


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened = Tab(context.new_page(), server.url)
    yield opened
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        name = os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split(" ")[0]
        path = Path(folder) / f"{re.sub(r'[^a-z0-9]+', '-', name)}.png"
        opened.page.screenshot(path=str(path))
    context.close()
