// The playground: one form, one panel a run. Whatever a model says goes in as text, never as markup.

const TASKS = {
  lm: { verb: "Write", tab: "Write", what: "Prompt", hint: "Begin a text, or leave this empty" },
  masked_lm: { verb: "Fill", tab: "Fill", what: "Text", hint: "The cows [MASK] grass in the [MASK].", live: true },
  classify: { verb: "Classify", tab: "Classify", what: "Text", hint: "A text to put into a class", live: true },
  tag: { verb: "Tag", tab: "Tag", what: "Text", hint: "A sentence a line", live: true },
  answer: { verb: "Answer", tab: "Answer", what: "Question and text", hint: "A question in the first line\nThe text that answers it below, in as many lines as it has" },
  seq2seq: { verb: "Translate", tab: "Translate", what: "Text", hint: "A sentence a line" },
  embed: { verb: "Find", tab: "Words", what: "Words", hint: "A word a line, or a sum of words: king - man + woman", live: true },
};
const SOURCES = { // runs of seq2seq whose sources are no text
  sound: { verb: "Write it down", tab: "Sound", what: "Sound", hint: "or drop a wav file here", accept: ".wav,audio/wav", type: "audio/wav" },
  picture: { verb: "Describe", tab: "Pictures", what: "Picture", hint: "or drop or paste a PNG, JPEG or GIF here", accept: ".png,.jpg,.jpeg,.gif,image/png,image/jpeg,image/gif", type: "image/png" },
};
const FIGURES = { // the main figure of a task, and how it is said
  lm: ["bits_per_byte", (x) => `${x.toFixed(3)} bits per byte`],
  masked_lm: ["masked_bits_per_byte", (x) => `${x.toFixed(3)} masked bits per byte`],
  classify: ["accuracy", (x) => `${(100 * x).toFixed(1)} % right`],
  tag: ["accuracy", (x) => `${(100 * x).toFixed(1)} % right`], // of spans: span F1
  answer: ["f1", (x) => `F1 ${(100 * x).toFixed(1)} %`],
  seq2seq: ["bleu", (x) => `BLEU ${x.toFixed(1)}`],
  embed: ["cloze", (x) => `${(100 * x).toFixed(1)} % of the gaps filled right, of ten words`],
};
const RATES = { span_f1: "span F1", wer: "word error rate", cer: "character error rate", exact: "exact match" }; // figures that are shares
const MOST_BYTES = 6_000_000; // of a file
const UNSEEN = 1_000_000; // items from this number on are in no training data: built-in corpora have fewer
const BEST = 3; // texts that are shown for a sound or a picture, or answers to a question
const PAUSE = 250; // milliseconds without a key before a model is asked
const MOST_COLOURED = 20000; // tokens; a browser becomes slow beyond
const MOST_WORDS = 20; // lines that are looked up at once
const LEAST_DROP = 0.5; // nats; where no word matters more, none is shaded fully
const END = "</s>";
const MASK = "[MASK]";
const HOLE = /\[MASK\]|<mask>/;
const LOSSY = ["wordpiece", "sentencepiece"]; // tokens that change the text
const HUES = 10;
const SHADES = 9;

const $ = (id) => document.getElementById(id);
const field = (name) => $("settings").elements[name];

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Asking

async function ask(path, body, signal) {
  let response;
  try {
    response = await fetch(`api/${path}`, body && {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is segue serve still running?");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Error(said.error ?? `The server said ${response.status}.`);
}

const answer = async (...question) => (await ask(...question)).json();

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) yield JSON.parse(part.slice("data: ".length));
  }
}

function complain(error) {
  if (error?.name === "AbortError") return; // somebody asked for something newer
  $("error").textContent = error ? error.message : "";
  $("error").hidden = !error;
}

// Saying

const visible = (token) => token.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
const percent = (p) => (p >= 0.0005 ? `${(100 * p).toFixed(1)} %` : "< 0.1 %");
const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const bytes = (text) => new TextEncoder().encode(text).length;
const bitsOf = (bits) => (bits === null ? "impossible (∞ bits)" : `${bits.toFixed(2)} bits`);

function bar(label, probability, marks = "") {
  const line = make("i");
  line.style.width = `${100 * probability}%`;
  return make("li", { className: marks }, label, line, make("b", {}, percent(probability)));
}

// Panels

class Panel {
  constructor(run) {
    this.run = run;
    this.body = make("div");
    this.note = make("p", { className: "note", hidden: true });
    const heading = make("h3", {}, make("i", { className: "swatch" }), run.name);
    this.node = make("article", { className: `panel hue${run.hue}` }, heading, make("p", { className: "facts" }, facts(run)), this.body, this.note);
    this.looking = new AbortController();
  }

  /** Ends what was asked before, and gives the signal for what is asked now. */
  again() {
    this.looking.abort();
    this.looking = new AbortController();
    return this.looking.signal;
  }

  tell(sentence) {
    this.note.textContent = sentence;
    this.note.hidden = !sentence;
  }
}

function facts(run) {
  const rate = RATES[run.figures.figure];
  const [key, say] = rate ? [run.figures.figure, (x) => `${rate} ${(100 * x).toFixed(1)} %`] : FIGURES[run.task];
  const value = run.figures[key];
  const size = run.figures.parameters;
  return [
    run.model, `${run.tokens} tokens`, size ? many(size, "parameter") : "", typeof value === "number" ? say(value) : "",
  ].filter(Boolean).join(" · ");
}

class Writer extends Panel {
  constructor(run) {
    super(run);
    this.said = make("p", { className: "words said", dir: "auto" });
    this.reading = make("p", { className: "reading" });
    this.bars = make("ol", { className: "bars" });
    this.title = make("span");
    this.keep = make("button", { className: "tool", type: "button", title: "Make this text the prompt", hidden: true }, "Use as prompt");
    this.keep.onclick = () => begin(this.text);
    this.body.append(this.said, this.reading, make("h4", {}, this.title, this.keep), this.bars);
    this.said.onclick = ({ target }) => this.choose(this.spans.indexOf(target));
    this.said.onpointerover = ({ target }) => this.read(this.spans.indexOf(target));
    this.said.onpointerleave = () => this.read(-1);
    this.set("", "");
  }

  /** What is shown: the prompt and what follows it. `ended` is true where the model ended the text itself. */
  set(prompt, written, ended = false) {
    Object.assign(this, { prompt, written, ended, spans: [], tokens: [] });
    const empty = prompt || written || this.busy ? "" : make("span", { className: "mute" }, "Nothing is written yet.");
    this.said.replaceChildren(make("span", { className: "given" }, prompt), written, empty);
    this.keep.hidden = !written;
  }

  get text() { return this.prompt + this.written; }

  async follow(prompt) {
    const signal = this.again();
    this.set(prompt, "");
    await this.look(signal);
  }

  async write(prompt, settings, signal) {
    this.again();
    this.tell("");
    this.deadEnd = false;
    this.busy = true;
    this.said.classList.add("busy");
    this.set(prompt, "");
    this.reading.textContent = "";
    try {
      await this.stream(prompt, settings, signal);
    } finally {
      this.busy = false;
      this.said.classList.remove("busy");
      this.set(prompt, this.written, this.ended);
    }
    await this.look(this.again());
  }

  async stream(prompt, settings, signal) {
    const start = performance.now();
    let count = 0;
    try {
      for await (const event of events(await ask("stream", { run: this.run.name, prompt, ...settings }, signal))) {
        if (event.error) throw new Error(event.error);
        if (event.done !== undefined) {
          Object.assign(this, { written: event.done, ended: event.ended, deadEnd: event.dead_end });
          return;
        }
        this.written += event.text;
        this.said.append(event.text);
        this.said.scrollTop = this.said.scrollHeight;
        const rate = ++count / (performance.now() - start) * 1000;
        this.reading.textContent = `${many(count, "token")}, ${rate.toFixed(0)} a second`;
      }
    } catch (error) {
      if (error.name === "AbortError") return; // stopped: what is written stays
      throw error;
    }
    throw new Error("The server broke off.");
  }

  /** Colours the text by surprisal and shows what would follow. */
  async look(signal) {
    await Promise.all([this.colour(signal), this.expect(signal, this.text)]);
  }

  async colour(signal) {
    if (!this.text) { this.reading.textContent = ""; rescale(); return; }
    const { tokens, unknown } = await answer("score", { run: this.run.name, text: this.text }, signal);
    const known = unknown.length ? `Unknown to this model, and read as such: ${[...new Set(unknown)].map(visible).join(", ").slice(0, 200)}` : "";
    this.tell(this.deadEnd ? `The text ends where, without smoothing, nothing can follow. ${known}` : known);
    this.tokens = this.ended ? tokens : tokens.slice(0, -1);
    if (this.tokens.length > MOST_COLOURED) {
      this.tokens = [];
      this.reading.textContent = "Too long to be coloured.";
      return;
    }
    let place = 0;
    this.spans = this.tokens.map(({ token, bits }) => {
      const given = place < this.prompt.length;
      place += token.length;
      const shown = token === "" ? (this.ended && place >= this.text.length ? "∎" : "") : token.replaceAll("\n", "↵\n");
      return make("span", { className: given ? "given" : "", title: bitsOf(bits) }, shown);
    });
    this.said.replaceChildren(...this.spans);
    this.said.scrollTop = this.said.scrollHeight;
    this.read(-1);
    rescale();
  }

  /** One token's bits under the text, or those of the whole. */
  read(index) {
    const token = this.tokens[index];
    if (token) {
      const p = token.logprob === null ? 0 : Math.exp(token.logprob);
      this.reading.textContent = `${token.token ? visible(token.token) : "the end"}   ${bitsOf(token.bits)}, ${percent(p)}`;
    } else if (this.tokens.length) {
      const bits = this.tokens.some((t) => t.bits === null) ? Infinity : this.tokens.reduce((sum, t) => sum + t.bits, 0);
      const rate = LOSSY.includes(this.run.tokens) ? `${(bits / this.tokens.length).toFixed(2)} bits a token` : `${(bits / Math.max(1, bytes(this.text))).toFixed(2)} bits per byte`;
      this.reading.textContent = `${many(this.tokens.length, "token")}, ${rate.replace("Infinity", "∞")}${this.ended ? ", ended by the model" : ""}`;
    }
  }

  /** What the model had expected in the place of a token. */
  async choose(index) {
    if (!this.tokens[index]) return;
    const chosen = this.spans[index].classList.contains("chosen");
    this.spans.forEach((span, i) => span.classList.toggle("chosen", i === index && !chosen));
    this.read(index);
    const before = this.tokens.slice(0, index).map((t) => t.token).join("");
    await (chosen ? this.expect(this.again(), this.text) : this.expect(this.again(), before, this.tokens[index].token)).catch(complain);
  }

  async expect(signal, context, actual) {
    const { next } = await answer("next", { run: this.run.name, context, top: 10 }, signal);
    this.title.textContent = actual !== undefined ? `Expected where ${actual ? visible(actual) : "the end"} stands` : context ? "What comes next" : "How a text begins";
    this.bars.replaceChildren(...next.map(({ token, probability }) => this.candidate(token, probability, context, actual)));
  }

  candidate(token, probability, context, actual) {
    const parted = this.run.tokens === "space" && context && !context.endsWith(" ");
    const whole = (parted ? " " : "") + token;
    const is = actual !== undefined && (token === END ? actual === "" : actual === whole || actual === token);
    const usable = token !== END && token !== "<unk>" && !token.includes("\ufffd") && !LOSSY.includes(this.run.tokens);
    const label = make(usable ? "button" : "span", { className: "token" }, token === END ? "the end" : visible(token));
    if (usable) Object.assign(label, { type: "button", title: "Go on with this", onclick: () => begin(context + whole) });
    return bar(label, probability, is ? "actual" : "");
  }
}

/** Fills holes. */
class Filler extends Panel {
  async follow(text) {
    const signal = this.again();
    this.tell("");
    if (!HOLE.test(text)) return this.body.replaceChildren(make("p", { className: "empty" }, `Write ${MASK} in the place of each token to be filled in.`));
    const { filled, holes, unread, unknown } = await answer("fill", { run: this.run.name, text, top: 10 }, signal);
    const head = (i) => make("h4", {}, holes.length > 1 ? `Hole ${i + 1}` : "What fills the hole");
    this.body.replaceChildren(
      make("p", { className: "translated", dir: "auto" }, filled),
      ...holes.flatMap((fillers, i) => [head(i), make("ol", { className: "bars" }, ...fillers.map((filler) => this.filler(filler)))]));
    this.tell([
      unread ? `The text is ${many(unread, "token")} longer than the model sees at once: each hole is filled from what stands around it.` : "",
      unknown.length ? `Unknown to this model, and read as such: ${[...new Set(unknown)].map(visible).join(", ").slice(0, 200)}` : "",
    ].filter(Boolean).join(" "));
  }

  filler({ token, probability, text }) {
    const label = make("button", { className: "token", type: "button", title: "Put this in", onclick: () => begin(text) }, visible(token));
    return bar(label, probability);
  }
}

class Classifier extends Panel {
  async follow(text) {
    const signal = this.again();
    if (!text.trim()) return this.body.replaceChildren(make("p", { className: "empty" }, "No text yet."));
    const { predictions: [{ label, labels = [label], probabilities, number, words, cut }] } = await answer("predict", { run: this.run.name, texts: [text], explain: true }, signal);
    const ranked = Object.entries(probabilities ?? {}).sort(([, p], [, q]) => q - p);
    const bars = ranked.map(([name, p]) => bar(make("span", { className: "label" }, name), p, labels.includes(name) ? "best" : ""));
    this.body.replaceChildren(probabilities ? make("ol", { className: "bars wide" }, ...bars) : make("p", {}, number.toPrecision(4)), ...this.mattered(words, ranked[0]?.[0], text));
    this.tell(cut ? `${many(cut, "token")} at the end were not read.` : "");
  }

  /** The words, each shaded by what the decision would lose without it. */
  mattered(words, label, text) {
    const most = Math.max(LEAST_DROP, ...words.map(({ drop }) => Math.abs(drop)));
    const spans = words.flatMap(({ word, drop }) => {
      const span = make("span", { className: drop < 0 ? "against" : "", title: `${drop < 0 ? "−" : "+"}${Math.abs(drop).toFixed(2)}` }, word);
      span.style.setProperty("--share", Math.abs(drop) / most);
      return [span, " "];
    });
    const [shaded, underlined] = label === undefined ? ["made it larger", "smaller"] : [`spoke for ${label}`, "against it"];
    const rest = words.length < text.trim().split(/\s+/).length ? "…" : "";
    return [make("h4", {}, "Words that mattered"), make("p", { className: "mattered", dir: "auto" }, ...spans, rest), make("p", { className: "reading" }, `Shaded words ${shaded}, underlined ones ${underlined}.`)];
  }
}

class Tagger extends Panel {
  async follow(text) {
    const signal = this.again();
    const lines = text.split("\n").filter((line) => line.trim());
    if (!lines.length) return this.body.replaceChildren(make("p", { className: "empty" }, "No text yet."));
    const { predictions } = await answer("predict", { run: this.run.name, texts: lines }, signal);
    this.body.replaceChildren(...predictions.map(({ words, tags, probabilities, entities }) => make("p", { className: "tagged" }, ...words.map((word, i) => this.word(word, tags[i], probabilities?.[i], entities)))));
    const cut = predictions.reduce((sum, one) => sum + one.cut, 0);
    this.tell(cut ? `${many(cut, "word")} at the end of long lines were not read.` : "");
  }

  /** A word and its tag; where tags are spans, the type of its span. */
  word(word, tag, probability, entities) {
    const kinds = [...new Set(this.run.labels.map(kindOf))].filter((kind) => kind !== "O");
    const hue = kinds.indexOf(kindOf(tag ?? "O"));
    const shown = tag && entities ? kindOf(tag) : tag ?? "–";
    const title = typeof probability === "number" ? `${tag}: ${(100 * probability).toFixed(1)} %` : "";
    return make("span", { className: hue < 0 ? "plain" : `hue${hue % HUES}`, title }, word, make("b", {}, shown));
  }
}

/** B-LOC and I-LOC are of one kind, and share a colour. */
const kindOf = (tag) => tag.replace(/^[BIES]-/, "");

/** Finds the answer to the question in the first line, in the text below it. */
class Answerer extends Panel {
  async follow(text) {
    const signal = this.again();
    this.tell("");
    const [question, ...lines] = text.split("\n");
    const context = lines.join("\n");
    if (!question.trim() || !context.trim()) return this.body.replaceChildren(make("p", { className: "empty" }, "A question in the first line and a text below it, please."));
    this.node.setAttribute("aria-busy", "true");
    try {
      const one = `${question.replaceAll("\t", " ")}\t${context}`;
      const { predictions: [{ answer: said, begin, end, score, no_answer, best = [], windows, cut }] } = await answer("predict", { run: this.run.name, texts: [one], n_best: BEST }, signal);
      const letters = Array.from(context); // places count characters, and some of them are two units of a string here
      const marked = begin === null ? [context] : [letters.slice(0, begin).join(""), make("mark", {}, letters.slice(begin, end).join("")), letters.slice(end).join("")];
      const none = no_answer === undefined ? [] : [bar(make("span", { className: "label" }, "no answer"), no_answer, said ? "" : "best")];
      const bars = best.map((one) => bar(make("span", { className: "label", dir: "auto" }, one.answer), one.score, said && one.begin === begin && one.end === end ? "best" : ""));
      this.body.replaceChildren(
        make("p", { className: "translated", dir: "auto", title: `score ${score.toFixed(4)}` }, said || "The text does not answer it."),
        make("ol", { className: "bars" }, ...bars, ...none),
        make("h4", {}, "Where it stands"), make("p", { className: "found", dir: "auto" }, ...marked));
      this.tell([
        windows > 1 ? `The text is longer than the model sees at once: it was read in ${windows} parts, which overlap.` : "",
        cut ? `${many(cut, "token")} at the end of the question were not read.` : "",
      ].filter(Boolean).join(" "));
    } finally {
      this.node.removeAttribute("aria-busy");
    }
  }
}

class Translator extends Panel {
  async follow(text) {
    const signal = this.again();
    const lines = text.split("\n").filter((line) => line.trim());
    if (!lines.length) return this.body.replaceChildren(make("p", { className: "empty" }, "No text yet."));
    this.node.setAttribute("aria-busy", "true");
    try {
      const { predictions } = await answer("predict", { run: this.run.name, texts: lines }, signal);
      this.body.replaceChildren(...predictions.map(({ translation, logprob }) => make("p", { className: "translated", dir: "auto", title: `log p = ${logprob?.toFixed(2) ?? "−∞"}` }, translation)));
      const cut = predictions.reduce((sum, one) => sum + one.cut, 0);
      this.tell(cut ? `${many(cut, "token")} at the end of long lines were not read.` : "");
      const first = predictions[0].translation;
      if (this.run.views.includes("alignment") && first.trim()) this.body.append(await this.aligned(lines[0], first, signal));
    } finally {
      this.node.removeAttribute("aria-busy");
    }
  }

  /** The alignment of the first line: how much each word of the translation (rows) looks at each of the source. */
  async aligned(text, target, signal) {
    const { rows, columns, values: [alpha] } = await answer("look", { run: this.run.name, view: "alignment", text, target }, signal);
    const cell = (share, row, column) => make("td", { title: `${row} · ${column}: ${share.toFixed(2)}`, style: `--share: ${share}` });
    return make("details", { className: "alignment" }, make("summary", {}, "Alignment"), make("table", {},
      make("tr", {}, make("th"), ...columns.map((word) => make("th", {}, make("span", {}, word)))),
      ...rows.map((row, t) => make("tr", {}, make("th", { scope: "row" }, row), ...columns.map((column, s) => cell(alpha[t][s], row, column))))));
  }
}

/** Writes a text for a sound or a picture. */
class Describer extends Panel {
  async follow(source) {
    const signal = this.again();
    this.tell("");
    if (!source) return this.body.replaceChildren(make("p", { className: "empty" }, `No ${this.run.source} yet.`));
    this.node.setAttribute("aria-busy", "true");
    try {
      const n_best = Math.min(BEST, this.run.decode.beam || BEST); // a beam finds as many texts as it is wide
      const { predictions: [{ translation, logprob, best = [], cut }] } = await answer("predict", { run: this.run.name, texts: [source], n_best }, signal);
      const others = best.slice(1).map((one) => make("li", {}, make("span", { dir: "auto" }, one.translation), make("b", {}, percent(Math.exp(one.logprob ?? -Infinity)))));
      this.body.replaceChildren(
        make("p", { className: "translated", dir: "auto", title: `log p = ${logprob?.toFixed(2) ?? "−∞"}` }, translation),
        make("p", { className: "reading" }, `Its probability is ${percent(Math.exp(logprob ?? -Infinity))}.${others.length ? " The next best:" : ""}`),
        make("ol", { className: "others" }, ...others));
      if (cut) this.tell(`${many(cut, "frame")} at the end were not read.`);
      if (this.run.views.includes("alignment") && translation.trim()) this.body.append(...await this.aligned(source, translation, signal));
    } catch (error) {
      if (error.name !== "AbortError") this.body.replaceChildren(); // what stands there is of another source
      throw error;
    } finally {
      this.node.removeAttribute("aria-busy");
    }
  }

  async aligned(text, target, signal) {
    const view = await answer("look", { run: this.run.name, view: "alignment", text, target }, signal);
    return [make("h4", {}, "Where it looked for each word"), view.kind === "patches" ? seenBy(view) : heardBy(view), make("p", { className: "reading" }, view.note)];
  }
}

const shaded = (share, title) => {
  const cell = make("i", { title });
  cell.style.setProperty("--share", share);
  return cell;
};

/** Attention over a sound: the spectrogram, and below it a row a word on the same axis of time. */
function heardBy({ rows, columns, values: [alpha], picture }) {
  const top = Math.max(...alpha.flat(), 1e-9);
  const grid = make("div", { className: "heard" }, make("span"), make("img", { src: picture, alt: "Spectrogram" }));
  grid.style.setProperty("--columns", columns.length);
  rows.forEach((row, t) => grid.append(make("span", {}, row === END ? "∎" : row), ...columns.map((time, s) => shaded(alpha[t][s] / top, `${row} · ${time} s: ${alpha[t][s].toFixed(2)}`))));
  const every = Math.ceil(columns.length / 6);
  grid.append(make("span"), ...columns.map((time, s) => make("small", {}, s % every ? "" : `${time} s`)));
  return grid;
}

/** Attention over a picture: the picture once for each word, dark where the word does not look. */
function seenBy({ panels, rows, columns, values, picture }) {
  const each = panels.map((word, p) => {
    const top = Math.max(...values[p].flat(), 1e-9);
    const veil = make("div", { className: "veil" }, ...values[p].flatMap((row, r) => row.map((share, c) => shaded(share / top, `row ${rows[r]}, column ${columns[c]}: ${share.toFixed(2)}`))));
    veil.style.setProperty("--columns", columns.length);
    return make("figure", {}, make("div", {}, make("img", { src: picture, alt: "" }), veil), make("figcaption", {}, word === END ? "∎" : word));
  });
  return make("div", { className: columns.length > rows.length ? "seen moving" : "seen" }, ...each);
}

class Neighbours extends Panel {
  async follow(text) {
    const signal = this.again();
    const lines = text.split("\n").filter((line) => line.trim()).slice(0, MOST_WORDS);
    this.tell("");
    if (!lines.length) return this.body.replaceChildren(make("p", { className: "empty" }, "No word yet."));
    const found = await Promise.all(lines.map((line) => this.near(line, signal)));
    this.body.replaceChildren(...found.flat());
  }

  /** A word that has no vector is said in its place, so that the others are still shown. */
  async near(line, signal) {
    try {
      const { nearest } = await answer("nearest", { run: this.run.name, text: line, top: 10 }, signal);
      return [make("h4", {}, line.trim()), make("ol", { className: "bars wide" }, ...nearest.map(({ word, score }) => this.word(word, score)))];
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return [make("h4", {}, line.trim()), make("p", { className: "note" }, error.message)];
    }
  }

  word(word, score) {
    const line = make("i");
    line.style.width = `${100 * Math.min(1, Math.max(0, score))}%`;
    const label = make("button", { className: "token", type: "button", title: "Go on with this", onclick: () => begin(word.trim()) }, word.trim());
    return make("li", {}, label, line, make("b", {}, score.toFixed(3)));
  }
}

const PANELS = { lm: Writer, masked_lm: Filler, classify: Classifier, tag: Tagger, answer: Answerer, seq2seq: Translator, embed: Neighbours };

// One scale of surprisal for all panels: nine shades, up to a round number that one token in twenty exceeds.

function rescale() {
  const writers = page.shown.filter((panel) => panel.tokens?.length);
  const bits = writers.flatMap((panel) => panel.tokens.map((t) => t.bits)).filter((b) => b !== null).sort((a, b) => a - b);
  const high = bits[Math.floor(0.95 * (bits.length - 1))] ?? 1;
  const top = [2, 4, 6, 9, 12, 15, 18, 24, 30, 45].find((round) => round >= high) ?? Math.ceil(high);
  for (const { spans, tokens } of writers) {
    spans.forEach((span, i) => {
      span.classList.remove(...[...span.classList].filter((name) => /^s[0-8x]$/.test(name)));
      const b = tokens[i].bits;
      span.classList.add(b === null ? "sx" : `s${Math.min(SHADES - 1, Math.max(0, Math.floor(SHADES * b / top)))}`);
    });
  }
  const steps = Array.from({ length: SHADES }, (_, k) => make("i", { className: `s${k}` }));
  $("scale").replaceChildren(make("span", {}, "Surprise: 0"), ...steps, make("span", {}, `${top} bits and more`), make("small", {}, "Click on the text to see what was expected there."));
  $("scale").hidden = !writers.length;
}

// The page

const page = { task: "", panels: [], shown: [], texts: {}, sources: {}, writing: null, timer: 0 };
const tabOf = (run) => (run.source in SOURCES ? run.source : run.task);

/** What the panels are asked about: the text, or the sound or picture that was chosen. */
const given = () => (page.task in SOURCES ? page.sources[page.task] ?? "" : $("text").value);

function choose(task) {
  page.texts[page.task] = $("text").value;
  page.writing?.abort();
  page.task = task;
  const { verb, what, hint, accept } = TASKS[task] ?? SOURCES[task];
  $("text").hidden = task in SOURCES;
  $("chooser").hidden = !(task in SOURCES);
  $("what").htmlFor = task in SOURCES ? "file" : "text";
  $("file").accept = accept ?? "";
  $("file").value = "";
  $("drop").textContent = hint;
  $("text").value = page.texts[task] ?? "";
  $("text").placeholder = hint;
  $("what").textContent = what;
  $("go").textContent = verb;
  $("settings").hidden = $("another").hidden = task !== "lm";
  $("settings").disabled = task !== "lm"; // what is hidden must not hold up the form
  for (const tab of $("tasks").children) tab.setAttribute("aria-pressed", tab.value === task);
  page.panels = page.runs.filter((run) => tabOf(run) === task).map((run) => new (task in SOURCES ? Describer : PANELS[task])(run));
  page.shown = page.panels.slice(0, 2);
  showRuns();
  history.replaceState(null, "", `#${task}`);
  $("example").hidden = !page.panels.some((panel) => panel.run.corpus);
  show();
  if (task in SOURCES) run([preview()]);
}

// Sounds and pictures

/** Takes a source: a data URI, or an item of a built-in corpus. */
function take(source, name) {
  page.sources[page.task] = source;
  $("drop").textContent = name;
  show();
  run([preview()]);
}

async function takeFile(file) {
  if (!file) return;
  complain(null);
  if (file.size > MOST_BYTES) return complain(new Error(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB. Expected at most ${MOST_BYTES / 1e6} MB.`));
  const reader = new FileReader();
  await new Promise((done, failed) => { Object.assign(reader, { onload: done, onerror: () => failed(new Error(`${file.name} cannot be read.`)) }).readAsDataURL(file); });
  take(`data:${SOURCES[page.task].type};base64,${reader.result.split(",")[1] ?? ""}`, file.name || "The picture that was pasted");
}

/** Shows the source as the model gets it: the picture, or the spectrogram and something to play. */
async function preview() {
  const source = given();
  $("preview").replaceChildren();
  if (!source) return;
  const { picture, sound, seconds } = await answer("source", { run: page.shown[0].run.name, text: source });
  if (source !== given()) return; // another was chosen meanwhile
  const image = make("img", { src: picture, alt: sound ? "Spectrogram" : "The picture" });
  $("preview").dataset.kind = sound ? "sound" : "picture";
  $("preview").append(image, ...(sound ? [make("audio", { controls: true, src: sound }), make("small", {}, `${seconds.toFixed(2)} s`)] : []));
}

function example() {
  const { corpus } = page.panels.find((panel) => panel.run.corpus).run;
  const item = `${corpus}:${UNSEEN + Math.floor(Math.random() * UNSEEN)}`;
  take(item, item);
}

/** The sliders begin where the first run's recipe has them. */
function adopt(decode) {
  for (const name of ["temperature", "top_p", "top_k", "max_tokens", "seed"]) {
    field(name).value = name === "max_tokens" ? Math.min(decode[name], field(name).max) : decode[name];
  }
  saySettings();
}

function saySettings() {
  const say = { temperature: (x) => (x ? x.toFixed(2) : "0: the likeliest"), top_p: (x) => (x < 1 ? x.toFixed(2) : "all"), top_k: (x) => x || "all" };
  for (const [name, words] of Object.entries(say)) {
    field(name).closest("label").querySelector("output").textContent = words(field(name).valueAsNumber);
  }
}

function settings() {
  return Object.fromEntries(["temperature", "top_p", "top_k", "max_tokens", "seed"].map((name) => [name, field(name).valueAsNumber]));
}

function showRuns() {
  $("runs").hidden = page.panels.length < 2;
  $("runs").replaceChildren(...page.panels.map((panel) => {
    const button = make("button", { type: "button", className: `hue${panel.run.hue}` }, make("i", { className: "swatch" }), panel.run.name);
    button.setAttribute("aria-pressed", page.shown.includes(panel));
    button.onclick = () => toggle(panel);
    return button;
  }));
}

/** One run at least is always shown. */
function toggle(panel) {
  const shown = page.panels.filter((p) => (p === panel) !== page.shown.includes(p));
  if (!shown.length) return;
  page.shown = shown;
  showRuns();
  show([panel].filter((p) => shown.includes(p)));
}

/** Puts the panels on the page and has the given ones look at the text. */
function show(fresh = page.shown) {
  $("panels").replaceChildren(...page.shown.map((panel) => panel.node));
  rescale();
  run(fresh.map((panel) => panel.follow(given())));
}

async function run(works) {
  complain(null);
  for (const { reason } of await Promise.allSettled(works)) if (reason) complain(reason);
}

function begin(text) {
  page.writing?.abort();
  $("text").value = text;
  show();
}

async function go() {
  const text = given();
  clearTimeout(page.timer);
  if (page.task !== "lm") return run(page.shown.map((panel) => panel.follow(text)));
  page.writing?.abort();
  const writing = page.writing = new AbortController();
  $("stop").hidden = false;
  await run(page.shown.map((panel) => panel.write(text, settings(), writing.signal)));
  if (page.writing === writing) $("stop").hidden = true;
}

$("ask").onsubmit = (event) => { event.preventDefault(); go(); };
$("stop").onclick = () => page.writing?.abort();
$("another").onclick = () => {
  field("seed").value = (field("seed").valueAsNumber || 0) + 1;
  $("ask").requestSubmit();
};
$("settings").oninput = saySettings;
$("text").oninput = () => {
  clearTimeout(page.timer);
  if (page.task === "lm" || TASKS[page.task]?.live) page.timer = setTimeout(() => begin($("text").value), PAUSE);
};
$("file").onchange = () => run([takeFile($("file").files[0])]);
$("example").onclick = example;
for (const kind of ["dragenter", "dragover"]) $("chooser").addEventListener(kind, (event) => { event.preventDefault(); $("chooser").classList.add("over"); });
for (const kind of ["dragleave", "drop"]) $("chooser").addEventListener(kind, () => $("chooser").classList.remove("over"));
$("chooser").addEventListener("drop", (event) => { event.preventDefault(); run([takeFile(event.dataTransfer.files[0])]); });
document.onpaste = (event) => { if (page.task === "picture") run([takeFile(event.clipboardData.files[0])]); };
document.onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("ask").requestSubmit(); }
  if (event.key === "Escape") page.writing?.abort();
};

async function open() {
  page.runs = (await answer("runs")).map((run, i) => ({ ...run, hue: i % HUES }));
  const tabs = { ...TASKS, ...SOURCES };
  const tasks = Object.keys(tabs).filter((task) => page.runs.some((run) => tabOf(run) === task));
  $("tasks").hidden = tasks.length < 2;
  $("tasks").append(...tasks.map((task) => make("button", { value: task, type: "button", onclick: () => choose(task) }, tabs[task].tab)));
  $("about").textContent = `${many(page.runs.length, "run")} served by Segue. The API that this page uses is described in /openapi.json.`;
  const writer = page.runs.find((run) => run.task === "lm");
  if (writer) adopt(writer.decode);
  const [wanted, item] = location.hash.slice(1).split("="); // #sound=tones:17 opens that item
  choose(tasks.includes(wanted) ? wanted : tasks[0]);
  if (item && wanted in SOURCES) take(item, item);
}

open().catch(complain);
