"""What is known of a word before its neighbours are looked at: the word itself and how it is written.

    x_t = [E[w_t]; F[w_t in small letters]; c_t; A[p_1]; A[s_1]; …; A[p_k]; A[s_k]; S[shape]]

    E, F      a vector for each word of the vocabulary as it is written, and whatever its case; one for all unknown
    c_t       max over i of W [L[l_{i-1}]; L[l_i]; L[l_{i+1}]] + b, over the letters l_i (dos Santos and Zadrozny 2014)
    p_i, s_i  its first and its last i letters, in lower case
    shape     capital, small, digit, other letter, sign; runs as one: "McDonald's" is Aa Aa ' a -> XxXx.x

So that a word that was never seen still says something: "-ing", "Xx", "dd.dd". Affixes and shapes have no vocabulary:
a number made of their letters (a hash) chooses one of so many vectors, and two that are unlike may share one.
In training a share of the words is read as unknown, so that the model learns to do without E and F, and as many again
as known only in another case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import Batch
from segue.layers.convolution import windows

UNK = 1
"""The id of every word that the vocabulary does not hold."""
ALPHABET = 4096
"""Letters with a vector of their own: all alphabets up to Thai and Tibetan; those beyond share them."""
LETTER, AFFIX = 32, 16
"""Numbers in the vector of a letter; of an affix or a shape."""
BUCKETS, SHAPES = 4093, 509
"""Vectors for the affixes of one length at one end, and for shapes: primes, so that a remainder depends on all."""
SPREAD = 0.1
"""Deviation of the first vectors of words."""
REACH = 3
"""Letters that one number of c_t looks at."""


@dataclass(frozen=True)
class WordFeatures:
    """A tagger's [model.word]: what it reads of a word beside the vector of the word itself."""

    folded: bool = True
    """Second embedding of each word in lower case."""
    letters: int = 64
    """Character-level CNN: width of the vector that it makes of a word's letters (0: none)."""
    affixes: int = 3
    """Embeddings of prefixes and suffixes of up to this many letters (0: none)."""
    shapes: bool = True
    """Embedding of the word shape: upper case, lower case, digits, other signs."""

    def __post_init__(self) -> None:
        if self.letters < 0:
            raise ValueError(f"letters={self.letters} must be 0 (do not look at letters) or more")
        if not 0 <= self.affixes <= LONGEST_AFFIX:
            raise ValueError(f"affixes={self.affixes} must be from 0 (none) to {LONGEST_AFFIX} letters")


class Word(nn.Module):
    """The vector of each word, and beside it its `features`; a share of the words is `unknown` in training."""

    lower_C: Tensor
    class_C: Tensor

    def __init__(self, vocab_size: int, embedding: int, features: WordFeatures, unknown: float) -> None:
        super().__init__()
        folded, letters, affixes, shapes = features.folded, features.letters, features.affixes, features.shapes
        self.unknown, self.affixes = unknown, affixes
        self.vectors = nn.Embedding(vocab_size, embedding)
        self.folded = nn.Embedding(vocab_size, embedding) if folded else None
        self.width = embedding * (1 + folded) + letters + 2 * affixes * AFFIX + shapes * AFFIX
        self.letter = nn.Embedding(ALPHABET, LETTER) if letters else None
        self.spelling = nn.Linear(REACH * LETTER, letters) if letters else None
        self.affix = nn.Embedding(2 * affixes * BUCKETS, AFFIX) if affixes else None
        self.shape = nn.Embedding(SHAPES, AFFIX) if shapes else None
        self._initialise()
        lower, classes = _alphabet()
        self.register_buffer("lower_C", torch.tensor(lower), persistent=False)
        self.register_buffer("class_C", torch.tensor(classes), persistent=False)

    def _initialise(self) -> None:
        """Begin with small vectors: training changes the vector of a rare word little, and its first numbers are noise.
        Affixes and shapes begin at zero, so that one that was never seen adds nothing."""
        for words in (self.vectors, self.folded):
            if words is not None:
                nn.init.normal_(words.weight, std=SPREAD)
        for table in (self.affix, self.shape):
            if table is not None:
                nn.init.zeros_(table.weight)

    def forward(self, batch: Batch) -> Tensor:
        tokens_BT, folded_BT = batch.tokens_BT, batch.tokens_BT if batch.folded_BT is None else batch.folded_BT
        if self.training and self.unknown:
            draw_BT = torch.rand(tokens_BT.shape, device=tokens_BT.device)
            tokens_BT = tokens_BT.masked_fill(draw_BT < (1 + (self.folded is not None)) * self.unknown, UNK)
            folded_BT = folded_BT.masked_fill(draw_BT < self.unknown, UNK)
        parts = [self.vectors(tokens_BT)]
        if self.folded is not None:
            parts.append(self.folded(folded_BT))
        if self.letter is not None or self.affix is not None or self.shape is not None:
            if batch.chars_BTC is None:
                raise ValueError("this model looks into words, and the batch has no letters (chars_BTC)")
            # Only what is under the mask is read; the rest stays zero.
            features_NW = self._features(batch.chars_BTC[batch.mask_BT])
            parts.append(features_NW.new_zeros(*tokens_BT.shape, features_NW.shape[-1]))
            parts[-1][batch.mask_BT] = features_NW
        return torch.cat(parts, -1)

    def _features(self, chars_NC: Tensor) -> Tensor:
        """Spelling, affixes and shape of N words, side by side."""
        chars_NC = torch.where(chars_NC > 0, (chars_NC - 1) % (ALPHABET - 1) + 1, 0)
        parts = []
        if self.letter is not None and self.spelling is not None:
            near_NCD = windows(self.letter(chars_NC) * (chars_NC > 0).unsqueeze(-1), REACH)
            spelt_NCD = self.spelling(near_NCD).masked_fill((chars_NC == 0).unsqueeze(-1), -torch.inf)
            parts.append(spelt_NCD.amax(1).clamp(min=-1e4))  # a word of no letters has no -inf in it
        if self.affix is not None:
            parts.append(self.affix(affix_buckets(self.lower_C[chars_NC], self.affixes)).flatten(1))
        if self.shape is not None:
            parts.append(self.shape(shape_buckets(self.class_C[chars_NC])))
        return torch.cat(parts, -1)


def affix_buckets(chars_NC: Tensor, longest: int) -> Tensor:
    """(N, 2 · longest): which vector each beginning and each end of a word has, from 1 letter to `longest`.

    A word that is shorter than the affix is its own affix, with nothing where letters are missing.
    """
    lengths_N1 = (chars_NC > 0).sum(1, keepdim=True)
    places_K = torch.arange(longest, device=chars_NC.device)
    first_NK = F.pad(chars_NC, (0, longest))[:, :longest]
    from_end_NK = lengths_N1 - 1 - places_K
    last_NK = chars_NC.gather(1, from_end_NK.clamp(min=0)) * (from_end_NK >= 0)
    factors_K = torch.tensor(_FACTORS, device=chars_NC.device)[:longest]
    # The sum over the first i letters of letter · factor, for every i at once.
    sums = [(side_NK * factors_K).cumsum(1) % BUCKETS for side_NK in (first_NK, last_NK)]
    return torch.cat(sums, 1) + BUCKETS * torch.arange(2 * longest, device=chars_NC.device)


def shape_buckets(classes_NC: Tensor) -> Tensor:
    """(N,): which vector the shape of a word has, given the class of each letter (0 after the last)."""
    begins_NC = (classes_NC != F.pad(classes_NC, (1, 0))[:, :-1]) & (classes_NC > 0)
    run_NC = begins_NC.cumsum(1)
    weights_NC = (run_NC * 7919 + 13) ** 2 % 1_000_003
    return (begins_NC * classes_NC * weights_NC).sum(1) % SHAPES


_FACTORS = (1, 4099, 131_101, 8_388_617, 268_435_459, 4_294_967_311)
LONGEST_AFFIX = len(_FACTORS)


@cache
def _alphabet() -> tuple[list[int], list[int]]:
    """For each letter its small form, and its class: 1 capital, 2 small, 3 digit, 4 another letter, 5 a sign."""
    letters = [chr(code) for code in range(ALPHABET - 1)]
    small = [c.lower() if len(c.lower()) == 1 and ord(c.lower()) < ALPHABET - 1 else c for c in letters]
    kinds = [1 if c.isupper() else 2 if c.islower() else 3 if c.isdigit() else 4 if c.isalpha() else 5 for c in letters]
    return [0, *(ord(c) + 1 for c in small)], [0, *kinds]
