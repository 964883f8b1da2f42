"""The diagrams of the site, drawn as SVG into docs/images: boxes and arrows, to be read on a light
and on a dark page, without a script or a font from elsewhere.

python -m scripts.diagrams
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# Fill and line of each kind of box.
COLOURS = {
    "program": ("#e8eefc", "#3f51b5"),
    "broker": ("#eef7ee", "#2e7d32"),
    "store": ("#fff6e0", "#b26a00"),
    "failure": ("#fdeaea", "#c62828"),
}
LINE_HEIGHT = 17


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    text: str  # the first line is the title
    kind: str = "broker"


@dataclass(frozen=True)
class Arrow:
    points: tuple[tuple[int, int], ...]
    text: str = ""
    text_at: tuple[int, int] | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Diagram:
    title: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def svg(diagram: Diagram) -> str:
    width, height = diagram.width, diagram.height
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" role="img" font-family="{FONT}" font-size="14">'
        ),
        f"<title>{escape(diagram.title)}</title>",
        (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#455a64"/></marker>'
            "</defs>"
        ),
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for box in diagram.boxes:
        lines += _box(box)
    for arrow in diagram.arrows:
        lines += _arrow(arrow)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _box(box: Box) -> list[str]:
    fill, line = COLOURS[box.kind]
    title, *more = box.text.split("\n")
    middle = box.x + box.width // 2
    first = box.y + box.height // 2 - len(more) * LINE_HEIGHT // 2 + 5
    texts = [
        (
            f'<text x="{middle}" y="{first}" text-anchor="middle" font-weight="600" fill="#1b2327">'
            f"{escape(title)}</text>"
        )
    ]
    texts += [
        f'<text x="{middle}" y="{first + (number + 1) * LINE_HEIGHT}" text-anchor="middle" '
        f'font-size="12" fill="#37474f">{escape(text)}</text>'
        for number, text in enumerate(more)
    ]
    return [
        (
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" '
            f'fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
        ),
        *texts,
    ]


def _arrow(arrow: Arrow) -> list[str]:
    path = "L".join(f"{x} {y}" for x, y in arrow.points)
    dash = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    lines = [
        (
            f'<path d="M{path}" fill="none" stroke="#455a64" stroke-width="1.5"{dash} '
            'marker-end="url(#head)"/>'
        )
    ]
    if arrow.text:
        (x1, y1), (x2, y2) = arrow.points[0], arrow.points[-1]
        x, y = arrow.text_at or ((x1 + x2) // 2, (y1 + y2) // 2 - 7)
        lines += [
            f'<text x="{x}" y="{y + number * LINE_HEIGHT}" text-anchor="middle" font-size="12" '
            f'fill="#37474f">{escape(text)}</text>'
            for number, text in enumerate(arrow.text.split("\n"))
        ]
    return lines


DIAGRAMS = {
    "overview": Diagram(
        "Nexo between programs, Spark and people",
        760,
        310,
        (
            Box(20, 30, 170, 64, "Python programs\nnexo.connect", "program"),
            Box(20, 123, 170, 64, "AWS SDKs, Celery\nSQS and SNS APIs", "program"),
            Box(20, 216, 170, 64, "Devices\nJSON over UDP", "program"),
            Box(
                280,
                30,
                200,
                160,
                "Broker\nqueues: leases, retries,\ndead letters\ntopics: kept, replayed",
            ),
            Box(280, 216, 200, 64, "Disk or PostgreSQL\nwritten before the answer", "store"),
            Box(570, 30, 170, 64, "Workers\nconsume, nexo worker", "program"),
            Box(570, 123, 170, 64, "Spark and the lake\nDelta tables", "program"),
            Box(570, 216, 170, 64, "People\nconsole, metrics, SQL", "program"),
        ),
        (
            Arrow(((190, 62), (278, 80))),
            Arrow(((190, 155), (278, 130))),
            Arrow(((190, 248), (278, 175))),
            Arrow(((380, 190), (380, 214))),
            Arrow(((480, 80), (568, 62))),
            Arrow(((480, 130), (568, 155))),
            Arrow(((480, 175), (568, 248))),
        ),
    ),
    "queue": Diagram(
        "The way of a message through a queue",
        760,
        190,
        (
            Box(20, 50, 130, 60, "Producer", "program"),
            Box(260, 50, 220, 60, "Queue orders\nready → in flight → gone"),
            Box(600, 50, 140, 60, "Consumer", "program"),
            Box(295, 138, 150, 36, "Disk", "store"),
        ),
        (
            Arrow(((150, 70), (258, 70)), "1 push"),
            Arrow(((258, 95), (152, 95)), "2 id, once on disk", (205, 128)),
            Arrow(((480, 70), (598, 70)), "3 pop: a lease"),
            Arrow(((598, 95), (482, 95)), "4 ack: removed", (540, 128)),
            Arrow(((370, 110), (370, 136))),
        ),
    ),
    "retries": Diagram(
        "A message that fails is tried again, then kept as a dead letter",
        760,
        220,
        (
            Box(20, 40, 120, 56, "Ready"),
            Box(240, 40, 150, 56, "In flight\nattempt 1, 2, 3"),
            Box(570, 40, 170, 56, "Gone\nprocessed", "store"),
            Box(240, 150, 150, 50, "Waiting\nbackoff"),
            Box(570, 146, 170, 58, "orders_dlq\nbody, reason, times", "failure"),
        ),
        (
            Arrow(((140, 68), (238, 68)), "delivered"),
            Arrow(((390, 60), (568, 60)), "ack"),
            Arrow(((300, 96), (300, 148)), "nack or timeout", (246, 127)),
            Arrow(((240, 175), (80, 175), (80, 98)), "time is up", (160, 168)),
            Arrow(
                ((390, 85), (480, 85), (480, 175), (568, 175)),
                "the last\nattempt failed",
                (432, 127),
            ),
            Arrow(((655, 146), (655, 122), (120, 122), (120, 98)), "redrive", (620, 116), True),
        ),
    ),
    "topic": Diagram(
        "A topic with readers and bound queues",
        760,
        250,
        (
            Box(20, 80, 120, 56, "Publisher", "program"),
            Box(230, 70, 200, 76, "Topic sales\noffsets 0, 1, 2, 3 …\nkept by count, age, size"),
            Box(540, 20, 200, 46, "Reader: any offset", "program"),
            Box(540, 100, 200, 56, "Queue accounting\nevery message"),
            Box(540, 178, 200, 56, "Queue eu-warehouse\nonly region = eu"),
        ),
        (
            Arrow(((140, 108), (228, 108)), "publish"),
            Arrow(((430, 90), (538, 48)), "read", (478, 58)),
            Arrow(((430, 112), (538, 126)), "bound", (486, 110)),
            Arrow(((430, 132), (538, 200)), "bound, where …", (446, 178)),
        ),
    ),
    "web": Diagram(
        "A web app that answers at once, and a worker",
        760,
        130,
        (
            Box(20, 40, 110, 56, "Browser", "program"),
            Box(210, 40, 130, 56, "FastAPI app", "program"),
            Box(430, 40, 130, 56, "Queue\non disk"),
            Box(640, 40, 100, 56, "Worker", "program"),
        ),
        (
            Arrow(((130, 58), (208, 58)), "POST"),
            Arrow(((208, 82), (132, 82)), "202", (170, 100)),
            Arrow(((340, 58), (428, 58)), "push"),
            Arrow(((428, 82), (342, 82)), "id", (385, 100)),
            Arrow(((560, 58), (638, 58)), "deliver"),
            Arrow(((638, 82), (562, 82)), "ack", (600, 100)),
        ),
    ),
}


if __name__ == "__main__":
    for name, diagram in DIAGRAMS.items():
        (FOLDER / f"diagram-{name}.svg").write_text(svg(diagram), encoding="utf-8")
        print(f"wrote docs/images/diagram-{name}.svg")
