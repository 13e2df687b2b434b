"use strict";
const root = document.documentElement;
root.classList.add("with-scripts");
const find = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const make = (tag, fields = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
};
const count = (n) => n.toLocaleString("en");
// Theme, light or dark: the first click leaves the setting of the system, if the browser keeps it.
const kept = (value) => {
  try {
    if (value !== undefined) localStorage.setItem("capim-theme", value);
    return localStorage.getItem("capim-theme") ?? "";
  } catch { return value ?? ""; }
};
root.dataset.theme = kept();
addEventListener("click", ({ target }) => {
  if (target.id !== "theme") return;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = kept((root.dataset.theme || system) === "dark" ? "light" : "dark");
});

// Choices are in the address, behind the id of their place: #cases?missed=A&found=B. A new view of
// it can be gone back from; a change of a choice replaces it.
const address = () => {
  const [, id, query] = location.hash.match(/^#([^?]*)\??(.*)$/) ?? [, "", ""];
  return { id: decodeURIComponent(id), chosen: new URLSearchParams(query) };
};
const readers = []; // what follows the address
const choose = (id, changes, { push = false, anew = false } = {}) => {
  const here = address(), chosen = here.id === id && !anew ? here.chosen : new URLSearchParams();
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
addEventListener("submit", (event) => event.target.matches(".filters") && event.preventDefault());
addEventListener("click", (event) => { // a link to one case keeps the choices of its wall
  const href = event.target.closest?.("a[href^='#']")?.getAttribute("href");
  const [, id, query] = href?.match(/^#([^?]*)\?(.*)$/) ?? [];
  if (!query) return;
  event.preventDefault();
  const wanted = Object.fromEntries(new URLSearchParams(query));
  choose(id, wanted, { push: true, anew: !wanted.case });
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
  for (const heading of all("tr.heads th", table.tHead)) {
    const inside = make("button", { type: "button" }, ...heading.childNodes);
    inside.addEventListener("click", () => {
      const sorted = heading.getAttribute("aria-sort");
      const text = !heading.dataset.key && !heading.classList.contains("num");
      sortBy(table, heading, sorted ? sorted === "descending" : text);
      after(heading);
    });
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
  const { names, tasks, values, weak, shared } = answer;
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
      if (!gap) return { ...placed, state: "not tested" };
      placed.size += share * gap.size;
      [gap.size - gap.low, gap.high - gap.size].forEach((part, side) =>
        halves[side].set(corpus, (halves[side].get(corpus) ?? 0) + share * part));
    }
    const [below, above] = halves.map((of) => Math.sqrt([...of].reduce((sum, [a, x]) =>
      [...of].reduce((s, [b, y]) => s + x * y * (a === b ? 1 : shared[a]?.[b] ?? 0), sum), 0)));
    const [low, high] = [placed.size - below, placed.size + above];
    return { ...placed, low, high, state: high < 0 ? "worse" : "open" };
  });
};
const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(1)}`;
const interval = ({ size, low, high }) => `${signed(size)} (${signed(low)} to ${signed(high)})`;
const placeOf = (points) => Math.max(-4, Math.min(66, 56 * (1 + points / answer.span)));
const CLASSES = { first: "best", "not tested": "untested" };
const set = (element, fields) => {
  for (const [name, value] of Object.entries(fields)) element.setAttribute(name, value);
};
const strip = ({ state, size, low, high }) => {
  const made = find("#strip").content.firstElementChild.cloneNode(true), far = size < -answer.span;
  made.classList.add(CLASSES[state] ?? state);
  for (const part of all(far ? ".ends, circle" : ".far", made)) part.remove();
  if (far) {
    find(".far", made).textContent = `◂ ${signed(size)}`;
  } else {
    set(find(".ends", made), { x1: placeOf(low), x2: placeOf(high) });
    set(find("circle", made), { cx: placeOf(size) });
  }
  return made;
};
const reweighed = (table, weights) => {
  const placed = new Map(ranking(weights).map((each) => [each.name, each])), first = [];
  for (const row of table.tBodies[0].rows) {
    const found = placed.get(row.dataset.name), cell = row.cells[1];
    cell.dataset.sort = found?.value ?? "";
    cell.className = `mean ${CLASSES[found?.state] ?? found?.state ?? "none"}`;
    cell.title = found ? interval(found) : "not ranked";
    cell.replaceChildren(make("span", { className: "v" }, found ? found.value.toFixed(1) : "–"),
      found && found.state !== "not tested" ? strip(found) : "");
    if (["first", "open"].includes(found?.state)) {
      first.push([found.value, row.cells[0].textContent.trim()]);
    }
  }
  first.sort(([a], [b]) => b - a);
  const before = (at) => (at ? (at + 1 === first.length ? " or " : ", ") : "");
  const said = first.slice(0, 3).flatMap(([, name], at) => [before(at), make("em", {}, name)]);
  const rest = first.length > 3 ? ` or one of ${first.length - 3} more` : "";
  const begins = first.length ? "With your weights: " : "Nothing to rank with these weights";
  find("h1").replaceChildren(begins, ...said, rest);
};
const compared = (table, a, b) => { // two encoders on every task
  table.hidden = !a.value || !b.value || a.value === b.value;
  if (table.hidden) return;
  const of = [a, b].map(({ value }) => answer.names.indexOf(value));
  [a, b].forEach(({ selectedOptions }, at) => {
    table.tHead.rows[0].cells[at + 1].textContent = selectedOptions[0].textContent;
  });
  [...table.tBodies[0].rows].forEach((row, t) => {
    const gap = gapOf(t, ...of), values = of.map((n) => answer.values[t][n]?.toFixed(1) ?? "–");
    const texts = [...values, gap ? interval(gap) : "–", gap?.state ?? "not tested"];
    texts.forEach((text, at) => { row.cells[at + 1].textContent = text; });
  });
};
const controls = (table) => {
  const weighing = find("#weights form"), comparing = find("#pair form");
  const margin = find("[data-margin]", weighing), { a, b } = comparing.elements;
  const fields = all("[data-corpus]", weighing), corpora = fields.map((each) => each.name);
  const opening = [...find("h1").cloneNode(true).childNodes];
  const original = [...table.tBodies[0].rows].map((row) => [row, row.cells[1].cloneNode(true)]);
  const given = () => fields.map(({ value }) => Number(value));
  const draw = () => {
    const weights = given(), weighed = new Set(weights).size > 1;
    if (weighed) {
      const of = ({ corpus, weight }) => weight * (weights[corpora.indexOf(corpus)] ?? 0);
      reweighed(table, answer.tasks.map(of));
      sortBy(table, find("[data-key=mean]", table), false);
    } else if (document.body.classList.contains("weighed")) {
      find("h1").replaceChildren(...opening);
      for (const [row, cell] of original) {
        row.cells[1].replaceWith(cell.cloneNode(true));
        row.parentNode.append(row);
      }
    }
    document.body.classList.toggle("weighed", weighed);
    const x = placeOf(-margin.value), width = placeOf(Number(margin.value)) - x;
    for (const rect of all("rect.margin")) set(rect, { x, width });
    const key = find(".key li");
    key.textContent = key.textContent.replace(/within .*/, `within ${margin.value} points`);
    compared(find("#pair table"), a, b);
  };
  const keep = () => {
    const weights = given(), some = new Set(weights).size > 1;
    choose("answer", {
      weights: some ? corpora.map((name, at) => `${name}:${weights[at]}`).join(",") : "",
      margin: Number(margin.value) === answer.margin ? "" : margin.value,
      a: a.value, b: b.value,
    });
    draw();
  };
  for (const form of [weighing, comparing]) {
    form.addEventListener("input", keep);
    form.addEventListener("reset", () => setTimeout(keep));
  }
  sortable(table, ({ dataset }) => choose("answer", { sort: dataset.key ?? "" }));
  readers.push(({ id, chosen }) => {
    if (id !== "answer") return;
    const parts = (chosen.get("weights") ?? "").split(","), last = /:(?=[^:]*$)/;
    const weights = new Map(parts.map((part) => part.split(last))), rest = weights.size > 1 ? 0 : 1;
    for (const field of fields) field.value = weights.get(field.name) ?? rest;
    margin.value = chosen.get("margin") ?? answer.margin;
    for (const field of [a, b]) field.value = chosen.get(field.name) ?? "";
    find("#pair").open ||= chosen.has("a") && chosen.has("b");
    draw();
    const key = chosen.get("sort");
    const sorted = all("tr.heads th", table).find(({ dataset }) => dataset.key === key);
    if (sorted) sortBy(table, sorted, false);
  });
};

// Taking away: what the page holds as text, or what an address of the server answers, is copied
// as it is; a drawing is saved as SVG or PNG.
const exported = find("#exports") && JSON.parse(find("#exports").textContent);
const textOf = async (what) => {
  if (!what.startsWith("/")) return what === "link" ? location.href : exported[what];
  const given = await fetch(what);
  if (!given.ok) throw new Error(given.statusText);
  return given.text();
};
addEventListener("click", async ({ target }) => {
  const { copy, save } = target.dataset ?? {};
  if (copy) {
    const before = target.textContent;
    const done = textOf(copy).then((text) => navigator.clipboard.writeText(text));
    target.textContent = await done.then(() => "Copied", () => "Not copied");
    setTimeout(() => { target.textContent = before; }, 1500);
  }
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

// What the page holds packed: tables, and cases with their pictures.
const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};
let stored; // pictures
const pictured = (place) => {
  stored ??= JSON.parse(find("#pictures").textContent);
  for (const image of all("img[data-key]", place)) image.src = stored[image.dataset.key];
  return place;
};
const parsed = (html) => { // which Jinja made and escaped
  const made = make("template");
  made.innerHTML = html;
  return pictured(made.content);
};

// All results: the chosen table.
const picker = async (place) => {
  const views = await unpack(find("script", place).textContent);
  const view = find("select", place), shown = find(".view", place);
  const draw = () => {
    shown.replaceChildren(parsed(views[view.value]));
    sortable(find("table", shown));
  };
  view.addEventListener("input", () => { choose(place.id, { view: view.value }); draw(); });
  readers.push(({ id, chosen }) => {
    if (id !== place.id) return;
    view.value = chosen.get("view") ?? "";
    if (view.selectedIndex === -1) view.selectedIndex = 0;
    draw();
    place.scrollIntoView({ behavior: "instant" });
  });
};

// Failures: a wall of pictures by cause; one query with all answers in a window. A case stays when
// it has every chosen value and every word of the text.
addEventListener("error", ({ target: lost }) => { // a picture that cannot be shown
  if (lost.matches?.(".thumb")) lost.replaceWith(make("span", { className: "words" }, lost.alt));
}, true);
const gallery = async (place) => {
  const { cases, totals, serve } = await unpack(find("script", place).textContent);
  const form = find("form", place), shown = find("output", place), wall = find(".walls", place);
  const viewer = find("dialog", place), save = find(".save", viewer);
  const chosen = () => Object.fromEntries([...new FormData(form)].filter(([, v]) => v.trim()));
  const fits = (one, wanted) => Object.entries(wanted).every(([name, value]) => name === "text"
    ? value.toLowerCase().split(/\s+/).every((word) => one.text.includes(word))
    : (one.tags[name] ?? []).includes(value));
  // of all stored queries, where the choice is one that their totals answer; `serve` lists them
  const ofAll = ({ corpus, direction, missed, found, ...others }) => {
    if (!(missed || found) || Object.keys(others).length) return [];
    const same = totals.filter((t) => (!corpus || t.corpus === corpus)
      && (!direction || t.direction === direction));
    const of = (t) => (missed && found ? t.both[missed]?.[found]
      : missed ? t.missed[missed] : t.found[found]) ?? 0;
    const sum = (values) => count(values.reduce((a, b) => a + b, 0));
    const what = [missed && `missed by ${missed}`, found && `found by ${found}`].filter(Boolean);
    const every = sum(same.map((t) => t.queries)), n = sum(same.map(of));
    const text = ` Of all ${every} stored queries, ${n} are ${what.join(" and ")}.`;
    if (!serve || same.length !== 1 || !same[0].address) return [text];
    const query = new URLSearchParams({ wrong: missed ?? "", right: found ?? "" });
    return [text, " ", make("a", { href: `${serve}${same[0].address}&${query}` }, "All of them")];
  };
  const tile = (one, { missed }) => { // of the wrong results that of the chosen encoder
    const made = parsed(one.tile).firstElementChild, wrong = all("[data-encoder]", made);
    const kept = wrong.find(({ dataset }) => dataset.encoder === missed) ?? wrong[0];
    wrong.filter((each) => each !== kept).forEach((each) => each.remove());
    return made;
  };
  let left = [], at = 0;
  const draw = () => {
    const wanted = chosen(), most = Object.keys(wanted).length ? Infinity : 4; // of a kind
    left = cases.filter((one) => fits(one, wanted));
    const fitting = `${count(left.length)} of ${count(cases.length)} cases match.`;
    shown.replaceChildren(fitting, ...ofAll(wanted));
    wall.replaceChildren(...[...new Set(left.map(({ tags }) => tags.kind[0]))].map((kind) => {
      const of = left.filter(({ tags }) => tags.kind[0] === kind), all = `All ${count(of.length)}`;
      const href = `#${place.id}?${new URLSearchParams({ kind })}`, ariaLabel = `${all}: ${kind}`;
      return make("div", { className: "wall" }, make("h3", {}, kind),
        make("ul", {}, ...of.slice(0, most).map((one) => tile(one, wanted))),
        of.length > most ? make("a", { className: "more", href, ariaLabel }, all) : "");
    }));
  };
  const write = () => { choose(place.id, chosen(), { anew: true }); draw(); };
  form.addEventListener("input", write);
  form.addEventListener("reset", () => setTimeout(write));
  readers.push(({ id, chosen: wanted }) => {
    const one = id === place.id && cases.find((each) => each.id === wanted.get("case"));
    if (viewer.open && !one) viewer.close();
    if (id !== place.id) return;
    for (const control of form.elements) {
      if (!control.name) continue;
      control.value = wanted.get(control.name) ?? "";
      if (control.selectedIndex === -1) control.value = "";
    }
    draw();
    one ? show(one) : place.scrollIntoView({ behavior: "instant" });
  });

  // One query: arrow keys go to the next, Escape goes back to the wall. What is also right becomes
  // a line of judgements.
  const judged = new Set();
  viewer.addEventListener("change", ({ target }) => {
    judged[target.checked ? "add" : "delete"](target.value);
    const text = [save.dataset.heading, ...judged].join("\n");
    save.href = `data:text/csv;charset=utf-8,${encodeURIComponent(`${text}\n`)}`;
    save.textContent = `Save judgements.csv (${count(judged.size)})`;
    save.hidden = !judged.size;
  });
  const step = (by) => {
    const next = left[(left.indexOf(cases[at]) + by + left.length) % left.length] ?? cases[at];
    choose(place.id, { case: next.id });
    show(next);
  };
  const show = (one) => {
    at = cases.indexOf(one);
    const view = parsed(one.view).firstElementChild;
    for (const box of all("input", view)) box.checked = judged.has(box.value);
    find(".case", viewer).replaceWith(view);
    if (!viewer.open) viewer.showModal();
    viewer.scrollTop = 0;
  };
  viewer.addEventListener("keydown", ({ key, target }) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (by) { step(by); viewer.focus(); }
    if (key === "Enter") target.closest(".thumb")?.click();
  });
  viewer.addEventListener("click", ({ target }) => {
    if (target === viewer) viewer.close();
    if (target.dataset.step) step(Number(target.dataset.step));
    if (target.matches(".thumb")) target.classList.toggle("zoom");
  });
  viewer.addEventListener("cancel", (event) => { // Escape leaves a large picture first
    const large = find(".zoom", viewer);
    if (large) event.preventDefault();
    large?.classList.remove("zoom");
  });
  viewer.addEventListener("close", () => {
    if (address().chosen.has("case")) choose(place.id, { case: "" });
    const opener = `[href$="case=${cases[at].id}"]`;
    if (!document.activeElement?.matches(opener)) find(opener, wall)?.focus();
  });
  pictured(document); // the cases of the first screen
  draw();
};

addEventListener("DOMContentLoaded", async () => { // the page reads before its script begins
  for (const table of all("table.sorts")) sortable(table);
  if (find("#weights")) controls(find("#board"));
  for (const place of all(".picker")) await picker(place);
  for (const place of all(".gallery")) await gallery(place);
  follow();
  root.dataset.made = "summary";
});
