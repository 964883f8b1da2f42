"""Marks of compliance tests."""

import pytest

# Overrides the fixture that would run the test over both protocols.
json_only = pytest.mark.parametrize("protocol", ["json"])
