"""Learn a vocabulary from text: the commonest characters or words, or subwords by the `tokenizers` library.

    BPE        Sennrich et al., 2016: again and again, join the commonest pair of neighbours.
    WordPiece  Schuster and Nakajima, 2012; as in the library: BPE whose later parts of a word begin with ##.
    unigram    Kudo, 2018: from many candidates, drop those that cost the likelihood least.

The same text gives the same vocabulary. The library's own order is random in two places (its hash maps have a new
key in every process), and both are fixed here: the letters of WordPiece, and the scores of unigram.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from tokenizers import Tokenizer, normalizers, trainers

from segue.errors import InputError
from segue.tokens import file_format
from segue.tokens.file_format import RESERVED, Kind
from segue.tokens.split import Splitter, add_line_blanks, blank_words, parts, unicode_pattern

TEXTS_AT_ONCE = 4096
_LONGEST = 1000
_LONG = re.compile(rf"(\S{{{_LONGEST + 1},}})")
"""A word that is longer than what unigram tokens are learnt from at once."""


def vocabulary(
    kind: Kind, texts: Iterable[str], vocab_size: int, min_count: int, lowercase: bool = False
) -> dict[str, Any]:
    """Learn the content of tokenizer.json from texts; `vocab_size` 0 means no limit (not for subwords)."""
    if kind == "byte":
        return file_format.write(kind, byte_names())
    texts = _not_empty(texts)
    if kind == "bpe":
        return bpe(texts, vocab_size, min_count)
    if kind == "unigram":
        return unigram(texts, vocab_size)
    if kind == "sentencepiece":
        from segue.tokens import sentencepiece

        return sentencepiece.learn(texts, vocab_size)
    if kind == "wordpiece":
        return wordpiece(texts, vocab_size, min_count, lowercase)
    pattern = unicode_pattern() if kind == "word" else ""
    split = Splitter(pattern)
    counts: Counter[str] = Counter()
    if kind == "space":
        counts = _count_words(texts)
    for text in texts:  # empty if the loop above has read them
        if kind == "word":
            for part in parts(add_line_blanks(text)):
                counts.update(split(part))
        else:
            counts.update(text)
    tokens = commonest(counts, vocab_size, min_count)
    if not tokens:
        raise InputError(
            f"No {kind} token is seen {min_count} times or more in the training text. "
            "Give more text, or lower tokens.min_count."
        )
    return file_format.write(kind, tokens, pattern)


def _count_words(texts: Iterator[str]) -> Counter[str]:
    """Count words between spaces; many texts by a compiled loop, in groups."""
    counts: Counter[str] = Counter()
    group = list(islice(texts, TEXTS_AT_ONCE))
    if len(group) < TEXTS_AT_ONCE:
        for text in group:
            counts.update(blank_words(text))
        return counts
    from segue.tokens.space_words import WordTable, joined

    table = WordTable()
    while group:
        together = joined(group)
        if together is not None:
            table.count(together)
        else:
            for text in group:
                counts.update(blank_words(text))
        group = list(islice(texts, TEXTS_AT_ONCE))
    counts.update({word.decode(): count for word, count in zip(table.words(), table.counts.tolist(), strict=True)})
    return counts


def _not_empty(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; InputError if all are empty."""
    filled = filter(None, texts)
    first = next(filled, None)
    if first is None:
        raise InputError("The training text is empty, so no tokens can be learnt from it. Give a text.")
    return chain([first], filled)


def commonest(counts: Counter[str], vocab_size: int, min_count: int) -> list[str]:
    """Return the tokens seen `min_count` times or more, most frequent first; at most `vocab_size` with the reserved."""
    often = [(-count, token) for token, count in counts.items() if count >= min_count and token not in RESERVED]
    tokens = [token for _, token in sorted(often)]
    return tokens[: vocab_size - len(RESERVED)] if vocab_size else tokens


def byte_names() -> list[str]:
    """Return the library's names of the bytes 0 to 255: as themselves if visible, else from U+0100 on (space is Ġ)."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


def bpe(texts: Iterable[str], vocab_size: int, min_count: int) -> dict[str, Any]:
    """Learn byte-level BPE, as the content of tokenizer.json."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(RESERVED),
        initial_alphabet=byte_names(),
        show_progress=False,
    )
    model = _train("bpe", texts, trainer)
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return file_format.write("bpe", tokens[2:], unicode_pattern(), merges=model["merges"])


def unigram(texts: Iterable[str], vocab_size: int) -> dict[str, Any]:
    """Learn a byte-level unigram model, as the content of tokenizer.json."""
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size,
        special_tokens=list(RESERVED),
        unk_token=RESERVED[file_format.UNK],
        initial_alphabet=byte_names(),
        shrinking_factor=0.75,
        n_sub_iterations=2,
        max_piece_length=16,
        show_progress=False,
    )
    model = _train("unigram", chain.from_iterable(map(_without_long_words, texts)), trainer)
    scores = _settled({name: score for name, score in model["vocab"] if name not in RESERVED})
    tokens = sorted(scores, key=lambda name: (-scores[name], name))
    return file_format.write("unigram", tokens, unicode_pattern(), scores=[scores[name] for name in tokens])


def _without_long_words(text: str) -> Iterator[str]:
    """Yield a text, cut inside words of more than _LONGEST characters: the library overflows its stack on a piece of
    text that is long and comes twice."""
    if not _LONG.search(text):
        yield text
        return
    for part in _LONG.split(text):
        yield from (part[i : i + _LONGEST] for i in range(0, len(part), _LONGEST)) if _LONG.fullmatch(part) else (part,)


def _settled(scores: dict[str, float]) -> dict[str, float]:
    """Make scores independent of the order of the library's sums and hash maps.

    Sums differ in their last digits, so four are kept. A byte that the model did not keep gets the lowest score plus
    0.0001 times its place in a random order, so every byte in that reach is put on the lowest.
    """
    lowest = round(min(scores.values()), 4)
    reach = lowest + 0.0001 * 257
    return {name: lowest if len(name) == 1 and score < reach else round(score, 4) for name, score in scores.items()}


def wordpiece(texts: Iterable[str], vocab_size: int, min_count: int, lowercase: bool = False) -> dict[str, Any]:
    """Learn WordPiece over the words of BERT, as the content of tokenizer.json; `lowercase`: in small letters and
    without accents.

    The library numbers the letters within words (##a) in a random order, and those numbers break ties. So the text
    is read twice: once for the letters alone, then with the letters given in a fixed order.
    """
    folded = file_format.BERT | {"lowercase": lowercase}
    fold = normalizers.BertNormalizer(lowercase=True).normalize_str
    kept = [fold(text) for text in texts] if lowercase else list(texts)
    letters = _letters(kept, vocab_size // 4)
    first = _train("wordpiece", kept, _wordpiece_trainer(list(RESERVED), letters, 0, min_count))
    fixed = [*RESERVED, *sorted(set(first["vocab"]) - set(RESERVED))]
    model = _train("wordpiece", kept, _wordpiece_trainer(fixed, letters, vocab_size, min_count))
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return file_format.write("wordpiece", tokens[2:], normalizer=folded)


def _letters(texts: list[str], limit: int) -> list[str]:
    """Return the commonest characters after BERT's normaliser; each takes two ids, alone and with ##."""
    counts = Counter(chain.from_iterable(texts))
    left = set(normalizers.BertNormalizer(lowercase=False).normalize_str("".join(counts))) - {" "}
    return commonest(Counter({letter: counts[letter] for letter in left}), limit + len(RESERVED), 1)


def _wordpiece_trainer(known: list[str], letters: list[str], vocab_size: int, min_count: int) -> Any:
    return trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=known,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix="##",
        show_progress=False,
    )


def _train(kind: Kind, texts: Iterable[str], trainer: Any) -> dict[str, Any]:
    """Run the library's training from an empty file of that kind; return the model as the library writes it."""
    blank = file_format.write(kind, [], unicode_pattern(), scores=[] if kind == "unigram" else None)
    tokenizer = library(blank)
    tokenizer.train_from_iterator(chain.from_iterable(map(parts, texts)), trainer)
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


def library(file: dict[str, Any]) -> Tokenizer:
    """Make the library's tokenizer from a file's content."""
    return Tokenizer.from_str(json.dumps(file))
