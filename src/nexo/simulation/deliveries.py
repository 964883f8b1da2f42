"""What must hold whenever a message is delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.history import Violation
from nexo.simulation.records import Acked, Hold
from nexo.vocabulary.limits import LEASE_BITS
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.machine.queue import Queue
    from nexo.simulation.ledger import Ledger
    from nexo.simulation.records import Copy, Letter, QueueBook
    from nexo.vocabulary.message import Message


class Deliveries:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def delivered(self, queue: Queue, messages: Sequence[Message], now_ms: int) -> list[Copy]:
        """Messages came on a lease, in this order."""
        ledger, book, copies = self._ledger, self._ledger.book_of(queue), []
        highest_priority = 255
        for message in messages:
            index = ledger.history.add(
                "delivered",
                queue.name,
                self._label(message),
                f"seq={message.seq}",
                f"lease={message.lease:#x}",
                f"attempts={message.attempts}",
                f"until={message.visible_ms}",
            )
            copy = ledger.identify(queue, message)
            copies.append(copy)
            is_here = copy.book is book and copy.seq == message.seq
            if is_here and copy.hold is not None and message.lease < copy.hold.lease:
                continue  # it was delivered before a reload, and is seen after the next delivery
            self._take(copy, queue, message, now_ms)
            if book.is_fifo and not book.has_claims:
                self._check_group(copy, message.lease, now_ms)
            self._check_attempts(copy, message)
            if message.priority > highest_priority:
                _broken(copy, "higher priorities go first", "it follows a lower one in its pop")
            highest_priority = message.priority
            assert copy.letter is not None
            book.note_order(message, bool(copy.letter.due_ms or queue.settings.delay_ms))
            is_received = message.state is State.RECEIVED
            copy.hold = Hold(
                message.lease, index, message.attempts, message.visible_ms, is_received
            )
            copy.seen, copy.last_seen = True, index
        return copies

    def taken(self, queue: Queue, message: Message, now_ms: int) -> Copy:
        """A claim has got this message."""
        copy = self._ledger.identify(queue, message)
        self._take(copy, queue, message, now_ms)
        return copy

    def _take(self, copy: Copy, queue: Queue, message: Message, now_ms: int) -> None:
        """Somebody gets a message, by a delivery or by a claim."""
        self._check_not_acked(copy, queue)
        hold = copy.hold
        if hold is not None and now_ms < self._ledger.held_until(hold):
            _broken(
                copy,
                "a leased message is delivered to nobody else",
                f"was on lease {hold.lease:#x} until {hold.deadlines[-1][2]}, now is {now_ms}",
            )
        if hold is not None and hold.is_leaving:
            hold.is_late |= now_ms >= min(deadline_ms for _, _, deadline_ms in hold.deadlines)
        self._find(copy, queue, message)
        hold = copy.hold
        if hold is not None and not hold.live and now_ms < hold.returned[2]:
            line, epoch, not_before_ms = hold.returned
            if self._ledger.is_sure(line, epoch) and not hold.is_late:
                _broken(copy, "a nacked message waits", f"until {not_before_ms}, now is {now_ms}")
        if copy.letter is not None and self._ledger.commits_done < copy.letter.commit:
            _broken(copy, "nothing is delivered before it is on disk", "is in no commit yet")
        if copy.letter is not None and now_ms < copy.letter.due_ms:
            _broken(copy, "a delayed message waits", f"until {copy.letter.due_ms}, not {now_ms}")
        if copy.letter is not None and copy.letter.is_published:
            self._check_delay(copy, copy.letter, queue, now_ms)

    def _check_delay(self, copy: Copy, letter: Letter, queue: Queue, now_ms: int) -> None:
        """What comes through a binding waits as everything does that comes to the queue; only
        what is moved there does not."""
        fed = any(queue.name in book.feeds for book in self._ledger.books.values())
        due_ms = letter.earliest_ms + queue.settings.delay_ms
        if now_ms < due_ms and not fed:
            _broken(copy, "a queue's delay holds for all", f"until {due_ms}, not {now_ms}")

    def _label(self, message: Message) -> str:
        letter = self._ledger.letters.get(message.body)
        return letter.label if letter is not None else message.id

    def _check_not_acked(self, copy: Copy, queue: Queue) -> None:
        ledger = self._ledger
        if copy.acked is Acked.CONFIRMED:
            _broken(copy, "what was acked is gone", "was acked, and the ack confirmed")
        if copy.acked is Acked.UNKNOWN:
            if copy.acked_epoch == ledger.epoch:
                _broken(copy, "what was acked is gone", "was acked in this very epoch")
            copy.acked = Acked.NO  # the ack was lost in a crash or a failed commit
        purged = copy.book.emptied_index
        if purged > copy.last_seen and copy.book.name == queue.name and not copy.book.feeds:
            fed = any(copy.book.name in book.feeds for book in ledger.books.values())
            if not fed and copy.born_index < purged:
                _broken(copy, "what was purged is gone", f"the purge is line {purged}")

    # -- Where it is --------------------------------------------------------------------------

    def _find(self, copy: Copy, queue: Queue, message: Message) -> None:
        """A message is in one queue; it gets to another as a dead letter or by a redrive."""
        ledger, book = self._ledger, self._ledger.book_of(queue)
        if copy.book is not book or copy.seq != message.seq:
            if not self._reachable(copy.book, book):
                _broken(
                    copy,
                    "a message is in one queue",
                    f"was in {copy.book.name} as {copy.seq}, and is in {book.name} "
                    f"as {message.seq}",
                )
            copy.book, copy.seq, copy.hold = book, message.seq, None
            copy.since_epoch = 0  # it may have come at any time
            book.join_group(copy)
        fate = message.dead_letter
        if fate is None:
            return
        sources = [each for each in ledger.books.values() if each.name == fate.source]
        if not any(book.name in each.dead_letter_names for each in sources) or not fate.reason:
            _broken(copy, "a dead letter says where it came from and why", f"{fate}")
        if not any(each.has_claims or fate.attempts >= each.attempts_least for each in sources):
            _broken(copy, "a dead letter is out of attempts", f"{fate}")

    def _reachable(self, before: QueueBook, after: QueueBook) -> bool:
        books = self._ledger.places_after(before)
        if before is not after:
            return after in books
        return any(after.name in book.feeds for book in books)

    # -- Attempts -----------------------------------------------------------------------------

    def _check_attempts(self, copy: Copy, message: Message) -> None:
        ledger, book, hold = self._ledger, copy.book, copy.hold
        attempts = message.attempts
        if book.has_claims:
            return  # replays count too, and nobody sees all of them
        if book.attempts_max is not None and attempts > book.attempts_max:
            _broken(
                copy,
                "attempts stay within the limit",
                f"attempt {attempts}, not {book.attempts_max}",
            )
        epoch = message.lease >> LEASE_BITS
        if hold is None:
            # A crash may come between a delivery and the moment when somebody sees it.
            most = 1 + epoch - copy.since_epoch
            if not 1 <= attempts <= most:
                _broken(copy, "an attempt is a delivery", f"attempt {attempts} is the first seen")
            return
        expected = hold.attempts + hold.counted
        if hold.epoch == epoch:
            if attempts != expected and not (hold.is_late and attempts == hold.attempts + 1):
                _broken(
                    copy,
                    "an attempt is a delivery",
                    f"attempt {attempts} follows attempt {hold.attempts} of the same epoch",
                )
            return
        least = expected if ledger.is_sure(hold.deadlines[0][0], hold.epoch) else 1
        if not hold.live and (hold.is_late or not ledger.is_sure(*hold.returned[:2])):
            least = min(least, hold.attempts)  # it may have been given back since, unnoticed
        if not least <= attempts <= hold.attempts + 1 + epoch - hold.epoch:
            _broken(
                copy,
                "a crash may forget an attempt, and invents none",
                f"attempt {attempts} follows attempt {hold.attempts} of epoch {hold.epoch}",
            )

    # -- Groups -------------------------------------------------------------------------------

    def _check_group(self, copy: Copy, lease: int, now_ms: int) -> None:
        """In a FIFO queue, what comes earlier in the group is gone or comes along."""
        assert copy.letter is not None
        own_lease = copy.hold.lease if copy.hold is not None else 0
        for other in copy.book.groups.get(copy.letter.group, ()):
            if other.book is not copy.book or other is copy:
                continue
            hold = other.hold
            if other.seq > copy.seq:
                if hold is not None and lease > hold.lease > own_lease:
                    _broken(
                        copy,
                        "a group keeps its order",
                        f"comes after {other.label}, which was delivered on {hold.lease:#x}",
                    )
            elif hold is not None and hold.lease == lease:
                continue
            elif other.acked is not Acked.NO:
                in_doubt = other.acked is Acked.UNKNOWN and other.acked_epoch == self._ledger.epoch
                if in_doubt and self._ledger.commits_done < other.acked_commit:
                    _broken(
                        copy,
                        "a group waits until the ack is on disk",
                        f"was delivered before the ack of {other.label} could be",
                    )
            elif not self._may_have_left(other, now_ms):
                _broken(
                    copy,
                    "a group waits for its first",
                    f"was delivered before {other.label} (seq={other.seq}) was done",
                )

    def _may_have_left(self, copy: Copy, now_ms: int) -> bool:
        letter = copy.letter
        if letter is not None and not copy.seen and letter.status.name != "CONFIRMED":
            return True
        if self._ledger.may_be_gone(copy):
            return True
        hold = copy.hold
        attempts = hold.attempts if hold is not None else 0
        # A crash may hide one delivery from us in each epoch, and with it the last attempt.
        hidden = self._ledger.epoch - (hold.epoch if hold is not None else copy.since_epoch)
        out = attempts + hidden >= copy.book.attempts_least or copy.book.has_claims
        return out and not (hold is not None and now_ms < self._ledger.held_until(hold))


def _broken(copy: Copy, promise: str, found: str) -> None:
    raise Violation(promise, f"{copy.label} ({copy.id}) {found}", copy.label)
