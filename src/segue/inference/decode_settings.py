"""Settings of decoding, the recipe's [decode]. Apart from decode.py, so that reading a recipe needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
    """Width of the beam search; 0 samples instead, 1 is greedy."""
    length_penalty: float = 0.6
    """Beam search only: above 0 favours longer texts; 0 compares plain probabilities."""
    seed: int = 0
    """Random seed of sampling: the same seed writes the same text."""
    stop: tuple[str, ...] = ()
    """Stop texts, comma separated: stop before the first of them that appears."""

    def __post_init__(self) -> None:
        self._at_least("max_tokens", 1)
        for name in ("top_k", "beam", "seed", "temperature", "length_penalty"):
            self._at_least(name, 0)
        if "" in self.stop:
            raise ValueError("stop has an empty text in it, which stands everywhere; leave it out.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1.")
        if self.beam and (self.top_k or self.top_p < 1 or self.temperature not in (0, 1)):
            raise ValueError(
                f"beam is {self.beam}, and a beam draws nothing: leave out top_k, top_p and temperature, or beam."
            )

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not (value >= least and math.isfinite(value)):
            raise ValueError(f"{name} is {value}; it must be {least} or more.")

    @property
    def greedy(self) -> bool:
        """True where every token is the likeliest one."""
        return self.beam == 1 or (self.beam == 0 and self.temperature == 0)
