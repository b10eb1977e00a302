"""What models wrote of sounds and pictures, on the page: errors first, other words marked, nothing fetched."""

from __future__ import annotations

import re

from segue.look.page.curves import Curve
from segue.look.page.heard_and_seen import heard_and_seen, word_errors
from segue.look.page.mistakes import Missed
from segue.look.page.report import Entry, Page, render

PNG, WAV = "data:image/png;base64,iVBORw0=", "data:audio/wav;base64,UklGRg=="
RIGHT = {"source": "a.png", "reference": "a red circle", "output": "a red circle", "picture": PNG}
WRONG = RIGHT | {"source": "b.png", "output": "a small red"}


def panels(drawn: str) -> list[str]:
    return re.findall("<article.*?</article>", drawn)


def test_errors_come_first_with_their_words_marked() -> None:
    first, second = panels(drawn := heard_and_seen([Missed("m", 0, [RIGHT, WRONG])]))
    assert "b.png" in first and "a <mark>small</mark> red <del>circle</del>" in first and PNG in first
    assert "a.png" in second and "<mark>" not in second and "Errors come first" in drawn
    assert "Errors" not in heard_and_seen([Missed("m", 0, [RIGHT])])


def test_another_right_wording_is_no_error() -> None:
    other = WRONG | {"nearest": WRONG["output"]}
    assert "as right as the reference" in heard_and_seen([Missed("m", 0, [other])])
    near = WRONG | {"nearest": "a small red ball"}  # what it was compared with
    assert "a small red <del>ball</del>" in heard_and_seen([Missed("m", 0, [near])])


def test_each_source_stands_once_with_all_models() -> None:
    many = [RIGHT | {"source": f"{i}.png"} for i in range(30)]
    both = heard_and_seen([Missed("one", 0, [*many, WRONG]), Missed("two", 1, [WRONG])])
    first, *others = panels(both)
    assert "one" in first and "two" in first and len(others) == 19
    assert "A model that is not named was right" in both


def test_sounds_have_seconds_and_can_be_played() -> None:
    heard = RIGHT | {"seconds": "1.25", "sound": WAV}
    assert f'<audio controls preload="none" src="{WAV}">' in (drawn := heard_and_seen([Missed("m", 0, [heard])]))
    assert 'class="spectrogram"' in drawn and "1.25 s" in drawn
    assert "<audio" not in heard_and_seen([Missed("m", 0, [RIGHT | {"seconds": "99.00"}])])


def test_names_are_short_and_obey_nothing() -> None:
    """A data URI holds a whole file; whatever a file is called, it is shown and not obeyed."""
    long = "/home/" + "x" * 500 + "/the end.png"
    for name in ("data:image/png;base64," + "A" * 100_000, long, '"><script>'):
        drawn = heard_and_seen([Missed("m", 0, [RIGHT | {"source": name}])])
        assert len(drawn) < 1500 and "<script>" not in drawn
        assert ("the end.png" in drawn) == (name == long)


def test_words_taken_for_others() -> None:
    drawn = word_errors({"substitutions": 3, "deletions": 2, "insertions": 0}, [("nine", "five", 1234)])
    assert "3 substitutions, 2 deletions, 0 insertions" in drawn
    assert re.findall("<bdi>(.*?)</bdi>", drawn) == ["nine", "five"] and "1,234" in drawn
    assert word_errors({}, []) == ""


def test_the_page_of_a_recogniser() -> None:
    entry = Entry(
        *("rnn_seq2seq", "char", {"word error rate": 0.1, "bits per byte": 0.1}, (0.05, 0.2), "", 1, 1.0, 1.0, 1),
        *(Curve(), "", [], None, [WRONG | {"seconds": "1.25", "sound": WAV}], "r"),
        edits={"substitutions": 1, "deletions": 1, "insertions": 0},
    )
    page = Page("t", "rows", ["s"], [entry], "", 0.0, {}, "", "1", "d", best_others={"bits per byte": 0.075})
    written = render(page)
    for said in ("What was heard", "Word errors", "1 substitutions", "The best possible is 0.075 bits per byte."):
        assert said in written
    assert all(source in (PNG, WAV) for source in re.findall('src="(.*?)"', written))
    assert "default-src 'none'; img-src data:; media-src data:;" in written
