"""`examples/hello_topic.py` prints what it says it prints."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

from nexo.testing import broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello_topic.py"


def test_it_prints_what_it_says():
    docstring = ast.get_docstring(ast.parse(EXAMPLE.read_text(encoding="utf-8")), clean=False)
    assert docstring is not None
    promised = textwrap.dedent(docstring.partition("It prints:\n\n")[2]).strip()
    with broker() as running:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), running.url],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    assert done.stderr == ""
    assert done.stdout.strip() == promised
