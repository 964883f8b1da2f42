"""The site is built strictly, from pages that are what the code says, and asks nobody for anything.

That a strict build fails on a link that leads nowhere is MkDocs' business; what is ours is tested
here: links out of docs/, generated files, and that nothing is loaded from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import nexo
from scripts import diagrams, reference_pages
from scripts.site_hooks import source_url, with_repository_links

ROOT = Path(__file__).resolve().parents[2]
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# Links of a head that a browser does not load.
NOT_LOADED = ("canonical", "prev", "next", "alternate", "edit")


@pytest.mark.parametrize("name", reference_pages.FILES)
def test_a_generated_file_is_what_the_code_says(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == reference_pages.FILES[name](), f"run: {reference_pages.REGENERATE}"


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_what_the_script_draws(name: str) -> None:
    written = (diagrams.FOLDER / f"diagram-{name}.svg").read_text(encoding="utf-8")
    assert written == diagrams.svg(diagrams.DIAGRAMS[name]), "run: python -m scripts.diagrams"


def test_every_command_and_error_is_told() -> None:
    page = reference_pages.commands_page()
    assert "## nexo queue create\n" in page
    assert "| `--visibility-timeout DURATION` |" in page
    assert "| `stale_receipt` | `nexo.StaleReceipt` |  | 409 |" in reference_pages.errors_page()
    assert "| `nexo_queue_depth` | gauge | `queue` |" in reference_pages.metrics_page()


def test_links_out_of_the_pages_lead_to_the_repository() -> None:
    page = "[a](../src/nexo/cli) [b](topics.md#x) [c](https://x.org)\n```\n[d](../src)\n```\n"
    whole = with_repository_links(page + "[e](../Makefile#l)", "docs")
    base = source_url()
    assert f"[a]({base}/tree/main/src/nexo/cli) [b](topics.md#x) [c](https://x.org)" in whole
    assert "[d](../src)" in whole
    assert whole.endswith(f"[e]({base}/blob/main/Makefile#l)")


class Loaded(HTMLParser):
    """What a page makes a browser load, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        target = found.get(LOADING.get(tag, "href")) or ""
        if tag == "a":
            self.links.append(target)
        elif tag in LOADING and target and found.get("rel") not in NOT_LOADED:
            self.loaded.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    mkdocs = str(Path(sys.executable).with_name("mkdocs"))
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.timeout(120)
def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        if page.name == "404.html":  # it is for a server, and names its files from the root
            continue
        parser = Loaded()
        text = page.read_text(encoding="utf-8")
        parser.feed(text)
        assert parser.loaded
        for target in parser.loaded:
            parts = urlsplit(target)
            assert not parts.scheme or parts.scheme == "data", f"{page.name} loads {target}"
            assert not parts.netloc, f"{page.name} loads {target}"
            assert (page.parent / unquote(parts.path)).exists(), f"{page.name} lacks {target}"
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import )[\"']?(https?:[^)\"']+)", sheet.read_text())
        assert not found, f"{sheet.name} loads {found}"


def test_the_reference_has_the_client(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in ("Client.create_queue", "Queue.subscribe", "Message.extend", "Topic.bind"):
        assert re.search(rf'id="nexo\.client\.[\w.]+\.{re.escape(name)}"', page), name
    first = re.split(r"[^\w ]", nexo.Queue.push.__doc__ or "")[0]
    assert len(first) > 10
    assert first in page, "the docstrings are not there"


def test_the_search_works_from_a_folder(site: Path) -> None:
    """Without a server, and with nothing but files to load."""
    from playwright.sync_api import sync_playwright

    from tests.console.browser import launch

    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.wait_for_load_state("networkidle")
        page.click("input[name=query]")
        page.keyboard.type("visibility timeout")
        page.wait_for_selector(".md-search-result__link")
        assert page.locator(".md-search-result__link").count() > 1
        browser.close()
    assert all(url.startswith(("file:", "data:", "about:")) for url in asked), asked
