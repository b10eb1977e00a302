"""Train word vectors on the CPU, one place of the text after the other: the loops of models/word2vec.py.

Two tables are learnt: `inputs`, the vector v of each word as it predicts others, and `outputs`, the vector u of each
word as it is predicted. Of each place t one *step* of gradient descent is made for every prediction:

    skip-gram     a word c near t predicts word t, by itself        x = v(c)
    cbow, next    all words near t predict it together              x = their mean

With noise, x is to tell word t from words drawn at random: g = (1 or 0) - sigmoid(u·x), for word t (1) and each noise
word (0). With the softmax, g = (1 or 0) - p for every word. Then u += rate·g·x, and x gets rate·sum(g·u).

What makes it fast: the noise words of a place are drawn once, for all words near it (Ji et al. 2016), so that each u
is fetched once and steps are small products of matrices that stay near the processor; a row is a multiple of 64 bytes,
so that loops over it need no rest; noise is drawn a place ahead, and its rows are asked for; sigmoid is a table, as in
the authors' own program. Threads share the tables and write without waiting for one another (Hogwild, Recht et al.
2011): what two of them write at once may be lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit
from segue.word_vectors.noise_words import WHOLE, below, draw, noise_word
from segue.word_vectors.prefetch import fetch_row

SKIPGRAM, CBOW, NEXT = 0, 1, 2
LONGEST = 10_000
"""Words of a text that are read at once; windows do not reach from one such piece into the next."""
ROWS = 6
"""Rows of a block in the inner loops of skip-gram: the predicted word and five noise words are one block."""
BOUND = 6.0
_STEPS = 1024
_LOOKS = 16
"""Compute the loss at every 16th place only: it is just for the log."""
_LANES = 16
STOP, UNK = 0, 1


def aligned(rows: int, width: int) -> NDArray[np.float32]:
    """Allocate zeros with rows aligned to cache lines, padded behind `width`."""
    padded = -(-width // _LANES) * _LANES
    flat = np.zeros(rows * padded + _LANES, np.float32)
    begin = (-flat.ctypes.data % 64) // 4
    return flat[begin : begin + rows * padded].reshape(rows, padded)


def sigmoid_table() -> NDArray[np.float32]:
    """Tabulate the sigmoid in the middle of 1,024 steps from -6 to 6."""
    middles = (np.arange(_STEPS) + 0.5) * (2 * BOUND / _STEPS) - BOUND
    return np.asarray((1 / (1 + np.exp(-middles))).astype(np.float32))


@njit(cache=True, nogil=True, fastmath=True)
def learn(text, span, tables, chances, shape, rates, table, state, read, own, loss):
    """Train one thread's part of an epoch: the texts in text[span[0]:span[1]].

    `tables` are inputs and outputs; `chances` are those to be kept and the noise; `shape` is what model.Config says;
    `rates` are the first and the last rate and all tokens that will be read; `read[own]` counts those of this thread,
    read[-2] is by how many the time is ahead of them all, and read[-1] asks to stop; loss[own] is (sum, count).
    """
    inputs, outputs = tables
    keep, mark, other = chances
    method, window, dynamic, negatives, of_centre, by_window = shape
    first_rate, last_rate, total = rates
    width = inputs.shape[1]
    words, reach = np.empty(LONGEST + 1, np.int64), np.empty(LONGEST + 1, np.int64)
    near = np.empty(2 * window, np.int64)
    blocks = -(-(negatives + 1) // ROWS)
    ids, ahead = np.empty(negatives + 1, np.int64), np.empty(negatives, np.int64)
    _draw_ahead(outputs, mark, other, state, ahead)
    copied, change = np.zeros((blocks, ROWS, width), np.float32), np.zeros((blocks, ROWS, width), np.float32)
    g, mean, error = np.zeros(ROWS, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    scores = np.empty(outputs.shape[0] if negatives == 0 else 0, np.float32)
    at, places, first = span[0], 0, 1 if method == NEXT else 0
    while at < span[1] and read[-1] == 0:
        begun = at
        at, size = _read(text, at, span[1], keep, window, dynamic, first, words, reach, state)
        read[own] += at - begun
        rate = np.float32(max(last_rate, first_rate - (first_rate - last_rate) * read[:-1].sum() / total))
        for t in range(first, size):
            count = _near(method, of_centre, window, words, reach, size, t, near)
            if count == 0:
                continue
            look = negatives == 0 or places % _LOOKS == 0
            places += 1
            if negatives > 0:
                _take(ahead, words[t], mark, other, state, ids)
                _draw_ahead(outputs, mark, other, state, ahead)
                if t + 1 < size:
                    fetch_row(outputs, words[t + 1])
            if method != SKIPGRAM:
                divisor = 2 * reach[t] if by_window and method == CBOW else count
                _average(inputs, near, count, np.float32(1.0 / divisor), mean)
                if negatives > 0:
                    loss[own, 0] += _separate_one(mean, outputs, ids, rate, table, error, look)
                else:
                    loss[own, 0] += _softmax(mean, words[t], outputs, rate, scores, error)
                loss[own, 1] += look
                for i in range(count):
                    _add(inputs[near[i]], error)
                continue
            loss[own, 1] += look * count
            if negatives > 0:
                _fetch(outputs, ids, copied, change)
                for i in range(count):
                    for block in range(blocks):
                        loss[own, 0] += _separate(
                            inputs[near[i]], copied, change, g, block, negatives, rate, table, look
                        )
                for k in range(negatives + 1):
                    _add(outputs[ids[k]], change[k // ROWS, k % ROWS])
            else:
                for i in range(count):
                    x = inputs[near[i]]
                    loss[own, 0] += _softmax(x, words[t], outputs, rate, scores, error)
                    _add(x, error)


@njit(cache=True, nogil=True)
def _read(text, at, end, keep, window, dynamic, first, words, reach, state):
    """Read the next text without unknown and subsampled words; return the place behind it and the number of words. If
    `first` is 1 the text begins with STOP, which marks its start."""
    size = first
    words[0] = STOP
    while at < end:
        word = np.int64(text[at])
        at += 1
        if word == STOP:
            break
        if word == UNK:
            continue
        bits = draw(state)
        if np.uint32(bits >> np.uint64(32)) > keep[word]:
            continue
        words[size] = word
        reach[size] = 1 + below(bits & np.uint64(WHOLE), window) if dynamic else window
        size += 1
        if size - first == LONGEST:
            break
    return at, size


@njit(cache=True, nogil=True)
def _near(method, of_centre, window, words, reach, size, t, near):
    """Find the words that predict word t. In the paper's skip-gram word c predicts those in its *own* window; in the
    lecture's, the words in the window of t predict it."""
    if method == NEXT:
        near[0] = words[t - 1]
        return 1
    count = 0
    far = window if method == SKIPGRAM and not of_centre else reach[t]
    for c in range(max(0, t - far), min(size, t + far + 1)):
        if c != t and (method != SKIPGRAM or of_centre or abs(c - t) <= reach[c]):
            near[count] = words[c]
            count += 1
    return count


@njit(cache=True, nogil=True)
def _draw_ahead(outputs, mark, other, state, ahead):
    """Draw the noise words of the next place, and prefetch their rows."""
    for k in range(len(ahead)):
        ahead[k] = noise_word(mark, other, UNK, state)
        fetch_row(outputs, ahead[k])


@njit(cache=True, nogil=True)
def _take(ahead, word, mark, other, state, ids):
    """Return the predicted word and its noise words; redraw a noise word that is the word itself."""
    ids[0] = word
    for k in range(len(ahead)):
        ids[k + 1] = ahead[k] if ahead[k] != word else noise_word(mark, other, word, state)


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _fetch(outputs, ids, copied, change):
    """Copy the rows of these words, and clear their changes."""
    for k in range(len(ids)):
        u = outputs[ids[k]]
        for d in range(len(u)):
            copied[k // ROWS, k % ROWS, d] = u[d]
            change[k // ROWS, k % ROWS, d] = np.float32(0)


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _add(row, change):
    for d in range(len(row)):
        row[d] += change[d]


@njit(cache=True, nogil=True, fastmath=True)
def _gradient(score, wanted, rate, table):
    """rate · ((1 if wanted, else 0) - sigmoid(score))"""
    bounded = min(max(score, np.float32(-5.9999)), np.float32(5.9999))
    truth = np.float32(1) if wanted else np.float32(0)
    return rate * (truth - table[np.int64((bounded + np.float32(BOUND)) * np.float32(_STEPS / (2 * BOUND)))])


@njit(cache=True, nogil=True, fastmath=True)
def _cost(score, wanted):
    """Compute the loss: -log sigmoid(score) of the word, -log sigmoid(-score) of noise."""
    signed = np.float64(-score if wanted else score)
    return max(signed, 0.0) + np.log1p(np.exp(-abs(signed)))


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _separate(x, copied, change, g, block, negatives, rate, table, look):
    """Train x to separate the word, if it is among these six rows, from the noise words; add the rows' updates to
    `change`. Return the loss if `look`."""
    cost = 0.0
    for k in range(0, ROWS, 3):
        a = b = c = np.float32(0)
        for d in range(len(x)):
            y = x[d]
            a += y * copied[block, k, d]
            b += y * copied[block, k + 1, d]
            c += y * copied[block, k + 2, d]
        g[k], g[k + 1], g[k + 2] = a, b, c
    for k in range(ROWS):
        if look and block * ROWS + k <= negatives:
            cost += _cost(g[k], block + k == 0)
        g[k] = _gradient(g[k], block + k == 0, rate, table)
    # The rows are written out, since the compiler then keeps all of them in registers.
    g0, g1, g2, g3, g4, g5 = g[0], g[1], g[2], g[3], g[4], g[5]
    for d in range(len(x)):
        y = x[d]
        low = g0 * copied[block, 0, d] + g1 * copied[block, 1, d] + g2 * copied[block, 2, d]
        x[d] = y + low + g3 * copied[block, 3, d] + g4 * copied[block, 4, d] + g5 * copied[block, 5, d]
        change[block, 0, d] += g0 * y
        change[block, 1, d] += g1 * y
        change[block, 2, d] += g2 * y
        change[block, 3, d] += g3 * y
        change[block, 4, d] += g4 * y
        change[block, 5, d] += g5 * y
    return cost


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _separate_one(x, outputs, ids, rate, table, error, look):
    """Do the same for one x whose rows are used once: update them in place. The update of x is `error`."""
    cost = 0.0
    for d in range(len(x)):
        error[d] = np.float32(0)
    for k in range(len(ids)):
        u = outputs[ids[k]]
        score = np.float32(0)
        for d in range(len(x)):
            score += x[d] * u[d]
        if look:
            cost += _cost(score, k == 0)
        step = _gradient(score, k == 0, rate, table)
        for d in range(len(x)):
            y = u[d]
            error[d] += step * y
            u[d] = y + step * x[d]
    return cost


@njit(cache=True, nogil=True, fastmath=True)
def _softmax(x, word, outputs, rate, scores, error):
    """Make one step with the full softmax over all words but STOP and UNK; return -log p(word)."""
    top = np.float32(-np.inf)
    for w in range(2, len(outputs)):
        score = np.float32(0)
        for d in range(len(x)):
            score += x[d] * outputs[w, d]
        scores[w] = score
        top = max(top, score)
    whole = 0.0
    wanted = np.float64(scores[word] - top)
    for w in range(2, len(outputs)):
        scores[w] = np.exp(scores[w] - top)
        whole += scores[w]
    for d in range(len(x)):
        error[d] = np.float32(0)
    for w in range(2, len(outputs)):
        step = rate * (np.float32(w == word) - scores[w] / np.float32(whole))
        u = outputs[w]
        for d in range(len(x)):
            y = u[d]
            error[d] += step * y
            u[d] = y + step * x[d]
    return np.log(whole) - wanted


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _average(inputs, near, count, part, mean):
    for d in range(len(mean)):
        mean[d] = np.float32(0)
    for i in range(count):
        v = inputs[near[i]]
        for d in range(len(mean)):
            mean[d] += v[d]
    for d in range(len(mean)):
        mean[d] *= part
