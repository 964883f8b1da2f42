"""Pages from templates, the files that they load, and the counts in their navigation. The headers
let a page load nothing but our own files."""

from __future__ import annotations

import gzip
import mimetypes
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from nexo.access.operations import METRICS
from nexo.access.permissions import Action
from nexo.doors.console import formatting
from nexo.doors.console.request import ROOT, at

if TYPE_CHECKING:
    from types import CodeType

    from jinja2.bccache import Bucket
    from starlette.requests import Request

    from nexo.doors.console.request import Call

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without a referrer a form would not say its origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_KEPT = "public, max-age=31536000, immutable"


class _Compiled(BytecodeCache):
    """Templates of this process that are compiled."""

    def __init__(self) -> None:
        self.code: dict[str, CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.code.get(bucket.key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code is not None:
            self.code[bucket.key] = bucket.code


_COMPILED = _Compiled()


def prepare() -> None:
    """Compile the templates and pack the files. To be called in a thread: the first visitor would
    hold up the event loop for 20 to 40 ms with each page."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
    _all_files()


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,  # everything is escaped, whatever a template is called
        undefined=StrictUndefined,
        finalize=formatting.shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=_COMPILED,
    )
    environment.filters.update(
        number=formatting.number,
        rate=formatting.rate,
        size=formatting.size,
        span=formatting.span,
        moment=formatting.moment,
        iso=formatting.iso,
    )
    return environment


class Templates:
    def __init__(self, files: Files, version: str, has_cluster: bool) -> None:
        self._environment = _environment()
        self._environment.globals.update(
            {
                "at": at,
                "root": ROOT,
                "file": files.address,
                "version": version,
                "has_cluster": has_cluster,
            }
        )

    async def page(
        self, call: Call, template: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        return HTMLResponse(self._text(call, template, values), status, headers=HEADERS)

    def refusal(self, status: int, values: dict[str, Any]) -> Response:
        """A page without a request: nobody was let in, or something is wrong."""
        text = self._environment.get_template(str(values.pop("template"))).render(values)
        return HTMLResponse(text, status, headers=HEADERS)

    def _text(self, call: Call, template: str, values: dict[str, Any]) -> str:
        totals = call.shared.sampler.fresh()
        caller = call.caller
        given = {
            "csrf": call.csrf,
            "me": caller,
            "is_required": call.shared.guard.is_required,
            "sees_metrics": call.sees_metrics,
            "is_admin": caller.may(Action.ADMIN, METRICS),
            "leads_to": call.leads_to,
            "notice": call.shared.notices.take(call.query("notice")),
            "refusal": call.engine.refusal,
            "queues_badge": totals.queues if not caller.is_bound else None,
            "dead_letters_badge": totals.dead_letters if not caller.is_bound else None,
            **values,
        }
        return self._environment.get_template(template).render(given)


def badges(call: Call) -> dict[str, str]:
    """Of the same sample as the figures. Who may not see everything is not told how much there
    is."""
    if call.caller.is_bound:
        return {}
    totals = call.shared.sampler.fresh()
    return {
        "badge.queues": formatting.number(totals.queues),
        "badge.dead_letters": formatting.number(totals.dead_letters),
    }


class _File(NamedTuple):
    kind: str
    tag: str
    body: bytes
    packed: bytes


class Files:
    """All in memory, and named by what is in them, so a browser keeps each for as long as it is the
    same."""

    def __init__(self) -> None:
        self._files = _all_files()

    def address(self, name: str) -> str:
        return f"{ROOT}/static/{name}?v={self._files[name].tag}"

    def answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            return Response("file not found", 404, media_type="text/plain")
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


@cache
def _all_files() -> dict[str, _File]:
    folder = Path(__file__).with_name("static")
    return {
        path.relative_to(folder).as_posix(): _load(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _load(path: Path) -> _File:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    return _File(kind, sha256(body).hexdigest()[:12], body, gzip.compress(body, 9, mtime=0))
