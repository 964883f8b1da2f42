"""The packages and settings that Spark needs around the connector."""

import sys
from collections.abc import Mapping
from importlib import metadata, util

PACKAGES = ("pyspark", "pyarrow", "pandas")
PYSPARK_MIN = (4, 3)
PANDAS_BELOW = 3
_INSTALL = 'pip install "nexo-broker[spark]"'


def spark_versions() -> dict[str, str]:
    """What is installed of the packages that the connector works with."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def spark_problems(
    versions: Mapping[str, str], environment: Mapping[str, str]
) -> list[tuple[str, str]]:
    """What keeps `format("nexo")` from working, and what to do about each."""
    problems = [(f"{name} is not installed", _INSTALL) for name in PACKAGES if name not in versions]
    spark = _numbers(versions.get("pyspark", "4.3"))
    if spark < PYSPARK_MIN:
        problems.append((f"pyspark {versions['pyspark']} is too old: 4.3 is needed", _INSTALL))
    if _numbers(versions.get("pandas", "2"))[0] >= PANDAS_BELOW:
        found = versions["pandas"]
        problems.append((f"pandas {found} is not for PySpark", 'pip install "pandas<3"'))
    if util.find_spec("pyspark_nexo") is None:
        hint = "install nexo-broker into this environment again"
        problems.append(("the module pyspark_nexo is missing, by which Spark finds nexo", hint))
    python = environment.get("PYSPARK_PYTHON")
    if python is not None and python != sys.executable:
        hint = f"it needs nexo-broker installed too; unset it to use {sys.executable}"
        problems.append((f"PYSPARK_PYTHON is {python}, another Python than this", hint))
    return problems


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
