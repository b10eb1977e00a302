"""The base class of taggers: one tag a word or several, chosen one by one or together by a CRF.

A subclass defines `Config`, `word` (the features of each word by itself)
and `scores(batch)`: (B, T, C) scores of every tag of every word. T counts words; where a batch has pieces of words
(firsts_BW) that is W, and not the T of its tokens.

    one tag, by itself    p(y_t | x) = softmax(scores_t)
    one tag, together     p(y | x) by a CRF over the scores (layers/crf.py); learnt by -log p(y | x), judged by
                          p(y_t | x), the sum over all sequences that have y_t there, and decoded by Viterbi
    several               p(tag c of word t) = logistic(scores_t[c]), a yes or no for each (data.label=classes)

The lectures have three outputs at each step, y = softmax(s), logistic(s) or tanh(s), s the scores. A model that lets
`output` choose reads them as probabilities: softmax sums to one; of the others each number is a yes or no, with
p = logistic(s) or p = (1 + tanh(s)) / 2 = logistic(2 s), and where a word has one tag these are made to sum to one.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.batches.batch import IGNORE, Batch
from segue.data.config import Label
from segue.errors import InputError
from segue.layers.crf import Crf
from segue.layers.word_features import Word
from segue.models.base import Loss, Sizes, Term
from segue.models.network import Judged, Network, judged

Output = Literal["auto", "softmax", "logistic", "tanh"]
"""What makes outputs of the scores of a word's tags."""


class NeuralTagger(Network):
    """A tag for each word, or several; its Config has a `crf: bool`."""

    task = "tag"
    inputs: ClassVar[tuple[str, ...]] = ("chars_BTC", "folded_BT")
    labels: ClassVar[tuple[Label, ...]] = ("class", "classes", "iob1", "bio", "bioes")
    crf: Crf | None
    word: Word

    def __init__(self, config: Any, sizes: Sizes, output: Output = "auto") -> None:
        super().__init__(config, sizes)
        self.several = sizes.label == "classes"
        self.output = ("logistic" if self.several else "softmax") if output == "auto" else output
        if self.output == "softmax" and self.several:
            raise InputError("model.output=softmax gives each word one tag: leave it out, or set data.label=class.")
        if config.crf and self.several:
            raise InputError("A CRF gives each word one tag: leave model.crf out, or set data.label=class.")
        self.crf = Crf(sizes.classes) if config.crf else None

    @property
    def token_tables(self) -> list[tuple[nn.Embedding, bool]]:
        """The embedding tables that model.embeddings fills: words, and lower-cased words."""
        words = [(self.word.vectors, False)]
        return words if self.word.folded is None else [*words, (self.word.folded, True)]

    @abstractmethod
    def scores(self, batch: Batch) -> Tensor:
        """Compute (B, T, C) scores of the tags."""

    def forward(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Compute (B, T, C) logits of the tags; with several tags a word (B, T, C, 2), of 0 and 1."""
        return self._output(self.scores(batch), batch), None

    def _output(self, scores_BTC: Tensor, batch: Batch) -> Tensor:
        """The logits, from the scores."""
        if self.several:
            # softmax over (0, s) is the logistic function of s.
            return torch.stack([torch.zeros_like(scores_BTC), self._logits(scores_BTC)], -1)
        if self.output != "softmax":
            return F.logsigmoid(self._logits(scores_BTC))
        return scores_BTC if self.crf is None else self.crf.log_marginals(_full(scores_BTC), _words(batch))

    def _logits(self, scores_BTC: Tensor) -> Tensor:
        """The logit of p that each tag is there, from its score."""
        return 2 * scores_BTC if self.output == "tanh" else scores_BTC

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        if self.crf is None:
            return super().loss(batch, state)
        logp_B = self.crf.log_likelihood(_full(self.scores(batch)), batch.targets, _words(batch))
        return Loss((Term("cross_entropy", -logp_B.sum(), (batch.targets != IGNORE).sum()),))

    @torch.inference_mode()
    def decide(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Choose the tags (B, T) and their probabilities: each the likeliest by itself or, with a CRF, those of the
        likeliest sequence (Viterbi). With several tags a word: (B, T, C) of 0 and 1, and p of every tag."""
        scores_BTC = self.scores(batch)
        if self.several:
            return scores_BTC > 0, self._logits(scores_BTC).float().sigmoid()
        p_BTC = self._output(scores_BTC, batch).float().softmax(-1)
        best_BT = p_BTC.argmax(-1) if self.crf is None else self.crf.best(scores_BTC, _words(batch))
        return best_BT, p_BTC.take_along_dim(best_BT[..., None], -1)[..., 0]

    @torch.inference_mode()
    def judge_and_decide(self, batch: Batch) -> tuple[Judged, Tensor]:
        """Score a batch of validation rows with one tag a word, and choose their tags as `decide` does (B, T)."""
        scores_BTC = self.scores(batch)
        logits_BTC = self._output(scores_BTC, batch)
        best_BT = logits_BTC.argmax(-1) if self.crf is None else self.crf.best(scores_BTC, _words(batch))
        return judged(logits_BTC, best_BT, batch.targets), best_BT


def _words(batch: Batch) -> Tensor:
    """The mask of the words: True on real ones."""
    mask: Tensor = batch.mask_BT if batch.firsts_BW is None else batch.firsts_BW >= 0
    return mask


def _full(scores: Tensor) -> Tensor:
    """Convert to float32: half precision would lose small scores in sums over all sequences; double stays double."""
    return scores if scores.dtype == torch.float64 else scores.float()
