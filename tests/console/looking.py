"""A tab of the browser that watches for what must never happen: errors, breaches of the content
security policy, requests to elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page, Request, Response

WAIT_MS = 20_000  # a browser beside other tests may take long for anything
LINES_BYTES_MAX = 60_000  # of the lines of a page that has been looked at for long
AXE = (Path(__file__).with_name("vendor") / "axe.min.js").read_text(encoding="utf-8")
# What WCAG 2.2 AA asks for, and what axe thinks good practice beyond it.
_EVERYTHING = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_COLOURS = ["color-contrast", "link-in-text-block"]
_RUN = """async (runOnly) => {
  const found = await axe.run(document, {runOnly, resultTypes: ["violations"]});
  return found.violations.map((each) => `${each.id}: ${each.help}: ` +
    each.nodes.map((node) => node.html.slice(0, 200) + " " + node.any.map((a) => a.message)
      .join("; ")).join(" | "));
}"""


def follow(what: Locator) -> None:
    """Click what leads to a page, and wait until that is there with its scripts. A click itself
    waits for its first bytes: what is read then may be a part, and buttons may do nothing yet."""
    with what.page.expect_navigation():
        what.click()


class Looking:
    def __init__(self, context: BrowserContext, endpoint: str) -> None:
        self.context = context
        self.endpoint = endpoint
        context.set_default_timeout(WAIT_MS)
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.bytes = 0
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("console", lambda said: self._heard(said.type, said.text))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.context.close()
        if failure[0] is None:
            assert not self.wrong, "\n".join(self.wrong)

    def at(self, address: str) -> Page:
        self.bytes = 0
        self.page.goto(f"{self.endpoint}/console{address}", wait_until="load")
        return self.page

    def live(self, address: str) -> Page:
        """The same, once the page is live."""
        page = self.at(address)
        page.locator('#pulse[data-state="live"]').wait_for()
        return page

    def text(self, key: str) -> str:
        """What the page shows under a key."""
        return self.page.locator(f'[data-k="{key}"]').first.inner_text().strip()

    def wait_for_text(self, key: str, text: str) -> None:
        self.page.wait_for_function(
            """([key, text]) => [...document.querySelectorAll("[data-k]")]
            .some((each) => each.dataset.k === key && each.textContent.trim() === text)""",
            arg=[key, text],
        )

    def findings(self, only_colours: bool = False) -> list[str]:
        """What axe finds; evaluated by the browser itself, which the page's policy allows."""
        self.page.evaluate(AXE)
        found: list[str] = self.page.evaluate(_RUN, _COLOURS if only_colours else _EVERYTHING)
        return found

    def _heard(self, kind: str, text: str) -> None:
        is_refusal = "the server responded with a status of 4" in text  # a page that says why
        if kind in ("error", "warning") and not is_refusal:
            self.wrong.append(f"console: {text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.endpoint, "data:", "blob:")):
            self.wrong.append(f"asked elsewhere: {request.url}")

    def _answered(self, response: Response) -> None:
        headers: dict[str, Any] = response.headers
        if "event-stream" not in headers.get("content-type", ""):
            self.bytes += int(headers.get("content-length", 0))
