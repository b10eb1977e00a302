"""What the words on the page mean, in a sentence each: shown when the reader points at a word with dots under it."""

from __future__ import annotations

import re

from segue.inference.evaluation import MEANINGS as OF_FIGURES
from segue.inference.evaluation import NAMES
from segue.look.page.markup import text

MEANINGS = {NAMES.get(key, key): f"{said[:1].upper()}{said[1:]}." for key, said in OF_FIGURES.items()} | {
    "bits per token": "The mean of -log2 of the probability that the model gives to a token.",
    "tokens": "What the text is cut into: characters, bytes, words, or parts of words.",
    "parameters": "How many numbers the model has learnt; of a model that counts, how many different n-grams it keeps.",
    "tokens/s": "Tokens of training text read in a second of training.",
    "95 % interval": "How far the figure would move on other text of the same kind and size, 19 times in 20.",
    "precision": "Of what the model found, the share that is right.",
    "recall": "Of what there is to find, the share that the model found.",
    "accuracy": "The share of predictions that are right.",
    "span F1": "F1 of whole spans such as names: a span counts if its beginning, end and type are all right.",
    "mean squared error": "The mean of the squared differences between predicted and true numbers.",
    "mean absolute error": "The mean difference between predicted and true numbers, without its sign.",
    "Pearson's r": "How nearly predicted and true numbers lie on a straight line, from -1 to 1.",
    "Spearman's rho": "How nearly predicted and true numbers have the same order, from -1 to 1.",
    "mean negative log score": "The mean of -ln of the scores of a model that has no probabilities.",
    "read as": "How the model read the text: in one go or in parts, and what it remembered from the part before.",
    "surprisal": "-log2 of the probability of a word where it stands, in bits.",
}


def term(name: str) -> str:
    """A name as HTML, with dots under it and its meaning to hover over where it has one."""
    shown = text(name.replace("_", " "))
    return f'<abbr title="{text(MEANINGS[name])}">{shown}</abbr>' if name in MEANINGS else shown


_KNOWN = re.compile(
    "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(MEANINGS, key=len, reverse=True) if " " in name)
    + "|(?<!\\w)(?:perplexity|surprisal|BLEU|chrF|ROUGE-[12L])(?!\\w)"
)


def explained(sentence: str) -> str:
    """A sentence as HTML, each known term explained where it stands first."""
    parts, place, seen = [], 0, set()
    for match in _KNOWN.finditer(sentence):
        if match[0] not in seen:
            parts += [text(sentence[place : match.start()]), term(match[0])]
            place = match.end()
            seen.add(match[0])
    return "".join(parts) + text(sentence[place:])
