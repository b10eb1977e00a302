"""word2vec: vectors of words, learnt by predicting words from their neighbours (Mikolov et al. 2013).

Every word w has a vector v(w), by which it predicts, and a vector u(w), by which it is predicted. Of the words w1 … wn
of a text, with a window of k words before and after:

    next        p(w_t | w_t-1) = softmax(U v(w_t-1))            one word predicts the next; the first follows a start
    cbow        p(w_t | window) = softmax(U x),  x = the mean of v(w_t-k) … v(w_t+k), w_t left out
    skipgram    p(w_t+j | w_t) = softmax(U v(w_t))              for each j from -k to k, but 0

The softmax runs over all words, which is slow, so with `negatives` = K words drawn as noise with chances q it becomes

    loss = - log sigmoid(u(w)·x) - sum over K noise words n of log sigmoid(-u(n)·x)

whose best u(w)·x is log p(w|x) - log(K q(w)), all but a constant. (The K draws leave w itself out.) After Mikolov
et al., frequent words are passed over now and then (`subsample`), and the window of each word is drawn from 1 … k
(`dynamic`). `v` are the vectors that are kept: nearest, analogy, and any model with model.embeddings = RUN use them.

The lecture's versions are options. cbow there divides by 2k also where the text has fewer words (`divide` = window);
skip-gram predicts the middle word from each neighbour, and multiplies the predictions (`predicts` = centre; `expect`
below). With whole windows that is the same set of pairs; with drawn ones it is not, since it is the predicting word's
window here and the predicted word's there.

Departures from the paper: the noise words of a place are the same for all words near it, which is what makes training
fast; vectors begin between -1/width and 1/width; each of the words that cbow averages gets the whole gradient of their
mean, as in the authors' program, and not its share; there is no hierarchical softmax. What is less frequent than
tokens.min_count is left out of the text before windows are laid.

One thread (train.threads=1) and a seed fix every number. Two or more are faster and write to the same tables without
waiting for one another, so that no two runs are the same to the last digit; figures differ by as much as between seeds.
With a GPU, skip-gram and cbow with noise are learnt there, many places at a time (word_vectors/on_device.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.errors import InputError, SegueError
from segue.models.base import Counted, ModelConfig, Record, Sizes, TrainConfig, WordVectors, check_memory
from segue.ngrams.model_file import Arrays, write_arrays
from segue.word_vectors import learning, noise_words

if TYPE_CHECKING:
    from segue.word_vectors.on_device import DeviceWork

Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]

FIRST = 2
"""The first id that is a word: STOP and UNK stand before it."""
WHOLE, LEAST, MOST = 10_000_000, 5, 25
"""If train.epochs is 0: words to read in all, and the least and the most epochs."""
LARGEST = 1e6
"""Numbers of vectors that are larger show that learning has diverged; those that were learnt are below 10."""
LAST = 500
"""The last learning rate is the first divided by this."""
_LOOK = 0.05
"""Seconds between two checks of the time limit."""
_METHODS = {"skipgram": learning.SKIPGRAM, "cbow": learning.CBOW, "next": learning.NEXT}


class Word2vec(Counted, WordVectors):
    """Word vectors."""

    family = "word vectors"
    task = "embed"

    @dataclass(frozen=True)
    class Config(ModelConfig):
        method: Literal["skipgram", "cbow", "next"] = "skipgram"
        """skipgram: a word predicts each neighbour; cbow: all neighbours predict a word; next: a word the next."""
        width: int = 100
        """Width of the vectors."""
        window: int = 5
        """Window: words before and after that count as neighbours; `next` uses only the one before."""
        dynamic: bool = True
        """Draw the window of each word from 1 to `window`, so that near words count more."""
        negatives: int = 5
        """Negative sampling: noise words for each predicted word (0: the full softmax, for small vocabularies)."""
        power: float = 0.75
        """Draw noise words in proportion to their counts raised to this power."""
        subsample: float = 0.001
        """Subsampling: skip words at random whose share of the text is larger (0: never)."""
        divide: Literal["present", "window"] = "present"
        """cbow: divide by the number of neighbours present, or always by twice the window (the lecture)."""
        predicts: Literal["context", "centre"] = "context"
        """skipgram: a word predicts its neighbours (the paper), or each neighbour the word (the lecture)."""

        def __post_init__(self) -> None:
            for name in ("width", "window"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more")
            if self.negatives < 0:
                raise ValueError(f"negatives is {self.negatives}; it must be 0 (the full softmax) or more")
            for name in ("power", "subsample"):
                if not 0 <= getattr(self, name) < float("inf"):
                    raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")

    @dataclass(frozen=True)
    class Train(TrainConfig):
        epochs: int = 0
        """Epochs to train; 0: until ten million words are read, but from 5 to 25 epochs."""
        seconds: float = 0.0
        """Train at most this many seconds; the learning rate then falls with the time (0: no limit)."""
        rate: float = 0.05
        """Initial learning rate; it decays linearly to 1/500 of that."""
        threads: int = 2
        """Threads to train with; only 1 gives exactly the same vectors again."""
        seed: int = 0
        """Random seed of the initial vectors and of all draws."""

        def __post_init__(self) -> None:
            if self.epochs < 0:
                raise ValueError(f"epochs is {self.epochs}; it must be 0 (as the text needs) or more")
            if not 0 <= self.seconds < float("inf"):
                raise ValueError(f"seconds is {self.seconds}; it must be 0 (no bound) or more")
            if self.threads < 1:
                raise ValueError(f"threads is {self.threads}; it must be 1 or more")
            if not 0 < self.rate < float("inf"):
                raise ValueError(f"rate is {self.rate}; it must be greater than 0")
            if self.seed < 0:
                raise ValueError(f"seed is {self.seed}; it must be 0 or more")

    def __init__(self, config: Config, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        check_memory(8 * sizes.vocab_size * config.width, "The two tables of vectors take", "model.width")
        self.vectors: Vectors = np.zeros((sizes.vocab_size, config.width), np.float32)
        """v of each id. That of STOP is the start of a text (`next`); that of UNK stays 0."""
        self.outputs: Vectors | None = np.zeros_like(self.vectors)
        """u of each id; None if the vectors were imported, so that nothing can be predicted."""
        self.counts: Ids = np.zeros(sizes.vocab_size, np.int64)
        """The count of each word in the training text."""
        self.epochs = 0.0
        """Epochs read by `fit`: a whole number, unless the time was over first."""

    @classmethod
    def cpu_only(cls, config: Any) -> str:
        if config.method == "next":
            return "model.method=next"
        return "" if config.negatives else "model.negatives=0"

    @property
    def parameters_count(self) -> int:
        """Number of learnt parameters."""
        return self.vectors.size + (0 if self.outputs is None else self.outputs.size)

    # Learning

    @property
    def held_out_chooses(self) -> bool:
        return False

    def fit(
        self,
        store: Any,
        train: Train,
        held_out: NDArray[Any] | None = None,
        done: Callable[[float], None] = lambda share: None,
    ) -> Iterator[Record]:
        """Learn from `store.tokens`, ids w1 … wn STOP w1 …; a record for each epoch."""
        text = np.asarray(store.tokens)
        self.counts = np.bincount(text, minlength=self.sizes.vocab_size).astype(np.int64)
        self.counts[:FIRST] = 0
        if (self.counts > 0).sum() < 2:
            raise InputError(
                f"The text has {int((self.counts > 0).sum())} different words, and a word is learnt against others. "
                "Expected two or more; tokens.min_count=1 keeps those that are seen once."
            )
        most = train.epochs or min(MOST, max(LEAST, WHOLE // len(text)))
        work = self._work(text, replace(train, epochs=most))
        spent = _stopwatch(train.seconds)
        for epoch in range(1, most + 1):
            loss = work.epoch(epoch, done, spent)
            self.epochs = work.tokens / len(text)
            yield Record(step=epoch, kind="train", values={"loss": loss, "epoch": self.epochs})
            if spent() >= 1:
                break
        self.vectors, self.outputs = (np.ascontiguousarray(table[:, : self.config.width]) for table in work.learnt())
        # The greatest of numbers with a NaN among them is NaN, which compares false.
        if not all(float(np.abs(table).max()) < LARGEST for table in (self.vectors, self.outputs)):
            raise SegueError(
                f"The vectors became infinite, NaN or absurdly large: learning diverged with train.rate={train.rate}. "
                "Try a smaller one; the default is 0.05."
            )

    def _work(self, text: NDArray[Any], train: Train) -> _Work | DeviceWork:
        tables, chances, shape = self._begin(train.seed), self._chances(), self._shape()
        if self.device is None or self.cpu_only(self.config):
            return _Work(text, tables, chances, shape, train)
        from segue.word_vectors.on_device import DeviceWork  # import torch only if it is needed

        inputs, outputs = (table[:, : self.config.width] for table in tables)
        rates = train.rate, train.rate / LAST
        return DeviceWork(text, (inputs, outputs), chances, shape, rates, train.epochs, train.seed, self.device)

    def _begin(self, seed: int) -> tuple[Vectors, Vectors]:
        """Initialise the tables in the layout of the loops: v uniform, u zero."""
        rows, width = self.sizes.vocab_size, self.config.width
        inputs, outputs = learning.aligned(rows, width), learning.aligned(rows, width)
        drawn = np.random.default_rng(seed).random((rows, width), dtype=np.float32)
        inputs[:, :width] = (2 * drawn - 1) / width
        inputs[learning.UNK] = 0
        return inputs, outputs

    def _chances(self) -> tuple[Any, Any, Any]:
        noise = noise_words.noise_table(noise_words.noise_chances(self.counts, self.config.power))
        return noise_words.kept(self.counts, self.config.subsample), noise.mark, noise.other

    def _shape(self) -> tuple[int, int, bool, int, bool, bool]:
        """The part of the config that the loops need."""
        c = self.config
        of_centre, by_window = c.predicts == "centre", c.divide == "window"
        return _METHODS[c.method], c.window, c.dynamic, c.negatives, of_centre, by_window

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`: vectors, outputs and counts."""
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "counts": self.counts}
        if self.outputs is not None:
            arrays["outputs"] = self.outputs
        write_arrays(Path(folder) / "model.safetensors", arrays)

    def load(self, folder: Path) -> None:
        arrays = Arrays.of(Path(folder) / "model.safetensors")
        shape = (self.sizes.vocab_size, self.config.width)
        self.vectors = arrays.numbers("vectors", shape, -1e12, 1e12)
        self.counts = arrays.ids("counts", shape[:1], 1 << 62, "i8")
        self.outputs = arrays.numbers("outputs", shape, -1e12, 1e12) if "outputs" in arrays else None

    # Predicting

    def neighbours(self, ids: Sequence[int], place: int) -> list[tuple[int, float]]:
        """Return the words that predict the one at `place`, and the weight of each in x, with a whole window."""
        if self.config.method == "next":
            return [(ids[place - 1] if place else self.sizes.start, 1.0)]
        k = self.config.window
        near = [*ids[max(0, place - k) : place], *ids[place + 1 : place + k + 1]]
        if self.config.method == "skipgram":
            return [(w, 1.0) for w in near]
        whole = 2 * k if self.config.divide == "window" else len(near)
        weights: dict[int, float] = {}
        for w in near:
            weights[w] = weights.get(w, 0.0) + 1.0 / whole
        return list(weights.items())

    def expect(self, near: Sequence[tuple[int, float]]) -> Floats:
        """Compute (V,) p of the word among these (word, weight) neighbours; 0 for STOP and UNK.

        In cbow and next, softmax(U x). In skip-gram each neighbour predicts by itself, and the predictions are
        multiplied and made to sum to one: the softmax of the *sum* of their logits. Where noise was learnt from,
        q of each word is put back in.
        """
        v = self.vectors.astype(np.float64)
        if self.config.method == "skipgram":
            return _softmax(self._paired(self._outputs().astype(np.float64), v, [w for w, _ in near]))
        return self.predicted(sum((weight * v[w] for w, weight in near), start=np.zeros(self.config.width)))

    def predicted(self, x_D: Floats) -> Floats:
        """Compute (V,) softmax(U x), with q of each word put back in where noise was learnt from."""
        return _softmax(self._outputs().astype(np.float64) @ x_D + self._noise_logits())

    def between(self, ids: Sequence[int]) -> Floats:
        """Compute (V,) p of the word that stands among these, half of them before it; with `next`, after one."""
        if self.config.method == "next":
            if len(ids) > 1:
                raise InputError(f"This model predicts a word from the one before it. Expected one, found {len(ids)}.")
            return self.expect([(ids[0], 1.0)])
        if len(ids) > 2 * self.config.window:
            raise InputError(
                f"{len(ids)} words around one: this model's window has {2 * self.config.window}. Leave some out."
            )
        half = (len(ids) + 1) // 2
        return self.expect(self.neighbours([*ids[:half], self.sizes.stop, *ids[half:]], half))

    def _paired(self, u: Floats, v: Floats, ids: list[int]) -> Floats:
        """Sum log p over the neighbours, as a function of the middle word, up to a constant."""
        if self.config.predicts == "centre":
            return np.asarray(u @ v[ids].sum(0) + len(ids) * self._noise_logits())
        # The middle word predicts its neighbours: by Bayes, how often it is and how well it explains each of them.
        fit = v @ u[ids].sum(0) + np.log(np.maximum(self.counts, 0.5) / max(1, self.counts.sum()))
        return np.asarray(fit if self.config.negatives else fit - len(ids) * self._log_sums())

    def _noise_logits(self) -> Floats:
        if not self.config.negatives:
            return np.zeros(self.sizes.vocab_size)
        with np.errstate(divide="ignore"):
            return np.log(noise_words.noise_chances(self.counts, self.config.power))

    def _log_sums(self) -> Floats:
        """Compute the log of the softmax denominator of each predicting word."""
        u = self._outputs()[FIRST:]
        parts = [np.logaddexp.reduce(rows @ u.T, axis=1) for rows in np.array_split(self.vectors, 1 + len(u) // 512)]
        return np.concatenate(parts).astype(np.float64)

    def middle(self, near: Ids, mask: NDArray[np.bool_], candidates: Ids) -> Floats:
        """Compute (rows, candidates): how much likelier than its frequency each candidate is between its neighbours.

        `near` are (rows, 2k) ids, real where `mask` is. The mean of what the neighbours say one by one, which for cbow
        is what their mean says.
        """
        u, v = self._outputs(), self.vectors
        turned = self.config.method == "skipgram" and self.config.predicts == "context"
        given, asked = (u, v) if turned else (v, u)
        count = np.maximum(mask.sum(1, keepdims=True), 1)
        mean = (given[near] * mask[:, :, None]).sum(1) / count
        scores = np.einsum("rcd,rd->rc", asked[candidates], mean.astype(np.float32)).astype(np.float64)
        if turned:
            return np.asarray(scores if self.config.negatives else scores - self._log_sums()[candidates])
        shares = np.log(np.maximum(self.counts, 0.5))[candidates]
        return np.asarray(scores + self._noise_logits()[candidates] - shares)

    def _outputs(self) -> Vectors:
        if self.outputs is None:
            raise InputError("These vectors were imported without the other table, so that they predict nothing.")
        return self.outputs


class _Work:
    """The threads of a training."""

    def __init__(self, text: NDArray[Any], tables: Any, chances: Any, shape: Any, train: Word2vec.Train) -> None:
        self.spans = _spans(text, train.threads)
        count = len(self.spans)
        self.total = len(text) * train.epochs
        rates = (train.rate, train.rate / LAST, float(self.total))
        self.same = (text, tables, chances, shape, rates, learning.sigmoid_table())
        self.states = noise_words.seeds(train.seed, count)
        self.read = np.zeros(count + 2, np.int64)
        """Tokens that each thread has read; those by which time is ahead of them; and whether to stop."""
        self.loss = np.zeros((count, 2))
        self.pool = ThreadPoolExecutor(count)
        self._part(0, (0, 0))  # compile here once, not in every thread

    @property
    def tokens(self) -> int:
        """Number of tokens read."""
        return int(self.read[:-2].sum())

    def epoch(self, number: int, done: Callable[[float], None], spent: Callable[[], float]) -> float:
        """Run all threads once through their part of the text, or until time is over; return the mean loss."""
        self.loss[:] = 0
        learned = [self.pool.submit(self._part, i) for i in range(len(self.spans))]
        try:
            pending: Any = learned
            while pending:
                pending = wait(pending, _LOOK).not_done
                self._heed(spent())
                done(min(1.0, float(self.read[:-1].sum()) / self.total))
        except BaseException:
            self.read[-1] = 1  # an interrupted training asks its threads to stop
            raise
        for part in learned:
            part.result()
        total, count = self.loss.sum(0)
        return float(total / max(1, count))

    def _heed(self, spent: float) -> None:
        """Let the learning rate follow the time if a larger share of the time than of the text is over."""
        self.read[-2] = max(0, int(spent * self.total) - self.tokens)
        if spent >= 1:
            self.read[-1] = 1

    def learnt(self) -> tuple[Vectors, Vectors]:
        """Return the two tables as they are now."""
        inputs, outputs = self.same[1]
        return inputs, outputs

    def _part(self, i: int, span: tuple[int, int] | None = None) -> None:
        text, tables, chances, shape, rates, table = self.same
        state = np.ones(1, np.uint64) if span else self.states[i : i + 1]
        span = span or self.spans[i]
        learning.learn(text, span, tables, chances, shape, rates, table, state, self.read, i, self.loss)


def _softmax(logits: Floats) -> Floats:
    """Compute p of every word; STOP and UNK are none."""
    p: Floats = np.exp(logits[FIRST:] - logits[FIRST:].max())
    return np.concatenate((np.zeros(FIRST), p / p.sum()))


def _stopwatch(seconds: float) -> Callable[[], float]:
    """Return a function that gives the share of the time that is over; always 0 without a limit."""
    began = time.perf_counter()
    return lambda: (time.perf_counter() - began) / seconds if seconds else 0.0


def _spans(text: NDArray[Any], threads: int) -> list[tuple[int, int]]:
    """Split the text into one part a thread, of similar length and of whole texts; fewer for a short text."""
    ends = np.flatnonzero(text == learning.STOP) + 1
    wanted = len(text) * np.arange(1, threads) // threads
    cuts = ends[np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)] if len(ends) else wanted
    edges = [0, *dict.fromkeys(int(cut) for cut in cuts if 0 < cut < len(text)), len(text)]
    return list(pairwise(edges))
