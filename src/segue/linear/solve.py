"""Train linear classifiers over bags of features by dual coordinate descent; choose their cost.

For labels y_i = ±1 and rows x_i (with a last feature that is always 1, so that there is a bias):

    minimise over w:  |w|²/2 + sum over i of C_i · loss(y_i w·x_i)

    squared_hinge   loss(m) = max(0, 1 - m)²       hinge   max(0, 1 - m)                       Hsieh et al. 2008
    logistic        loss(m) = log(1 + exp(-m))                                          Yu, Huang and Lin 2011

In the dual there is one number a_i for each row, with w = sum of a_i y_i x_i, and a step makes the best of one a_i
while the others stay. For the hinges that has a closed form; rows whose a_i rests at a bound are passed over
until the others are done (shrinking). For logistic it is one equation in u, where a_i = C_i / (1 + exp(-u)):

    |x_i|² (a_i - a_i before) + y_i w·x_i + u = 0

More than two classes: one against the rest, each. Scores s become probabilities by softmax(t · s), with the t that
makes held-out rows likeliest (two classes: s and 0).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from segue.compiling import njit
from segue.errors import InputError
from segue.linear.features import Bags
from segue.ngrams.model_file import Arrays

Array = NDArray[Any]
Floats = NDArray[np.float64]
Weighing = Literal["count", "binary", "tfidf", "ratio"]
Loss = Literal["squared_hinge", "hinge", "logistic"]
T = TypeVar("T")

FOLDS = 5
"""If nothing is held out, the cost is chosen by cross-validation with this many folds."""
FEW = 60
"""With fewer rows none is held out."""
COSTS: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of C to try if rows are normalised to length 1."""
SMALLER_COSTS: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Values of C to try if rows are not normalised."""
ALPHA = 1.0
"""ratio: add-alpha smoothing, added to the count of every feature in every class."""
LARGEST_SCALE = 100.0
MANY, LONGEST, PACE = 1000, 600.0, 1e7
"""More classes than the first are refused where learning would take more seconds than the second, at so many features
of rows a second."""


class Solver(NamedTuple):
    """Settings of training."""

    loss: Loss = "squared_hinge"
    cost: float = 0.0
    """C, the cost of errors (0: chosen on held-out rows)."""
    balanced: bool = False
    """Class weights: give all classes the same total weight, however many rows they have."""
    seed: int = 0
    tolerance: float = 0.01
    """Stop when the projected gradients span less than this (liblinear's criterion)."""
    rounds: int = 100
    """Stop after this many passes over the rows."""


class Choice(NamedTuple):
    """The result of one cost on held-out rows."""

    cost: float
    scale: float
    """The t that makes held-out rows likeliest (temperature scaling)."""
    likelihood: float
    accuracy: float


class Linear:
    """A linear classifier over bags.

    What a feature counts in a row (`weighing`):

        count    how often it is there        binary   1
        tfidf    (1 + log count) · (1 + log((1 + rows) / (1 + rows that have it)))
        ratio    for each class, log of (its share of the class's features / of the others'): Wang and Manning 2012

    With `normalise` each group of features (words, characters) of a row is then brought to length 1.
    """

    def __init__(self, weighing: Weighing, normalise: bool, solver: Solver, keep: float = 1.0) -> None:
        """`keep`: the share of the weights found; the rest is naive Bayes, in their mean size (models/nbsvm.py)."""
        self.weighing, self.normalise, self.solver, self.keep = weighing, normalise, solver, keep
        self.borders = np.zeros(1, np.int64)
        """The first column of each group, and the width."""
        self.factors = np.zeros((0, 1), np.float32)
        """(width, 1 or K): the factor of each column's value."""
        self.weights = np.zeros((1, 1), np.float32)
        """(width + 1, K), the bias last."""
        self.choice = Choice(solver.cost or 1.0, 1.0, 0.0, 0.0)

    # Learning

    def fit(
        self, bags: Bags, labels: Array, classes: int, first_held_out: int, borders: Iterable[int]
    ) -> Iterator[Choice]:
        """Learn from the rows before `first_held_out`; the others choose the cost. Yield every cost tried."""
        self.borders = np.array([*borders], np.int64)
        bags = bags._replace(values=self._counted(bags.values))
        rows = np.arange(first_held_out)
        problem = _Problem(self, bags, labels, classes)
        problem.check_cost()
        tried = []
        for choice in problem.tried(rows, first_held_out):
            tried.append(choice)
            yield choice
        if tried:
            self.choice = max(tried, key=lambda choice: choice.likelihood)
        self.factors = problem.factors(rows)
        weights = at_once(lambda k: _One(problem, rows, k).solve(self.choice.cost)[1], problem.against)
        self.weights = np.stack(weights, axis=1).astype(np.float32)
        if not tried:
            self.choice = self.choice._replace(
                scale=best_scale(self.scores(bags)[:first_held_out], labels[:first_held_out])
            )

    def mixed(self, weights: Floats, odds: float) -> Floats:
        """Interpolate the weights of a class with naive Bayes: one weight for every ratio, and the log odds of the
        class."""
        if self.keep == 1:
            return weights
        size = np.abs(weights[:-1]).mean() if len(weights) > 1 else 1.0
        bayes = np.append(np.full(len(weights) - 1, size), size * odds)
        return self.keep * weights + (1 - self.keep) * bayes

    def _counted(self, values: Array) -> Array:
        if self.weighing == "count":
            return values
        return 1 + np.log(values) if self.weighing == "tfidf" else np.minimum(values, 1)

    # Predicting

    def class_logprobs(self, bags: Bags) -> Floats:
        """Compute (rows, classes) log p."""
        return log_softmax(self.scores(bags._replace(values=self._counted(bags.values))), self.choice.scale)

    def scores(self, bags: Bags) -> Floats:
        """Compute (rows, K) scores w·x + b of bags of counts."""
        if self.factors.shape[1] == 1:
            return feature_scores(self.weighed(bags, self.factors[:, 0]), self.weights)
        columns = [
            feature_scores(self.weighed(bags, self.factors[:, k]), self.weights[:, k : k + 1])
            for k in range(self.factors.shape[1])
        ]
        return np.concatenate(columns, axis=1)

    def by_class(self) -> Floats:
        """Compute (width, classes): what a feature that is there once adds to the score of each class, less the mean;
        of two classes with one set of weights, the second has them and the first their negatives."""
        weights = np.asarray(self.factors * self.weights[:-1], np.float64)
        if weights.shape[1] == 1:
            weights = np.concatenate((-weights, weights), axis=1)
        return np.asarray(weights - weights.mean(1, keepdims=True), np.float64)

    def weighed(self, bags: Bags, factors: Array) -> Bags:
        values = _weigh(
            bags.columns, bags.values, bags.starts, np.ascontiguousarray(factors), self.borders, self.normalise
        )
        return bags._replace(values=values)

    # Keeping

    def arrays(self) -> dict[str, Array]:
        numbers = np.array([self.choice.cost, self.choice.scale, self.choice.likelihood, self.choice.accuracy])
        return {"borders": self.borders, "factors": self.factors, "weights": self.weights, "choice": numbers}

    def take(self, arrays: Arrays, borders: tuple[int, ...], classes: int) -> None:
        """Restore from the arrays of a saved model, whose features have these borders."""
        scores = 1 if classes == 2 else classes
        self.borders = np.array(arrays.take("borders", "i8", (len(borders),)))
        if self.borders.tolist() != list(borders):
            raise ValueError(f"borders is {self.borders.tolist()}, not {list(borders)}")
        factors = scores if self.weighing == "ratio" else 1
        self.factors = np.array(arrays.numbers("factors", (borders[-1], factors), -1e6, 1e6))
        self.weights = np.array(arrays.numbers("weights", (borders[-1] + 1, scores), -1e12, 1e12))
        self.choice = Choice(*arrays.numbers("choice", (4,), -1e30, 1e30).tolist())


class _Problem:
    """The training problem: rows with labels."""

    def __init__(self, linear: Linear, bags: Bags, labels: Array, classes: int) -> None:
        self.linear, self.bags, self.labels, self.classes = linear, bags, labels, classes
        self.against = [1] if classes == 2 else list(range(classes))
        """The classes with a one-against-the-rest problem; with two classes one is enough."""

    def check_cost(self) -> None:
        """Refuse, before anything is learnt, so many classes that the trials of C would take too long."""
        trials = 1 + (1 if self.linear.solver.cost else len(self._costs()))
        seconds = trials * len(self.against) * len(self.bags.columns) / PACE
        if len(self.against) > MANY and seconds > LONGEST:
            kept = f"{self.bags.width * len(self.against) * 8 / 2**30:,.1f} GiB"
            raise InputError(
                f"{self.classes:,} classes are each separated from the rest, {trials} times to choose the cost: some "
                f"{seconds / 60:,.0f} minutes, and {kept} of weights. "
                + ("C" if self.linear.solver.cost else "Give model.cost=0.1, which needs fewer trials, or c")
                + "hoose naive_bayes, which counts all classes at once."
            )

    def tried(self, rows: Array, first_held_out: int) -> Iterator[Choice]:
        """Evaluate each cost on held-out rows."""
        if first_held_out < len(self.labels):
            splits = [(rows, np.arange(first_held_out, len(self.labels)))]
        elif len(rows) < FEW:
            return
        else:
            part = parts_of(self.labels, self.linear.solver.seed)
            folds = 1 if self.linear.solver.cost else FOLDS  # one is enough for the scale alone
            splits = [(np.flatnonzero(part != i), np.flatnonzero(part == i)) for i in range(folds)]
        judges = np.concatenate([held_out for _, held_out in splits])
        tasks = [
            (_One(self, training, k), held_out, i) for training, held_out in splits for i, k in enumerate(self.against)
        ]
        scores = np.zeros((len(self.labels), len(self.against)))
        best: list[float] = []
        for cost in self._costs():

            def one(task: tuple[_One, Array, int], cost: float = cost) -> None:
                problem, held_out, place = task
                bags, weights = problem.solve(cost)
                scores[held_out, place] = feature_scores(bags, weights[:, None])[held_out, 0]

            at_once(one, tasks)
            scale = best_scale(scores[judges], self.labels[judges])
            right = float((log_softmax(scores[judges]).argmax(1) == self.labels[judges]).mean())
            choice = Choice(cost, scale, likelihood(scores[judges], self.labels[judges], scale), right)
            yield choice
            best.append(choice.likelihood)
            if max(best) > max(best[-2:]):  # twice worse: larger costs would be worse still
                return

    def _costs(self) -> tuple[float, ...]:
        if self.linear.solver.cost:
            return (self.linear.solver.cost,)
        return COSTS if self.linear.normalise else SMALLER_COSTS

    def seen(self, rows: Array, k: int) -> Bags:
        """All rows as class k sees them, weighed by what these rows say."""
        factors = self.factors(rows, (k,))
        return self.linear.weighed(self.bags, factors[:, 0])

    def factors(self, rows: Array, against: Iterable[int] = ()) -> Array:
        """(width, 1 or K), from the rows that are given."""
        weighing, width = self.linear.weighing, self.bags.width
        if weighing == "tfidf":
            having = _sums(*self.bags[:3], rows, width)[1]
            rare = 1 + np.log((1 + len(rows)) / (1 + having))
            return np.asarray(rare, np.float32)[:, None]
        if weighing == "ratio":
            ratios = [self._ratio(rows, k) for k in against or self.against]
            return np.stack(ratios, axis=1).astype(np.float32)
        return np.ones((width, 1), np.float32)

    def _ratio(self, rows: Array, k: int) -> Floats:
        own = self.labels[rows] == k
        logs = []
        for some in (rows[own], rows[~own]):
            counts = ALPHA + feature_sums(self.bags, some)
            logs.append(np.log(counts / counts.sum()))
        return np.asarray(logs[0] - logs[1])


class _One:
    """One class against the others, learnt from some of the rows."""

    def __init__(self, problem: _Problem, rows: Array, k: int) -> None:
        self.problem, self.rows, self.k = problem, rows, k
        labels, solver = problem.labels, problem.linear.solver
        self.signs = np.where(labels == k, 1.0, -1.0)
        self.share = np.ones(len(labels))
        if solver.balanced:
            counts = np.bincount(labels[rows], minlength=problem.classes)
            self.share *= (len(rows) / (problem.classes * np.maximum(counts, 1)))[labels]
        own = int((labels[rows] == k).sum())
        self.odds = 0.0 if solver.balanced else float(np.log((own + 1) / (len(rows) - own + 1)))
        self.w, self.alpha = np.zeros(problem.bags.width + 1), np.zeros(len(rows))

    def solve(self, cost: float) -> tuple[Bags, Floats]:
        """All rows as this class sees them, and its weights. Descent goes on from a smaller cost that came before."""
        bags, solver = self.problem.seen(self.rows, self.k), self.problem.linear.solver
        problem = (*bags[:3], self.rows, self.signs, cost * self.share, self.w, self.alpha)
        settings = (solver.tolerance, solver.rounds, solver.seed)
        if solver.loss == "logistic":
            _descend_logistic(*problem, *settings)
        else:
            _descend_hinge(*problem, solver.loss == "squared_hinge", *settings)
        return bags, self.problem.linear.mixed(self.w, self.odds)


def feature_scores(bags: Bags, weights: Array) -> Floats:
    """(rows, K): w·x + b, the bias last in the weights."""
    found: Floats = _scores(*bags[:3], np.ascontiguousarray(weights))
    return found


def feature_sums(bags: Bags, rows: Array) -> Floats:
    """The sum of each column over these rows."""
    found: Floats = _sums(*bags[:3], rows, bags.width)[0]
    return found


def log_softmax(scores_BK: Floats, scale: float = 1.0) -> Floats:
    """(rows, classes) log probabilities; one column of scores is that of the second of two classes."""
    if scores_BK.shape[1] == 1:
        scores_BK = np.concatenate((np.zeros_like(scores_BK), scores_BK), axis=1)
    scaled = scale * scores_BK
    scaled = scaled - scaled.max(1, keepdims=True)
    return np.asarray(scaled - np.log(np.exp(scaled).sum(1, keepdims=True)))


def best_scale(scores_BK: Floats, labels: Array) -> float:
    """The t of softmax(t · scores) that makes the labels likeliest, and one row more, with the scores of any and any
    class: so that rows which are all on the right side do not make t grow without end (as in Platt 1999)."""

    def value(log_scale: float) -> float:
        logp = log_softmax(scores_BK, float(np.exp(log_scale)))
        return float(logp[np.arange(len(labels)), labels].sum() + logp.mean())

    low, high = np.log(0.01), np.log(LARGEST_SCALE)
    while high - low > 1e-3:
        a, b = low + (high - low) * 0.382, low + (high - low) * 0.618
        low, high = (low, b) if value(a) > value(b) else (a, high)
    return float(np.exp((low + high) / 2))


def likelihood(scores_BK: Floats, labels: Array, scale: float = 1.0) -> float:
    """The mean log probability of the labels."""
    logp = log_softmax(scores_BK, scale)
    return float(logp[np.arange(len(labels)), labels].mean())


def parts_of(labels: Array, seed: int, folds: int = FOLDS) -> Array:
    """A part for every row, by chance, each class spread evenly over the parts."""
    order = np.random.default_rng(seed % (1 << 64)).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    part = np.empty(len(labels), np.int64)
    part[order] = np.arange(len(labels)) % folds
    return part


def at_once(work: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """On two threads where there are two cores; the results are the same on one."""
    if (os.cpu_count() or 1) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, items))


@njit(cache=True, nogil=True)
def _scores(columns, values, starts, weights):
    width, classes = len(weights) - 1, weights.shape[1]
    out = np.empty((len(starts) - 1, classes))
    for r in range(len(starts) - 1):
        for k in range(classes):
            out[r, k] = weights[width, k]
        for i in range(starts[r], starts[r + 1]):
            for k in range(classes):
                out[r, k] += values[i] * weights[columns[i], k]
    return out


@njit(cache=True, nogil=True)
def _weigh(columns, values, starts, factors, borders, normalise):
    """Values times factors; with `normalise`, those between two borders of a row brought to length 1."""
    out = np.empty(len(columns), np.float32)
    lengths = np.empty(len(borders))
    for r in range(len(starts) - 1):
        lengths[:] = 0.0
        group = 0
        for i in range(starts[r], starts[r + 1]):
            out[i] = values[i] * factors[columns[i]]
            while columns[i] >= borders[group + 1]:
                group += 1
            lengths[group] += out[i] * out[i]
        if not normalise:
            continue
        group = 0
        for i in range(starts[r], starts[r + 1]):
            while columns[i] >= borders[group + 1]:
                group += 1
            if lengths[group] > 0:
                out[i] /= np.sqrt(lengths[group])
    return out


@njit(cache=True, nogil=True)
def _sums(columns, values, starts, rows, width):
    """Compute, for each column over these rows, the sum of its values, and the number of rows that have it."""
    sums, having = np.zeros(width), np.zeros(width)
    for r in rows:
        for i in range(starts[r], starts[r + 1]):
            sums[columns[i]] += values[i]
            having[columns[i]] += 1
    return sums, having


@njit(cache=True, nogil=True)
def _shuffle(rows, size, state):
    """In place, by an xorshift generator, whose state is returned."""
    for i in range(size - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(i + 1))
        rows[i], rows[j] = rows[j], rows[i]
    return state


@njit(cache=True, nogil=True)
def _random_state(seed):
    return np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(88172645463325252)


@njit(cache=True, nogil=True)
def _squares(values, starts, rows):
    """|x|² of each row, with the feature that is always 1."""
    squares = np.empty(len(rows))
    for n in range(len(rows)):
        total = np.float64(1)
        for i in range(starts[rows[n]], starts[rows[n] + 1]):
            total += values[i] * values[i]
        squares[n] = total
    return squares


@njit(cache=True, nogil=True)
def _descend_logistic(columns, values, starts, rows, signs, upper, w, alpha, tolerance, rounds, seed):
    """Dual coordinate descent for the logistic loss (Yu, Huang and Lin 2011): makes w the weights for one class against
    the others; alpha holds each row's a, which w is the sum of."""
    squares, order, state = _squares(values, starts, rows), np.arange(len(rows)), _random_state(seed)
    u = np.empty(len(rows))
    for n in range(len(rows)):
        r = rows[n]
        if alpha[n] == 0.0:  # no a is 0 at the minimum, so all rows begin a little above it
            alpha[n] = 0.001 * upper[r]
            _add(columns, values, starts, r, signs[r] * alpha[n], w)
        u[n] = np.log(alpha[n] / max(upper[r] - alpha[n], 1e-300))
    for _ in range(rounds):
        state = _shuffle(order, len(order), state)
        worst = 0.0
        for n in order:
            r = rows[n]
            margin = signs[r] * _dot(columns, values, starts, r, w)
            worst = max(worst, abs(margin + u[n]) * _slope(u[n]))
            new = _root(squares[n], margin, u[n], upper[r])
            step = upper[r] * _sigmoid(new) - alpha[n]
            u[n] = new
            if step != 0.0:
                _add(columns, values, starts, r, step * signs[r], w)
                alpha[n] += step
        if worst < tolerance:
            break


@njit(cache=True, nogil=True)
def _descend_hinge(columns, values, starts, rows, signs, upper, w, alpha, squared, tolerance, rounds, seed):
    """Dual coordinate descent for the hinge loss or its square (Hsieh et al. 2008), with shrinking: rows whose a rests
    at a bound are passed over until the others are done. w and alpha as in _descend_logistic."""
    squares, order, state = _squares(values, starts, rows), np.arange(len(rows)), _random_state(seed)
    active = len(order)
    high_before, low_before = np.inf, -np.inf
    for _ in range(rounds):
        state = _shuffle(order, active, state)
        high, low = -np.inf, np.inf
        place = 0
        while place < active:
            n = order[place]
            r = rows[n]
            most = np.inf if squared else upper[r]
            diagonal = 0.5 / upper[r] if squared else 0.0
            gradient = signs[r] * _dot(columns, values, starts, r, w) - 1.0 + alpha[n] * diagonal
            projected, shrink = gradient, False
            if alpha[n] == 0.0:
                projected, shrink = min(gradient, 0.0), gradient > high_before
            elif alpha[n] == most:
                projected, shrink = max(gradient, 0.0), gradient < low_before
            if shrink:
                active -= 1
                order[place], order[active] = order[active], order[place]
                continue
            high, low = max(high, projected), min(low, projected)
            if abs(projected) > 1e-12:
                new = min(max(alpha[n] - gradient / (squares[n] + diagonal), 0.0), most)
                if new != alpha[n]:
                    _add(columns, values, starts, r, (new - alpha[n]) * signs[r], w)
                    alpha[n] = new
            place += 1
        if high - low <= tolerance:
            if active == len(order):
                break
            active = len(order)  # look once more at the rows that were passed over
            high_before, low_before = np.inf, -np.inf
            continue
        high_before = high if high > 0 else np.inf
        low_before = low if low < 0 else -np.inf


@njit(cache=True, nogil=True, inline="always")
def _sigmoid(u):
    return 1.0 / (1.0 + np.exp(-u))


@njit(cache=True, nogil=True, inline="always")
def _slope(u):
    s = _sigmoid(u)
    return 4.0 * s * (1.0 - s)


@njit(cache=True, nogil=True)
def _root(square, margin, before, cost):
    """The u of the equation at the head: it grows all the way, so Newton's steps are kept inside a bracket."""
    a = cost * _sigmoid(before)
    low, high = -margin - square * (cost - a), -margin + square * a  # what a in 0 … C leaves for u
    u = min(max(before, low), high)
    for _ in range(30):
        s = _sigmoid(u)
        value = square * (cost * s - a) + margin + u
        if abs(value) < 1e-9:
            break
        if value > 0:
            high = u
        else:
            low = u
        u -= value / (square * cost * s * (1.0 - s) + 1.0)
        if not low < u < high:
            u = 0.5 * (low + high)
    return min(max(u, -700.0), 700.0)


@njit(cache=True, nogil=True, inline="always")
def _dot(columns, values, starts, r, w):
    total = w[len(w) - 1]
    for i in range(starts[r], starts[r + 1]):
        total += values[i] * w[columns[i]]
    return total


@njit(cache=True, nogil=True, inline="always")
def _add(columns, values, starts, r, step, w):
    w[len(w) - 1] += step
    for i in range(starts[r], starts[r + 1]):
        w[columns[i]] += step * values[i]
