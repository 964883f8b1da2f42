"""The image is built and run, and compose.yaml started, by a real Docker.

Where Docker does not run it is installed and started for this test alone. The base image is pulled;
where there is no registry to pull from, it is made of Debian's packages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nexo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
BASE = "python:3.13-slim"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def docker(*words: str, timeout: float = 900) -> str:
    """What it prints; the old builder, as Debian's Docker has no other."""
    done = subprocess.run(
        ["docker", *words],
        cwd=ROOT,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout[-2000:]}{done.stderr}"
    return done.stdout.strip()


def answers() -> bool:
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    return False


def wait_for(done: Callable[[], bool], what: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.5)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if answers():
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("there is no Docker that answers, and only root can start one")
    subprocess.run([ROOT / "scripts" / "container-engine"], check=True, timeout=600)
    folder = tmp_path_factory.mktemp("docker")
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(
            ["dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "run")],
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(answers, f"dockerd does not start: {(folder / 'log').read_text()[-2000:]}")
            yield
        finally:
            daemon.terminate()
            daemon.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def base(engine: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    if docker("image", "ls", "--quiet", BASE):
        return
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        docker("pull", BASE, timeout=300)
        return
    folder = tmp_path_factory.mktemp("base")
    packages = "python3,python3-venv,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "stable", str(folder)],
        check=True,
        capture_output=True,
        timeout=900,
    )
    shutil.copy(f"/{CERTIFICATES}", folder / CERTIFICATES)  # whom this machine trusts
    (folder / "etc" / "pip.conf").write_text(f"[global]\ncert = /{CERTIFICATES}\n")
    packed = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(["docker", "import", "-", BASE], stdin=packed.stdout, check=True)
    assert packed.wait() == 0
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def image(base: None) -> str:
    docker("build", "-t", "nexo", ".")
    return "nexo"


def test_the_commands_of_the_dockerfile(image: str) -> None:
    """A token, a broker, a push; its messages outlive the container."""
    volume = name = f"nexo-test-{os.getpid()}"
    where = ["-v", f"{volume}:/var/lib/nexo"]
    create = ["token", "create", "admin", "--allow", "*:*", "--data", "/var/lib/nexo"]
    ports = ["-p", "127.0.0.1::9325"]

    def start() -> str:
        docker("run", "-d", "--name", name, "--stop-timeout", "30", *where, *ports, image)
        wait_for(lambda: health(name) == "healthy", docker("logs", name))
        return f"nexo://{docker('port', name, '9325/tcp')}"

    try:
        token = docker("run", "--rm", *where, image, *create)
        url = start()
        assert docker("exec", name, "id", "-u") == "10001"
        with pytest.raises(nexo.Unauthorized), nexo.connect(url) as client:
            client.queue("orders", create=True)
        with nexo.connect(url, token=token) as client:
            client.queue("orders", create=True).push(b"hello")
        docker("stop", name)
        assert docker("inspect", name, "--format", "{{.State.ExitCode}}") == "0"
        docker("rm", name)
        with nexo.connect(start(), token=token) as client:
            popped = client.queue("orders").pop()
            assert popped is not None
            assert popped.body == b"hello"
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
        subprocess.run(["docker", "volume", "rm", volume], capture_output=True, check=False)


def health(name: str) -> str:
    return docker("inspect", name, "--format", "{{.State.Health.Status}}")


@pytest.mark.parametrize("profile", ["", "postgresql", "cluster"])
def test_compose(image: str, profile: str, tmp_path: Path) -> None:
    """All services of a profile become healthy, and a message passes."""
    if profile and not docker("image", "ls", "--quiet", "postgres:17"):
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            docker("pull", "postgres:17", timeout=300)
        if not docker("image", "ls", "--quiet", "postgres:17"):
            pytest.skip("the image postgres:17 cannot be pulled here")
    ports = {"": [9325], "postgresql": [9335], "cluster": [9345, 9355, 9365]}[profile]
    # Debian's Compose is older than the name in the file.
    text = (ROOT / "compose.yaml").read_text().replace("\nname: nexo\n", "\n")
    (tmp_path / "compose.yaml").write_text(text)
    options = ["--project-name", "nexo-test", "--project-directory", str(ROOT)]
    options += ["--file", str(tmp_path / "compose.yaml")]
    options += ["--profile", profile] if profile else []

    def compose(*words: str) -> None:
        done = subprocess.run(
            ["docker-compose", *options, *words],
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"

    try:
        compose("up", "--detach", "--build")
        url = "nexo://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        with nexo.connect(url, timeout=60) as client:
            client.queue("orders", create=True).push(b"hello")
        for port in ports:
            with nexo.connect(f"nexo://127.0.0.1:{port}", timeout=60) as client:
                assert client.queue("orders").info().ready == 1
    finally:
        compose("down", "--volumes")
