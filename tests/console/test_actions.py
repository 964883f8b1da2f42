"""What people do in the console, done in a browser, and looked at through a client."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.console.looking import follow
from tests.console.world import BINARY, LARGE, RIGHT_TO_LEFT, SCRIPT, claim

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from nexo import Client, TopicInfo
    from tests.compliance.broker import ServedBroker
    from tests.console.looking import Looking


def dead(client: Client, name: str, count: int) -> None:
    """A queue whose messages have all failed."""
    queue = client.create_queue(name, max_attempts=1)
    queue.push_batch([f"{name} {number}" for number in range(count)])
    for message in queue.pop_batch(count):
        message.nack(reason="broken")
    assert client.queue(f"{name}_dlq").info().depth == count


def notice(page: Page) -> str:
    return page.locator(".notice").inner_text()


def test_create_send_edit_pause_purge_delete(looking: Looking, client: Client) -> None:
    page = looking.at("/queues")
    page.get_by_role("button", name="New queue").click()
    page.locator("#new-queue input[name=name]").fill("by-hand")
    follow(page.get_by_role("button", name="Create"))
    queue = client.queue("by-hand")

    send = page.locator("#send")
    send.get_by_label("Body", exact=True).fill('{"a":\n1}')
    send.get_by_label("Priority").fill("7")
    send.get_by_label("Attributes").fill("colour=green\nsize = 3")
    follow(send.get_by_role("button", name="Send"))
    assert notice(page).startswith("Sent message ")
    message = queue.pop()
    assert message is not None
    assert (message.body, message.priority) == (b'{"a":\n1}', 7)
    assert message.attributes == {"colour": "green", "size": "3"}

    settings = page.locator("#settings")
    settings.locator("input[name=visibility_timeout]").fill("12.5")
    settings.locator("input[name=max_depth]").fill("100")
    settings.locator("input[name=backoff_initial]").fill("2")
    follow(settings.get_by_role("button", name="Save"))
    told = queue.info().settings
    assert (told.visibility_timeout, told.max_depth, told.max_attempts) == (12.5, 100, 5)
    assert told.backoff is not None
    assert told.backoff.initial == 2
    page.locator("#settings input[name=visibility_timeout]").fill("soon")
    follow(page.locator("#settings").get_by_role("button", name="Save"))
    assert "'soon' is not a duration" in page.locator(".alert").inner_text()
    assert page.locator("#settings input[name=visibility_timeout]").input_value() == "soon"
    assert page.locator("#settings input[name=max_depth]").input_value() == "100"
    assert looking.findings() == []
    page.locator("#settings input[name=visibility_timeout]").fill("12250ms")
    page.locator("#settings select[name=deduplication_scope]").select_option("group")
    page.locator("#settings textarea[name=tags]").fill("team=shop\ncost = 7=7")
    follow(page.locator("#settings").get_by_role("button", name="Save"))
    told = queue.info().settings
    assert (told.visibility_timeout, told.deduplication_scope) == (12.25, "group")
    assert told.tags == {"team": "shop", "cost": "7=7"}

    page.get_by_role("button", name="Pause").click()
    page.locator("dialog#pause").get_by_role("button", name="Cancel").click()
    assert not queue.info().paused
    page.get_by_role("button", name="Pause").click()
    follow(page.locator("dialog#pause").get_by_role("button", name="Pause"))
    assert queue.info().paused
    assert page.locator("h1 .tag.warn").inner_text() == "paused"
    page.get_by_role("button", name="Resume").click()
    follow(page.locator("dialog#pause").get_by_role("button", name="Resume"))
    assert not queue.info().paused

    queue.push_batch(["x"] * 5)
    page.get_by_role("button", name="Purge").click()
    follow(page.locator("dialog#purge").get_by_role("button", name="Purge"))
    assert notice(page) == "Purged 6 messages."
    assert queue.info().depth == 0
    page.get_by_role("button", name="Delete").click()
    follow(page.locator("dialog#delete").get_by_role("button", name="Delete"))
    assert notice(page) == "Deleted queue by-hand."
    assert "by-hand" not in [each.name for each in client.queues()]


def test_settings_of_others_are_left_alone(looking: Looking, client: Client) -> None:
    """Only what was changed in the form is changed, and nothing is rounded by the way."""
    queue = client.create_queue("shared", retention=345_600.125, backoff={"initial": 3.0})
    page = looking.at("/queues/shared")
    queue.edit(delay=4.0, backoff={"initial": 5.0, "max": 60.0})
    page.locator("#settings input[name=max_attempts]").fill("9")
    page.locator("#settings input[name=backoff_factor]").fill("3")
    follow(page.locator("#settings").get_by_role("button", name="Save"))
    told = queue.info().settings
    assert (told.max_attempts, told.delay, told.retention) == (9, 4.0, 345_600.125)
    assert told.backoff is not None
    assert (told.backoff.initial, told.backoff.factor, told.backoff.max) == (5.0, 3.0, 60.0)


def test_fail_find_redrive_and_watch_it_drain(own_looking: Looking, own_client: Client) -> None:
    """What somebody does who is called at night, from the overview on."""
    looking, client = own_looking, own_client  # else others may be deeper
    queue = client.create_queue("nightly")
    queue.push("the one that fails")
    page = looking.live("")
    for _ in range(5):
        message = queue.pop(wait=5)
        assert message is not None
        message.nack(delay=0, reason="database is down")
    follow(page.locator("#deepest").get_by_role("link", name="nightly_dlq"))
    follow(page.get_by_role("link", name="Dead letters with reasons and redrive"))
    follow(page.locator("#letters tbody th a"))
    assert page.locator(".reason").inner_text() == "database is down"
    assert "After 5 attempts in nightly" in page.locator(".why").inner_text()
    page.locator(".timeline li.dead_lettered").wait_for()
    assert page.locator(".timeline li.nacked").count() == 5
    follow(page.get_by_role("button", name="Redrive this message"))
    assert notice(page) == "Redrove 1 of 1 message."
    looking.live("/queues/nightly")
    looking.wait_for_text("q.nightly.depth", "1")
    page.locator("#glimpses tbody tr").wait_for()
    message = queue.pop(wait=5)
    assert message is not None
    message.ack()
    looking.wait_for_text("q.nightly.depth", "0")
    page.locator("#glimpses .empty").wait_for()


def test_redrive_one_then_a_selection(looking: Looking, client: Client) -> None:
    dead(client, "choosy", 5)
    page = looking.at("/dead-letters/choosy_dlq")
    follow(page.locator("#letters tbody th a").nth(4))
    follow(page.get_by_role("button", name="Redrive this message"))
    assert notice(page) == "Redrove 1 of 1 message."
    back = client.queue("choosy").pop()
    assert back is not None
    assert (back.text, back.attempts) == ("choosy 4", 1)
    back.ack()

    button = page.locator("[data-needs-selection]").first
    assert button.is_disabled()
    page.locator("#letters tbody input").nth(0).check()
    page.locator("#letters tbody input").nth(2).check()
    assert re.sub(r"\s+", " ", button.inner_text()) == "Redrive 2 selected"
    follow(button)
    assert notice(page) == "Redrove 2 of 2 messages."
    assert sorted(each.text for each in client.queue("choosy").pop_batch(9)) == [
        "choosy 0",
        "choosy 2",
    ]
    assert page.locator("#letters tbody tr").count() == 2


def test_a_group_is_redriven_or_discarded_and_nothing_else(
    looking: Looking, client: Client
) -> None:
    """Three are shown, three are in the question, three move."""
    queue = client.create_queue("grouped", max_attempts=1)
    queue.push_batch([f"late {number}" for number in range(3)] + [f"bad {n}" for n in range(7)])
    for message in queue.pop_batch(10):
        number = message.text.split()[1]
        late = message.text.startswith("late")
        message.nack(reason=f"timeout after {number} s" if late else f"order {number} is bad")
    page = looking.at("/dead-letters/grouped_dlq")
    follow(page.get_by_role("link", name="timeout after # s"))
    assert page.locator("#letters tbody tr").count() == 3
    page.get_by_role("button", name="Redrive these 3").click()
    question = page.locator("#redrive-filtered")
    assert "Redrive 3 messages?" in question.inner_text()
    assert "late 0" in question.inner_text()
    follow(question.get_by_role("button", name="Redrive 3"))
    page.locator(".tasks .tag").first.filter(has_text="completed").wait_for()
    assert sorted(each.text for each in queue.peek(100)) == ["late 0", "late 1", "late 2"]
    assert client.queue("grouped_dlq").info().depth == 7

    page = looking.at("/dead-letters/grouped_dlq?text=bad+5")
    assert page.locator("#letters tbody tr").count() == 1
    page.get_by_role("button", name="Discard these 1").click()
    follow(page.locator("#discard-filtered").get_by_role("button", name="Discard 1"))
    page.locator(".tasks .tag").first.filter(has_text="completed").wait_for()
    assert client.queue("grouped_dlq").info().depth == 6
    page.locator("#letters tbody input").nth(0).check()
    page.get_by_role("button", name=re.compile("Discard 1 selected")).click()
    follow(page.locator("#discard-selected").get_by_role("button", name="Discard"))
    assert notice(page) == "Discarded 1 of 1 message."
    assert client.queue("grouped_dlq").info().depth == 5


def test_change_and_resend_one(looking: Looking, client: Client) -> None:
    dead(client, "mended", 1)
    page = looking.at("/dead-letters/mended_dlq")
    follow(page.locator("#letters tbody th a"))
    page.get_by_role("button", name="Change and resend").click()
    form = page.locator("#resend")
    assert form.locator("textarea[name=body]").input_value() == "mended 0"
    form.locator("textarea[name=body]").fill("whole again")
    form.locator("textarea[name=attributes]").fill("by=ann")
    follow(form.get_by_role("button", name="Resend"))
    assert "to mended and deleted the original" in notice(page)
    (message,) = client.queue("mended").peek(10)
    assert (message.text, message.attributes["by"]) == ("whole again", "ann")
    assert client.queue("mended_dlq").info().depth == 0


def test_redrive_all_at_a_rate_with_progress(looking: Looking, client: Client) -> None:
    dead(client, "slow", 40)
    page = looking.live("/dead-letters/slow_dlq")
    page.get_by_role("button", name="Redrive all").click()
    page.locator("#redrive-all input[name=rate]").fill("2")  # it can be stopped for long
    follow(page.locator("#redrive-all").get_by_role("button", name="Redrive"))
    progress = page.locator(".tasks progress").first
    page.wait_for_function(
        "() => { const now = document.querySelector('.tasks progress').value;"
        " return now > 0 && now < 100; }"
    )
    follow(page.locator(".tasks").get_by_role("button", name="Stop"))
    state = page.locator(".tasks .tag").first
    state.filter(has_text=re.compile("cancelled")).wait_for()
    moved = client.queue("slow").info().depth
    assert 0 < moved < 40
    assert int(progress.get_attribute("value") or 0) < 100
    page.get_by_role("button", name="Redrive all").click()
    follow(page.locator("#redrive-all").get_by_role("button", name="Redrive"))
    page.locator(".tasks .tag").first.filter(has_text="completed").wait_for()
    assert client.queue("slow").info().depth == 40
    looking.wait_for_text("q.slow_dlq.depth", "0")


def test_a_consumer_is_seen_and_closed(looking: Looking, client: Client) -> None:
    queue = client.create_queue("watched")
    queue.push("x")
    subscription = queue.subscribe(prefetch=5)
    messages = iter(subscription)
    next(messages)
    page = looking.live("/consumers?queue=watched")
    row = page.locator("#consumers tbody tr")
    assert row.count() == 1
    assert "working" in row.inner_text()
    row.get_by_role("button", name="Close").click()
    follow(page.locator("#close-connection").get_by_role("button", name="Close"))
    assert "Closed connection" in notice(page)
    subscription.close()


def test_filter_sort_and_their_address(looking: Looking, client: Client) -> None:
    for number, count in enumerate((3, 1, 2)):
        client.create_queue(f"sorted-{number}").push_batch(["x"] * count)
    page = looking.live("/queues")
    page.keyboard.press("/")
    page.keyboard.type("sorted-")
    page.locator("#rows [role=status]", has_text="match").wait_for()
    names = page.locator("#rows tbody th a")
    page.wait_for_function("() => document.querySelectorAll('#rows tbody tr').length === 3")
    # Who types slowly has the list filtered in between too, and the last answer is to come yet.
    page.wait_for_function("() => location.search.includes('filter=sorted-')")
    page.locator("#rows thead").get_by_role("link", name="Depth").click()
    page.locator("#rows th[aria-sort=descending]").wait_for()
    wanted = ["sorted-0", "sorted-2", "sorted-1"]
    assert names.all_inner_texts() == wanted
    assert "filter=sorted-" in page.url
    assert "sort=-depth" in page.url
    looking.page.reload()
    assert names.all_inner_texts() == wanted
    client.queue("sorted-1").push_batch(["x"] * 8)
    looking.wait_for_text("q.sorted-1.depth", "9")
    page.wait_for_function(
        "() => document.querySelector('#rows tbody th a').textContent === 'sorted-1'"
    )
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues/sorted-0")
    looking.at("/queues?filter=no-such")
    assert "No queue has" in page.locator(".empty").inner_text()


def test_keys_lead_everywhere(looking: Looking) -> None:
    looking.page.clock.set_fixed_time(datetime.now(UTC))  # two keys belong together for a moment
    page = looking.at("")
    for key, place in (("q", "queues"), ("d", "dead-letters"), ("t", "topics"), ("s", "spark")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/console/{place}")
    page.keyboard.press("?")
    assert page.locator("dialog#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"


def test_topics_by_hand(looking: Looking, client: Client) -> None:
    page = looking.at("/topics")
    page.get_by_role("button", name="New topic").click()
    page.locator("#new-topic input[name=name]").fill("made")
    page.locator("#new-topic input[name=retention_messages]").fill("1000")
    follow(page.get_by_role("button", name="Create"))
    assert topic(client, "made").settings.retention_messages == 1_000
    page.get_by_label("Bind a queue").fill("made-readers")
    page.get_by_label("Filter").fill("colour=red")
    follow(page.get_by_role("button", name="Bind", exact=True))
    assert page.locator("#groups td code").inner_text() == "colour=red"
    for body, attributes in (("not for them", ""), ("hello", "colour=red")):
        page.locator("textarea[name=body]").fill(body)
        page.locator("textarea[name=attributes]").fill(attributes)
        follow(page.get_by_role("button", name="Publish"))
        assert "Published at offset" in notice(page)
    message = client.queue("made-readers").pop(wait=5)
    assert message is not None
    assert (message.text, message.attributes) == ("hello", {"colour": "red"})

    page.get_by_label("Bind a queue").fill("made-readers")
    follow(page.get_by_role("button", name="Bind", exact=True))
    assert "is already bound" in page.locator(".alert").inner_text()
    follow(page.get_by_role("link", name="Back"))
    assert page.locator("#groups td code").inner_text() == "colour=red", "its filter is lost"
    page.get_by_label("Bind a queue").fill("made-readers")
    page.get_by_label("Filter").fill("colour=blue\nsize=2")
    follow(page.get_by_role("button", name="Bind", exact=True))
    assert page.locator("#groups td code").inner_text() == "colour=blue, size=2"

    page.get_by_role("button", name="Unbind made-readers").click()
    page.locator("dialog#unbind").get_by_role("button", name="Cancel").click()
    assert topic(client, "made").bound_queues == ["made-readers"]
    page.get_by_role("button", name="Unbind made-readers").click()
    assert "Unbind made-readers?" in page.locator("dialog#unbind h2").inner_text()
    follow(page.locator("dialog#unbind").get_by_role("button", name="Unbind"))
    assert "No queue is bound" in page.locator("main").inner_text()

    page.locator("#settings input[name=retention_seconds]").fill("soon")
    follow(page.locator("#settings").get_by_role("button", name="Save"))
    assert "'soon' is not a duration" in page.locator(".alert").inner_text()
    page.locator("#settings input[name=retention_seconds]").fill("86400.5")
    page.locator("#settings input[name=retention_messages]").fill("")
    follow(page.locator("#settings").get_by_role("button", name="Save"))
    told = topic(client, "made").settings
    assert (told.retention_messages, told.retention_seconds) == (None, 86_400.5)
    page.get_by_role("button", name="Delete").click()
    follow(page.locator("dialog#delete").get_by_role("button", name="Delete"))
    assert notice(page) == "Deleted topic made."
    assert page.get_by_role("link", name="made", exact=True).count() == 0


def topic(client: Client, name: str) -> TopicInfo:
    return client.topic(name).info()


def test_what_a_query_holds_is_given_up_only_when_asked_twice(
    looking: Looking, client: Client, broker: ServedBroker
) -> None:
    client.create_queue("held").push_batch(["x"] * 6)
    page = looking.live("/queues/held")
    claim(broker.native_url, "held", "the-query", 3)
    page.locator("#claims tbody tr").wait_for()
    page.get_by_role("button", name="Move to the dead-letter queue").click()
    assert "the-query?" in page.locator("dialog#to-dead-letters h2").inner_text()
    page.locator("dialog#to-dead-letters").get_by_role("button", name="Cancel").click()
    assert page.url.endswith("/queues/held")
    page.get_by_role("button", name="Move to the dead-letter queue").click()
    asked = page.locator("dialog#to-dead-letters")
    follow(asked.get_by_role("button", name="Move to the dead-letter queue"))
    assert notice(page) == "Released 3 messages claimed by the-query."
    assert client.queue("held_dlq").info().depth == 3


def test_tokens_and_the_audit_log(looking: Looking, client: Client) -> None:
    page = looking.at("/access")
    page.get_by_role("button", name="New token").click()
    page.locator("#new-token input[name=name]").fill("worker")
    page.locator("#new-token input[name=allow]").fill("orders.*:push,pop reports:peek")
    follow(page.get_by_role("button", name="Create"))
    assert page.locator("#secret").inner_text().startswith("nexo_")
    looking.at("/access")
    assert page.locator("#secret").count() == 0, "a secret is shown once"
    row = page.locator("tr", has=page.locator("th", has_text="worker"))
    assert row.locator("code").all_inner_texts() == ["orders.*:push,pop", "reports:peek"]
    page.get_by_role("button", name="Revoke worker").click()
    follow(page.locator("dialog#revoke").get_by_role("button", name="Revoke"))
    assert notice(page) == "Revoked token worker."
    newest = page.locator("section").last.locator("tbody tr").first.locator("th, td")
    assert newest.all_inner_texts()[2:6] == ["revoke_token", "worker", "done", "console"]


@pytest.mark.parametrize("view", ["json", "text", "hex"])
def test_hostile_bodies_show_harmlessly(
    looking: Looking, client: Client, world: ServedBroker, view: str
) -> None:
    page = looking.at("/queues/hostile")
    assert page.locator("td.body").count() == 6
    for message in client.queue("hostile").peek(10):
        looking.at(f"/queues/hostile/messages/{message.id}?view={view}")
        shown = page.locator("pre.body").inner_text()
        assert page.title() == "Message in hostile · Nexo"
        assert page.locator("pre.body *").count() == 1, "the body became elements"
        assert "\u202e" not in shown
        if message.body == SCRIPT.encode() and view != "hex":
            assert shown.strip() == SCRIPT
        if message.body == RIGHT_TO_LEFT.encode() and view != "hex":
            assert "safe⟨U+202E⟩exe.gpj ⟨U+2066⟩hidden⟨U+2069⟩ שלום" in shown
        if message.body == BINARY:
            assert shown.startswith("00000000  00 01 02 03")
        if len(message.body) > 2**19:
            assert len(shown) < 70_000
            assert "are not shown" in page.locator("main").inner_text()
        if b"12345678901234567890" in message.body and view == "json":
            assert '"number": 12345678901234567890' in shown, "a number was read and written anew"


def test_a_body_is_downloaded_as_it_is(
    looking: Looking, client: Client, world: ServedBroker
) -> None:
    large = next(each for each in client.queue("hostile").peek(10) if len(each.body) > 2**19)
    page = looking.at(f"/queues/hostile/messages/{large.id}")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    assert Path(started.value.path()).read_bytes() == LARGE[: 1024 * 1024]


def test_a_body_is_copied_as_it_is_shown(looking: Looking, client: Client) -> None:
    queue = client.create_queue("copied")
    id_text = queue.push('{"a": 1}')
    looking.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = looking.at(f"/queues/copied/messages/{id_text}")
    button = page.get_by_role("button", name="Copy")
    # What the button says for a moment is noted: nobody may be looking just then.
    button.evaluate(
        """(button) => { window.said = []; new MutationObserver(
        () => said.push(button.textContent)).observe(button, {childList: true}); }"""
    )
    button.click()
    page.wait_for_function("() => said.includes('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == '{\n  "a": 1\n}'
