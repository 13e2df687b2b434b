"use strict";
const root = document.documentElement;
root.classList.add("with-scripts");
const find = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
// Characters that turn or hide others are named, as reports/render.py does in its own texts.
const HIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g;
const code = (one) => one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
const named = (text) => text.replace(HIDDEN, (one) => `[U+${code(one)}]`);
const SAID = new Set(["title", "alt", "ariaLabel"]); // attributes that are read as text
const make = (tag, fields = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name in made) made[name] = SAID.has(name) ? named(value) : value;
    else made.setAttribute(name, value);
  }
  const kept = children.filter((child) => child !== "" && child !== undefined && child !== null);
  made.append(...kept.map((child) => (typeof child === "string" ? named(child) : child)));
  return made;
};
const button = (text, act, fields = {}) => {
  const made = make("button", { type: "button", ...fields }, text);
  made.addEventListener("click", act);
  return made;
};
const option = (value, text = value) => make("option", { value }, text);
const count = (n) => n.toLocaleString("en");

// Theme, light or dark: the first click leaves the setting of the system; a browser may keep nothing.
const kept = (value) => {
  try {
    if (value !== undefined) localStorage.setItem("capim-theme", value);
    return localStorage.getItem("capim-theme") ?? "";
  } catch { return value ?? ""; }
};
if (!document.body.classList.contains("app")) {
  root.dataset.theme = kept();
  find("#theme")?.addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = kept((root.dataset.theme || system) === "dark" ? "light" : "dark");
  });
}

// Choices are in the address, behind the id of their place: #cases?missed=A&found=B. A new view of
// it can be gone back from; a change of a choice replaces it.
const address = () => {
  const [, id, query] = location.hash.match(/^#([^?]*)\??(.*)$/) ?? [, "", ""];
  return { id: decodeURIComponent(id), chosen: new URLSearchParams(query) };
};
const readers = []; // what follows the address
const choose = (id, changes, { push = false, drop = [] } = {}) => {
  const here = address(), chosen = here.id === id ? here.chosen : new URLSearchParams();
  for (const name of drop) chosen.delete(name);
  for (const [name, value] of Object.entries(changes)) {
    value ? chosen.set(name, value) : chosen.delete(name);
  }
  const query = String(chosen).replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/");
  history[push ? "pushState" : "replaceState"](null, "", `#${id}${query && "?"}${query}`);
};
const follow = () => {
  for (const read of readers) read(address());
  const place = document.getElementById(address().id);
  for (const box of place ? [find("details:not(.menu)", place), place.closest("details")] : []) {
    if (box) box.open = true;
  }
};
addEventListener("popstate", follow);
addEventListener("click", (event) => { // a link to failures keeps the other choices
  const link = event.target.closest?.("a[href^='#']"), href = link?.getAttribute("href");
  const [, id, query] = href?.match(/^#([^?]*)\?(.*)$/) ?? [];
  if (!query) return;
  event.preventDefault();
  const asked = Object.fromEntries(new URLSearchParams(query));
  choose(id, asked, { push: true, drop: asked.case ? [] : CASE_CHOICES });
  follow();
});

// Tables sort by a click on a heading: numbers by data-sort, largest first, what has none last.
const keyOf = (row, at) => row.cells[at].dataset.sort ?? row.cells[at].textContent.trim();
const sortBy = (table, heading, up) => {
  const at = heading.cellIndex, body = table.tBodies[0];
  const number = (row) => { const text = keyOf(row, at); return text === "" ? NaN : Number(text); };
  const numeric = [...body.rows].some((row) => Number.isFinite(number(row)));
  const order = (a, b) => (!numeric ? keyOf(a, at).localeCompare(keyOf(b, at))
    : (Number.isFinite(number(b)) - Number.isFinite(number(a))) * (up ? 1 : -1)
      || (number(a) || 0) - (number(b) || 0));
  body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
  for (const each of all("th", table.tHead)) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
};
const sortable = (table, after = () => {}) => {
  for (const heading of all("tr:last-of-type th, tr.heads th", table.tHead)) {
    const inside = button("", () => {
      const sorted = heading.getAttribute("aria-sort");
      const text = !heading.dataset.key && !heading.classList.contains("num");
      sortBy(table, heading, sorted ? sorted === "descending" : text);
      after(heading);
    });
    inside.append(...heading.childNodes);
    heading.append(inside);
  }
};

// The board: weights re-sort it, as reports/rows/choice.py ranks; the margin is shaded; a pair
// of encoders is compared on every task. All of it is in the address, by names.
const answer = find("#board-data") && JSON.parse(find("#board-data").textContent);
const gapOf = (t, a, b) => {
  const turned = { better: "worse", worse: "better" };
  const [state, size, low, high] = answer.pairs[t][`${a} ${b}`] ?? [];
  if (state) return { state, size, low, high };
  const other = answer.pairs[t][`${b} ${a}`];
  if (!other) return undefined;
  return { state: turned[other[0]] ?? other[0], size: -other[1], low: -other[3], high: -other[2] };
};
const ranking = (weights) => {
  const { names, tasks, values, weak } = answer;
  const given = tasks.map((_, t) => t).filter((t) => weights[t] > 0);
  const has = (t, n) => values[t][n] !== null;
  const corpora = (of) => new Set(of.map((t) => tasks[t].corpus)).size;
  const reach = (n) => corpora(given.filter((t) => has(t, n))), least = Math.min(2, corpora(given));
  // a task enters a mean if an encoder that could be ranked is above chance there
  const able = (t, n) => has(t, n) && !weak[t][n] && reach(n) >= least;
  const counts = given.filter((t) => names.some((_, n) => able(t, n)));
  const used = counts.length ? counts : given;
  const total = used.reduce((sum, t) => sum + weights[t], 0);
  const mean = (n) => used.reduce((sum, t) => sum + (weights[t] / total) * values[t][n], 0);
  const ranked = (n) => used.every((t) => has(t, n)) && !used.every((t) => weak[t][n]);
  const order = names.map((_, n) => n).filter(ranked)
    .sort((a, b) => mean(b) - mean(a) || (names[a] < names[b] ? -1 : 1));
  return order.map((n) => {
    const placed = { name: names[n], value: mean(n), state: "first", size: 0, low: 0, high: 0 };
    if (n === order[0]) return placed;
    const halves = [new Map(), new Map()];
    for (const t of used) {
      const gap = gapOf(t, n, order[0]), share = weights[t] / total, { corpus } = tasks[t];
      if (!gap) return { ...placed, state: "untested" };
      placed.size += share * gap.size;
      [gap.size - gap.low, gap.high - gap.size].forEach((part, side) =>
        halves[side].set(corpus, (halves[side].get(corpus) ?? 0) + share * part));
    }
    const [below, above] = halves.map((of) => Math.hypot(...of.values()));
    const [low, high] = [placed.size - below, placed.size + above];
    return { ...placed, low, high, state: high < 0 ? "worse" : "open" };
  });
};
const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(1)}`;
const interval = ({ size, low, high }) => `${signed(size)} (${signed(low)} to ${signed(high)})`;
const placeOf = (points) => Math.max(-4, Math.min(66, 56 * (1 + points / answer.span)));
const shape = (tag, fields) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(fields)) made.setAttribute(name, value);
  return made;
};
const strip = ({ state, size, low, high }) => {
  const look = { class: `strip ${state === "first" ? "best" : state}`, width: 66, height: 16 };
  const made = shape("svg", { ...look, "aria-hidden": "true" });
  made.append(shape("rect", { class: "margin", height: 16 }),
    shape("line", { class: "zero", x1: 56, x2: 56, y2: 16 }));
  if (size < -answer.span) {
    made.append(shape("text", { class: "far", y: 12 }));
    made.lastChild.textContent = `◂ ${signed(size)}`;
  } else {
    made.append(shape("line", { class: "ends", x1: placeOf(low), x2: placeOf(high), y1: 8, y2: 8 }),
      shape("circle", { cx: placeOf(size), cy: 8, r: 4 }));
  }
  return made;
};
const reweighed = (table, weights) => {
  const placed = new Map(ranking(weights).map((each) => [each.name, each]));
  for (const row of table.tBodies[0].rows) {
    const found = placed.get(row.dataset.name), cell = row.cells[1];
    cell.dataset.sort = found?.value ?? "";
    cell.className = `mean ${{ first: "best" }[found?.state] ?? found?.state ?? "none"}`;
    cell.title = found ? interval(found) : "not ranked";
    cell.replaceChildren(make("span", { className: "v" }, found ? found.value.toFixed(1) : "–"),
      found && found.state !== "untested" ? strip(found) : "");
  }
  const first = [...placed.values()].filter(({ state }) => ["first", "open"].includes(state));
  const before = (at) => (at ? (at + 1 === first.length ? " or " : ", ") : "");
  const said = first.slice(0, 3).flatMap(({ name }, at) => [before(at), make("em", {}, name)]);
  const rest = first.length > 3 ? ` or one of ${first.length - 3} more` : "";
  const begins = first.length ? "With your weights: " : "Nothing to rank with these weights";
  find("h1").replaceChildren(begins, ...said, rest);
};
const controls = (table) => {
  const weighable = answer.tasks.filter(({ percent }) => percent);
  const corpora = [...new Set(weighable.map(({ corpus }) => corpus))];
  const field = (label, name, value) => make("label", {}, `${label} `,
    make("input", { type: "number", name, min: 0, step: "any", value }));
  const names = [option(""), ...answer.names.map((name) => option(name))];
  const select = (label, name) => make("label", {}, `${label} `,
    make("select", { name }, ...names.map((each) => each.cloneNode(true))));
  const weighing = find("#weights form"), comparing = find("#pair form");
  const opening = find("h1").cloneNode(true);
  const original = [...table.tBodies[0].rows].map((row) => [row, row.cells[1].cloneNode(true)]);
  weighing.append(...corpora.map((corpus) => field(corpus, corpus, 1)),
    field("Margin, points", "", answer.margin), make("button", { type: "reset" }, "Equal weights"));
  comparing.append(select("A", "a"), select("against B", "b"));
  const margin = find("[name='']", weighing), { a: first, b: second } = comparing.elements;
  const given = () => corpora.map((name) => Number(weighing.elements[name].value));
  const draw = () => {
    const weights = given(), weighed = new Set(weights).size > 1;
    if (weighed) {
      const of = ({ corpus, weight }) => weight * (weights[corpora.indexOf(corpus)] ?? 0);
      reweighed(table, answer.tasks.map(of));
      sortBy(table, find("[data-key=mean]", table), false);
    } else if (document.body.classList.contains("weighed")) {
      find("h1").replaceChildren(...opening.cloneNode(true).childNodes);
      for (const [row, cell] of original) {
        row.cells[1].replaceWith(cell.cloneNode(true));
        row.parentNode.append(row);
      }
    }
    document.body.classList.toggle("weighed", weighed);
    const low = placeOf(-margin.value), width = placeOf(Number(margin.value)) - low;
    for (const rect of all(".margin")) {
      rect.setAttribute("x", low);
      rect.setAttribute("width", width);
    }
    const key = find(".key li");
    key.textContent = key.textContent.replace(/within .*/, `within ${margin.value} points`);
    const [a, b] = [first, second].map(({ value }) => answer.names.indexOf(value));
    find("#pair .pairs").replaceChildren(a < 0 || b < 0 || a === b ? "" : pairTable(a, b));
  };
  const keep = () => {
    const weights = given(), some = new Set(weights).size > 1;
    choose("answer", {
      weights: some ? corpora.map((name, at) => `${name}:${weights[at]}`).join(",") : "",
      margin: Number(margin.value) === answer.margin ? "" : margin.value,
      a: first.value, b: second.value,
    });
    draw();
  };
  for (const form of [weighing, comparing]) {
    form.addEventListener("input", keep);
    form.addEventListener("reset", () => setTimeout(keep));
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  sortable(table, ({ dataset }) => choose("answer", { sort: dataset.key ?? "" }));
  readers.push(({ id, chosen }) => {
    if (id !== "answer") return;
    const weights = new Map((chosen.get("weights") ?? "").split(",").map((part) => {
      const at = part.lastIndexOf(":");
      return [part.slice(0, at), part.slice(at + 1)];
    }));
    for (const name of corpora) {
      weighing.elements[name].value = weights.get(name) ?? (weights.size > 1 ? 0 : 1);
    }
    margin.value = chosen.get("margin") ?? answer.margin;
    for (const field of [first, second]) field.value = chosen.get(field.name) ?? "";
    find("#pair").open ||= chosen.has("a") && chosen.has("b");
    draw();
    const key = chosen.get("sort");
    const sorted = all("tr.heads th", table).find(({ dataset }) => dataset.key === key);
    if (sorted) sortBy(table, sorted, false);
  });
};
const pairTable = (a, b) => {
  const { names, tasks, values } = answer;
  const rows = tasks.map((task, t) => {
    const gap = gapOf(t, a, b), value = (n) => values[t][n]?.toFixed(1) ?? "–";
    const cells = [value(a), value(b), gap ? interval(gap) : "–", gap?.state ?? "not tested"];
    return make("tr", {}, make("th", { scope: "row" }, `${task.corpus}, ${task.title}`),
      ...cells.map((text) => make("td", { className: "num" }, text)));
  });
  const heads = ["Task", names[a], names[b], "A minus B, with interval", "A is"];
  return make("table", {}, make("caption", { className: "unseen" }, "Two encoders on every task"),
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows));
};

// Taking away: what the page holds as text is copied as it is; a drawing is saved as SVG or PNG.
const exported = find("#exports") && JSON.parse(find("#exports").textContent);
addEventListener("click", async ({ target }) => {
  const { copy, save } = target.dataset ?? {};
  if (copy) {
    const text = copy === "link" ? location.href : exported[copy], before = target.textContent;
    const done = navigator.clipboard.writeText(text);
    target.textContent = await done.then(() => "Copied", () => "Not allowed here");
    setTimeout(() => { target.textContent = before; }, 1500);
  }
  if (target.closest?.("[data-print]")) print();
  if (save) saved(find("svg", target.closest("figure")), target.closest("figure").id, save);
  for (const menu of all("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
});
addEventListener("keydown", ({ key }) => {
  const menu = key === "Escape" && find("details.menu[open]");
  if (menu) { menu.open = false; find("summary", menu).focus(); }
});
const saved = async (drawing, name, kind) => {
  const { width, height } = drawing.viewBox.baseVal, copy = drawing.cloneNode(true);
  copy.setAttribute("color", "#18201c");
  let href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(copy.outerHTML)}`;
  if (kind === "png") {
    const image = new Image(), canvas = make("canvas", { width: 3 * width, height: 3 * height });
    image.src = href;
    await image.decode();
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    href = canvas.toDataURL();
  }
  make("a", { href, download: `${name}.${kind}` }).click();
};

// All results: the table of a corpus and a view, of those that the page holds as templates.
for (const place of all(".picker")) {
  const views = all("template", place), form = find("form", place), shown = find(".view", place);
  const corpora = [...new Set(views.map(({ dataset }) => dataset.corpus))];
  const corpus = make("select", { name: "corpus" }, ...corpora.map((name) => option(name)));
  const view = make("select", { name: "view" });
  const offer = (chosen) => {
    const labels = views.filter(({ dataset }) => dataset.corpus === corpus.value);
    view.replaceChildren(...labels.map(({ dataset }) => option(dataset.view)));
    if (labels.some(({ dataset }) => dataset.view === chosen)) view.value = chosen;
  };
  const draw = () => {
    const is = ({ dataset }) => dataset.corpus === corpus.value && dataset.view === view.value;
    shown.replaceChildren(views.find(is).content.cloneNode(true));
    for (const table of all("table", shown)) sortable(table);
  };
  form.append(make("label", {}, "Corpus ", corpus), make("label", {}, "Protocol or metric ", view));
  form.addEventListener("input", ({ target }) => {
    if (target === corpus) offer(view.value);
    choose(place.id, { corpus: corpus.value, view: view.value });
    draw();
  });
  readers.push(({ id, chosen }) => {
    if (id !== place.id) return;
    if (corpora.includes(chosen.get("corpus"))) corpus.value = chosen.get("corpus");
    offer(chosen.get("view"));
    draw();
    place.scrollIntoView({ behavior: "instant" });
  });
  offer();
}

// Failures: a wall of pictures by cause; one query with all answers in a window. A case stays when
// it has every chosen value and every word of the text.
const CASE_CHOICES = ["corpus", "direction", "missed", "found", "kind", "slice", "language",
  "ambiguous", "text", "case"];
const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};
let stored; // pictures
const source = (key) => (stored ??= JSON.parse(find("#pictures").textContent))[key] ?? key;
const picture = (key, label) => make("img",
  { className: "thumb", alt: label, loading: "lazy", decoding: "async", src: source(key),
    onerror: ({ target }) => target.replaceWith(make("span", { className: "words" }, label)) });
const hit = ({ thumbnail, label, rank, score, right }, about) =>
  make("li", { className: right ? "right" : "wrong" },
    thumbnail ? picture(thumbnail, label)
      : make("span", { className: "words", dir: "auto" }, label),
    make("small", {}, about ?? [rank, score].filter(Boolean).join(" · "), right ? " " : "",
      right ? make("b", {}, "relevant") : ""));
// As store/errors.py: no spreadsheet runs a cell as a formula, numbers stay numbers.
const FORMULA = /^'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/;
const lineOf = (texts) => {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const runs = (text) => FORMULA.test(text) && !Number.isFinite(Number(text));
  return `${texts.map((text) => quoted(runs(text) ? `'${text}` : text)).join(",")}\n`;
};
const gallery = (place, block) => {
  const cases = block.cases ?? [], totals = block.totals ?? [];
  const textOf = (one) => [one.query, ...(one.relevant ?? []), one.about].join(" ").toLowerCase();
  const texts = cases.map(textOf);
  const text = make("input", { type: "search", name: "text", autocomplete: "off" });
  const select = ({ name, label, options }) => make("label", {}, label,
    make("select", { name }, option("", "no filter"), ...options.map((each) => option(each))));
  const form = make("form", { className: "filters", ariaLabel: `Filter: ${block.caption}` },
    ...(block.filters ?? []).map(select), make("label", {}, "Text", text),
    make("button", { type: "reset" }, "Show all"));
  const shown = make("output", { className: "shown", ariaLive: "polite" });
  const wall = make("div", { className: "walls" });
  const viewer = make("dialog",
    { className: "viewer", tabIndex: -1, ariaLabel: "One query with all answers" });
  const chosen = () =>
    Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim()));
  const fits = (i, wanted) => Object.entries(wanted).every(([name, value]) => name === "text"
    ? value.toLowerCase().split(/\s+/).every((word) => texts[i].includes(word))
    : (cases[i].tags[name] ?? []).includes(value));
  // of all stored queries, where the choice is one that their totals answer
  const ofAll = ({ corpus, direction, missed, found, ...others }) => {
    if (!(missed || found) || Object.keys(others).length) return "";
    const parts = totals.filter((t) => (!corpus || t.corpus === corpus)
      && (!direction || t.direction === direction));
    const of = (t) => (missed && found ? t.both?.[missed]?.[found]
      : missed ? t.missed?.[missed] : t.found?.[found]) ?? 0;
    const sum = (values) => count(values.reduce((a, b) => a + b, 0));
    const what = [missed && `missed by ${missed}`, found && `found by ${found}`].filter(Boolean);
    const every = sum(parts.map((t) => t.queries));
    return ` Of all ${every} stored queries, ${sum(parts.map(of))} are ${what.join(" and ")}.`;
  };
  const face = ({ thumbnail, label }, kind, alt) => make("span",
    { className: thumbnail ? kind : `${kind} words`, dir: "auto" },
    thumbnail ? picture(thumbnail, alt) : label);
  const tile = (one, wanted) => {
    const wrong = one.answers.find((answer) => answer.hits?.some((each) => !each.right)
      && (wanted.missed ? answer.encoder === wanted.missed : !answer.right));
    const made = make("a", { href: `#${place.id}?case=${one.id}` },
      make("span", { className: "asked", dir: "auto" }, one.query));
    const pair = make("span", { className: "pair" }), [expected] = one.expected ?? [];
    if (expected) pair.append(face(expected, "right", expected.label));
    const first = wrong?.hits.find((each) => !each.right);
    if (first) {
      pair.append(face(first, "wrong", `${wrong.encoder} top result: ${first.label}`),
        first.caption ? make("small", { className: "its", dir: "auto" }, first.caption) : "");
    }
    made.prepend(pair);
    const n = one.answers.length, missed = one.tags.missed?.length ?? 0;
    const by = `missed by ${missed === n ? "all" : missed} of ${n} · ${one.tags.corpus[0]}`;
    made.append(make("small", {}, by));
    return make("li", {}, made);
  };
  const few = 4, many = 24;
  let most = many, left = [];
  const draw = () => {
    const wanted = chosen(), groups = new Map();
    left = cases.map((_, i) => i).filter((i) => fits(i, wanted));
    for (const i of left) {
      const [kind] = cases[i].tags.kind;
      groups.set(kind, [...(groups.get(kind) ?? []), cases[i]]);
    }
    const whole = Object.keys(wanted).length > 0, shownOf = whole ? most : few;
    const fitting = `${count(left.length)} of ${count(cases.length)} cases match.`;
    shown.textContent = `${fitting}${ofAll(wanted)}`;
    const more = (kind, of) => button(`All ${count(of.length)}`, () => {
      if (whole) { most = Infinity; return draw(); }
      find("[name=kind]", form).value = kind;
      write();
    }, { className: "more", ariaLabel: `All ${count(of.length)}: ${kind}` });
    wall.replaceChildren(...[...groups].map(([kind, of]) => make("div", { className: "wall" },
      make("h3", {}, kind), make("ul", {}, ...of.slice(0, shownOf).map((one) => tile(one, wanted))),
      of.length > shownOf ? more(kind, of) : "")));
  };
  const write = () => { most = many; choose(place.id, chosen(), { drop: CASE_CHOICES }); draw(); };
  const read = ({ id, chosen: wanted }) => {
    if (id !== place.id) { if (viewer.open) viewer.close(); return; }
    for (const control of form.elements) {
      if (!control.name) continue;
      control.value = wanted.get(control.name) ?? "";
      if (control.selectedIndex === -1) control.value = "";
    }
    draw();
    const one = cases.findIndex((each) => each.id === wanted.get("case"));
    if (one >= 0) return show(one);
    if (viewer.open) viewer.close();
    place.scrollIntoView({ behavior: "instant" });
  };
  form.addEventListener("input", write);
  form.addEventListener("reset", () => setTimeout(write));
  form.addEventListener("submit", (event) => event.preventDefault());
  readers.push(read);

  // One query: arrow keys go to the next, Escape goes back to the wall. What is also right becomes
  // a line of judgements.
  const judged = new Map();
  const save = make("a", { className: "save", hidden: true, download: "judgements.csv" });
  const judge = (one, item, box) => {
    const key = `${one.id} ${item}`;
    box.checked ? judged.set(key, [...one.asked, item]) : judged.delete(key);
    const lines = [["corpus", "direction", "query_id", "item_id"], ...judged.values()];
    save.href = `data:text/csv;charset=utf-8,${encodeURIComponent(lines.map(lineOf).join(""))}`;
    save.textContent = `Save judgements.csv (${count(judged.size)})`;
    save.hidden = !judged.size;
  };
  const judgeable = (one, each) => {
    const made = hit(each);
    if (!each.item || each.right || !one.asked) return made;
    const checked = judged.has(`${one.id} ${each.item}`), ariaLabel = `${each.label} is also right`;
    const box = make("input", { type: "checkbox", checked, ariaLabel });
    box.addEventListener("change", () => judge(one, each.item, box));
    made.append(make("label", { className: "judge" }, box, "also right"));
    return made;
  };
  const answered = (one, { encoder, rank, right, hits = [], note, maps }) => make("div",
    { className: "answer" },
    make("h3", {}, `${encoder} `, make("small", { className: right ? "found" : "" }, rank)),
    note ? make("p", { className: "doubt" }, note) : "",
    make("ol", {}, ...hits.map((each) => judgeable(one, each))),
    ...hits.filter(({ caption }) => caption).map(({ rank, caption }) =>
      make("p", { className: "its", dir: "auto" }, `${rank}: ${caption}`)),
    maps ? make("ul", { className: "maps" }, ...maps.map((each) => hit(each))) : "");
  let at = 0;
  const step = (by) => {
    const next = left[(left.indexOf(at) + by + left.length) % left.length] ?? at;
    choose(place.id, { case: cases[next].id });
    show(next);
  };
  const list = (items, fields = {}) =>
    make("ul", fields, ...items.map((each) => make("li", { dir: "auto" }, each)));
  const show = (i) => {
    at = i;
    const one = cases[i];
    viewer.onkeydown = ({ key }) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (by) step(by);
      if (key === "Enter") find(".thumb:focus", viewer)?.click();
    };
    viewer.replaceChildren(
      make("p", { className: "steps" }, button("Previous", () => step(-1)), " ",
        button("Next", () => step(1)), " ", button("Close", () => viewer.close()), " ", save),
      make("header", {},
        make("ul", {}, ...(one.expected ?? []).map((each) => hit(each, each.rank))),
        make("div", {}, make("h2", { dir: "auto" }, one.query),
          one.relevant ? list(one.relevant, { className: "own" }) : "",
          make("p", {}, one.summary), make("p", { className: "about" }, one.about ?? ""),
          list(one.labels ?? [], { className: "tags" }))),
      make("div", { className: "answers" }, ...one.answers.map((each) => answered(one, each))));
    for (const each of all(".thumb", viewer)) each.tabIndex = 0;
    if (!viewer.open) viewer.showModal();
    // the button that had the focus is gone: keys would go nowhere
    if (!viewer.contains(document.activeElement)) viewer.focus();
    viewer.scrollTop = 0;
  };
  viewer.addEventListener("click", ({ target }) => {
    if (target === viewer) viewer.close();
    if (target.matches(".thumb")) target.classList.toggle("zoom");
  });
  viewer.addEventListener("cancel", (event) => { // Escape leaves a large picture first
    for (const large of all(".zoom", viewer)) { event.preventDefault(); large.classList.remove("zoom"); }
  });
  viewer.addEventListener("close", () => {
    if (address().chosen.has("case")) choose(place.id, { case: "" });
    const opener = `[href$="case=${cases[at].id}"]`;
    if (!document.activeElement?.matches(opener)) find(opener, wall)?.focus();
  });

  const first = cases.filter(({ id }) => block.first?.includes(id));
  if (first.length) {
    const query = new URLSearchParams(block.wanted);
    find("#first-cases")?.append(
      make("h2", {}, "Where it fails ", make("a", { href: `#${place.id}?${query}` }, block.lead)),
      make("div", { className: "wall" },
        make("ul", {}, ...first.map((one) => tile(one, block.wanted)))));
  }
  const note = make("p", { className: "note" }, block.note ?? "");
  place.append(form, make("div", {}, shown, wall), note, viewer);
  draw();
};

for (const table of all("table.sorts")) sortable(table);
if (find("#weights")) controls(find("#board"));
(async () => {
  for (const place of all(".gallery")) {
    gallery(place, await unpack(find("script", place).textContent));
  }
  follow();
  root.dataset.made = "summary";
})();
