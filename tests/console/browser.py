"""Debian's chromium, driven by Playwright: a browser that people use, not one made for tests."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

# No address but this machine's answers, and nothing is fetched in the background.
_ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
]


def executable() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def launch(playwright: Playwright) -> Browser:
    path = executable()
    assert path is not None, "there is no chromium: run scripts/browser"
    # Its sandbox does not start for root, who runs tests in containers.
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    arguments = [*_ARGUMENTS, "--no-sandbox"] if is_root else _ARGUMENTS
    return playwright.chromium.launch(executable_path=path, args=arguments)
