"""The SequenceNumber of FIFO queues: twenty digits that only grow."""

_FIRST = 18_000_000_000_000_000_000  # so that all of them have twenty digits


def sequence_number(seq: int) -> str:
    return str(_FIRST + seq)
