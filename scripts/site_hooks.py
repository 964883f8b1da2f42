"""What MkDocs does with a page of docs/ besides rendering it.

Pages link to files of the tree outside docs/, as `../src/nexo/engine/actor.py`: right for whoever
reads them in a checkout. On the site such a link leads to the repository.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# A link or picture in Markdown, and the target of one in HTML.
_TARGET = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(?=[)#\s])")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


@cache
def source_url() -> str:
    """Where the tree is published, from the metadata of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Source"])


def repository_url(path: str) -> str:
    """The address of a file or folder of the tree."""
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{source_url()}/{kind}/main/{path}"


def with_repository_links(markdown: str, folder: str) -> str:
    """A page of `folder` (from the root of the tree) with links that leave docs/ made whole."""

    def whole(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        return found[1] if path.startswith("docs/") else repository_url(path)

    at, parts = 0, []
    for fence in _FENCE.finditer(markdown):
        parts += [_TARGET.sub(whole, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, _TARGET.sub(whole, markdown[at:])])


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Called by MkDocs for each page."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return with_repository_links(markdown, folder)
