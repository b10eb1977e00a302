"use strict";

// One chart at a time, with buttons to choose the axis.
const figures = [...document.querySelectorAll("figure[data-axis]")];
if (figures.length > 1) {
  const choice = document.createElement("div");
  choice.className = "choice";
  const show = (axis) => {
    figures.forEach((figure) => { figure.hidden = figure.dataset.axis !== axis; });
    [...choice.children].forEach((button) => button.setAttribute("aria-pressed", button.value === axis));
  };
  for (const { dataset: { axis } } of figures) {
    const button = document.createElement("button");
    button.value = axis;
    button.textContent = "against " + axis;
    button.onclick = () => show(axis);
    choice.append(button);
  }
  figures[0].parentNode.before(choice);
  show("seconds");
}

// A read-out of every curve at the point nearest to the pointer.
function readOut(figure, svg) {
  const series = [...svg.querySelectorAll(".series")].reverse();
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  figure.append(box);
  const cross = document.createElementNS(svg.namespaceURI, "line");
  cross.setAttribute("class", "cross");
  svg.querySelector("svg").append(cross);
  svg.onpointermove = (event) => {
    const scale = svg.viewBox.baseVal.width / svg.getBoundingClientRect().width;
    const x = (event.clientX - svg.getBoundingClientRect().left) * scale - svg.dataset.left;
    const near = (points) => points.reduce((a, b) => Math.abs(b.cx.baseVal.value - x) < Math.abs(a.cx.baseVal.value - x) ? b : a);
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", 0], ["y2", svg.viewBox.baseVal.height]]) cross.setAttribute(name, value);
    box.replaceChildren(...series.map((group) => {
      const [row, mark, name, value] = ["div", "i", "span", "b"].map((tag) => document.createElement(tag));
      mark.className = "swatch " + group.classList[1];
      name.textContent = group.dataset.name;
      value.textContent = near([...group.querySelectorAll("circle")]).textContent.slice(group.dataset.name.length + 2);
      row.append(mark, name, value);
      return row;
    }));
    box.hidden = false;
    const left = event.clientX - figure.getBoundingClientRect().left;
    box.style.left = Math.max(4, Math.min(left + 16, figure.clientWidth - box.offsetWidth - 4)) + "px";
    box.style.top = "8px";
  };
  svg.onpointerleave = () => { box.hidden = true; cross.removeAttribute("x1"); cross.removeAttribute("x2"); };
}
figures.forEach((figure) => figure.querySelectorAll(".chart").forEach((svg) => readOut(figure, svg)));

// A click on a heading sorts the table.
for (const table of document.querySelectorAll("table.result")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 2 || rows[0].cells[column].dataset.sort === undefined) return;
    head.classList.add("sortable");
    head.tabIndex = 0;
    const sort = () => {
      const up = head.ariaSort !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = up ? "ascending" : "descending";
      const key = (row) => Number(row.cells[column].dataset.sort.replace("inf", "Infinity"));
      rows.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (up ? 1 : -1));
      table.tBodies[0].append(...rows);
    };
    head.onclick = sort;
    head.onkeydown = (event) => { if (event.key === "Enter") sort(); };
  });
}

// A word under the pointer is marked in every model's text, with what each paid for it.
const readings = [...document.querySelectorAll(".readings .panel")].map((panel) => {
  const output = panel.querySelector("output");
  return { output, mean: output.textContent, words: [...panel.querySelectorAll(".words span")] };
});
const mark = (place) => readings.forEach(({ output, mean, words }) => {
  words.forEach((word, i) => word.classList.toggle("hit", i === place));
  output.textContent = words[place] ? words[place].title : mean;
});
readings.forEach(({ words }) => words.forEach((word, i) => {
  word.onpointerenter = () => mark(i);
  word.onpointerleave = () => mark(-1);
}));

// Paper cannot be unfolded; but a quiz with its answers would be none.
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.answer)").forEach((part) => { part.open = true; }));
