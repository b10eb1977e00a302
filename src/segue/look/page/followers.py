"""What an n-gram model expects after one context: a bar a token, a colour an order.

The length of a bar is the probability of the token; its parts are what each order adds, the longest context first.
"""

from __future__ import annotations

from segue.look.explain.evidence import Context, Follower, Followers
from segue.look.page.markup import hue, swatch, text, visible

_LONGEST = 160


def followers(found: Followers, before: str, came: str) -> str:
    """The bars, with the text `before` the place and what `came` there in the text."""
    top = max((one.probability for one in found.tokens), default=1.0)
    rows = "".join(_row(one, top, one.token == came) for one in found.tokens)
    what = "p" if found.normalised else "score"
    shown = f"…{before[-_LONGEST:]}" if len(before) > _LONGEST else before
    after = f"after “<b>{text(visible(shown))}</b>”" if before else "at the beginning of a text"
    true = f" What came there is “<b>{text(visible(came))}</b>”." if came else ""
    head = f'<tr><th>token</th><th class="number">{what}</th><th></th></tr>'
    return (
        f'<p class="aside">The likeliest tokens {after}, in held-out text.{true} '
        "Each bar is made of what the orders add, the longest context first.</p>"
        f'<figure><table class="followers"><thead>{head}</thead><tbody>{rows}</tbody></table>'
        f'<ul class="orders">{_legend(found)}</ul></figure>'
    )


def _row(one: Follower, top: float, came: bool) -> str:
    parts, place = [], 0.0
    for term in reversed(one.terms):
        width = 100 * term.share / top
        if width > 0:
            parts.append(
                f'<rect class="{hue(term.order)}" x="{place:.2f}%" width="{width:.2f}%" height="100%">'
                f"<title>{_said(term.order)}: {term.share:.4g}{_counted(term.count, term.discount)}</title></rect>"
            )
        place += width
    return (
        f'<tr{" class=came" if came else ""}><td><code dir="auto">{text(visible(one.token))}</code></td>'
        f'<td class="number">{one.probability:.4f}</td>'
        f'<td><svg class="stack" role="img" aria-label="{one.probability:.4f}">{"".join(parts)}</svg></td></tr>'
    )


def _legend(found: Followers) -> str:
    items = [f"<li>{swatch(one.order)}{_known(one)}</li>" for one in reversed(found.contexts)]
    if any(one.terms[0].share for one in found.tokens):
        items.append(f"<li>{swatch(0)}1/V: any token</li>")
    return "".join(items)


def _known(one: Context) -> str:
    context = f" “{text(visible(one.text))}”" if one.text else ""
    if not one.seen:
        return f"{_said(one.order)}{context} <small>never seen</small>"
    numbers = f"c(h) = {one.total:,}, N(h) = {one.followers:,}, back-off weight {one.weight:.3f}"
    return f"{_said(one.order)}{context} <small>{numbers}</small>"


def _said(order: int) -> str:
    return f"order {order}" if order else "1/V"


def _counted(count: int, discount: float) -> str:
    return f", from a count of {count:,}{f' less {discount:.2f}' if discount else ''}" if count else ""
