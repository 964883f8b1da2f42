"""Filter policies: what they match, what SNS refuses, and that they choose what is delivered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.vocabulary import limits
from nexo.vocabulary.attributes import encode_typed
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.filter_policy import ATTRIBUTES, BODY, Looked, compiled

if TYPE_CHECKING:
    from nexo.vocabulary.attributes import Typed
    from tests.sns.rig import Rig


def attribute(value: Any) -> Typed:
    if isinstance(value, bytes):
        return "Binary", value
    if isinstance(value, list):
        return "String.Array", json.dumps(value)
    if isinstance(value, str):
        return "String", value
    return "Number", str(value)


def wants(conditions: list[Any], value: Any = None, scope: str = ATTRIBUTES) -> bool:
    """Whether a policy with these conditions takes a message with this value under its key."""
    policy = compiled(json.dumps({"key": conditions}), scope)
    assert policy is not None
    held = {} if value is None else {"key": value}
    encoded = encode_typed({name: attribute(each) for name, each in held.items()})
    body = json.dumps(held).encode() if not isinstance(value, bytes) else b"{}"
    return policy.wants(Looked(body, encoded))


MATCHES: list[tuple[list[Any], list[Any], list[Any]]] = [
    # conditions, what meets them, what does not
    (["a", "b"], ["a", "b", ["x", "a"]], ["A", "ab", 1, ["x"], None]),
    ([5, 1.5], [5, 5.0, 1.5, [9, 5], 5.0000001], [6, "5", ["5"], 5.1, None]),
    ([{"prefix": "au"}], ["auto", "au", ["x", "auto"]], ["Auto", "a", 1, None]),
    ([{"suffix": ".png"}], ["a.png"], ["a.PNG", "png", 1, None]),
    ([{"equals-ignore-case": "Tennis"}], ["tennis", "TENNIS"], ["tenni", 1, None]),
    ([{"anything-but": ["a", "b"]}], ["c", ["a", "c"], 1], ["a", ["a", "b"], None]),
    ([{"anything-but": "a"}], ["c"], ["a", None]),
    ([{"anything-but": [1, 2]}], [3, "1"], [1, 2.0, None]),
    ([{"anything-but": {"prefix": "order-"}}], ["x"], ["order-1", None]),
    ([{"exists": True}], ["", "a", 1, ["a"]], [None]),
    ([{"exists": False}], [None], ["a", 1, ["a"]]),
    ([{"numeric": ["=", 5]}], [5, 5.0, [4, 5]], [4, "5", None]),
    ([{"numeric": [">", 0, "<=", 10]}], [1, 10, 0.001], [0, 11, -1, None]),
    ([{"numeric": ["<", -1]}], [-2, -1.1], [-1, 0]),
    ([{"numeric": [">=", 3]}], [3, 4], [2]),
    ([{"cidr": "10.0.0.0/24"}], ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "x", 1, None]),
    (["a", {"numeric": [">", 5]}, {"prefix": "z"}], ["a", 6, "zoo"], ["b", 5]),
    ([{"exists": False}, "a"], [None, "a"], ["b"]),
]


@pytest.mark.parametrize("scope", [ATTRIBUTES, BODY])
@pytest.mark.parametrize(("conditions", "yes", "no"), MATCHES, ids=lambda each: str(each)[:40])
def test_operators(conditions: list[Any], yes: list[Any], no: list[Any], scope: str) -> None:
    for value in yes:
        assert wants(conditions, value, scope), f"{conditions} does not take {value!r}"
    for value in no:
        assert not wants(conditions, value, scope), f"{conditions} takes {value!r}"


def test_true_false_and_null_are_no_numbers() -> None:
    for scope in (ATTRIBUTES, BODY):
        assert wants([True], [True], scope)
        assert not wants([True], [1], scope)
        assert not wants([1], [True], scope)
        assert wants([None], [None], scope)
        assert not wants([None], [0], scope)
        assert not wants([{"numeric": ["=", 1]}], [True], scope)


def test_bytes_are_there_and_match_nothing() -> None:
    assert wants([{"exists": True}], b"a")
    assert not wants(["a"], b"a")
    assert not wants([{"anything-but": "b"}], b"a")


def takes(policy: dict[str, Any], scope: str = ATTRIBUTES, **held: Any) -> bool:
    found = compiled(json.dumps(policy), scope)
    assert found is not None
    encoded = encode_typed({name: attribute(each) for name, each in held.items()})
    return found.wants(Looked(json.dumps(held).encode(), encoded))


@pytest.mark.parametrize("scope", [ATTRIBUTES, BODY])
def test_all_keys_have_to_match(scope: str) -> None:
    policy = {"kind": ["a"], "size": [{"numeric": [">", 5]}]}
    assert takes(policy, scope, kind="a", size=6)
    assert not takes(policy, scope, kind="a", size=5)
    assert not takes(policy, scope, kind="a")


@pytest.mark.parametrize("scope", [ATTRIBUTES, BODY])
def test_alternatives(scope: str) -> None:
    policy = {"source": ["s"], "$or": [{"kind": ["a"]}, {"size": [1], "shape": ["round"]}]}
    assert takes(policy, scope, source="s", kind="a")
    assert takes(policy, scope, source="s", size=1, shape="round")
    assert not takes(policy, scope, source="s", size=1)
    assert not takes(policy, scope, kind="a")
    literal = {"$or": ["x"]}  # with fewer than two it is a name like any other
    assert takes(literal, scope, **{"$or": "x"})


def test_a_policy_leads_into_bodies() -> None:
    policy = {"a": {"b": ["x"], "c": {"d": [1]}}}
    assert takes(policy, BODY, a={"b": "x", "c": {"d": 1}})
    assert takes(policy, BODY, a=[{"b": "y"}, {"b": "x", "c": [{"d": 2}, {"d": [0, 1]}]}])
    assert not takes(policy, BODY, a={"b": "x"})
    assert not takes(policy, BODY, a="x")
    dotted = {"a.b": ["x"], "a.b.c": ["y"]}
    assert takes({"a.b": ["x"]}, BODY, a={"b": "x"})
    assert takes({"a.b": ["x"]}, BODY, **{"a.b": "x"})
    assert takes({"a": {"b": {"c": ["y"]}}}, BODY, **{"a.b": {"c": "y"}})
    assert takes(dotted, BODY, a={"b": "x", "b.c": "y"})
    assert not takes(dotted, BODY, a={"b": "x", "c": "y"})


@pytest.mark.parametrize("body", [b"", b"text", b"[1]", b'"key"', b"\xff", b"[" * 200_000, b"{"])
def test_a_body_that_is_no_object_matches_nothing(body: bytes) -> None:
    policy = compiled('{"key": ["a"]}', BODY)
    assert policy is not None
    assert not policy.wants(Looked(body, None))


def test_a_body_with_very_many_values_matches_nothing() -> None:
    policy = compiled('{"key": ["a"]}', BODY)
    assert policy is not None
    for count, expected in ((19_000, True), (21_000, False)):
        body = json.dumps({"key": ["a", *[0] * count]}).encode()
        assert policy.wants(Looked(body, None)) == expected
    # What is not under a key of the policy does not count.
    beside = json.dumps({"key": "a", "more": [0] * 100_000}).encode()
    assert policy.wants(Looked(beside, None))


def test_the_lists_of_a_body_are_looked_at_within_a_limit_for_all_policies() -> None:
    body = json.dumps({f"k{number}": ["a", *[0] * 9_000] for number in range(3)}).encode()
    looked = Looked(body, None)
    found = [compiled(json.dumps({f"k{number}": ["a"]}), BODY) for number in (0, 0, 1, 2)]
    assert [each is not None and each.wants(looked) for each in found] == [True, True, True, False]


@pytest.mark.parametrize(
    ("conditions", "values"),
    [
        ([f"v{n}" for n in range(149)] + ["yes"], 10_000),
        ([1.5, *range(148), "yes"], 10_000),
        ([{"prefix": f"v{n}"} for n in range(149)] + ["yes"], 100),
        ([{"numeric": [">", n]} for n in range(149)] + ["yes"], 100),
        ([{"cidr": f"10.0.{n}.0/24"} for n in range(149)] + ["yes"], 10),
    ],
)
def test_what_a_policy_takes_of_one_message_is_bounded(conditions: list[Any], values: int) -> None:
    """Up to some number of values all of its conditions are looked at; far beyond none are."""
    policy = compiled(json.dumps({"a": conditions}), BODY)
    assert policy is not None

    def looked(count: int) -> Looked:
        return Looked(json.dumps({"a": ["10.1.0.1"] * count + ["yes"]}).encode(), None)

    assert policy.wants(looked(values))
    many = looked(19_000)
    policy.wants(many)
    assert many.work < 2 * limits.FILTERED_WORK_MAX + 300_000


def test_alternatives_share_the_work() -> None:
    policy = compiled(json.dumps({"$or": [{"a": [f"v{n}"]} for n in range(100)]}))
    assert policy is not None
    array = json.dumps(["x"] * 30_000)
    looked = Looked(b"", encode_typed({"a": ("String.Array", array)}))
    assert not policy.wants(looked)
    assert looked.work < limits.FILTERED_WORK_MAX + 2 * len(array)


@pytest.mark.parametrize(("kind", "value"), [("String.Array", "["), ("Number", "many")])
def test_attributes_that_are_not_what_they_say(kind: str, value: str) -> None:
    policy = compiled('{"key": [1]}')
    assert policy is not None
    assert not policy.wants(Looked(b"", encode_typed({"key": (kind, value)})))


@pytest.mark.parametrize("text", ["", "{}", "null"])
def test_a_policy_of_nothing_takes_everything(text: str) -> None:
    assert compiled(text) is None


REFUSED: list[tuple[Any, str]] = [
    ({"a": []}, "FilterPolicy: Empty arrays are not allowed"),
    ({"a": 1}, 'FilterPolicy: "a" must be an object or an array'),
    ({"a": [["b"]]}, "FilterPolicy: Match value must be String, number, true, false, or null"),
    ({"a": [{"x": 1, "y": 2}]}, "FilterPolicy: Only one key allowed in match expression"),
    ({"a": [{}]}, "FilterPolicy: Only one key allowed in match expression"),
    ({"a": [{"like": "b"}]}, "FilterPolicy: Unrecognized match type like"),
    ({"a": [{"prefix": 1}]}, "FilterPolicy: prefix match pattern must be a string"),
    ({"a": [{"suffix": []}]}, "FilterPolicy: suffix match pattern must be a string"),
    (
        {"a": [{"equals-ignore-case": None}]},
        "FilterPolicy: equals-ignore-case match pattern must be a string",
    ),
    (
        {"a": [{"exists": "yes"}]},
        "FilterPolicy: exists match pattern must be either true or false.",
    ),
    (
        {"a": [{"anything-but": {"like": 1}}]},
        "FilterPolicy: Unsupported anything-but pattern: like",
    ),
    (
        {"a": [{"anything-but": [["b"]]}]},
        "FilterPolicy: Match value must be String, number, true, false, or null",
    ),
    ({"a": [{"numeric": []}]}, "FilterPolicy: Invalid member in numeric match: ]"),
    ({"a": [{"numeric": 5}]}, "FilterPolicy: Invalid member in numeric match: ]"),
    ({"a": [{"numeric": [5]}]}, "FilterPolicy: Invalid member in numeric match: 5"),
    ({"a": [{"numeric": ["~", 5]}]}, "FilterPolicy: Unrecognized numeric range operator: ~"),
    ({"a": [{"numeric": ["="]}]}, "FilterPolicy: Value of equals must be numeric"),
    ({"a": [{"numeric": ["<", "5"]}]}, "FilterPolicy: Value of < must be numeric"),
    (
        {"a": [{"numeric": ["<", 5, ">", 1]}]},
        "FilterPolicy: Too many elements in numeric expression",
    ),
    ({"a": [{"numeric": [">", 5, 6]}]}, "FilterPolicy: Bad value in numeric range: 6"),
    ({"a": [{"numeric": [">", 5, "=", 6]}]}, "FilterPolicy: Bad numeric range operator: ="),
    ({"a": [{"numeric": [">", 5, "<"]}]}, "FilterPolicy: Value of < must be numeric"),
    ({"a": [{"numeric": [">", 5, "<", 5]}]}, "FilterPolicy: Bottom must be less than top"),
    (
        {"a": [{"numeric": [">", 5, "<", 6, "<"]}]},
        "FilterPolicy: Too many terms in numeric range expression",
    ),
    ({"a": [{"cidr": 1}]}, "FilterPolicy: prefix match pattern must be a string"),
    ({"a": [{"cidr": "10.0.0.0"}]}, "FilterPolicy: Malformed CIDR, one '/' required"),
    (
        {"a": [{"cidr": "10.0.0.0/x"}]},
        "FilterPolicy: Malformed CIDR, mask bits must be an integer",
    ),
    ({"a": [{"cidr": "10.0.0/8"}]}, "FilterPolicy: Nonstandard IP address: 10.0.0"),
    (
        {f"k{number}": ["a"] for number in range(6)},
        "FilterPolicy: Filter policy can not have more than 5 keys",
    ),
    ({"a": ["x"] * 151}, "FilterPolicy: Filter policy is too complex"),
    ({"a": ["x"] * 13, "b": ["y"] * 12}, "FilterPolicy: Filter policy is too complex"),
    ({"$or": [{"a": ["x"] * 76}, {"a": ["y"] * 75}]}, "FilterPolicy: Filter policy is too complex"),
    ({"a": "x" * (256 * 1024)}, "FilterPolicy: Filter policy is too long"),
    ([1], "FilterPolicy: Filter policy must be an object"),
]


@pytest.mark.parametrize(("policy", "told"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_sns_refuses(policy: Any, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        compiled(json.dumps(policy))
    assert caught.value.message == told


def test_what_is_just_allowed() -> None:
    assert compiled(json.dumps({"a": ["x"] * 150})) is not None
    assert compiled(json.dumps({"$or": [{"a": ["x"] * 75}, {"b": ["y"] * 75}]})) is not None
    assert compiled(json.dumps({f"k{number}": ["a"] for number in range(5)})) is not None


def test_depth_counts_for_a_body() -> None:
    nested: Any = ["x"] * 50
    for _ in range(3):
        nested = {"a": nested}
    assert compiled(json.dumps(nested), BODY) is not None  # 50 values, three levels
    with pytest.raises(InvalidArgument, match="too complex"):
        compiled(json.dumps({"b": nested}), BODY)
    with pytest.raises(InvalidArgument, match="does not support nested"):
        compiled(json.dumps(nested), ATTRIBUTES)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 5_000 + "[1]" + "}" * 5_000,
        '{"$or":[{"a":[1]},' * 300 + '{"b":[1]}' + "]}" * 300,
        "[" * 100_000,
        '{"$or":[' + ",".join(["{}"] * 50_000) + "]}",
        "\ud800",
    ],
)
@pytest.mark.parametrize("scope", [ATTRIBUTES, BODY])
def test_a_policy_that_means_harm(text: str, scope: str) -> None:
    with pytest.raises(InvalidArgument):
        compiled(text, scope)


def test_a_policy_chooses_what_is_delivered(rig: Rig) -> None:
    topic, some, every = rig.topic(), rig.queue("-some"), rig.queue("-every")
    rig.subscribe(topic, some, FilterPolicy=json.dumps({"n": [{"numeric": [">=", 7]}]}))
    rig.subscribe(topic, every)
    entries = [
        {"Id": f"{n}", "Message": f"{n}",
         "MessageAttributes": {"n": {"DataType": "Number", "StringValue": f"{n}"}}}
        for n in (9, 1, 8, 7, 2)
    ]  # fmt: skip
    rig.sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    rig.sns.publish(TopicArn=topic, Message="none")
    assert some.texts() == ["9", "8", "7"]
    assert every.texts() == ["9", "1", "8", "7", "2", "none"]


def test_a_policy_on_bodies_chooses_too_until_it_is_taken_away(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    policy = json.dumps({"order": {"total": [{"numeric": [">", 100]}]}})
    arn = rig.subscribe(topic, queue, FilterPolicyScope="MessageBody", FilterPolicy=policy)
    for total in (50, 150):
        rig.sns.publish(TopicArn=topic, Message=json.dumps({"order": {"total": total}}))
    rig.sns.publish(TopicArn=topic, Message="no JSON")
    assert queue.texts() == ['{"order": {"total": 150}}']
    given = {"AttributeName": "FilterPolicy", "AttributeValue": "{}"}
    rig.sns.set_subscription_attributes(SubscriptionArn=arn, **given)
    rig.sns.publish(TopicArn=topic, Message="no JSON")
    assert queue.texts() == ["no JSON"]
