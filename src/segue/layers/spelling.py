"""A vector for each word, from its letters: convolutions, the maximum over the word, highways, a linear layer.

    c_i   = relu(F_k [l_i; …; l_{i+k-1}] + b_k)       F_k: filters over k letters in a row (Kim et al. 2016)
    m     = [max over i of c_i, for every width k]     zero vectors stand behind the last letter
    y     = g * relu(W m + b) + (1 - g) * m,   g = s(W_g m + b_g)     a highway (Srivastava et al. 2015), one or more
    x     = P y + p

A word is begin, its letters, end. STOP, the marks, and an unknown word whose letters nobody knows are words of one
letter, which no text has. There is no vocabulary of letters: those up to Thai and Tibetan have a vector each, and those
beyond share them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.spelled_words import LONGEST, pad_letters, spelt
from segue.layers.word_features import ALPHABET

BEGIN, END, FIRST = ALPHABET, ALPHABET + 1, ALPHABET + 2
"""The letters around every word, and the first of the letters that special ids have."""
CARRY = -1.0
"""Bias that the gates of a highway begin with: more than half of a vector goes on as it is."""
_SHORT = 8
"""Letters of most words. On a CPU longer words are read by themselves, so that the others are padded less."""


class Highway(nn.Module):
    """y = g * relu(W x + b) + (1 - g) * x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * width)
        nn.init.constant_(self.both.bias.data[width:], CARRY)

    def forward(self, x: Tensor) -> Tensor:
        new, gate = self.both(x).chunk(2, -1)
        return torch.lerp(x, new.relu(), gate.sigmoid())


class Spelling(nn.Module):
    """The vectors of words by their letters, and the letters of every word of the vocabulary."""

    letters_VC: Tensor

    def __init__(
        self, ids: int, special: Sequence[int], letter: int, filters: Sequence[int], highways: int, width: int
    ):
        """`filters`: how many there are over 1 letter, over 2, and so on. `special`: ids that are no text."""
        super().__init__()
        self.letter = nn.Embedding(FIRST + len(special), letter, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(letter, count, k) for k, count in enumerate(filters, 1))
        self.highways = nn.ModuleList(Highway(sum(filters)) for _ in range(highways))
        self.out = nn.Linear(sum(filters), width)
        self.special = tuple(special)
        self.register_buffer("letters_VC", torch.zeros(ids, LONGEST + 2, dtype=torch.int32))
        self.spell([str(i) for i in range(ids)])  # a word is its number until the vocabulary is known

    def spell(self, words: Sequence[str]) -> None:
        """Take the words of the vocabulary, in the order of their ids; what follows is special."""
        if self.letters_VC.is_meta:  # shapes alone
            return
        chars_VC = torch.from_numpy(pad_letters([spelt(words)], len(words))[0])
        letters_VC = framed(chars_VC)
        for place, i in enumerate(self.special):
            letters_VC[i] = 0
            letters_VC[i, :3] = torch.tensor([BEGIN, FIRST + place, END])
        self.letters_VC[: len(letters_VC)].copy_(letters_VC)

    def forward(self, tokens_BT: Tensor, chars_BTC: Tensor | None = None) -> Tensor:
        """x_BTD. `chars_BTC`: the letters of words that are not in the vocabulary, 0 elsewhere."""
        if tokens_BT.device.type != "cpu":  # every place is read, so that all shapes are fixed
            letters_BTC = self.letters_VC[tokens_BT]
            if chars_BTC is not None:
                letters_BTC = torch.where(chars_BTC[:, :, :1] > 0, framed(chars_BTC), letters_BTC)
            return self.vectors(letters_BTC.flatten(0, 1)).view(*tokens_BT.shape, -1)
        ids_U, of_BT = torch.unique(tokens_BT, return_inverse=True)
        letters_UC = self.letters_VC[ids_U]
        if chars_BTC is not None:
            unknown_BT = chars_BTC[:, :, 0] > 0
            letters_NC = framed(chars_BTC[unknown_BT])
            of_BT = of_BT.masked_scatter(unknown_BT, len(ids_U) + torch.arange(len(letters_NC)))
            letters_UC = torch.cat([letters_UC, letters_NC])
        return F.embedding(of_BT, self._by_length(letters_UC))

    def _by_length(self, letters_UC: Tensor) -> Tensor:
        """The vectors of distinct words, short ones and long ones apart."""
        long_U = letters_UC[:, _SHORT + 2] > 0
        groups = [places_N for places_N in ((~long_U).nonzero()[:, 0], long_U.nonzero()[:, 0]) if len(places_N)]
        parts = []
        for places_N in groups:
            some_NC = letters_UC[places_N]
            parts.append(self.vectors(some_NC[:, : max(1, int((some_NC > 0).sum(1).max()))]))
        return torch.cat(parts)[torch.cat(groups).argsort()]

    def vectors(self, letters_NC: Tensor) -> Tensor:
        """x_ND of N words."""
        x_NDC = self.letter(letters_NC).transpose(1, 2)
        behind_N1C = (letters_NC == 0)[:, None]
        found = []
        for reach, conv in enumerate(self.filters):
            c_NFC = conv(F.pad(x_NDC, (0, reach)))
            found.append(c_NFC.masked_fill(behind_N1C, 0.0).amax(2).relu())
        m_NF = torch.cat(found, 1)
        for highway in self.highways:
            m_NF = highway(m_NF)
        x_ND: Tensor = self.out(m_NF)
        return x_ND


def framed(chars: Tensor) -> Tensor:
    """Letters (…, C) with begin before and end behind them, cut or padded to LONGEST + 2; folded into the alphabet."""
    chars = F.pad(chars.long(), (1, LONGEST + 1 - chars.shape[-1]))
    folded = torch.where(chars > 0, (chars - 1) % (ALPHABET - 1) + 1, 0)
    folded[..., 0] = BEGIN
    return folded.scatter(-1, (folded > 0).sum(-1, keepdim=True), END)
