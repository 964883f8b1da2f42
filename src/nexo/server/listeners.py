"""Which process listens on a port: Linux tells in /proc, elsewhere nobody is asked."""

from __future__ import annotations

from pathlib import Path

# The state of a socket that listens, in /proc/net/tcp and /proc/net/udp.
_LISTENING = {"tcp": "0A", "udp": "07"}
_PROC = Path("/proc")


def listener(port: int, protocol: str = "tcp") -> str | None:
    """Who listens on a port of this machine, as `process 12 (python3)`; None if not known:
    the processes of other users keep their sockets to themselves."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, protocol)}
    if not sockets:
        return None
    for process in _PROC.iterdir():
        if process.name.isdigit() and _holds(process, sockets):
            return f"process {process.name}{_name(process)}"
    return None


def _inodes(port: int, protocol: str) -> list[str]:
    found = []
    for table in (protocol, f"{protocol}6"):
        try:
            lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            local, state, inode = columns[1], columns[3], columns[9]
            if state == _LISTENING[protocol] and int(local.rpartition(":")[2], 16) == port:
                found.append(inode)
    return found


def _holds(process: Path, sockets: set[str]) -> bool:
    try:
        return any(_target(each) in sockets for each in (process / "fd").iterdir())
    except OSError:  # it ended, or it is not ours to look at
        return False


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _name(process: Path) -> str:
    try:
        return f" ({(process / 'comm').read_text(encoding='utf-8').strip()})"
    except OSError:
        return ""
