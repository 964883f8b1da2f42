"""Pages from templates, with headers that let them load nothing but our own files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from nexo.access.permissions import Action
from nexo.doors.console import wording
from nexo.doors.console.visit import METRICS, ROOT, at

if TYPE_CHECKING:
    from nexo.doors.console.files import Files
    from nexo.doors.console.visit import Visit

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


class Templates:
    def __init__(self, files: Files, version: str) -> None:
        folder = Path(__file__).with_name("templates")
        # Everything is escaped, whatever a template is called.
        self._environment = Environment(
            loader=FileSystemLoader(folder),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=wording.shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            number=wording.number,
            rate=wording.rate,
            size=wording.size,
            span=wording.span,
            moment=wording.moment,
            iso=wording.iso,
        )
        self._environment.globals.update(
            {"at": at, "root": ROOT, "file": files.address, "version": version}
        )

    async def page(
        self, visit: Visit, template: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        return HTMLResponse(self._text(visit, template, values), status, headers=HEADERS)

    def refusal(self, status: int, values: dict[str, Any]) -> Response:
        """A page without a visit: nobody was let in, or something is wrong."""
        text = self._environment.get_template(str(values.pop("template"))).render(values)
        return HTMLResponse(text, status, headers=HEADERS)

    def _text(self, visit: Visit, template: str, values: dict[str, Any]) -> str:
        totals = visit.house.sampler.fresh()
        caller = visit.caller
        given = {
            "csrf": visit.csrf,
            "me": caller,
            "is_required": visit.house.guard.is_required,
            "sees_metrics": visit.sees_metrics,
            "is_admin": caller.may(Action.ADMIN, METRICS),
            "leads_to": visit.leads_to,
            "notice": visit.house.notices.take(visit.query("notice")),
            "refusal": visit.engine.refusal,
            "queues_badge": totals.queues if not caller.is_bound else None,
            "dead_letters_badge": totals.dead_letters if not caller.is_bound else None,
            **values,
        }
        return self._environment.get_template(template).render(given)
