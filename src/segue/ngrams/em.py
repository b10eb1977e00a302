"""Expectation-maximisation (EM) of the weights of a mixture: the weights that make held-out text likeliest.

A mixture is p(w) = sum over parts k of weight_k · p_k(w). One round of EM (Dempster, Laird & Rubin 1977) is

    E    divide each held-out token among the parts:       share_k = weight_k · p_k / (sum over j of weight_j · p_j)
    M    a weight becomes the share of the tokens that its part got: weight_k = sum of share_k / sum of all shares

and no round makes the text less likely. Three mixtures are weighed here:

    em_weights             models side by side, one weight each
    em_weights_by_group    the same, with weights of their own for each group of tokens (such as a class of words)
    em_lambdas             orders of an n-gram model, each mixed with the one below: p_k = l · own_k + (1 - l) · p_(k-1)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

ROUNDS, SHARED_ROUNDS, GROUP_ROUNDS, LAMBDA_ROUNDS = 200, 50, 30, 50
"""Rounds of EM: of em_weights; of em_weights_by_group, for all tokens and then for each group; of em_lambdas."""


def em_weights(p: Floats) -> Floats:
    """(parts, tokens) -> the weight of each part."""
    weights = np.full(len(p), 1.0 / len(p))
    for _ in range(ROUNDS):
        together = weights @ p
        seen = together > 0  # a token that no part allows says nothing about the weights
        if not seen.any():
            return weights
        weights = weights * (p[:, seen] / together[seen]).mean(1)
    return weights


def em_weights_by_group(p: Floats, groups: Ids, size: int, prior: float) -> Floats:
    """(tokens, parts), and the group of each token -> (size, parts), the weights of each group.

    A group's weights are drawn towards those of all tokens, as if by `prior` tokens more that have those weights."""
    even = np.full((1, p.shape[1]), 1 / p.shape[1])
    shared = _em(p, np.zeros(len(p), np.int64), even, 1.0, SHARED_ROUNDS)
    return np.asarray(_em(p, groups, np.repeat(shared, size, axis=0), prior, GROUP_ROUNDS))


@njit(cache=True, nogil=True)
def _em(p, groups, first, prior, rounds):
    """`first` are the weights to begin with, and those of the `prior` tokens that each group has more."""
    weights = first.copy()
    parts = p.shape[1]
    for _ in range(rounds):
        share = first * prior
        for i in range(len(p)):
            own = weights[groups[i]]
            whole = 0.0
            for k in range(parts):
                whole += own[k] * p[i, k]
            for k in range(parts):
                share[groups[i], k] += own[k] * p[i, k] / whole
        for g in range(len(weights)):
            weights[g] = share[g] / share[g].sum()
    return weights


def em_lambdas(own: Floats, seen: NDArray[np.bool_], groups: Ids, size: int, below: float) -> Floats:
    """(orders, tokens), the lowest order first -> (orders, size), the l of each order and group of contexts.

    own: what each order says by itself; seen: whether it knows the context (else it leaves p as it is); groups: the
    group of the context, 0 … size - 1; below: p under the first order."""
    orders, tokens = own.shape
    lambdas = np.full((orders, size), 0.5)
    for _ in range(LAMBDA_ROUNDS):
        p = np.empty((orders + 1, tokens))
        p[0] = below
        for k in range(orders):
            weight = lambdas[k][groups[k]]
            p[k + 1] = np.where(seen[k], weight * own[k] + (1 - weight) * p[k], p[k])
        came = np.ones(tokens)  # the part of each token that the orders above have not taken
        for k in reversed(range(orders)):
            stayed = np.where(seen[k], came * lambdas[k][groups[k]] * own[k] / p[k + 1], 0.0)
            reached = np.bincount(groups[k][seen[k]], came[seen[k]], size)
            share = np.bincount(groups[k][seen[k]], stayed[seen[k]], size)
            # One made-up token for each side keeps a weight between 0 and 1 where no held-out token reaches it.
            lambdas[k] = (share + 1) / (reached + 2)
            came = came - stayed
    return lambdas
