"""`docs/reference/settings.md` says what the code does."""

from pathlib import Path

import msgspec

from nexo.cli.queue_settings import BACKOFF, SETTINGS
from nexo.cli.settings_page import REGENERATE, settings_page
from nexo.vocabulary.settings import Backoff, QueueSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


def test_the_page_is_the_code():
    assert PAGE.read_text(encoding="utf-8") == settings_page(), f"run: {REGENERATE}"


def test_every_setting_of_a_queue_has_a_flag():
    fields = {field.name for field in msgspec.structs.fields(QueueSettings)} - {"backoff"}
    fields -= {"tags", "aws", "deduplication_scope_since_ms"}  # SQS clients set them
    fields |= {f"{BACKOFF}{field.name}" for field in msgspec.structs.fields(Backoff)}
    assert {each.name for each in SETTINGS} == {name.removesuffix("_ms") for name in fields}
