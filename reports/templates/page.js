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

// Cases: one stays when it has every chosen value and every word of the text. The choice is in the address, after
// the id of the gallery: #cases?missed=A&found=B&text=red
document.documentElement.classList.add("scripted");
for (const gallery of document.querySelectorAll(".gallery")) {
  const form = gallery.querySelector(".filters");
  const cases = [...gallery.querySelectorAll(".case")].map((element) => ({
    element,
    tags: JSON.parse(element.dataset.tags),
    text: [...element.querySelectorAll("h4, .own, .about")].map((part) => part.textContent).join(" ").toLowerCase(),
  }));
  const totals = JSON.parse(gallery.dataset.totals);
  const chosen = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim()));
  const fits = (one, wanted) =>
    Object.entries(wanted).every(([name, value]) =>
      name === "text"
        ? value.toLowerCase().split(/\s+/).every((word) => one.text.includes(word))
        : one.tags[name].includes(value),
    );
  const count = (n) => n.toLocaleString("en");
  // of all stored queries, where the choice is one that their totals answer
  const stored = ({ corpus, direction, missed, found, ...others }) => {
    if (!(missed || found) || Object.keys(others).length) return "";
    const parts = totals.filter((t) => (!corpus || t.corpus === corpus) && (!direction || t.direction === direction));
    const of = (t) => (missed && found ? t.both[missed]?.[found] : missed ? t.missed[missed] : t.found[found]) ?? 0;
    const sum = (values) => count(values.reduce((a, b) => a + b, 0));
    const what = [missed && `missed by ${missed}`, found && `found by ${found}`].filter(Boolean).join(" and ");
    return ` Of all ${sum(parts.map((t) => t.queries))} stored queries, ${sum(parts.map(of))} are ${what}.`;
  };
  const choose = () => {
    const wanted = chosen();
    let shown = 0;
    for (const one of cases) {
      one.element.hidden = !fits(one, wanted);
      if (!one.element.hidden) shown += 1;
    }
    gallery.querySelector(".shown").textContent = `${count(shown)} of ${count(cases.length)} cases shown.${stored(wanted)}`;
  };
  const write = () => {
    const query = new URLSearchParams(chosen()).toString();
    history.replaceState(null, "", `#${gallery.id}${query && "?"}${query}`);
    choose();
  };
  const read = () => {
    const [, id, query] = location.hash.match(/^#([^?]*)\?(.*)$/) ?? [];
    if (id !== gallery.id) return;
    const wanted = new URLSearchParams(query);
    for (const control of form.elements) {
      if (!control.name) continue;
      control.value = wanted.get(control.name) ?? "";
      if (control.selectedIndex === -1) control.value = "";
    }
    choose();
    gallery.scrollIntoView();
  };
  form.addEventListener("input", write);
  form.addEventListener("reset", () => setTimeout(write));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", read);
  choose();
  read();

  // Enlarged: the pictures of one case, by mouse or by arrow keys; the focus returns to the case.
  const viewer = gallery.querySelector(".viewer");
  let pictures = [], place = 0, opener = null;
  const show = (next) => {
    place = (next + pictures.length) % pictures.length;
    const picture = pictures[place], label = picture.getAttribute("aria-label");
    const where = picture.closest(".answer")?.querySelector("h5").textContent ?? "belongs to the query";
    viewer.querySelector("use").setAttribute("href", picture.querySelector("use").getAttribute("href"));
    viewer.querySelector("svg").setAttribute("aria-label", label);
    const small = picture.parentElement.querySelector("small").textContent.trim();
    const parts = [label, where, small, `${place + 1} of ${pictures.length}`];
    viewer.querySelector("figcaption").textContent = parts.filter(Boolean).join(" · ");
  };
  for (const { element } of cases) {
    element.querySelector(".enlarge").hidden = !element.querySelector("svg.thumb");
  }
  gallery.addEventListener("click", (event) => {
    const from = event.target.closest(".case"), picture = event.target.closest("svg.thumb");
    if (!from || !(picture || event.target.closest(".enlarge"))) return;
    pictures = [...from.querySelectorAll("svg.thumb")];
    opener = from.querySelector(".enlarge");
    show(Math.max(0, pictures.indexOf(picture)));
    viewer.showModal();
  });
  viewer.addEventListener("click", (event) => {
    const step = event.target === viewer ? "0" : event.target.closest("button")?.dataset.step;
    if (step === "0") viewer.close();
    else if (step) show(place + Number(step));
  });
  viewer.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) show(place + step);
  });
  viewer.addEventListener("close", () => opener.focus());
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
