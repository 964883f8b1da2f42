"""Where the settings of a broker come from."""

import pytest

from nexo.server.configuration import Configuration, configure, unknown_variables
from nexo.vocabulary.errors import InvalidArgument


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_nothing_is_needed():
    assert configure({}, {}) == Configuration()


def test_the_order_of_places(tmp_path):
    (tmp_path / "nexo.toml").write_text('data = "file"\nhost = "file"\nlog-level = "error"\n')
    environment = {"NEXO_DATA": "environment", "NEXO_HOST": "environment"}
    got = configure({"data": "flag", "host": None}, environment)
    assert (got.data, got.host, got.log_level) == ("flag", "environment", "error")


@pytest.mark.parametrize("text", ["64MB", "64 mib", "67108864"])
def test_sizes(tmp_path, text):
    assert configure({}, {"NEXO_MEMORY_LIMIT": text}).memory_limit == 64 * 1024**2
    (tmp_path / "nexo.toml").write_text(f'memory_limit = "{text}"')
    assert configure({}, {}).memory_limit == 64 * 1024**2


def test_a_file_of_another_name(tmp_path):
    (tmp_path / "other.toml").write_text("rpc_port = 7")
    assert configure({}, {}, "other.toml").rpc_port == 7
    assert configure({}, {"NEXO_CONFIG": "other.toml"}).rpc_port == 7


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"NEXO_RPC_PORT": "high"}, "NEXO_RPC_PORT does not take 'high'"),
        ({"NEXO_RPC_PORT": "-1"}, "NEXO_RPC_PORT does not take '-1'"),
        ({"NEXO_MEMORY_LIMIT": "1KB"}, "NEXO_MEMORY_LIMIT does not take"),
        ({"NEXO_DATA": ""}, "NEXO_DATA does not take ''"),
        ({"NEXO_CONFIG": "none.toml"}, "none.toml cannot be read"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(environment, told):
    with pytest.raises(InvalidArgument, match=told):
        configure({}, environment)


def test_misspelt_variables_are_found():
    environment = ["NEXO_DATA", "NEXO_URL", "NEXO_TOKEN", "NEXO_CONFIG", "NEXO_PORT", "HOME"]
    assert unknown_variables(environment) == ["NEXO_PORT"]


REACHED = [
    *("host-a", "a", "host-a.example.com", "host-a.example.com.", "10.0.0.7", "3com.example"),
    *("fd00::2", "[fd00::2]", "::1", "localhost", "node_a", "a" * 63, ".".join(["a" * 49] * 5)),
]
NOT_REACHED = [
    *("", " ", "a b", "http://x", "x:99", "x:y", "[fd00::2", "fd00::2]", "::::", "x\n", "\n", "*"),
    *("0.0.0.0", "::", "[::]", "::ffff:0.0.0.0", "255.255.255.255", "224.0.0.1", "ff02::1"),
    *("a" * 64, "a" * 3_000, ".".join(["a" * 50] * 5), "-a", "a-", "a..b", ".", ".a"),
    *("[10.0.0.7]", "10.0.0.256", "10.0.0", "0", "fe80::1%eth0", "b\u00fccher.example", "[]"),
]


@pytest.mark.parametrize("host", REACHED)
def test_what_a_node_may_advertise(host):
    assert configure({"advertise": host}, {}).advertise == host


@pytest.mark.parametrize("host", NOT_REACHED)
def test_what_no_other_node_could_connect_to_is_refused(host):
    with pytest.raises(InvalidArgument, match="--advertise does not take") as refused:
        configure({"advertise": host}, {})
    assert "\n" not in refused.value.message
    assert "--rpc-port" in refused.value.hint


@pytest.mark.parametrize("name", ["a", "7", "_a", ".a", "a-b.c_d", "a" * 63])
def test_names_of_nodes(name):
    assert configure({"node": name}, {}).node == name


@pytest.mark.parametrize(
    ("name", "wrong", "wanted"),
    [
        *(("node", wrong, "1 to 63 letters") for wrong in ("", "-", "-a", "a b", "a\n", "a" * 64)),
        *(("account", wrong, "12 digits") for wrong in ("", "1", "000000000000\n")),
        *(("region", wrong, "lower-case letters") for wrong in ("", "EU", "us-east-1\n")),
    ],
)
def test_what_to_write_is_said_in_plain_words(name, wrong, wanted):
    with pytest.raises(InvalidArgument, match=f"--{name} does not take") as refused:
        configure({name: wrong}, {})
    assert wanted in refused.value.hint
    assert "regex" not in refused.value.hint
