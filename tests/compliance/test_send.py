"""SendMessage: what comes back, what is allowed in a body, and what is refused."""

import time
import uuid
from typing import Any

import pytest

from tests.compliance.digests import md5, md5_of_attributes, text
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, MISSING, refused

MIB = 1024 * 1024
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
CHARACTERS = "allowed characters is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | "
WRONG_GROUP = (
    "Value {} for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include "
    "alphanumeric and punctuation characters. 1 to 128 in length."
)


def test_the_reply(queue: Queue) -> None:
    reply = queue.send("hello")
    assert set(reply) == {"MD5OfMessageBody", "MessageId", "ResponseMetadata"}
    assert reply["MD5OfMessageBody"] == md5("hello") == "5d41402abc4b2a76b9719d911017c592"
    assert str(uuid.UUID(reply["MessageId"])) == reply["MessageId"]
    assert reply["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert queue.send("hello")["MessageId"] != reply["MessageId"]


@pytest.mark.parametrize(
    "body",
    [
        "x",
        " ",
        "\t\r\n tabs and lines \r\n",
        '{"json": ["<&>", "\\u0000", null]}',
        "<xml attribute='&amp;'>]]></xml>",
        "grüße 你好 😀 \ud7ff\ue000\ufffd\U00010000\U0010ffff",
        "a+b c%20d&e=f",
        "\x7f\x80\x85\xa0",
        "x" * 100_000,
    ],
)
def test_bodies_come_back_as_they_were_sent(queue: Queue, body: str) -> None:
    sent = queue.send(body)
    message = queue.one()
    assert message["Body"] == body
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == md5(body)


@pytest.mark.parametrize(
    ("character", "told"),
    [("\x00", "#x0"), ("\x08", "#x8"), ("\x0b", "#xB"), ("\x1f", "#x1F"), ("\ufffe", "#xFFFE")],
)
def test_forbidden_characters(queue: Queue, character: str, told: str) -> None:
    expected = f"Invalid binary character '{told}' was found in the message body, the set of "
    with refused("InvalidMessageContents", expected + CHARACTERS) as refusal:
        queue.send(f"a{character}b")
    assert "[#x10000-#x10FFFF]" in refusal["Error"]["Message"]
    with pytest.raises(queue.sqs.exceptions.InvalidMessageContents):
        queue.send("\uffff")
    assert queue.counts() == (0, 0, 0)


def test_an_empty_body(queue: Queue) -> None:
    with refused(MISSING, "The request must contain the parameter MessageBody."):
        queue.send("")


def test_one_mebibyte_and_no_more(queue: Queue) -> None:
    largest = "ü" * (MIB // 2)
    assert queue.send(largest)["MD5OfMessageBody"] == md5(largest)
    assert queue.one()["Body"] == largest
    with refused(
        INVALID_VALUE,
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    ):
        queue.send(largest + "x")
    assert queue.counts() == (0, 1, 0)


def test_the_size_of_a_message_is_that_of_its_queue(make: Make) -> None:
    queue = make(MaximumMessageSize="1024")
    too_large = "One or more parameters are invalid. Reason: Message must be shorter than 1024 "
    queue.send("x" * 1024)
    with refused(INVALID_VALUE, too_large):
        queue.send("x" * 1025)
    # Names, types and values of attributes count, system attributes do not.
    attributes = {"name": text("v" * 14)}  # 4 + 6 + 14
    queue.send("x" * 1000, MessageAttributes=attributes)
    with refused(INVALID_VALUE, too_large):
        queue.send("x" * 1001, MessageAttributes=attributes)
    queue.send("x" * 1024, MessageSystemAttributes={"AWSTraceHeader": text(TRACE)})
    queue.set(MaximumMessageSize="2048")
    queue.send("x" * 1025)


@pytest.mark.parametrize("seconds", [-1, 901])
def test_wrong_delays(queue: Queue, seconds: int) -> None:
    with refused(
        INVALID_VALUE,
        f"Value {seconds} for parameter DelaySeconds is invalid. "
        "Reason: DelaySeconds must be >= 0 and <= 900.",
    ):
        queue.send(DelaySeconds=seconds)


def test_delays(make: Make) -> None:
    queue = make(DelaySeconds="900")
    queue.send("the delay of the queue")
    queue.send("its own", DelaySeconds=0)
    queue.send("its own", DelaySeconds=899)
    assert queue.counts() == (1, 0, 2)
    assert queue.bodies() == ["its own"]
    # "If you set DelaySeconds on a queue, messages already in it keep their delay."
    queue.set(DelaySeconds="0")
    assert queue.counts() == (0, 1, 2)
    queue.send("now")
    assert queue.bodies() == ["now"]


def test_a_trace_header(queue: Queue) -> None:
    trace = {"AWSTraceHeader": text(TRACE)}
    sent = queue.send(MessageSystemAttributes=trace)
    assert sent["MD5OfMessageSystemAttributes"] == md5_of_attributes(trace)
    assert "MD5OfMessageAttributes" not in sent
    message = queue.one()
    assert message["Attributes"]["AWSTraceHeader"] == TRACE
    assert "MessageAttributes" not in message


def test_other_system_attributes_are_refused(queue: Queue) -> None:
    with refused(INVALID_VALUE):
        queue.send(MessageSystemAttributes={"Colour": text("red")})
    with refused(INVALID_VALUE):
        queue.send(MessageSystemAttributes={"AWSTraceHeader": text("1", "Number")})


def test_system_attributes_on_receive(queue: Queue) -> None:
    before_ms = time.time() * 1000
    queue.send()
    attributes = queue.one()["Attributes"]
    after_ms = time.time() * 1000
    assert set(attributes) == {
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "SenderId",
        "SentTimestamp",
    }
    assert attributes["ApproximateReceiveCount"] == "1"
    sent, first = attributes["SentTimestamp"], attributes["ApproximateFirstReceiveTimestamp"]
    assert before_ms - 2 <= int(sent) <= int(first) <= after_ms + 2  # two clocks of one machine
    assert attributes["SenderId"]


def test_a_group_on_a_standard_queue_marks_a_tenant(queue: Queue) -> None:
    reply = queue.send(MessageGroupId="tenant-1")
    assert "SequenceNumber" not in reply
    attributes = queue.one()["Attributes"]
    assert attributes["MessageGroupId"] == "tenant-1"
    assert "SequenceNumber" not in attributes
    assert "MessageDeduplicationId" not in attributes


@pytest.mark.parametrize("wrong", ["a b", "ü", "a" * 129])
def test_wrong_groups(queue: Queue, fifo: Queue, wrong: str) -> None:
    with refused(INVALID_VALUE, WRONG_GROUP.format(wrong)):
        queue.send(MessageGroupId=wrong)
    with refused(INVALID_VALUE, WRONG_GROUP.format(wrong)):
        fifo.send(MessageGroupId=wrong, MessageDeduplicationId="d")
    with refused(INVALID_VALUE, WRONG_GROUP.format(wrong).replace("Group", "Deduplication")):
        fifo.send(MessageGroupId="g", MessageDeduplicationId=wrong)


def test_all_punctuation_is_allowed_in_groups(queue: Queue, fifo: Queue) -> None:
    punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~aZ9" + "x" * 93
    assert len(punctuation) == 128
    queue.send(MessageGroupId=punctuation)
    assert queue.one()["Attributes"]["MessageGroupId"] == punctuation
    fifo.send(MessageGroupId=punctuation, MessageDeduplicationId=punctuation)
    attributes = fifo.one()["Attributes"]
    assert attributes["MessageGroupId"] == attributes["MessageDeduplicationId"] == punctuation


def test_a_standard_queue_takes_no_deduplication_id(queue: Queue) -> None:
    with refused(
        INVALID_VALUE,
        "Value d for parameter MessageDeduplicationId is invalid. Reason: The request include "
        "parameter that is not valid for this queue type.",
    ):
        queue.send(MessageDeduplicationId="d")


def test_senders_are_known(queue: Queue, sqs: Any) -> None:
    queue.send("mine")
    queue.send("mine too")
    senders = {queue.one()["Attributes"]["SenderId"] for _ in range(2)}
    assert len(senders) == 1
