"""The explorer's server and a tab of a browser, as the tests use them."""

import re
import subprocess
import sys
from collections.abc import Callable

from playwright.sync_api import Page

PATIENCE = 240.0


class Server:
    """The explorer in a process of its own."""

    def __init__(self, port: int | None = None) -> None:
        command = [sys.executable, "-m", "sparsetoken", "explore", "--no-browser"]
        command += ["--port", str(port)] if port else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://[\d.]+:(\d+)/", self.process.stdout.readline())
        assert found is not None
        self.port, self.url = int(found[1]), found[0]

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


class Tab:
    """One page, with what it complained about."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text) if message.type == "error" else None
            ),
        )

    def open(self, address: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}#{address}")
        self.settle()

    def wait(self, expression: str) -> object:
        """Wait until a JavaScript expression is true; the page's own policy forbids to inject one."""
        for _ in range(int(PATIENCE / 0.05)):
            if found := self.page.evaluate(expression):
                return found
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{expression} did not become true")

    def settle(self, accuracy: str = "screen|final|error") -> str:
        """Wait for an answer to the last request."""
        pattern = f"/:({accuracy})$/"
        self.wait(f"{pattern}.test(document.body.dataset.answered ?? '')")
        return str(self.page.evaluate("document.body.dataset.answered"))

    def act(self, action: Callable[[], object], accuracy: str = "screen|final|error") -> None:
        """Do something that asks for a new answer, and wait for that."""
        before = self.settle()
        action()
        self.wait(f"document.body.dataset.answered.split(':')[0] !== {before.split(':')[0]!r}")
        self.settle(accuracy)

    def lines(self) -> dict[str, list[float]]:
        """Return the lines on the plot, by name."""
        self.page.wait_for_timeout(200)
        return dict(
            self.page.evaluate(
                "Object.fromEntries((document.getElementById('plot').data ?? [])"
                ".filter((t) => t.mode === 'lines' && t.name).map((t) => [t.name, [...t.y]]))"
            )
        )
