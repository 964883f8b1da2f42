"""The long description of the package: README.md with links that work elsewhere, too.

Called by hatchling when it builds; a link to `docs/quickstart.md` leads nowhere on a page of an
index of packages, so it becomes the address of that file in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)")


def long_description(readme: str, source_url: str) -> str:
    """The text with every relative link made whole; pictures lead to the file itself."""

    def whole(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}{found[2]}({source_url}/{kind}/main/{found[3]})"

    return _RELATIVE.sub(whole, readme)


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": long_description(text, metadata["urls"]["Source"]),
        }
