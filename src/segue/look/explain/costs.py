"""What a network over tokens costs before it is made: parameters, operations, memory, and how they grow with the text.

The model is laid out on torch's device that holds nothing, so that 175 G parameters are counted exactly and for free.

    operations of a token, forward     2 for each weight of a matrix that it is multiplied by,
                                       and with attention 4 · L · H · K for each token that it sees
    of a text of T tokens              the first grow with T, the second with T (T + 1) / 2, the pairs that are attended
    backward                           twice as many as forward, so that training takes three times as many
    while training, numbers            1 a parameter for the weight, 1 for its gradient if it learns, then as the
                                       optimiser has it: 2 for AdamW's means, 1 for SGD's momentum, 1 for Muon's where
                                       it takes the matrix and 2 elsewhere; 1 for the mean of the weights, if one is
                                       kept; and what the layers keep for the way back (an estimate: kernels differ)
    while generating                   the weights, and 2 · L · H · K for each token seen: its keys and values

A recurrent network has no second kind of operation and keeps a state of one size, however long the text.
Filters over the letters of a word are applied at each of them; a word is reckoned with 8, its begin and end included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from segue.layers.attention import SelfAttention
from segue.layers.recurrent import Recurrent
from segue.layers.transformer import WIDER
from segue.models.base import Sizes
from segue.models.bert import SHAPES as BERTS
from segue.models.bert import Bert
from segue.models.gpt import SHAPES, Gpt, Shape, Size
from segue.models.network import Network, on_meta
from segue.models.t5 import T5
from segue.models.transformer import Transformer
from segue.training.rates import optimizer
from segue.training.setup import freeze

BYTES = 4
"""Of a number in float32."""
PETAFLOP_DAY = 8.64e19
"""Operations of a day at 10^15 a second."""
LECTURES: dict[Size, str] = {
    "gpt": "117M",
    "gpt2": "117M",
    "gpt2-medium": "345M",
    "gpt2-large": "762M",
    "gpt2-xl": "1542M",
    "gpt3-small": "125M",
    "gpt3-medium": "350M",
    "gpt3-large": "760M",
    "gpt3-xl": "1.3B",
    "gpt3-2.7b": "2.7B",
    "gpt3-6.7b": "6.7B",
    "gpt3-13b": "13.0B",
    "gpt3-175b": "175.0B",
}
"""What the lectures say that the published models have."""
GPT3_TOKENS = 300e9
T5_IDS = 32_128
"""Rows of the published T5s' table: tokens, sentinels, padding, and 28 that no text has."""
PAPER_TOKENS = 37_000
"""Of the vocabulary that Vaswani et al. 2017 share between English and German."""
_GUESSED = {"char": 100, "byte": 258, "space": 10_000, "word": 50_000}
"""Different tokens of a kind, where no text has been read yet; 8,000 of the others."""
LETTERS = 8
"""Letters of a word on average, with its begin and its end."""


@dataclass(frozen=True)
class Costs:
    """The figures; operations are forward ones."""

    parts: dict[str, int]
    """Parameters by the part of the model that holds them."""
    dense: int
    """Operations of a token in the matrices of the layers."""
    head: int
    """Operations of a token in the output layer."""
    attention: int
    """Operations of a token for each token that it sees."""
    kept: int
    """Numbers that generating keeps of each token that was read."""
    state: int
    """Numbers that generating keeps however long the text is."""
    active: int
    """Numbers that training keeps of each token for the way back, about; 0 where that is not known."""
    tied: bool
    """Whether the tokens' vectors are the output weights too."""
    beside: int = 0
    """Operations of a token that training does beside these: those of a second half with the same output layer."""

    @property
    def parameters(self) -> int:
        return sum(self.parts.values())

    def token(self, seen: int) -> int:
        """Operations of one token that sees `seen` tokens, itself among them."""
        return self.dense + self.head + self.attention * seen

    def text(self, length: int) -> int:
        """Operations of a text, each token seeing all before it and itself."""
        return (self.dense + self.head) * length + self.attention * (length * (length + 1) // 2)


def costs(cls: Any, config: Any, sizes: Sizes) -> Costs:
    """Of a network that predicts the next token: `cls` is its class, `config` the recipe's [model]."""
    model = _on_meta(cls, config, sizes)
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        parts[part] = parts.get(part, 0) + parameter.numel()
    tables = (nn.Embedding, nn.EmbeddingBag)
    looked_up = {id(p) for module in model.modules() if isinstance(module, tables) for p in module.parameters()}
    matrices = [(name, p) for name, p in model.named_parameters() if p.dim() >= 2]
    apart = (*model.head_names, *model.training_names)
    inside = [p for name, p in matrices if not name.startswith(apart) and id(p) not in looked_up]
    other = [p.numel() for name, p in matrices if name.startswith(model.training_names or "-")]
    filters = {id(module.weight) for module in model.modules() if isinstance(module, nn.Conv1d)}
    layers = [layer for name, layer in model.named_modules() if not name.startswith(model.training_names or "-")]
    output = [p.numel() for name, p in matrices if name.startswith(model.head_names)]
    if model.tied:
        output = [sizes.vocab_size * model.token_tables[0][0].embedding_dim]
    inner = sum(layer.heads * layer.head_width for layer in model.modules() if isinstance(layer, SelfAttention))
    return Costs(
        parts,
        dense=2 * sum(p.numel() * (LETTERS if id(p) in filters else 1) for p in inside),
        head=2 * sum(output),
        attention=4 * inner,
        kept=2 * inner,
        state=sum(_state(layer) for layer in layers if isinstance(layer, Recurrent)),
        active=_active(config, sizes) if isinstance(config, Gpt.Config) else 0,
        tied=model.tied,
        beside=2 * (sum(other) + sum(output)) if other else 0,
    )


def _on_meta(cls: Any, config: Any, sizes: Sizes) -> Network:
    model: Network = on_meta(lambda: cls(config, sizes))
    return model


def _state(layer: Recurrent) -> int:
    """Numbers that a recurrent layer carries in one row: h, and for an LSTM c."""
    return layer.width * layer.layers * layer.directions * (2 if layer.cell == "lstm" else 1)


def _active(config: Gpt.Config, sizes: Sizes) -> int:
    """Numbers of a token for the way back. A layer: what is normalised and what comes of it, twice; q, k, v and x'; the
    small network after its function and, but for ReLU, before it. Then the last norm and the logits."""
    small = WIDER * config.width * (1 if config.activation == "relu" else 2)
    layer = 4 * config.width + 4 * config.heads * config.head_width + small
    return config.layers * layer + 2 * config.width + 2 * sizes.vocab_size


class Kept(NamedTuple):
    """Numbers that training keeps of the parameters, by what they are called."""

    name: str
    numbers: int
    remark: str = ""


def kept_in_training(cls: Any, config: Any, sizes: Sizes, train: Any) -> list[Kept]:
    """Of a model that is trained as the recipe's [train] says: weights, gradients, what the optimiser keeps, a mean."""
    model, optim = _on_meta(cls, config, sizes), train.optimizer
    freeze(model, train.freeze)
    first, others = (sum(weight.numel() for weight in group.weights) for group in optimizer(model, optim).groups)
    learning = first + others
    found = [Kept("weights", sum(weight.numel() for weight in model.parameters())), Kept("gradients", learning)]
    if optim.name == "adamw":
        found.append(Kept("AdamW's means", 2 * learning, "2 a weight"))
    elif optim.name == "muon":
        remark = "1 a weight of the matrices between embedding and head, 2 of all others"
        found.append(Kept("Muon's and AdamW's means", first + 2 * others, remark))
    elif optim.momentum:
        found.append(Kept("SGD's momentum", learning, "1 a weight"))
    if optim.ema:
        found.append(Kept("mean of the weights", learning, "train.optimizer.ema"))
    elif optim.average:
        found.append(Kept("mean of the weights", learning, "once validation gets no better (train.optimizer.average)"))
    return found


def published(shape: Shape, final_norm: bool = True) -> int:
    """Parameters of a GPT with learned positions and tied vectors, by hand: 12 d^2 + 13 d a layer if H K = d."""
    d, inner = shape.width, shape.heads * shape.head_width
    layer = 4 * d * inner + 3 * inner + 2 * WIDER * d * d + (WIDER + 6) * d
    return (shape.vocab_size + shape.context) * d + shape.layers * layer + 2 * d * final_norm


def petaflop_days(parameters: float, tokens: float) -> float:
    """6 operations for each parameter and token of training, in days at 10^15 operations a second."""
    return 6 * parameters * tokens / PETAFLOP_DAY


# What `segue explain` says


class Section(NamedTuple):
    """A table: its title, and cells of name, figure and remark."""

    title: str
    rows: list[tuple[str, str, str]]


def vocabulary(tokens: Any, config: Any) -> tuple[int, str]:
    """How many different tokens to reckon with before a text is read, and why so many."""
    if tokens.vocab_size:
        return tokens.vocab_size, "tokens.vocab_size"
    if isinstance(config, Gpt.Config) and config.size != "own":
        return SHAPES[config.size].vocab_size, f"as {config.size} has; a text of yours has its own"
    if isinstance(config, Bert.Config) and config.size != "own":
        return BERTS[config.size].vocab_size, f"as {config.size} has; a text of yours has its own"
    if isinstance(config, T5.Config) and config.size != "own":
        return T5_IDS - len(T5.marks(config)), f"as {config.size} has, with its marks {T5_IDS:,}; a text has its own"
    if isinstance(config, Transformer.Config) and config.size != "own":
        return PAPER_TOKENS, "as the paper has, of both sides; a text of yours has its own"
    return _GUESSED.get(tokens.kind, 8000), f"a guess for {tokens.kind} tokens: train, and explain the run"


def explained(cls: Any, config: Any, train: Any, vocab_size: int, why: str, rows: int, length: int) -> list[Section]:
    """All of it in tables; `rows` and `length` are those of a training batch."""
    found = costs(cls, config, Sizes(vocab_size))
    trained = kept_in_training(cls, config, Sizes(vocab_size), train)
    context = cls.window_of(config) or length
    sections = [_parameters(found, config, vocab_size, why), _operations(found, context)]
    sections += [_memory(found, trained, rows, length), _generating(found, context)]
    if found.attention:
        sections.append(_growth(found, context))
    if isinstance(config, Gpt.Config) and config.size != "own":
        sections.append(_sizes(config.size))
    return sections


_PARTS = {"vectors": "tokens' vectors", "positions": "positions", "blocks": "layers", "body": "layers"}
_PARTS |= {"norm": "last norm", "head": "output layer"}


def _parameters(found: Costs, config: Any, vocab_size: int, why: str) -> Section:
    tied = "; the output weights too" if found.tied else ""
    remarks = {"vectors": f"{vocab_size:,} tokens ({why}){tied}"}
    if isinstance(config, Gpt.Config):
        remarks["blocks"] = f"{config.layers:,} of them"
        remarks["norm"] = "pre-LN needs one after the last layer; GPT as published is post-LN and has none"
    rows = [(_PARTS.get(part, part), f"{count:,}", remarks.get(part, "")) for part, count in found.parts.items()]
    return Section("Parameters", [*rows, ("in all", f"{found.parameters:,}", "")])


def _operations(found: Costs, context: int) -> Section:
    rows = [("layers", f"{found.dense:,}", "2 for each weight of a matrix"), ("output layer", f"{found.head:,}", "")]
    if found.attention:
        even = f"as many as the layers' when {found.dense / found.attention:,.0f} are seen"
        rows.append((f"attention, seeing {context:,} tokens", f"{found.attention * context:,}", even))
    if found.beside:
        rows.append(("the other half", f"{found.beside:,}", "in training alone: layers, and the output layer again"))
    total = 3 * (found.token(context) + found.beside)
    rows.append(("in training", f"{total:,}", "forward, and twice as many backward"))
    return Section("Operations of a token", rows)


def _memory(found: Costs, trained: list[Kept], rows: int, length: int) -> Section:
    if found.active:
        batch = f"about: {rows:,} rows of {length:,} tokens (batches.size, batches.length)"
        trained = [*trained, Kept("what layers keep", found.active * rows * length, batch)]
    told = [(part.name, size(BYTES * part.numbers), part.remark) for part in trained]
    total = BYTES * sum(part.numbers for part in trained)
    remark = "" if found.active else "and what layers keep for the way back"
    return Section("Memory of training, float32", [*told, ("in all", size(total), remark)])


def _generating(found: Costs, context: int) -> Section:
    told = [("weights", size(BYTES * found.parameters), "half of it in bfloat16, as of the next line")]
    if found.kept:
        each = f"{size(BYTES * found.kept)} for each of {context:,} tokens seen, in every row"
        told.append(("keys and values", size(BYTES * found.kept * context), each))
    if found.state:
        told.append(("state", size(BYTES * found.state), "however long the text is, in every row"))
    return Section("Memory of generating, float32", told)


def _growth(found: Costs, context: int) -> Section:
    """Bars on a scale on which each step to the right is a factor: the slopes are the powers."""
    lengths = [context * 2**k // 8 for k in range(0, 11, 2) if context * 2**k >= 8]
    linear = [(found.dense + found.head) * n for n in lengths]
    square = [found.attention * (n * (n + 1) // 2) for n in lengths]
    low, high = min(linear + square), max(linear + square)
    rows = []
    for n, line, quadratic in zip(lengths, linear, square, strict=True):
        for name, operations in (("layers", line), ("attention", quadratic)):
            bar = "█" * round(2 + 32 * math.log(operations / low) / math.log(high / low))
            rows.append((f"{n:,} tokens" if name == "layers" else "", f"{operations:.1e} {name}", bar))
    title = "Operations of a text by its length: layers linear, as those of a recurrent network; attention quadratic"
    return Section(f"{title} (bars on a logarithmic scale)", rows)


def _sizes(chosen: Size) -> Section:
    """The published models: ours beside the lectures' figure."""
    rows: list[tuple[str, str, str]] = []
    for name, shape in SHAPES.items():
        count = published(shape, final_norm=name != "gpt")
        mark = "→ " if name == chosen else "  "
        rows.append((mark + name, f"{count:,}", f"{LECTURES[name]:>6}  {_remark(name, shape)}"))
    if chosen.startswith("gpt3"):
        count = published(SHAPES[chosen])
        days = f"6 · N · 300 G tokens = {petaflop_days(count, GPT3_TOKENS):,.4g} petaflop/s-days"
        rows.append(("  operations of training", f"{6 * count * GPT3_TOKENS:.2e}", days))
    return Section("As published (learned positions, tied), and as the lectures round it", rows)


def _remark(name: Size, shape: Shape) -> str:
    if name == "gpt":
        return "norm = post, so without a last norm"
    if name.startswith("gpt2"):
        return f"{published(shape._replace(vocab_size=SHAPES['gpt'].vocab_size)):,} with GPT's 40,478 tokens"
    if name == "gpt3-xl":
        printed = published(shape._replace(heads=24))
        return f"16 heads; the printed 24 of 128 are 3,072 wide, not 2,048, and make {printed:,}"
    if name == "gpt3-13b":
        even = published(shape._replace(heads=1, head_width=shape.width))
        narrow = published(shape._replace(width=5120))
        return f"5,140 / 40 is no whole number: 40 heads of 128; as wide as the layer {even:,}; width 5,120: {narrow:,}"
    return ""


def size(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
