"""Whatever AWS allows in a message comes back as it was sent, with the digests SDKs compute."""

import string
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compliance.digests import binary, md5, md5_of_attributes, number, text
from tests.compliance.queue import Queue

# #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF
allowed = st.sampled_from("\t\n\r") | st.characters(
    min_codepoint=0x20, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"
)
bodies = st.text(allowed, min_size=1, max_size=60)
names = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20).filter(
    lambda name: not name.lower().startswith(("aws.", "amazon."))
)
labels = st.sampled_from(["", ".custom", ".a.b"])
values = (
    st.builds(lambda value, label: text(value, "String" + label), bodies, labels)
    | st.builds(lambda value, label: binary(value, "Binary" + label), st.binary(min_size=1), labels)
    | st.integers(-(10**30), 10**30).map(lambda value: number(str(value)))
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies, attributes=st.dictionaries(names, values, max_size=10))
def test_a_message(queue: Queue, body: str, attributes: dict[str, Any]) -> None:
    sent = queue.send(body, MessageAttributes=attributes)
    message = queue.one()
    assert message["Body"] == body
    assert message.get("MessageAttributes", {}) == attributes
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == md5(body)
    digest = md5_of_attributes(attributes) if attributes else None
    assert message.get("MD5OfMessageAttributes") == digest
    assert sent.get("MD5OfMessageAttributes") == digest
    queue.delete(message)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(bodies, min_size=1, max_size=10))
def test_a_batch(queue: Queue, texts: list[str]) -> None:
    sent = queue.send_batch(*texts)
    assert [entry["MD5OfMessageBody"] for entry in sent["Successful"]] == [md5(t) for t in texts]
    assert queue.drain() == texts
