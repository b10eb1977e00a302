"""The routes: the page, and the JSON API that it uses. GET /openapi.json describes the API.

An error is {"error": "one sentence"}: 400 where the request is wrong, 403 where it comes from elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segue import __version__
from segue.errors import SegueError
from segue.look import page
from segue.runs.folder import to_json
from segue.serve import engine as limits
from segue.serve.engine import Answer, Engine

STATIC = Path(__file__).parent / "static"
LOOK = Path(page.__file__).parent / "page.css"
"""The style sheet of the reports, so that the page looks like them."""
MAX_HEADERS = 100
"""Most header lines of a request: browsers send about 20."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{1,5})?")
"""A Host header: a name or an address, and a port."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; media-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Text = Annotated[str, Field(max_length=limits.MAX_CHARACTERS)]
Source = Annotated[str, Field(max_length=limits.MAX_ENCODED)]
"""A text or, for a run whose sources are sounds or pictures, a data URI: the engine knows how long it may be."""


class Question(BaseModel):
    """The fields of every request."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    run: Annotated[str, Field(description="The name of a run, as /api/runs gives it.")]


class Stream(Question):
    """A request for a text; null leaves a setting as in the run's recipe."""

    prompt: Text = ""
    max_tokens: Annotated[int, Field(ge=1, le=limits.MAX_TOKENS)] = 200
    temperature: Annotated[float | None, Field(ge=0, description="0 is greedy.")] = None
    top_k: Annotated[int | None, Field(ge=0, description="Sample from the k likeliest; 0: from all.")] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, description="Nucleus sampling; 1: from all.")] = None
    start: Annotated[bool | None, Field(description="Feed the start mark before the prompt.")] = None
    seed: Annotated[int | None, Field(ge=0)] = None

    def settings(self) -> dict[str, Any]:
        """Return the keys of [decode] that were given."""
        return self.model_dump(exclude={"run", "prompt", "n"}, exclude_none=True)


class Generate(Stream):
    """A request for several texts."""

    n: Annotated[int, Field(ge=1, le=limits.MAX_TEXTS)] = 1


class Score(Question):
    """A text to score token by token."""

    text: Source


class Shown(Question):
    """A sound or a picture to show."""

    text: Source


class Fill(Question):
    """A text with holes to fill."""

    text: Annotated[Text, Field(description="With [MASK] or <mask> in the place of each token to be filled in.")]
    top: Annotated[int, Field(ge=1, le=limits.MAX_TOP)] = 10
    together: Annotated[bool, Field(description="Fill the surest hole first, then the others given it.")] = False


class Embed(Question):
    """Texts to compute vectors of."""

    texts: Annotated[list[Text], Field(max_length=limits.MAX_ROWS)]
    pooling: Annotated[str, Field(description="mean (of the tokens), first or last.")] = "mean"
    layer: Annotated[int | None, Field(ge=0, description="By default the last; 0: the vectors of the tokens.")] = None
    normalise: Annotated[bool, Field(description="Vectors of length 1.")] = False


class Next(Question):
    """A text, to predict its next token."""

    context: Text = ""
    top: Annotated[int, Field(ge=1, le=limits.MAX_TOP)] = 10


class Look(Question):
    """A look into a model while it reads a text; null leaves an option as the view has it."""

    text: Source = ""
    view: Annotated[str, Field(description="One of the run's views (/api/runs); by default the first.")] = ""
    beside: Annotated[str | None, Field(alias="with", description="Another run, to be shown beside it.")] = None
    target: Annotated[Text | None, Field(description="Translators: the target of the source.")] = None
    layer: Annotated[int | None, Field(ge=0)] = None
    head: Annotated[int | None, Field(ge=0)] = None
    top: Annotated[int | None, Field(ge=1, le=limits.MAX_TOP)] = None

    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return self.model_dump(include={"target", "layer", "head", "top"}, exclude_none=True)


class Nearest(Question):
    """A word, or words with signs between, to find the nearest words."""

    text: Annotated[Text, Field(description="king, or: king - man + woman")]
    top: Annotated[int, Field(ge=1, le=limits.MAX_TOP)] = 10


class Predict(Question):
    """Texts to label, tag or translate, or questions, each with a tab and the text that answers it."""

    texts: Annotated[
        list[Source],
        Field(
            max_length=limits.MAX_ROWS,
            description="Texts or, where /api/runs gives the run another source, data:audio/wav;base64,…, "
            "data:image/png;base64,… or items of a built-in corpus (tones:17).",
        ),
    ]
    explain: Annotated[bool, Field(description="Classifiers: also how much each word mattered.")] = False
    alignment: Annotated[bool, Field(description="Translations: also where each word comes from.")] = False
    beam: Annotated[int | None, Field(ge=0, le=limits.MAX_BEAM, description="Of translations; 0 draws.")] = None
    length_penalty: Annotated[float | None, Field(ge=0, description="Beam: above 0 favours longer texts.")] = None
    coverage_penalty: Annotated[float | None, Field(ge=0, description="Beam: cover all of the source.")] = None
    n_best: Annotated[
        int | None, Field(ge=1, le=limits.MAX_BEAM, description="Translations or answers for each text.")
    ] = None
    no_repeat: Annotated[int | None, Field(ge=0, description="No n-gram of this size comes twice; 0: any may.")] = None
    max_tokens: Annotated[
        int | None, Field(ge=1, le=limits.MAX_TOKENS, description="Translations, answers: at most.")
    ] = None
    threshold: Annotated[float | None, Field(description="How much likelier than none an answer is.")] = None
    length_ratio: Annotated[float | None, Field(ge=0, description="Most tokens for a token of the source.")] = None
    empty: Annotated[bool | None, Field(description="Whether a translation may be empty.")] = None
    prefix: Annotated[Text | None, Field(description="Translations begin with this text.")] = None
    temperature: Annotated[float | None, Field(ge=0, description="Without a beam: 0 is greedy.")] = None
    top_k: Annotated[int | None, Field(ge=0, description="Without a beam: sample from the k likeliest.")] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, description="Without a beam: nucleus sampling.")] = None
    seed: Annotated[int | None, Field(ge=0)] = None

    def settings(self) -> dict[str, Any]:
        """Return the keys of [decode] that were given; null leaves one as in the run's recipe."""
        return self.model_dump(exclude={"run", "texts", "explain", "alignment"}, exclude_none=True)


class Problem(BaseModel):
    """An error."""

    error: str


class StrictJSON(JSONResponse):
    """JSON in which an infinite figure is null."""

    def render(self, content: Any) -> bytes:
        return to_json(content).encode(errors="replace")


def create_app(engine: Engine, local: bool = True) -> FastAPI:
    """Make the page and the API of some runs; `local` refuses requests for another host name than this machine's."""
    app = FastAPI(
        title="Segue",
        version=__version__,
        docs_url=None,  # FastAPI's own pages load their scripts from elsewhere
        redoc_url=None,
        responses={"4XX": {"model": Problem}},
    )
    app.add_middleware(Guard, local=local, most=engine.max_body)
    _add_errors(app)
    _add_routes(app, engine)

    @app.get("/page.css", include_in_schema=False)
    async def palette() -> FileResponse:
        return FileResponse(LOOK)

    @app.post("/{path:path}", include_in_schema=False)
    async def unknown(path: str) -> None:  # the static files would answer that POST is not allowed
        raise HTTPException(404, f"There is no /{path} here. GET /openapi.json describes the API.")

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


def _add_routes(app: FastAPI, engine: Engine) -> None:
    @app.get("/api/runs")
    async def runs() -> StrictJSON:
        """List the runs: name, task, model, kind of tokens, labels, figures, default settings of decoding, and what a
        source is: text, sound (with its rate) or picture (with its pixels)."""
        return StrictJSON(engine.describe())

    @app.post("/api/generate")
    async def generate(ask: Generate, request: Request) -> StrictJSON:
        """Generate texts that follow a prompt: {texts, dead_ends, start_mark, unknown}; unknown are the prompt's words
        read as UNK.

        dead_ends: whether a text ended since nothing could follow (a model without smoothing). start_mark: whether the
        start mark was fed before the prompt."""
        served = engine[ask.run]
        return StrictJSON(await _unless_left(request, served.generate(ask.prompt, ask.n, ask.settings())))

    @app.post("/api/stream", response_class=StreamingResponse)
    async def stream(ask: Stream) -> StreamingResponse:
        """Stream the first text of /api/generate as server-sent events: {text} …, then {done, tokens, ended, dead_end,
        start_mark, unknown}.

        An error on the way is {error}. Closing the connection stops the generation.
        """
        events = engine[ask.run].stream(ask.prompt, ask.settings())
        first = await anext(events)  # raise errors of the request before the stream begins
        return StreamingResponse(_messages(first, events), media_type="text/event-stream")

    @app.post("/api/score")
    async def score(ask: Score) -> StrictJSON:
        """Score a text: {tokens: [{token, logprob, bits}], logprob, bits, bytes, perplexity, start_mark, unknown}; the
        last is the end. Of a translator: the target of a text "source<TAB>target", given the source."""
        served = engine[ask.run]
        return StrictJSON(await served.do(served.score, ask.text))

    @app.post("/api/fill")
    async def fill(ask: Fill) -> StrictJSON:
        """Fill the holes of a text (masked language models): {text, filled, holes: [[{token, probability, text}]],
        unread, unknown}; unread counts the tokens outside the window."""
        served = engine[ask.run]
        return StrictJSON(await served.do(served.fill, ask.text, ask.top, ask.together))

    @app.post("/api/embed")
    async def embed(ask: Embed) -> StrictJSON:
        """Compute vectors of texts from a network's hidden states: {vectors: [[number]]}, in the order of the texts."""
        served = engine[ask.run]
        return StrictJSON(await served.do(served.embed, ask.texts, ask.pooling, ask.layer, ask.normalise))

    @app.post("/api/next")
    async def next_tokens(ask: Next) -> StrictJSON:
        """Predict the likeliest tokens after a text: {next: [{token, probability}], start_mark, unknown}; the end is
        "</s>"."""
        served = engine[ask.run]
        return StrictJSON(await served.do(served.next, ask.context, ask.top))

    @app.post("/api/look")
    async def look(ask: Look) -> StrictJSON:
        """What a model does inside: {kind, title, note, panels, rows, columns, values}, values by panel, row, column.

        With a second run also beside: [the same of that run]."""
        served = engine[ask.run]
        view = ask.view or next(iter(served.views), "")
        shown = await served.do(served.look, ask.text, view, ask.options())
        if ask.beside is not None:
            second = engine[ask.beside]
            shown = shown._replace(beside=(await second.do(second.look, ask.text, view, ask.options()),))
        return StrictJSON(shown.to_dict())

    @app.post("/api/source")
    async def source(ask: Shown) -> StrictJSON:
        """Show a sound or a picture as the model reads it: {picture} as a data URI, of sound its spectrogram, with
        {sound, seconds}."""
        served = engine[ask.run]
        return StrictJSON(await served.do(served.source, ask.text))

    @app.post("/api/nearest")
    async def nearest(ask: Nearest) -> StrictJSON:
        """Find the words nearest to a word or a sum of words, by 3CosAdd: {plus, minus, nearest: [{word, score}]}."""
        served = engine[ask.run]
        return StrictJSON(await served.do(served.nearest, ask.text, ask.top))

    @app.post("/api/predict")
    async def predict(ask: Predict, request: Request) -> StrictJSON:
        """Predict: {predictions: [{label, probabilities} or {words, tags, probabilities} or {translation, logprob} or
        {answer, begin, end, score}, each with cut]}. Tags of spans come with entities: [{text, type, start, end,
        probability}]. Places of an answer count the characters of the text; null: there is none.

        With explain each label comes with words: [{word, drop}], the log-odds that the decision loses without the word.
        Translations also come with decode: the settings that they were written with; those of n_best with best:
        [{translation, logprob, score}]; with alignment also alignment: [[source word, target word]], counted from 0;
        of a sound [{word, start, end}] in seconds, of a picture [{word, frame, row, column}], counted from 1.
        """
        if ask.explain and len(ask.texts) > limits.MAX_EXPLAINED:
            raise HTTPException(400, f"explain: at most {limits.MAX_EXPLAINED} texts are explained at once.")
        served = engine[ask.run]
        predicted = served.predict(ask.texts, ask.explain, ask.settings(), ask.alignment)
        return StrictJSON(await _unless_left(request, predicted))


async def _unless_left(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Do some work, and stop it when the client closes the connection."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(499, "The client has closed the connection.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _messages(first: Answer, rest: AsyncIterator[Answer]) -> AsyncGenerator[str, None]:
    """Format answers as server-sent events."""
    yield f"data: {to_json(first)}\n\n"
    try:
        async for event in rest:
            yield f"data: {to_json(event)}\n\n"
    except SegueError as error:
        yield f"data: {to_json({'error': str(error)})}\n\n"


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(SegueError)
    async def wrong(_: Request, error: SegueError) -> StrictJSON:
        return StrictJSON({"error": str(error)}, 400)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> StrictJSON:
        return StrictJSON({"error": error.detail}, error.status_code)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> StrictJSON:
        return StrictJSON({"error": _complaint(error.errors()[0], request.url.path)}, 400)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> StrictJSON:
        return StrictJSON({"error": f"Something went wrong inside Segue: {type(error).__name__}: {error}."}, 500)


_ASKED: dict[str, type[Question]] = {
    f"/api/{form.__name__.lower()}": form
    for form in (Generate, Stream, Score, Fill, Embed, Next, Look, Nearest, Predict)
} | {"/api/source": Shown}


def _complaint(found: Any, path: str) -> str:
    """Describe the first error of a request in a sentence."""
    place = ".".join(str(part) for part in found["loc"][1:])
    if found["type"] == "json_invalid" or not place:
        return "A request is a JSON object, sent with Content-Type: application/json."
    if found["type"] == "extra_forbidden" and path in _ASKED:
        keys = [field.alias or name for name, field in _ASKED[path].model_fields.items()]
        return f"{place}: this is no key of {path}. Expected: {', '.join(keys)}."
    return f"{place}: {found['msg']}."


class Guard:
    """Refuses requests that are too long or come from another site, and adds the security headers.

    A web page anywhere can have its name point at 127.0.0.1 and so reach a server there (DNS rebinding);
    its requests carry that name in the Host header, by which they are recognised.
    """

    def __init__(self, app: ASGIApp, local: bool, most: int) -> None:
        """`most`: bytes of a request."""
        self.app, self.local, self.most = app, local, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self.app)(scope, _counted(receive, self.most), send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> StrictJSON | None:
        host, length = headers.get("host", ""), headers.get("content-length", "")
        if len(headers) > MAX_HEADERS:
            return _refused(f"A request may have {MAX_HEADERS} header lines.", 431)
        name = _HOST.fullmatch(host)
        if self.local and (name is None or name[1].strip("[]").lower() not in _LOCAL):
            return _refused(f"This server answers on this machine alone, not as '{host}'.", 403)
        for origin in headers.getlist("origin") if self.local else ():
            if _site(origin) != host:
                return _refused(f"A page of {origin} may not use this server.", 403)
        if "transfer-encoding" in headers and "content-length" in headers:
            return _refused("A request may not have both Content-Length and Transfer-Encoding.", 400)
        if method == "POST" and not (length.isascii() and length.isdecimal()):
            return _refused("A request must say its Content-Length.", 411)
        if method == "POST" and (len(length) > 20 or int(length) > self.most):
            return _refused(f"A request may have {self.most:,} bytes.", 413)
        return None


def _refused(error: str, status: int) -> StrictJSON:
    """Close the connection too: what is left of the request is not read."""
    return StrictJSON({"error": error}, status, {"Connection": "close"})


def _counted(receive: Receive, most: int) -> Receive:
    """Read a request's body up to the limit, whatever its headers said."""
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, f"A request may have {most:,} bytes.")
        return message

    return counted


def _site(origin: str) -> str | None:
    """Return name and port of the site that an Origin header names, or None if it names none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
