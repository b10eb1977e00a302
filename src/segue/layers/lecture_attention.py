"""Self-attention in the forms that lectures write before the Transformer's own (layers/attention.py).

    plain        a_tj = softmax over j of x_t · x_j            x'_t = sum over j of a_tj x_j
    bilinear     a_tj = softmax over j of x_t · W_h x_j        x'_t = sum over j of a_tj V_h x_j         for each head h
    unmixed      q, k and v as in the Transformer, and the heads side by side are the output: no matrix W_O

Plain attention has no weights at all, and one head. The matrices W_h and V_h of a bilinear head are D x D, so that
every head is as wide as the layer; with several, W_O makes one vector of the layer's width of them. Neither of the two
divides the scores by sqrt(d_k), and neither has biases.
"""

from __future__ import annotations

from torch import Tensor, nn

from segue.layers.attention import SelfAttention


class Plain(SelfAttention):
    """No projections: x itself is query, key and value."""

    usual = False

    def __init__(self, width: int, dropout: float, *, causal: bool) -> None:
        nn.Module.__init__(self)  # there are no weights to make
        self._settle(1, width, dropout, causal, scale=1.0)

    def projected(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_B1TD = x_BTD[:, None]
        return x_B1TD, x_B1TD, x_B1TD

    def mixed(self, y_BTD: Tensor) -> Tensor:
        return y_BTD


class Bilinear(SelfAttention):
    """Heads whose score is a bilinear form; the key of x_j is x_j, and W_h turns the query."""

    usual = False

    def __init__(self, width: int, heads: int, dropout: float, *, causal: bool, mix: bool) -> None:
        nn.Module.__init__(self)
        self._settle(heads, width, dropout, causal, scale=1.0)
        self.scores = nn.Linear(width, heads * width, bias=False)
        """W_h, transposed: x_t · W_h x_j = (W_h^T x_t) · x_j."""
        self.values = nn.Linear(width, heads * width, bias=False)
        if mix:
            self.out = nn.Linear(heads * width, width, bias=False)
        self.mix = mix

    def projected(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_BHTD, v_BHTD = (
            made(x_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2) for made in (self.scores, self.values)
        )
        return q_BHTD, x_BTD[:, None].expand_as(q_BHTD), v_BHTD

    def mixed(self, y_BTE: Tensor) -> Tensor:
        return super().mixed(y_BTE) if self.mix else y_BTE


class Unmixed(SelfAttention):
    """The Transformer's heads, side by side."""

    usual = False

    def __init__(
        self, width: int, heads: int, head_width: int, dropout: float, *, causal: bool, biases: bool = True
    ) -> None:
        nn.Module.__init__(self)
        self._settle(heads, head_width, dropout, causal)
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=biases)

    def mixed(self, y_BTE: Tensor) -> Tensor:
        return y_BTE
