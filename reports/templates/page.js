"use strict";
document.documentElement.classList.add("scripted");

// Light or dark: the first click leaves the setting of the system.
document.querySelector("#theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// The current section is marked in the contents.
const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const visible = new Set();
let current = [...links.keys()][0];
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) visible[isIntersecting ? "add" : "delete"](target.id);
  current = [...links.keys()].find((id) => visible.has(id)) ?? current; // between two sections: the one before
  for (const [id, a] of links) id === current ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current");
}, { rootMargin: "-10% 0px -60%" });
for (const section of document.querySelectorAll("main > section")) watcher.observe(section);

// Tables: search in rows, hide columns and encoders, copy as CSV. A row or cell stays when nothing hides it.
const MOST_PLAIN = 6; // rows of a table without a search
const hiddenEncoders = new Set();
const tables = [...document.querySelectorAll(".table")].map((box) => {
  const table = box.querySelector("table"), body = table.tBodies[0];
  const heads = [...table.tHead.rows], last = [...heads.at(-1).cells];
  const groups = heads.length > 1 ? [...heads[0].cells].flatMap((c) => Array(c.colSpan).fill(c)) : last.map(() => null);
  const title = (i) => last[i].textContent.trim();
  const group = (i) => groups[i]?.textContent.trim() ?? "";
  const state = { columns: new Set(), search: "" };
  const update = () => {
    const gone = last.map((_, i) => state.columns.has(i) || hiddenEncoders.has(title(i)) || hiddenEncoders.has(group(i)));
    for (const row of [heads.at(-1), ...body.rows]) [...row.cells].forEach((c, i) => c.classList.toggle("gone", gone[i]));
    for (const c of new Set(groups.filter(Boolean))) {
      const own = gone.filter((_, i) => groups[i] === c);
      c.classList.toggle("gone", own.every(Boolean));
      c.colSpan = Math.max(1, own.filter((hidden) => !hidden).length);
    }
    for (const row of body.rows) {
      const wanted = !state.search || row.textContent.toLowerCase().includes(state.search);
      row.classList.toggle("gone", !wanted || hiddenEncoders.has(row.cells[0]?.querySelector(".value").textContent));
    }
  };
  return { box, table, body, last, title, group, state, update };
});
const csv = ({ body, last, title, group }) => {
  // as store/errors.py: no spreadsheet runs a cell as a formula, numbers stay numbers
  const formula = (text) => /^'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/.test(text) && !Number.isFinite(Number(text));
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const kept = last.map((c, i) => i).filter((i) => !last[i].classList.contains("gone"));
  const lines = [kept.map((i) => [group(i), title(i)].filter(Boolean).join(" "))];
  for (const row of body.rows) {
    if (row.classList.contains("gone")) continue;
    lines.push(kept.map((i) => [...row.cells[i].querySelectorAll("span:not(.bar)")].map((s) => s.textContent).join(" ")));
  }
  return lines.map((line) => line.map((text) => quoted(formula(text) ? `'${text}` : text)).join(",")).join("\n") + "\n";
};
for (const one of tables) {
  const { box, table, last, title, group, state, update } = one;
  if (!table.hasAttribute("data-sortable") && one.body.rows.length <= MOST_PLAIN) continue;
  const name = table.caption.textContent, tools = document.createElement("div");
  tools.className = "tools";
  const add = (tag, fields, ...children) => {
    const made = Object.assign(document.createElement(tag), fields);
    made.append(...children);
    return made;
  };
  if (one.body.rows.length > MOST_PLAIN) {
    const search = add("input", { type: "search", placeholder: "Search", ariaLabel: `Search: ${name}` });
    search.addEventListener("input", () => { state.search = search.value.trim().toLowerCase(); update(); });
    tools.append(search);
  }
  const choices = last.slice(1).map((_, at) => {
    const i = at + 1, box = add("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => { state.columns[box.checked ? "delete" : "add"](i); update(); });
    return add("label", {}, box, ` ${[group(i), title(i)].filter(Boolean).join(" · ")}`);
  });
  tools.append(add("details", {}, add("summary", { textContent: "Columns", ariaLabel: `Columns: ${name}` }), add("div", {}, ...choices)));
  const copy = add("button", { type: "button", textContent: "Copy as CSV", ariaLabel: `Copy as CSV: ${name}` });
  copy.addEventListener("click", async () => {
    const done = await navigator.clipboard.writeText(csv(one)).then(() => "Copied", () => "Not allowed here");
    copy.textContent = done;
    setTimeout(() => { copy.textContent = "Copy as CSV"; }, 1500);
  });
  tools.append(copy);
  if (one.body.rows.length > MOST_PLAIN) box.prepend(tools);
  else box.querySelector(".scroll").after(tools);
}
for (const box of document.querySelectorAll("#page-tools input")) {
  box.addEventListener("change", () => {
    hiddenEncoders[box.checked ? "delete" : "add"](box.value);
    for (const { update } of tables) update();
    if (typeof vegaEmbed === "function") drawAll();
  });
}

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
  let open = 8; // cases that are displayed before the reader asks for the others; all of them on paper
  const more = Object.assign(document.createElement("button"), { type: "button", className: "more" });
  gallery.insertBefore(more, gallery.querySelector(".viewer"));
  more.addEventListener("click", () => { open = Infinity; choose(); });
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
      const kept = fits(one, wanted);
      one.element.hidden = !kept;
      if (kept) shown += 1;
      one.element.classList.toggle("later", shown > open);
    }
    gallery.querySelector(".shown").textContent = `${count(shown)} of ${count(cases.length)} cases fit.${stored(wanted)}`;
    more.hidden = shown <= open;
    more.textContent = `Show the other ${count(shown - open)} cases`;
  };
  const write = () => {
    const query = new URLSearchParams(chosen()).toString();
    history.replaceState(null, "", `#${gallery.id}${query && "?"}${query}`);
    choose();
  };
  const read = () => {
    const single = document.getElementById(location.hash.slice(1));
    if (single && cases.some(({ element }) => element === single)) {
      single.classList.remove("later");
      single.scrollIntoView();
    }
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

// Charts: the static picture stays until its chart is drawn, and where scripts or Vega fail. Hidden encoders are left
// out of the data and of the scales, whose colours stay.
const shown = (part) => {
  if (Array.isArray(part)) return part.filter((each) => !hiddenEncoders.has(each?.encoder)).map(shown);
  if (typeof part !== "object" || part === null) return part;
  const made = Object.fromEntries(Object.entries(part).map(([key, value]) => [key, shown(value)]));
  if (part.domain?.length === part.range?.length && part.domain?.some((name) => hiddenEncoders.has(name))) {
    for (const ends of ["domain", "range"]) made[ends] = part[ends].filter((_, i) => !hiddenEncoders.has(part.domain[i]));
  }
  return made;
};
const draw = async (figure) => {
  const spec = shown(JSON.parse(figure.querySelector("script").textContent));
  const canvas = figure.querySelector(".canvas");
  const stage = document.createElement("div");
  stage.className = "stage";
  if (spec.layer || spec.mark) {
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding" };
  }
  for (const old of canvas.querySelectorAll(".stage")) old.remove();
  canvas.append(stage);
  const logLevel = hiddenEncoders.size ? 1 : 2; // a layer of hidden encoders alone is empty, which is no fault
  await vegaEmbed(stage, spec, { actions: false, renderer: "svg", tooltip: { theme: "capim" }, logLevel });
  canvas.querySelector(":scope > svg")?.remove();
};
let drawing = 0;
const drawAll = async () => {
  const mine = ++drawing;
  delete document.documentElement.dataset.charts;
  for (const figure of document.querySelectorAll("figure.chart")) {
    await new Promise((done) => setTimeout(done)); // lets the page breathe between two charts
    if (mine !== drawing) return; // another choice of encoders
    await draw(figure).catch((fault) => console.error(`chart ${figure.id}: ${fault.message}`));
  }
  document.documentElement.dataset.charts = "drawn";
};
if (typeof vegaEmbed === "function") drawAll();
