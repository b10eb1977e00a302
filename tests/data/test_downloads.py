from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from segue.data import downloads
from segue.data.downloads import NAMED, Named, get
from segue.errors import InputError, SegueError

TEXT = b"All the world's a stage.\n" * 10_000


class Handler(BaseHTTPRequestHandler):
    answers: ClassVar = {"/whole": TEXT, "/other": TEXT[::-1], "/longer": TEXT * 3, "/short": TEXT[:-1]}

    def do_GET(self) -> None:
        body = TEXT[:100] if self.path == "/truncated" else self.answers.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(TEXT) if self.path == "/truncated" else len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(
        NAMED, "stage", Named("", len(TEXT), hashlib.sha256(TEXT).hexdigest(), "public domain", "a speech")
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_whole_file_arrives_and_is_not_fetched_again(tmp_path: Path, address: str) -> None:
    seen: list[float] = []
    path = get("stage", tmp_path / "new" / "folder", f"{address}/whole", lambda what, share: seen.append(share))
    assert path.read_bytes() == TEXT
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert [file.name for file in path.parent.iterdir()] == ["stage.txt"]
    assert get("stage", path.parent, f"{address}/gone") == path


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("/truncated", "truncated|IncompleteRead"),
        ("/short", "truncated: 249,999 bytes came; expected 250,000"),
        ("/longer", "too long"),
        ("/other", "is another file: its sha256"),
        ("/gone", "Not Found"),
    ],
)
def test_a_wrong_file_leaves_nothing(tmp_path: Path, address: str, page: str, message: str) -> None:
    with pytest.raises(SegueError, match=message) as caught:
        get("stage", tmp_path, address + page)
    assert caught.value.exit_code == 1
    assert "Nothing was kept" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_one_message(tmp_path: Path, address: str) -> None:
    with pytest.raises(SegueError, match="could not be downloaded"):
        get("stage", tmp_path, "http://127.0.0.1:1/x")
    with pytest.raises(SegueError, match="could not be downloaded"):
        get("stage", tmp_path, "nonsense")


def test_a_damaged_file_is_replaced(tmp_path: Path, address: str) -> None:
    (tmp_path / "stage.txt").write_bytes(TEXT[:-1])
    assert get("stage", tmp_path, f"{address}/whole").read_bytes() == TEXT


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'shakespeare'"):
        get("shakspeare", tmp_path)


def test_a_missing_corpus_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(InputError, match="segue data get shakespeare"):
        downloads.find("shakespeare")
    place = tmp_path / ".cache" / "segue" / "data" / "shakespeare.txt"
    place.parent.mkdir(parents=True)
    place.write_text("x")
    assert downloads.find("shakespeare") == place
