"""`docs/reference/settings.md` says what the code does."""

from pathlib import Path

import pytest

from nexo.cli.parameters import QUEUE_FLAGS, TOPIC_FLAGS
from nexo.vocabulary.settings import FLAT_QUEUE_SETTINGS, TOPIC_SETTINGS
from scripts.settings_page import REGENERATE, settings_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


def test_the_page_is_the_code():
    assert PAGE.read_text(encoding="utf-8") == settings_page(), f"run: {REGENERATE}"


def test_every_setting_of_a_queue_has_a_flag():
    kept = {"tags", "aws"}  # clients of SQS and SNS set them
    names = {each.name for each in FLAT_QUEUE_SETTINGS} - kept
    assert {each.name for each in QUEUE_FLAGS} == names
    assert {each.name for each in TOPIC_FLAGS} == {each.name for each in TOPIC_SETTINGS} - kept


@pytest.mark.parametrize(
    "row",
    [
        "| `--delay` | duration, 0s to 3650d | `0s` | how long a new message waits",
        "| `--max-attempts` | count, 1 to 1,000,000 or `none` | `5` | failed deliveries",
        "| `--events`, `--no-events` | switch | `on` | record what happens",
        "| `--deduplication-scope` | queue, group | `queue` | where duplicates",
        "| `--max-message-bytes` | size, 1B to 16MB | `1MB` | largest message",
        "| `--dead-letter` | name | `{name}_dlq` | name of the dead-letter queue",
        "| `--retention-seconds` | duration, 1s to 7300d or `none` | none | how long",
    ],
)
def test_a_row_says_what_a_flag_takes(row):
    assert any(line.startswith(row) for line in settings_page().splitlines())
