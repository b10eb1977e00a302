"""A linear-chain conditional random field over tags: Lafferty et al. 2001; over a network: Collobert et al. 2011.

    s(y) = first[y_1] + sum over t of e_t[y_t] + sum over t > 1 of A[y_{t-1}, y_t] + last[y_T]
    p(y | x) = exp s(y) / Z          Z = sum of exp s(y') over all C^T sequences y' of tags

e_t are a network's scores of the tags of word t. Sums over all sequences take T · C^2 steps:

    forward     a_1 = first + e_1    a_t[j] = log sum_i exp(a_{t-1}[i] + A[i, j]) + e_t[j]    log Z = lse(a_T + last)
    backward    b_T = last           b_t[i] = log sum_j exp(A[i, j] + e_{t+1}[j] + b_{t+1}[j])
    marginals   log p(y_t = j | x) = a_t[j] + b_t[j] - log Z
    Viterbi     the forward recursion with max in place of log sum exp, and the way back

Rows are padded on the right. A place without a target (IGNORE) may have any tag: its tags are summed over.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from segue.batches.batch import IGNORE


class Crf(nn.Module):
    """Transitions between tags. They begin at zero, where the tags of a sentence are independent."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.transitions_CC = nn.Parameter(torch.zeros(tags, tags))
        self.first_C = nn.Parameter(torch.zeros(tags))
        self.last_C = nn.Parameter(torch.zeros(tags))

    def log_likelihood(self, scores_BTC: Tensor, targets_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """(B,) log p(targets | x)."""
        tags_C = torch.arange(scores_BTC.shape[-1], device=scores_BTC.device)
        other_BTC = (targets_BT[..., None] != IGNORE) & (targets_BT[..., None] != tags_C)
        given_BTC = scores_BTC.masked_fill(other_BTC, -torch.inf)
        return self.log_partition(given_BTC, mask_BT) - self.log_partition(scores_BTC, mask_BT)

    def log_partition(self, scores_BTC: Tensor, mask_BT: Tensor) -> Tensor:
        """(B,) log Z."""
        end_BC: Tensor = self._forward(scores_BTC, mask_BT)[-1] + self.last_C
        return end_BC.logsumexp(-1)

    def log_marginals(self, scores_BTC: Tensor, mask_BT: Tensor) -> Tensor:
        """log p(y_t = c | x) for every word and tag; at padding any numbers, whose exponentials sum to one."""
        a_BTC = torch.stack(self._forward(scores_BTC, mask_BT), 1)
        b_BC = self.last_C.expand_as(scores_BTC[:, 0])
        b_T = [b_BC]
        for t in range(scores_BTC.shape[1] - 1, 0, -1):
            new_BC = (self.transitions_CC + (scores_BTC[:, t] + b_BC)[:, None]).logsumexp(-1)
            b_BC = torch.where(mask_BT[:, t, None], new_BC, b_BC)
            b_T.append(b_BC)
        both_BTC = a_BTC + torch.stack(b_T[::-1], 1)
        return both_BTC.log_softmax(-1)

    def best(self, scores_BTC: Tensor, mask_BT: Tensor) -> Tensor:
        """(B, T) the likeliest sequence of tags (Viterbi); any tag at padding."""
        best_BC = self.first_C + scores_BTC[:, 0]
        stay_C = torch.arange(scores_BTC.shape[-1], device=scores_BTC.device)
        back_T = []
        for t in range(1, scores_BTC.shape[1]):
            new_BC, from_BC = (best_BC[:, :, None] + self.transitions_CC).max(1)
            best_BC = torch.where(mask_BT[:, t, None], new_BC + scores_BTC[:, t], best_BC)
            back_T.append(torch.where(mask_BT[:, t, None], from_BC, stay_C))
        tags_T = [(best_BC + self.last_C).argmax(-1)]
        for back_BC in reversed(back_T):
            tags_T.append(back_BC.gather(1, tags_T[-1][:, None])[:, 0])
        return torch.stack(tags_T[::-1], 1)

    def _forward(self, scores_BTC: Tensor, mask_BT: Tensor) -> list[Tensor]:
        """a_1 … a_T; at padding that of the last real word."""
        a_T = [self.first_C + scores_BTC[:, 0]]
        for t in range(1, scores_BTC.shape[1]):
            new_BC = (a_T[-1][:, :, None] + self.transitions_CC).logsumexp(1) + scores_BTC[:, t]
            a_T.append(torch.where(mask_BT[:, t, None], new_BC, a_T[-1]))
        return a_T
