"use strict";
// Sorting: a heading is a button; numbers compare by the exact value in data-sort, everything else as text.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headings.forEach((heading, place) => {
    heading.querySelector("button").addEventListener("click", () => {
      const numeric = heading.classList.contains("num");
      const before = heading.getAttribute("aria-sort");
      const up = before ? before === "descending" : !numeric;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent.trim();
      const known = (row) => !numeric || Number.isFinite(parseFloat(key(row)));
      const compare = (a, b) => {
        if (known(a) !== known(b)) return known(a) ? -1 : 1;
        const order = numeric ? parseFloat(key(a)) - parseFloat(key(b)) : key(a).localeCompare(key(b));
        return up ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}

// Filtering: a case stays when it carries every chosen tag.
for (const gallery of document.querySelectorAll(".gallery")) {
  const form = gallery.querySelector(".filters");
  if (!form) continue;
  const cases = [...gallery.querySelectorAll(".case")].map((element) => ({
    element,
    tags: JSON.parse(element.dataset.tags),
  }));
  const choose = () => {
    const wanted = [...form.querySelectorAll("select")].map((select) => select.value).filter(Boolean);
    let shown = 0;
    for (const { element, tags } of cases) {
      element.hidden = !wanted.every((tag) => tags.includes(tag));
      if (!element.hidden) shown += 1;
    }
    form.querySelector("output").textContent = `${shown} of ${cases.length} shown`;
  };
  form.addEventListener("change", choose);
  form.addEventListener("submit", (event) => event.preventDefault());
  choose();
}

// Charts: the static picture stays until its chart is drawn, and where scripts or Vega fail.
const draw = async (figure) => {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  const canvas = figure.querySelector(".canvas");
  const stage = document.createElement("div");
  stage.className = "stage";
  if (spec.layer || spec.mark) {
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding" };
  }
  canvas.append(stage);
  await vegaEmbed(stage, spec, { actions: false, renderer: "svg", tooltip: { theme: "capim" } });
  canvas.querySelector(":scope > svg").remove();
};
const drawAll = async () => {
  for (const figure of document.querySelectorAll("figure.chart")) {
    await new Promise((done) => setTimeout(done)); // lets the page breathe between two charts
    await draw(figure).catch((fault) => console.error(`chart ${figure.id}: ${fault.message}`));
  }
  document.documentElement.dataset.charts = "drawn";
};
if (typeof vegaEmbed === "function") drawAll();
