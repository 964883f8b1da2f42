"""The files that pages load: all in memory, named by what is in them, so a browser keeps each for
as long as it is the same."""

from __future__ import annotations

import gzip
import mimetypes
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from nexo.doors.console.visit import ROOT

if TYPE_CHECKING:
    from starlette.requests import Request

_KEPT = "public, max-age=31536000, immutable"


class _File(NamedTuple):
    kind: str
    tag: str
    body: bytes
    packed: bytes


class Files:
    def __init__(self) -> None:
        folder = Path(__file__).with_name("static")
        self._files = {
            path.relative_to(folder).as_posix(): _load(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def address(self, name: str) -> str:
        return f"{ROOT}/static/{name}?v={self._files[name].tag}"

    def answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            return Response("there is no such file", 404, media_type="text/plain")
        headers = {
            "cache-control": _KEPT,
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            "vary": "accept-encoding",
        }
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(file.packed, headers=headers, media_type=file.kind)
        return Response(file.body, headers=headers, media_type=file.kind)


def _load(path: Path) -> _File:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    return _File(kind, sha256(body).hexdigest()[:12], body, gzip.compress(body, 9, mtime=0))
