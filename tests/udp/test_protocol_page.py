"""The page about the protocol leaves nothing out, and its numbers are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nexo.doors.json_udp import datagram, replies
from nexo.doors.json_udp.datagram import Action, Command
from nexo.server.configuration import Configuration
from nexo.vocabulary import limits

if TYPE_CHECKING:
    from tests.udp.peer import Peer

PAGE = (Path(__file__).parents[2] / "docs/reference/udp-protocol.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("action", list(Action))
def test_every_action_has_a_row(action: Action) -> None:
    assert re.search(rf"^\| `{action}` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("field", Command.__struct_fields__)
def test_every_field_is_told(field: str) -> None:
    name = "visibility_timeout" if field == "visibility_ms" else field
    assert f"`{name}`" in PAGE or name == "action"


def test_every_error_has_a_row() -> None:
    source = Path(datagram.__file__).read_text(encoding="utf-8")
    texts = [text.partition(":")[0] for text in re.findall(r'Refusal\(\s*f?"([^"{]+)', source)]
    assert len(texts) > 8
    for text in {*texts, *replies._TEXTS.values(), replies._OTHERWISE}:
        assert re.search(rf"^\|[^|]*`{re.escape(text)}", PAGE, re.MULTILINE), text
    for code in replies._TEXTS:
        assert f"`{code}`" in PAGE, code


def test_limits_are_those_of_the_code() -> None:
    for text in (
        f"UDP port {Configuration().udp_port}",
        f"up to {limits.UDP_PAYLOAD_BYTES_MAX:,} bytes",
        f"keeps the last {limits.UDP_RETENTION_MESSAGES} messages",
        f"after {limits.UDP_SUBSCRIPTION_IDLE_S:,.0f} s without a datagram",
        f"larger than {limits.UDP_REPLY_BYTES_MAX:,} bytes",
        f"at most {limits.UDP_GET_MESSAGES_MAX:,} messages",
        f"(default {limits.UDP_GROUP_MESSAGES})",
        f"1 to {limits.UDP_ACK_IDS_MAX:,} IDs",
        f"1 to {limits.UDP_NAME_CHARS_MAX} characters",
        f"up to {limits.UDP_REF_CHARS_MAX} characters",
        f"more than {limits.UDP_NESTING_MAX} deep",
        f"at most {limits.UDP_STRANGER_FACTOR} times as large",
        f"{limits.UDP_COOKIE_S / 60:.0f} to {limits.UDP_COOKIE_S / 30:.0f} minutes",
        f"{limits.UDP_RATE_PER_S:,} datagrams per second on average",
        f"and {limits.UDP_BURST:,} in a burst",
        f"remembers {limits.UDP_RATES_MAX:,} addresses",
        f"at most {limits.UDP_ERRORS_MAX} errors in a row",
        f"{limits.UDP_ERRORS_SILENCE_S:.0f} s of silence",
        f"within the last {limits.UDP_KNOWN_S / 60:.0f} minutes",
        f"{limits.UDP_SUBSCRIBERS_MAX:,} addresses with subscriptions",
        f"at most {limits.UDP_SUBSCRIPTIONS_MAX} topics each",
        f"create no topic if there are {limits.UDP_TOPICS_MAX:,}",
        f"{limits.UDP_UNCONFIRMED_MAX:,} publishes wait",
        f"{limits.UDP_WAITING_MAX:,} other requests",
    ):
        assert text in PAGE, text


def test_the_conversation_goes_as_it_says(peer: Peer) -> None:
    lines = re.search(r"```\n(→.*?)```", PAGE, re.DOTALL)
    assert lines is not None
    said = lines[1].splitlines()
    assert len(said) == 8
    for request, expected in zip(said[::2], said[1::2], strict=True):
        reply = peer.raw(request.removeprefix("→ ").encode())
        for message in json.loads(reply).get("messages", []):
            shown = f'"timestamp": {message["timestamp"]}'.encode()
            reply = reply.replace(shown, b'"timestamp": 1763251200.125')
        assert f"← {reply.decode()}" == expected
