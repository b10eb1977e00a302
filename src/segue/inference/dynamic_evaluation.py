"""Dynamic evaluation: a network that goes on learning while it reads (Mikolov et al. 2010; Krause et al. 2018).

The text is read in pieces. Each is scored first; then one step is taken on its mean loss, by a rule that scales the
gradient g of every weight w by its usual size r and by the size z of the weights beside it, and pulls w back to what it
was trained to be, w_0 (means are over the weights of one tensor):

    s <- s + g^2                                          over the n pieces read so far
    r  = sqrt(s / n)
    z  = max(sqrt(mean(w_0^2)), LEAST)
    w <- w - RATE z g / (r + mean(r) / 10)
    w <- w + DECAY (w_0 - w)

So no token is learnt from before it is predicted. Departures from Krause et al.: they take r from the training text,
which is not at hand here, so that it comes from the text itself; all weights are pulled back alike; and z is added, as
in Adafactor (Shazeer and Stern 2018): without it a rate that suits an LSTM is far too large for a Transformer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.batches.batch import IGNORE, Batch
from segue.batches.scorer import CARRIED, Scorer
from segue.layers.losses import target_logprobs

PIECE = 32
"""Tokens that are scored before they are learnt from."""
RATE = 3e-3
DECAY = 5e-3
LEAST = 1e-2
# Found on validation text, 20,000 tokens each of characters (tinyshakespeare, pydoc) and words (PTB), with recurrent,
# feed-forward and Transformer models: a third of the rate still helps each of them, and so does 4e-3.

Floats = NDArray[np.float64]


class Dynamic(Scorer):
    """A copy of a network that learns from every piece of a text once it has been scored: one text, one row."""

    in_order = True

    def __init__(self, model: Any) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(True)
        self.weights = list(self.model.parameters())
        self.trained = [weight.detach().clone() for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.trained]
        self.rates = [RATE * max(float(weight.pow(2).mean().sqrt()), LEAST) for weight in self.trained]
        self.steps = 0
        self.text = Text(self.model, PIECE)

    @property
    def way(self) -> str:
        return self.text.way

    def logprobs(self, batch: Batch, state: Any = None) -> tuple[Floats, Dynamic]:
        """log p of each target, which the model learns from once it is scored. The state is kept in here."""
        # cuDNN's recurrent kernels go backward only in training mode, where there would be dropout.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            return self.text.placed(batch, [self._read(*piece) for piece in self.text.pieces(batch)]), self

    def _read(self, piece: Batch, before: int) -> Tensor:
        logits_BTV, state = self.model(piece, self.text.state)
        self.text.state = state.detach() if self.text.carries else None
        logp_BT = target_logprobs(logits_BTV, piece.targets)
        if count := piece.count:
            self._step(torch.autograd.grad(-logp_BT.sum() / count, self.weights, allow_unused=True))
        return logp_BT[0, before:].detach()

    @torch.no_grad()
    def _step(self, gradients: Sequence[Tensor | None]) -> None:
        self.steps += 1
        for w, w_0, s, rate, g in zip(self.weights, self.trained, self.squares, self.rates, gradients, strict=True):
            if g is not None:
                s.addcmul_(g, g)
                r = (s / self.steps).sqrt_()
                # Where all gradients of a tensor are 0, so is r; nothing is then divided by 0.
                w.sub_(g / (r + r.mean() / 10).clamp_(min=torch.finfo(r.dtype).tiny), alpha=rate)
                w.lerp_(w_0, DECAY)


class Text:
    """One text, read by a network in pieces of at most `longest` tokens. A network that carries a state goes on with
    it; one with a context window reads the tokens before a piece again, so that every token sees half a window."""

    def __init__(self, model: Any, longest: int) -> None:
        self.carries = "fresh_B" in model.inputs
        self.window = 0 if self.carries else model.window
        self.longest = min(longest, max(1, self.window // 2)) if self.window else longest
        self.device = next(model.parameters()).device
        self.state: Any = None
        self.before_BT = torch.zeros(1, 0, dtype=torch.long, device=self.device)

    @property
    def way(self) -> str:
        """How a long text is read."""
        return f"a window of {self.window:,} tokens, moved on by up to {self.longest:,}" if self.window else CARRIED

    def pieces(self, batch: Batch) -> Iterator[tuple[Batch, int]]:
        """The real tokens in pieces, each with the number of tokens before it that are read again.
        A network without state and window gets the batch as one piece, as when it is scored."""
        batch = batch.to(self.device)
        if len(batch.tokens_BT) != 1:
            raise ValueError(f"a model that adapts reads one text, not {len(batch.tokens_BT)} side by side")
        if batch.fresh_B is not None and bool(batch.fresh_B[0]):
            self.state, self.before_BT = None, self.before_BT[:, :0]
        tokens_BT, targets_BT = (x_BT[:, batch.mask_BT[0]] for x_BT in (batch.tokens_BT, batch.targets))
        longest = self.longest if self.window or self.carries else max(1, tokens_BT.shape[1])
        letters: Iterable[Any] = repeat(None)
        if batch.chars_BTC is not None:
            letters = batch.chars_BTC[:, batch.mask_BT[0]].split(longest, 1)
        parts = zip(tokens_BT.split(longest, 1), targets_BT.split(longest, 1), letters, strict=False)
        for new_BT, next_BT, chars_BTC in parts:
            if not new_BT.shape[1]:
                return
            room = max(0, self.window - new_BT.shape[1])
            before_BT = self.before_BT[:, max(0, self.before_BT.shape[1] - room) :]
            whole_BT = torch.cat([before_BT, new_BT], 1)
            self.before_BT = whole_BT if self.window else before_BT
            aims_BT = torch.cat([torch.full_like(before_BT, IGNORE), next_BT], 1)
            mask_BT = torch.ones_like(whole_BT, dtype=torch.bool)
            yield Batch(whole_BT, aims_BT, mask_BT, chars_BTC=chars_BTC), before_BT.shape[1]

    def placed(self, batch: Batch, parts: Sequence[Tensor]) -> Floats:
        """What was found for the real tokens, in the shape of the batch; 0 elsewhere."""
        out = np.zeros(batch.targets.shape)
        if parts:
            out[0, np.asarray(batch.mask_BT)[0]] = torch.cat(list(parts)).cpu().numpy()
        return out
