"""Two folders change places in one step of the file system."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


def exchange(one: Path, other: Path) -> None:
    """Each is where the other was. There is no moment at which one of the names is missing."""
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = library.renamex_np(first, second, _EXCHANGE)
    else:
        failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
    if failed:
        reason = os.strerror(ctypes.get_errno())
        raise NexoError(
            f"the file system of {other} cannot exchange two folders: {reason}",
            "nothing was changed; keep the lake on a local disk (ext4, xfs, btrfs, APFS), or "
            "use --format delta, which compacts by itself",
        )
