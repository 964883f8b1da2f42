"""What people expect of any command line: a version, help, contexts, flags where they come to mind,
and refusals in the words that were typed."""

import pytest

import nexo as nexo_client
from nexo.cli.main import _as_typed, _in_order, run, show_failure
from nexo.client.address import address_of
from nexo.client.handshake import unanswered


@pytest.fixture(autouse=True)
def _own_contexts(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_version_and_help(capsys):
    from nexo import __version__

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"nexo {__version__}\n"
    assert run(["help", "queue", "discard"]) == 0
    assert "nexo queue discard" in capsys.readouterr().out
    assert run(["help"]) == 0


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--url", "u", "queue", "list"], ["queue", "list", "--url", "u"]),
        (["--url=u", "--json", "top"], ["top", "--url=u", "--json"]),
        (["--token", "t", "worker", "f", "--", "x"], ["worker", "f", "--token", "t", "--", "x"]),
        (["help", "push"], ["push", "--help"]),
        (["push", "q", "--url", "u"], ["push", "q", "--url", "u"]),
        (["--url"], ["--url"]),
        ([], []),
    ],
)
def test_flags_may_stand_before_the_command(typed, meant):
    assert _in_order(typed) == meant


def test_refusals_name_the_flag():
    told = _as_typed("visibility_timeout is 9", ["edit", "--visibility-timeout", "9"])
    assert told == "--visibility-timeout is 9"
    assert _as_typed("max_depth is 9", ["--delay", "1"]) == "max_depth is 9"


def test_contexts(nexo, alone, queue, tmp_path):
    home = {"XDG_CONFIG_HOME": str(tmp_path / "contexts")}
    (tmp_path / "token").write_text("secret")
    added = ("context", "add", "here", "--url", nexo.url, "--token", "@token")
    nexo(*added, environment=home)
    nexo("context", "add", "far", "--url", "nexo://127.0.0.1:1", environment=home)
    listed = nexo("context", "list", environment=home).lines
    assert listed == ["  far  nexo://127.0.0.1:1", f"* here  {nexo.url}"]
    alone.url = None
    alone("queue", "create", queue, environment=home)
    assert queue in alone("queue", "list", environment=home).out
    alone("context", "use", "far", environment=home)
    alone("queue", "list", environment=home, status=3)
    assert queue in alone("--url", nexo.url, "queue", "list", environment=home).out
    alone("context", "remove", "far", environment=home)
    assert (
        "there is no context 'far'"
        in alone("context", "use", "far", environment=home, status=2).err
    )
    plain = ("context", "add", "x", "--url", nexo.url, "--token", "secret")
    assert "@FILE" in alone(*plain, environment=home, status=2).err


def test_push_to_a_missing_queue_says_create(nexo, queue):
    assert "--create" in nexo("push", queue, "x", status=1).err


def test_audit_of_a_running_broker(nexo, queue):
    nexo("queue", "create", queue)
    lines = nexo("audit", "--json").out
    assert queue in lines
    assert "create_queue" in nexo("audit").out


def test_consumers(nexo, queue):
    import nexo as library

    with library.connect(nexo.url, name="idler") as client:
        subscription = client.create_queue(queue).subscribe(prefetch=7)
        client.queue(queue).push("x")
        messages = iter(subscription)
        next(messages)
        (found,) = nexo("consumers", queue, "--json").json()
        assert (found["name"], found["consumers"][0]["prefetch"]) == ("idler", 7)
        assert "idler" in nexo("consumers").out
        number = str(found["number"])
        assert nexo("consumers", "--close", number).out == f"Closed connection {number}\n"
        assert "no connection" in nexo("consumers", "--close", "999999", status=1).err
        subscription.close()


REASON = (
    "customer 4711 not found in table customers: sqlalchemy.exc.NoResultFound: No row was found "
    "when one was required"
)


def test_tables_fit_80_columns_with_reasons_whole(broker, nexo, queue):
    with nexo_client.connect(broker.url) as client:
        made = client.create_queue(queue, max_attempts=1)
        message_id = made.push('{"order": 1, "customer": "a name that is longer than the column"}')
        for message in made.pop_batch(1):
            message.nack(reason=REASON)
    dead = f"{queue}_dlq"
    narrow = {"COLUMNS": "80"}
    for command in (
        ("queue", "peek", dead),
        ("queue", "search", dead, "order"),
        ("queue", "message", dead, message_id),
        ("why", queue),
    ):
        shown = nexo(*command, environment=narrow)
        assert max(map(len, shown.lines)) <= 80, command
        told = "".join(shown.out.split())
        wanted = REASON.replace("4711", "#") if command[0] == "why" else REASON
        assert "".join(wanted.split()) in told, f"{command} cuts the reason"
        assert message_id[-12:] in told
    assert message_id not in nexo("queue", "peek", dead, environment=narrow).out, "not shortened"
    audit = nexo("audit", environment=narrow)
    assert max(map(len, audit.lines)) <= 80
    assert "…" not in audit.out


def test_settings_are_shown_as_people_write_them(nexo, queue):
    nexo("queue", "create", queue, "--max-message-bytes", "64KB", "--retention", "2d")
    shown = nexo("queue", "info", queue).out.split()
    for setting, value in (("max-message-bytes", "64"), ("retention", "2d"), ("tags", "none")):
        assert shown[shown.index(setting) + 1] == value


def test_a_command_says_which_extra_it_needs(nexo, tmp_path):
    for module, extra, command in (
        ("deltalake", "spark", ("pipeline", "run", "archive", "--topic", "x", "--lake", "lake")),
        ("deltalake", "spark", ("pipeline", "run", "compact", "--lake", "lake")),
        ("duckdb", "sql", ("sql", "SELECT 1")),
    ):
        absent = tmp_path / module
        absent.mkdir(exist_ok=True)
        missing = f"raise ModuleNotFoundError('No module named {module}', name={module!r})\n"
        (absent / f"{module}.py").write_text(missing)
        status = 2 if module == "duckdb" else 1
        refused = nexo(*command, environment={"PYTHONPATH": str(absent)}, status=status).err
        assert f"pip install 'nexo-broker[{extra}]'" in refused, command
        assert len(refused.splitlines()) == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_tells_to_raise_what_is_no_flag(capsys, as_json):
    error = unanswered(address_of("nexo://host"), None, 30)
    assert "raise `timeout`" in error.hint, "it is an argument of the client"
    show_failure(error, as_json)
    told = capsys.readouterr().err
    assert "did not answer within 30 s" in told
    assert "raise" not in told
