"""Stream generated text token by token: whole characters only, and nothing from a stop text on.

A token may bring only part of a character's bytes: the text then ends in a replacement character, which waits until
the next token shows what it becomes. What may be the beginning of a stop text waits in the same way, since that may
go on over several tokens. A tokenizer that loses text (wordpiece) corrects spaces later: its text is known only at the
end.

The stop text that is complete first ends the text; if several end together, the longest does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from segue.tokens.tokenizer import REPLACEMENT, Tokenizer


def cut(text: str, stops: Sequence[str]) -> str:
    """Cut a text at its first stop text."""
    found = [(begin + len(stop), begin) for stop in stops if (begin := text.find(stop)) >= 0]
    return text[: min(found)[1]] if found else text


def follows(tokenizer: Tokenizer, start: Sequence[int], ids: Sequence[int], stops: Sequence[str] = ()) -> str:
    """Decode what `ids` add to the text of `start`."""
    return cut(tokenizer.decode([*start, *ids])[len(tokenizer.decode(start)) :], stops)


class StreamedText:
    """The text of `follows`, token by token."""

    def __init__(self, tokenizer: Tokenizer, start: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        # One token before is enough to know whether a space stands between.
        self._ids = list(start[-1:] if tokenizer.lossless else start)
        self._sent = len(tokenizer.decode(self._ids))
        self._waiting = ""
        self.ended = False
        """Whether a stop text has come, so that no more text is added."""

    def add(self, token: int) -> str:
        """Add a token; return the characters that are certain now and were not before."""
        self._ids.append(token)
        if not self._tokenizer.lossless:
            return ""
        text = self._tokenizer.decode(self._ids)
        whole = not text.endswith(REPLACEMENT)
        new = text[self._sent :] if whole else text[self._sent : -1]
        self._sent += len(new)
        if whole:
            self._ids = [token]
            self._sent = len(self._tokenizer.decode(self._ids))
        return self._certain(new)

    def rest(self) -> str:
        """Return the text that is still waiting, when no token follows."""
        last = self._certain(self._tokenizer.decode(self._ids)[self._sent :])
        return last if self.ended else last + self._waiting

    def _certain(self, new: str) -> str:
        if self.ended:
            return ""
        text = self._waiting + new
        shown = cut(text, self._stops)
        self.ended = len(shown) < len(text)
        if self.ended:
            return shown
        longest = max(map(len, self._stops), default=0)
        waits = next((n for n in range(min(longest - 1, len(text)), 0, -1) if self._may_stop(text[-n:])), 0)
        self._waiting = text[len(text) - waits :]
        return text[: len(text) - waits]

    def _may_stop(self, tail: str) -> bool:
        return any(stop.startswith(tail) for stop in self._stops)


def watcher(
    tokenizer: Tokenizer, starts: Sequence[Sequence[int]], stops: Sequence[str]
) -> Callable[[int, int], bool] | None:
    """Return a function of each written (row, id) that says whether a stop text has come; None without stop texts."""
    texts = [StreamedText(tokenizer, start, stops) for start in starts]

    def ends(row: int, token: int) -> bool:
        texts[row].add(token)
        return texts[row].ended

    return ends if stops else None
