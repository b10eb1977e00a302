"""The large language models of the lectures: their tokens, parameters, operations and dollars, as tables and a picture.

    operations of training = 6 · parameters · tokens        2 forward and 4 backward for each weight and token
    a petaflop/s-day       = 10^15 operations a second for a day = 8.64 · 10^19
    dollars                = petaflop/s-days · 24 hours · GPUs that make a petaflop/s together · the price of an hour

The lectures list ten models; of the eight below they give both figures. What they say that training costs was said in
2019; our dollars are those of today's GPUs, at the speed and the price below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from segue.look.explain.costs import GPT3_TOKENS, Section, petaflop_days, published
from segue.look.inside.view import View
from segue.models.gpt import SHAPES, Size

SPEED = 4e14
"""Operations a second that a GPU makes while it trains: 40 % of the 10^15 that its maker promises."""
PRICE = 2.0
"""Dollars for an hour of such a GPU."""


class Llm(NamedTuple):
    """A large language model as the lectures list it."""

    tokens: float
    parameters: float

    @property
    def tokens_per_parameter(self) -> float:
        return self.tokens / self.parameters

    @property
    def petaflop_days(self) -> float:
        return petaflop_days(self.parameters, self.tokens)


LLMS = {
    "GPT-2": Llm(10e9, 1.5e9),
    "GPT-3": Llm(300e9, 175e9),
    "PaLM": Llm(780e9, 540e9),
    "Chinchilla": Llm(1.4e12, 70e9),
    "LaMDA": Llm(1.56e12, 137e9),
    "LLaMA": Llm(1.4e12, 65e9),
    "LLaMA-2": Llm(2e12, 70e9),
    "LLaMA-3": Llm(15e12, 405e9),
}
GPT3_TRAINING: dict[Size, tuple[float, float]] = {
    "gpt3-small": (0.5e6, 6e-4),
    "gpt3-medium": (0.5e6, 3e-4),
    "gpt3-large": (0.5e6, 2.5e-4),
    "gpt3-xl": (1e6, 2e-4),
    "gpt3-2.7b": (1e6, 1.6e-4),
    "gpt3-6.7b": (2e6, 1.2e-4),
    "gpt3-13b": (2e6, 1e-4),
    "gpt3-175b": (3.2e6, 0.6e-4),
}
"""The tokens of a batch and the learning rate, as the lectures' table has them; 300 G tokens each."""


class Bill(NamedTuple):
    """What the lectures say that a model's training cost."""

    said: str
    parameters: float = 0.0
    tokens: float = 0.0
    """0: the lectures do not say how many, so there is no bill of ours."""
    of: str = ""
    """Where the tokens come from."""


BILLS = {
    "BERT base": Bill("500", 110e6, 1e6 * 256 * 512, "10^6 steps of 256 rows of 512 tokens"),
    "BERT large": Bill("7,000", 340e6, 1e6 * 256 * 512, "the same"),
    "Grover-Mega": Bill("25,000"),
    "XLNet large": Bill("30,000 to 60,000", 340e6, 500e3 * 8192 * 512, "500,000 steps of 8,192 rows of 512, its paper"),
}


def dollars(days: float) -> float:
    """What so many petaflop/s-days cost, at SPEED and PRICE."""
    return days * 24 * 1e15 / SPEED * PRICE


def sections(chosen: Size) -> list[Section]:
    """The tables beside a published size of gpt."""
    return [_gpt3(chosen), _llms(), _bills()]


def _gpt3(chosen: Size) -> Section:
    rows = []
    for name, (batch, rate) in GPT3_TRAINING.items():
        days = petaflop_days(published(SHAPES[name]), GPT3_TOKENS)
        remark = f"rate {rate:.1e}, {GPT3_TOKENS / batch:,.0f} steps, {_days(days)}, {_price(days)}"
        rows.append((f"{'→ ' if name == chosen else '  '}{name}", f"{batch / 1e6:g} M tokens a batch", remark))
    return Section("How GPT-3 was trained: 300 G tokens for each size; the larger, the larger its batch", rows)


def _llms() -> Section:
    rows = []
    for name, one in LLMS.items():
        figures = f"{_count(one.tokens)} tokens, {_count(one.parameters)} parameters"
        days = f"{_days(one.petaflop_days)}, {_price(one.petaflop_days)}"
        rows.append((name, figures, f"{one.tokens_per_parameter:.1f} tokens a parameter, {days}"))
    return Section("Large language models of the lectures", rows)


def _bills() -> Section:
    rows = []
    for name, bill in BILLS.items():
        ours = "the lectures do not say on how many tokens"
        if bill.tokens:
            days = petaflop_days(bill.parameters, bill.tokens)
            ours = f"ours: {_days(days)}, {_price(days)} ({bill.of})"
        rows.append((name, f"{bill.said} dollars", ours))
    title = (
        f"What training costs: the lectures' dollars of 2019, and ours with GPUs of {SPEED / 1e12:,.0f} teraflop/s at "
        f"{PRICE:g} dollars an hour"
    )
    return Section(title, rows)


def _count(number: float) -> str:
    return f"{number / 1e12:g} T" if number >= 1e12 else f"{number / 1e9:g} G"


def _days(days: float) -> str:
    return f"{days:,.0f} petaflop/s-days" if days >= 100 else f"{days:.3g} petaflop/s-day{'s' if days >= 1.005 else ''}"


def _price(days: float) -> str:
    return f"{float(f'{dollars(days):.2g}'):,.0f} dollars"


def picture() -> View:
    """Every model as a point: its parameters and its tokens, both logarithmic."""
    models = list(LLMS.values())
    ratios = ", ".join(f"{name} {one.tokens_per_parameter:.1f}" for name, one in LLMS.items())
    days = ", ".join(f"{name} {one.petaflop_days:,.0f}" for name, one in LLMS.items())
    return View(
        kind="scatter",
        title="Large language models: parameters, and tokens that they were trained on",
        note=f"Tokens a parameter: {ratios}.\nPetaflop/s-days, 6 · parameters · tokens: {days}.",
        panels=("tokens",),
        rows=tuple(LLMS),
        columns=("parameters", "tokens"),
        values_PRC=np.array([[[one.parameters, one.tokens] for one in models]]),
    )
