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
