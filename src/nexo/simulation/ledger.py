"""The ledger: what was sent, delivered and acked, kept outside of the engine, and what must follow.

Two facts carry most checks. A confirmed call is on disk, and so is everything that the engine did
before that call was made (`durable`): a commit takes along whatever changed. And a lease number
carries the boot epoch, so it is known whether something was seen before or after a crash or a
failed commit, where everything that was not durable may be forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.history import History, Violation
from nexo.simulation.records import Acked, Copy, Hold, Letter, QueueBook, Status
from nexo.vocabulary.identity import message_id, parse_message_id

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.vocabulary.message import Message


class Ledger:
    def __init__(self, history: History) -> None:
        self.history = history
        self.letters: dict[bytes, Letter] = {}
        self.copies: dict[str, Copy] = {}
        self.books: dict[int, QueueBook] = {}  # by incarnation
        self.epoch = 0
        self.commits_begun = 0  # the number of the latest one …
        self.commits_done = 0  # … and of the latest that is on disk
        self.latest_ms = 0  # the engine's clock at its highest: a start may set it back
        self.durable = 0  # every line up to this is on disk
        self._durable_at_end: dict[int, int] = {}  # by epoch

    # -- What the world tells -----------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        for earlier in range(self.epoch, epoch):
            self._durable_at_end[earlier] = self.durable
        self.epoch = epoch
        self.commits_done = self.commits_begun  # one that was cut off may have happened
        self.history.add("-- epoch", epoch)

    def confirmed(self, called_index: int) -> None:
        """A call that was made at this line was confirmed."""
        self.durable = max(self.durable, called_index)

    def book_of(self, queue: Queue) -> QueueBook:
        book = self.books.get(queue.incarnation)
        if book is None:
            book = QueueBook(queue.name, queue.incarnation, queue.settings)
            self.books[queue.incarnation] = book
        return book

    # -- Pushes -------------------------------------------------------------------------------

    def sent(self, letters: list[Letter], index: int, now_ms: int) -> None:
        for letter in letters:
            self.letters[letter.body] = letter
            letter.last_called_ms = now_ms
            if letter.status in (Status.UNSENT, Status.REFUSED):
                letter.status = Status.UNKNOWN
                letter.called_index, letter.called_ms = index, now_ms
                letter.epoch, letter.commit = self.epoch, self.commits_begun + 1

    def refused(self, letters: list[Letter]) -> None:
        """None of this was taken; a letter that was never sent before must never be seen."""
        for letter in letters:
            self.letters[letter.body] = letter
            if letter.status is Status.UNSENT:
                letter.status = Status.REFUSED

    def taken_back(self, letters: list[Letter], index: int) -> None:
        """A call was refused after all; what it sent for the first time must never be seen."""
        for letter in letters:
            if letter.called_index == index and not letter.copies:
                letter.status = Status.REFUSED

    def pushed(self, incarnation: int, letters: list[Letter], seqs: list[int], now_ms: int) -> None:
        book = self.books[incarnation]
        if len(seqs) != len(letters):
            raise Violation(
                "an answer names every message", f"{len(seqs)} numbers for {len(letters)} letters"
            )
        for letter, seq in zip(letters, seqs, strict=True):
            letter.last_called_ms = max(letter.last_called_ms, now_ms)  # it may have had to wait
            self._pushed_one(book, letter, message_id(incarnation, seq), seq)

    def _pushed_one(self, book: QueueBook, letter: Letter, known_id: str, seq: int) -> None:
        copy = self.copies.get(known_id)
        if copy is None and letter.key is not None and self._in_doubt(letter):
            # It may repeat one whose push was never answered: whose it is shows when it is seen.
            letter.status = Status.UNKNOWN
            self.copies[known_id] = copy = Copy(known_id, None, book, seq)
            copy.last_seen, copy.since_epoch = letter.called_index, self.epoch
            copy.born_index = len(self.history.lines)
            return
        if copy is None:
            self._check_window(book, letter)
            copy = self._new_copy(known_id, letter, book, seq)
            copy.last_seen = letter.called_index
        if copy.letter is letter:
            letter.status = Status.CONFIRMED
        elif copy.letter is not None and (letter.key is None or copy.letter.key != letter.key):
            raise Violation(
                "an answer names the message that was pushed",
                f"{letter.label} was answered with {copy.id}, which is {copy.label}",
                letter.label,
                copy.label,
            )
        elif copy.letter is not None:
            letter.status = Status.DUPLICATE
            if letter.copies:
                self._broken("a duplicate is not stored", "it was seen before", letter.label)

    def _in_doubt(self, letter: Letter) -> bool:
        """Whether another letter of the same key may have been stored without our knowing."""
        return any(
            other is not letter
            and other.key == letter.key
            and other.home == letter.home
            and other.status is Status.UNKNOWN
            and not other.copies
            for other in self.letters.values()
        )

    def _check_window(self, book: QueueBook, letter: Letter) -> None:
        """A new message must not repeat the key of one that came within the window; a purge
        forgets keys."""
        for other in self.letters.values():
            if (
                letter.key is not None
                and other.key == letter.key
                and other is not letter
                and book.incarnation in other.copies
                and other.called_ms <= letter.called_ms
                and letter.last_called_ms < other.called_ms + book.window_ms
                and not any(line > other.called_index for line in book.cleared)
            ):
                raise Violation(
                    "a repeated key is not stored within the window",
                    f"{letter.label} and {other.label} in {book.name} have key {letter.key}",
                    letter.label,
                    other.label,
                )

    def _new_copy(self, known_id: str, letter: Letter, book: QueueBook, seq: int) -> Copy:
        born = parse_message_id(known_id)[0]
        twin = letter.copies.get(born)
        if twin is not None:
            raise Violation(
                "a message is stored once",
                f"{letter.label} is both {twin.id} and {known_id} in queue {book.name}",
                letter.label,
            )
        copy = Copy(known_id, letter, book, seq)
        copy.since_epoch, copy.born_index = letter.epoch, len(self.history.lines)
        self.copies[known_id] = letter.copies[born] = copy
        book.join_group(copy)
        return copy

    # -- Who a message is ---------------------------------------------------------------------

    def identify(self, queue: Queue, message: Message) -> Copy:
        """The copy that a message is; its contents must be those that were sent."""
        letter = self.letters.get(message.body)
        where = f"queue {queue.name}, message {message.id} seq={message.seq}"
        if letter is None:
            raise Violation("bodies are unchanged", f"{where}: {message.body!r:.60} was never sent")
        if letter.status in (Status.REFUSED, Status.DUPLICATE):
            self._broken(
                "what was refused or repeated never appears",
                f"{where} was {letter.status.name}",
                letter.label,
            )
        copy = self.copies.get(message.id)
        if copy is None:
            copy = self._new_copy(message.id, letter, self._birthplace(queue, message), message.seq)
        elif copy.letter is None:
            self._reveal(copy, letter, where)
        elif copy.letter is not letter:
            self._broken(
                "an id stands for one message",
                f"{where} has the body of {letter.label}, not of {copy.label}",
                copy.label,
            )
        self._check_columns(letter, message, where)
        return copy

    def _reveal(self, copy: Copy, letter: Letter, where: str) -> None:
        """A copy that a repetition was answered with is seen: now it is known whose it is."""
        born = parse_message_id(copy.id)[0]
        twin = letter.copies.get(born)
        if twin is not None and twin is not copy:
            self._broken("a message is stored once", f"{where} is {twin.id} too", letter.label)
        copy.letter = letter
        letter.copies[born] = copy
        copy.book.join_group(copy)

    def _birthplace(self, queue: Queue, message: Message) -> QueueBook:
        born = parse_message_id(message.id)[0]
        return self.books.get(born) or self.book_of(queue)

    def _check_columns(self, letter: Letter, message: Message, where: str) -> None:
        sent = (letter.group, letter.attributes)
        found = (message.group_id, message.attributes)
        if sent != found or (not letter.is_published and letter.priority != message.priority):
            self._broken(
                "what was sent arrives",
                f"{where}: {found} and priority {message.priority}, sent {sent} "
                f"and priority {letter.priority}",
                letter.label,
            )

    # -- What is sure -------------------------------------------------------------------------

    def is_sure(self, index: int, epoch: int) -> bool:
        """Whether what happened at this line, in this epoch, holds now."""
        return epoch == self.epoch or index <= self._durable_at_end.get(epoch, 0)

    def held_until(self, hold: Hold) -> int:
        """Until when nobody else may get the message; 0 if nothing is promised."""
        if not hold.live:
            return 0
        sure = [at for at, line in enumerate(hold.deadlines) if self.is_sure(line[0], line[1])]
        if not sure or sure[0] != 0:
            return 0  # the delivery itself may be forgotten
        return min(line[2] for line in hold.deadlines[sure[-1] :])

    def is_held(self, copy: Copy, queue: str, lease: int, now_ms: int) -> bool:
        """Whether the engine must still know this delivery."""
        hold = copy.hold_on(queue, lease)
        return (
            hold is not None
            and copy.acked is Acked.NO
            and now_ms < self.held_until(hold)
            and not any(line > hold.deadlines[0][0] for line in copy.book.cleared)
        )

    def may_be_gone(self, copy: Copy) -> str:
        """Why a copy need not be there any more; empty if it must."""
        if copy.acked is not Acked.NO:
            return "acked"
        books = self.places_after(copy.book)
        if any(line > copy.last_seen for book in books for line in book.cleared):
            return "cleared"
        since_ms = copy.letter.earliest_ms if copy.letter is not None else 0
        if any(self.latest_ms - since_ms >= book.retention_ms for book in books):
            return "retention"
        return ""

    def places_after(self, book: QueueBook) -> list[QueueBook]:
        """Where messages of a queue may have gone unseen."""
        names, found = set(book.dead_letter_names | book.feeds), [book]
        while True:
            more = [
                other for other in self.books.values() if other.name in names and other not in found
            ]
            if not more:
                return found
            found += more
            for other in more:
                names |= other.dead_letter_names | other.feeds

    def _broken(self, promise: str, found: str, label: str) -> None:
        raise Violation(promise, f"{label} {found}", label)
