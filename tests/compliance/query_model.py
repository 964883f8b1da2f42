"""botocore's model of SQS with the protocol that it had until 2023.

Older SDKs, and many in other languages, speak the query protocol: forms in, XML out. botocore can
still speak it; what it needs is a model that says so, with the names that lists and maps have on
the wire. They stand here, as AWS's reference of the query API gives them.
"""

import json
from pathlib import Path
from typing import Any

from botocore.loaders import Loader

from tests.compliance.refusals import SHAPES

# The members of lists, and the entries of maps, by shape.
_LISTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
_MAPS = {
    "QueueAttributeMap": ("Attribute", "Name", "Value"),
    "MessageSystemAttributeMap": ("Attribute", "Name", "Value"),
    "MessageBodyAttributeMap": ("MessageAttribute", "Name", "Value"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name", "Value"),
    "TagMap": ("Tag", "Key", "Value"),
}


def query_model() -> dict[str, Any]:
    model: dict[str, Any] = Loader().load_service_model("sqs", "service-2")
    model = json.loads(json.dumps(model))
    for name in ("jsonVersion", "targetPrefix", "awsQueryCompatible"):
        model["metadata"].pop(name, None)
    model["metadata"] |= {
        "protocol": "query",
        "protocols": ["query"],
        "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
    }
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    shapes = model["shapes"]
    for shape, member in _LISTS.items():
        shapes[shape]["member"]["locationName"] = member
    for shape, (entry, key, value) in _MAPS.items():
        shapes[shape]["locationName"] = entry
        shapes[shape]["key"]["locationName"] = key
        shapes[shape]["value"]["locationName"] = value
    for code, shape in SHAPES.items():
        if shape in shapes:
            shapes[shape]["error"] = {"code": code, "httpStatusCode": 400, "senderFault": True}
    return model


def query_loader(folder: Path) -> Loader:
    """A loader of botocore that finds this model first."""
    place = folder / "sqs" / "2012-11-05"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(query_model()))
    return Loader(extra_search_paths=[str(folder)])
