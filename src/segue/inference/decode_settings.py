"""Settings of decoding, the recipe's [decode]. Apart from decode.py, so that reading a recipe needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

OF_SOURCES = ("coverage_penalty", "n_best", "length_ratio", "empty", "prefix", "threshold")
"""Keys that matter only where a text is written for a source, or an answer is found in one."""
_MORE = 20
"""Tokens that a target may have beyond decode.length_ratio: the shortest source may have an answer."""


@dataclass(frozen=True)
class Config:
    """Settings of decoding; the recipe's [decode]."""

    max_tokens: int = 200
    """Write at most this many tokens."""
    temperature: float = 1.0
    """Sampling temperature: above 1 more surprising, below 1 safer, 0 greedy (always the likeliest token)."""
    top_k: int = 0
    """Top-k sampling: sample from the k likeliest tokens (0: from all)."""
    top_p: float = 1.0
    """Nucleus sampling: sample from the fewest tokens that together have this probability (1: from all)."""
    beam: int = 0
    """Width of the beam search: beginnings of a text that are kept at each step; 0 samples instead, 1 is greedy."""
    length_penalty: float = 0.6
    """Beam search: rank texts by log p / ((5 + length) / 6)^this; 0 compares plain log p, which favours short texts."""
    coverage_penalty: float = 0.0
    """Beam search with attention: rank texts lower that leave parts of the source without attention; 0 to about 0.4."""
    n_best: int = 1
    """How many texts to give for a source: the best of a beam, or so many that are drawn; or how many answers."""
    threshold: float = 0.0
    """Answers in a text: say that there is none unless log p of an answer exceeds that of none by so much."""
    no_repeat: int = 0
    """Never write the same n-gram of so many tokens twice in a text (0: anything may come again)."""
    length_ratio: float = 3.0
    """Write at most this many tokens for each token of the source, and 20 more (0: max_tokens alone is the limit)."""
    empty: bool = True
    """A text may be empty; false: it has at least one token, as is usual for translations (weak models favour none)."""
    prefix: str = ""
    """The target begins with this text; the model writes what follows."""
    start: bool = True
    """Feed the start mark before the prompt, as in training; false: only if the prompt is empty, as GPT-2 does."""
    seed: int = 0
    """Random seed of sampling: the same seed writes the same text."""
    stop: tuple[str, ...] = ()
    """Stop texts, comma separated: stop before the first of them that appears."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "n_best"):
            self._at_least(name, 1)
        for name in ("top_k", "beam", "seed", "temperature", "length_penalty", "coverage_penalty", "no_repeat"):
            self._at_least(name, 0)
        self._at_least("length_ratio", 0)
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold is {self.threshold}; it must be a number.")
        if "" in self.stop:
            raise ValueError("stop has an empty text in it, which stands everywhere; leave it out.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1.")
        if self.beam and (self.top_k or self.top_p < 1 or self.temperature not in (0, 1)):
            raise ValueError(
                f"beam is {self.beam}, and a beam draws nothing: set beam=0, or temperature=1, top_k=0 and top_p=1."
            )
        if self.beam and self.n_best > self.beam:
            raise ValueError(
                f"n_best is {self.n_best} and beam is {self.beam}: a beam finds as many texts as it is wide. Set beam "
                f"to {self.n_best} or more, or to 0 to draw."
            )
        if self.greedy and self.n_best > 1:
            raise ValueError(f"n_best is {self.n_best}, and the likeliest text is one. Set a temperature, or a beam.")

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not (value >= least and math.isfinite(value)):
            raise ValueError(f"{name} is {value}; it must be {least} or more.")

    def limit(self, source: int | None) -> int:
        """The most tokens of a text, with a source of so many tokens or without one."""
        if source is None or not self.length_ratio:
            return self.max_tokens
        return min(self.max_tokens, math.ceil(self.length_ratio * source) + _MORE)

    def starts(self, prompt: Sequence[int]) -> bool:
        """Whether the start mark is fed before these ids."""
        return self.start or not prompt

    @property
    def greedy(self) -> bool:
        """True where every token is the likeliest one."""
        return self.beam == 1 or (self.beam == 0 and self.temperature == 0)
