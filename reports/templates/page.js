"use strict";
const root = document.documentElement;
root.classList.add("scripted");
const find = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
// Characters that turn or hide others are named, as reports/render.py does in what it writes itself.
const HIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g;
const named = (text) => text.replace(HIDDEN, (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
const SAID = new Set(["title", "alt", "ariaLabel"]); // attributes that are read as text
const make = (tag, fields = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (name === "style") made.style.cssText = value; // which a policy without inline styles allows
    else if (name in made) made[name] = SAID.has(name) ? named(value) : value;
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

// Light or dark: the first click leaves the setting of the system.
if (!document.body.classList.contains("app")) find("#theme")?.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// The current section is marked in the contents.
const links = new Map(all(".contents a").map((a) => [a.hash.slice(1), a]));
const visible = new Set();
let current = [...links.keys()][0];
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) visible[isIntersecting ? "add" : "delete"](target.id);
  current = [...links.keys()].find((id) => visible.has(id)) ?? current; // between two sections: the one before
  for (const [id, a] of links) id === current ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current");
}, { rootMargin: "-10% 0px -60%" });
for (const section of all("main > section")) watcher.observe(section);

// Choices are in the address, behind the id of their place: #cases?missed=A&found=B. A new view of it can be gone back
// from; a change of a choice replaces it.
const address = () => {
  const [, id, query] = location.hash.match(/^#([^?]*)\??(.*)$/) ?? [, "", ""];
  return { id: decodeURIComponent(id), chosen: new URLSearchParams(query) };
};
const readers = []; // what follows the address
const choose = (id, changes, { push = false, drop = [] } = {}) => {
  const { chosen } = address();
  for (const name of drop) chosen.delete(name);
  for (const [name, value] of Object.entries(changes)) value ? chosen.set(name, value) : chosen.delete(name);
  history[push ? "pushState" : "replaceState"](null, "", `#${id}${chosen.size ? "?" : ""}${chosen}`);
};
const follow = () => { for (const read of readers) read(address()); };
addEventListener("popstate", follow);

// Blocks: the packed values of a section are made to elements when their place is seen.
const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};
const packs = new Map();
const blocksOf = (section) => {
  if (!packs.has(section)) {
    const blocks = unpack(find(".pack", section).textContent);
    packs.set(section, blocks.then((made) => new Map(made.map((block) => [block.id, block]))));
  }
  return packs.get(section);
};
const fill = async (place) => {
  const block = (await blocksOf(place.closest("section"))).get(place.id);
  if (!place.classList.replace("later", "made")) return;
  kinds[block.kind](place, block);
};
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) { seen.unobserve(target); fill(target); }
}, { rootMargin: "700px 0px" });

// Tables of one language each: those of the chosen one are shown.
for (const section of all("section")) {
  const places = all("[data-choice]", section), names = [...new Set(places.map((place) => place.dataset.choice))].sort();
  if (names.length < 2) continue;
  const select = make("select", {}, ...names.map((name) => option(name)));
  const show = () => { for (const place of places) place.hidden = place.dataset.choice !== select.value; };
  select.addEventListener("input", show);
  places[0].before(make("form", { className: "filters" }, make("label", {}, "Captions in", select)));
  show();
}

// What a cell says in words: on hover, on focus, and at the first touch, which follows no link.
const tip = make("div", { className: "tip", role: "tooltip", id: "tip", hidden: true });
document.body.append(tip);
const words = new WeakMap();
let told = null, touched = false;
const tell = (cell) => {
  told = cell;
  tip.hidden = !cell;
  if (!cell) return;
  tip.textContent = named(words.get(cell));
  const box = cell.getBoundingClientRect(), left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${(above > 0 ? above : box.bottom + 6) + scrollY}px`;
};
const worded = (event) => event.target.closest?.("td, th");
addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; });
addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") tell(words.has(worded(event)) ? worded(event) : null); });
addEventListener("focusin", (event) => { if (!touched) tell(words.has(worded(event)) ? worded(event) : null); });
addEventListener("keydown", (event) => { if (event.key === "Escape") tell(null); });
addEventListener("click", (event) => {
  const cell = worded(event), link = event.target.closest?.("a[href^='#']");
  if (touched && cell !== told && words.has(cell)) { event.preventDefault(); return tell(cell); }
  if (!link) return tell(null);
  const [, id, query] = link.getAttribute("href").match(/^#([^?]*)\?(.*)$/) ?? [];
  if (!query) return;
  event.preventDefault(); // a link to failures keeps the other choices
  const asked = Object.fromEntries(new URLSearchParams(query));
  choose(id, asked, { push: true, drop: asked.case ? [] : CASE_CHOICES });
  follow();
}, true);

// Tables: the rows of a long one are made in portions; search in rows, columns and encoders hidden, copied as CSV.
const MOST_PLAIN = 6, MOST_WIDE = 8, PORTION = 60;
const hidden = new Set(address().chosen.get("without")?.split(",") ?? []); // encoders
const redrawn = new Set(); // what follows the hidden encoders
const parts = (cell) => {
  const [text, note, state, title, sort, mark, link, bar] = typeof cell === "string" ? [cell] : cell;
  return { text, note: note || "", state: state || "", title: title || "", sort: sort || "", mark: mark || "", link: link || "", bar };
};
// A table as CSV: value, ends of the interval, verdict and other small print are columns of their own, each where a row has
// one; numbers and intervals as reports/format.py writes them become plain numbers, those in no fixed unit exact ones.
const PARTS = ["", "low", "high", "verdict", "note"];
const plain = (text) => (/^[+−]?[\d,]+(\.\d+)?$/.test(text) ? text.replaceAll(",", "").replace("−", "-").replace("+", "") : "");
const ends = (text) => /^(−?[\d.,]+)(?:–| to )(−?[\d.,]+)$/.exec(text)?.slice(1).map(plain);
const fields = (cell, numeric) => {
  const { text, note, state, sort } = parts(cell);
  if (!numeric) return [text, "", "", state, note];
  const [low, high] = ends(note) ?? ends(text) ?? ["", ""], shown = /[\p{L}\d]/u.test(text) && !ends(text) ? text : "";
  return [plain(shown) || (shown && sort) || shown, low, high, state, ends(note) ? "" : note];
};
// As store/errors.py: no spreadsheet runs a cell as a formula, numbers stay numbers.
const lineOf = (texts) => {
  const formula = (text) => /^'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/.test(text) && !Number.isFinite(Number(text));
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return `${texts.map((text) => quoted(formula(text) ? `'${text}` : text)).join(",")}\n`;
};
const csv = (columns, rows) => {
  const made = columns.flatMap(({ group, heading, unit, says, numeric }, i) => {
    const cells = rows.map((row) => fields(row[i], numeric));
    return PARTS.map((part, at) => [[group, heading, part === "verdict" ? says ?? part : part].filter(Boolean).join(" ") + (unit && at < 3 ? ` (${unit})` : ""), ...cells.map((cell) => cell[at])])
      .filter(([, ...texts], at) => !at || texts.some(Boolean));
  });
  return ["", ...rows].map((_, at) => lineOf(made.map((column) => column[at]))).join("");
};
const ordered = (rows, place, up, numeric) => {
  const key = (row) => { const { text, sort } = parts(row[place]); return sort || text; };
  const size = (row) => parseFloat(key(row).replaceAll(",", "").replace("−", "-"));
  const known = (row) => !numeric || Number.isFinite(size(row));
  return [...rows].sort((a, b) => {
    if (known(a) !== known(b)) return known(a) ? -1 : 1;
    const order = numeric ? size(a) - size(b) : key(a).localeCompare(key(b));
    return up ? order : -order;
  });
};
const headings = (columns, places, sorted, sort) => {
  const groups = [];
  for (const i of places) {
    const group = columns[i].group ?? "";
    groups.at(-1)?.[0] === group ? (groups.at(-1)[1] += 1) : groups.push([group, 1]);
  }
  const upper = groups.map(([group, n]) => group ? make("th", { scope: "colgroup", colSpan: n }, group) : make("td", { colSpan: n }));
  const lower = places.map((i) => {
    const { heading, numeric, explain } = columns[i];
    const made = make("th", { scope: "col", className: numeric ? "num" : "", title: explain ?? "" }, button(heading, () => sort(i)));
    if (sorted?.place === i) made.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
    return made;
  });
  return [...(groups.some(([group]) => group) ? [make("tr", { className: "groups" }, ...upper)] : []), make("tr", {}, ...lower)];
};
const columnChoice = (name, columns, isHidden, toggle) => make("details", {},
  make("summary", { ariaLabel: `Columns: ${name}` }, "Columns"),
  make("div", {}, ...columns.slice(1).map(({ group, heading }, at) => {
    const box = make("input", { type: "checkbox", checked: !isHidden(at + 1) });
    box.addEventListener("change", () => toggle(at + 1, box.checked));
    return make("label", {}, box, ` ${[group, heading].filter(Boolean).join(" · ")}`);
  })));
const copied = (name, text) => {
  const made = button("Copy as CSV", async () => {
    made.textContent = await navigator.clipboard.writeText(text()).then(() => "Copied", () => "Not allowed here");
    setTimeout(() => { made.textContent = "Copy as CSV"; }, 1500);
  }, { ariaLabel: `Copy as CSV: ${name}` });
  return made;
};
// A dot with its interval, at places of an axis in percent, and a line at zero or chance.
const strip = (kind, low, high, point, line = 0) => make("i", { className: `dot ${kind}`, ariaHidden: "true", style: `--low:${low};--high:${high};--point:${point};--zero:${line}` });
const cellOf = (cell, column, first) => {
  const { text, note, state, title, mark, link, bar } = parts(cell);
  const plain = !(note || state || bar || link);
  const made = make(first ? "th" : "td", { className: [column.numeric && "num", mark].filter(Boolean).join(" "), title });
  if (first) made.scope = "row";
  if (plain) made.textContent = named(text);
  else made.append(link ? make("a", { className: "value", href: link }, text) : make("span", { className: "value" }, text));
  if (note) made.append(make("span", { className: "interval" }, note));
  if (bar) made.append(strip(`row ${bar[3] ? "" : "free"}`, ...bar));
  if (state) made.append(make("span", { className: "state" }, state));
  return made;
};
const table = (place, block) => {
  if (!block.folded) return open(place, block);
  const folded = make("details", { className: "folded" }, make("summary", {}, block.folded));
  folded.addEventListener("toggle", () => { if (folded.children.length === 1) open(folded, block); });
  place.append(folded);
};
// What a kind of table has of its own: columns that are ``gone`` at first, ``cells`` (of every drawing), ``tools``, and
// ``keep`` for a change of the columns. Gives what draws it again.
const open = (place, block, own = {}) => {
  const { caption, columns, rows = [] } = block, gone = own.gone ?? new Set(), long = rows.length > MOST_PLAIN && !own.tools;
  let sorted = null, wanted = "", most = PORTION;
  const kind = own.kind ?? (columns.length > MOST_WIDE ? "dense" : "");
  const made = make("table", { className: kind }, make("caption", {}, caption), make("thead"), make("tbody"));
  const more = button("", () => { most = Infinity; draw(); }, { className: "more" });
  const kept = () => {
    const places = columns.map((_, i) => i).filter((i) => !gone.has(i) && !hidden.has(columns[i].heading) && !hidden.has(columns[i].group));
    const fits = (row) => !hidden.has(parts(row[0]).text)
      && (!wanted || row.some((cell) => [].concat(cell).slice(0, 3).join(" ").toLowerCase().includes(wanted)));
    const chosen = rows.filter(fits);
    return { places, rows: sorted ? ordered(chosen, sorted.place, sorted.up, columns[sorted.place].numeric) : chosen };
  };
  const draw = () => {
    const { places, rows } = kept(), first = document.activeElement?.closest?.("th")?.cellIndex;
    const cell = own.cells?.() ?? ((row, i) => cellOf(row[i], columns[i], i === 0));
    made.tHead.replaceChildren(...headings(columns, places, sorted, sort));
    made.tBodies[0].replaceChildren(...rows.slice(0, most).map((row) => make("tr", {}, ...places.map((i) => cell(row, i)))));
    more.hidden = rows.length <= most;
    more.textContent = `Show the other ${count(rows.length - most)} rows`;
    if (first !== undefined && !document.activeElement.closest("th")) find("button", made.tHead.rows[made.tHead.rows.length - 1].cells[first])?.focus();
  };
  const sort = (i) => {
    sorted = { place: i, up: sorted?.place === i ? !sorted.up : !columns[i].numeric };
    draw();
  };
  const box = make("div", { className: "table" }, make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, made), more);
  if (rows.length > 1 || own.tools) {
    const tools = make("div", { className: "tools" }, ...(own.tools ?? []));
    if (long) {
      const search = make("input", { type: "search", placeholder: "Search", ariaLabel: `Search: ${caption}` });
      search.addEventListener("input", () => { wanted = search.value.trim().toLowerCase(); draw(); });
      tools.append(search);
    }
    tools.append(columnChoice(caption, columns, (i) => gone.has(i), (i, shown) => { gone[shown ? "delete" : "add"](i); own.keep?.(); draw(); }));
    tools.append(copied(caption, () => { const { places, rows } = kept(); return csv(places.map((i) => columns[i]), rows.map((row) => places.map((i) => row[i]))); }));
    long || own.tools ? box.prepend(tools) : box.append(tools);
  }
  if (block.note) box.append(make("p", { className: "note" }, block.note));
  place.append(box);
  redrawn.add(draw);
  draw();
  return draw;
};

// The board: one line for every encoder, in every column a dot with its simultaneous interval against the highest or the
// chosen encoder, on the axis of those that no test shows to be worse.
const board = (place, block) => {
  const { columns, rows } = block.table, names = rows.map((row) => parts(row[0]).text);
  const { chosen } = address();
  const gone = new Set(chosen.has("columns") ? chosen.get("columns").split(",").map(Number) : block.hidden ?? []);
  let against = names.includes(chosen.get("against")) ? chosen.get("against") : "";
  const isTested = (i) => Object.keys(block.pairs?.[i - 1] ?? {}).length > 0;
  const rivals = columns.map((_, i) => {
    if (!isTested(i)) return "";
    return ordered(rows.filter((row) => parts(row[i]).sort && parts(row[i]).mark !== "bad"), i, false, true).map((row) => parts(row[0]).text)[0] ?? "";
  });
  const cells = () => {
    const axes = columns.map((_, i) => {
      const rival = against || rivals[i];
      const able = rows.filter((row) => parts(row[i]).mark !== "bad").map((row) => parts(row[0]).text);
      const pairs = able.map((name) => block.pairs?.[i - 1]?.[name]?.[rival]).filter(Boolean).sort((a, b) => b[2] - a[2]);
      const ends = pairs.filter((pair, at) => pair[0] !== "worse" || !at).flatMap((pair) => [pair[3], pair[4]]);
      const low = Math.min(0, ...ends), high = Math.max(0, ...ends), rim = Math.max(0.08 * (high - low), 0.5);
      return [low - rim, high + rim];
    });
    return (row, i) => cell(row, i, axes[i]);
  };
  const cell = (row, i, [start, end]) => {
    const name = parts(row[0]).text, { text, note, state, title, mark, link } = parts(row[i]);
    if (!i) return make("th", { scope: "row", title }, make("span", { className: "value" }, text));
    const rival = against || rivals[i], pair = name === rival ? undefined : block.pairs?.[i - 1]?.[name]?.[rival];
    const verdict = pair ? `${pair[1]} (against ${rival})` : name === rival ? (against ? "the reference" : "highest") : rival && parts(row[i]).sort ? `not tested against ${rival}` : "";
    const kind = mark === "bad" ? "bad" : pair ? pair[0] : name === rival ? "best" : "";
    const made = make("td", { className: `num ${kind}` }, link ? make("a", { className: "value", href: link }, text) : make("span", { className: "value" }, text));
    if (isTested(i) && parts(row[i]).sort) {
      const at = (x) => `${(100 * Math.min(1, Math.max(0, (x - start) / (end - start)))).toFixed(1)}%`;
      const [low, high, point] = pair ? [pair[3], pair[4], pair[2]] : [0, 0, 0];
      const beyond = point < start ? " beyond" : "";
      made.append(strip(pair || name === rival ? kind + beyond : "none", at(low), at(high), at(point), at(0)));
    }
    const said = [verdict, state].filter(Boolean).join("; ");
    made.append(make("span", { className: "unseen" }, [note && ` (${note})`, said && ` ${said}`].filter(Boolean).join("")));
    words.set(made, `${name}, ${[columns[i].group, columns[i].heading].filter(Boolean).join(", ")}: ${[note ? `${text} (${note})` : text, said || title, link && "click for its failures"].filter(Boolean).join("; ")}`);
    return made;
  };
  const keep = () => choose(place.id, { against, columns: [...gone].sort((a, b) => a - b).join(","), without: [...hidden].join(",") });
  const reference = make("select", {}, option("", "the highest of each column"), ...names.map((name) => option(name)));
  reference.value = against;
  reference.addEventListener("change", () => { against = reference.value; keep(); draw(); });
  const encoders = make("details", { id: "shown-encoders" }, make("summary", {}, "Encoders"), make("div", {}, ...names.map((name) => {
    const box = make("input", { type: "checkbox", checked: !hidden.has(name), value: name });
    box.addEventListener("change", () => { hidden[box.checked ? "delete" : "add"](name); keep(); for (const again of redrawn) again(); });
    return make("label", {}, box, ` ${name}`);
  })));
  const draw = open(place, block.table, { kind: "board", gone, cells, keep, tools: [make("label", {}, "Compared with ", reference), encoders] });
  if (block.values) decision(place, block, names);
  performance.mark("first-screen");
};

// The decision: a mean over tasks by weights, with the interval that holds for all pairs, limits, and how far the weights
// can go until another encoder is first. As reports/rows/choice.py, which has the formulas in words.
const ranking = (block, names, weights, limits) => {
  const { columns, rows } = block.table, given = weights.map((_, t) => t).filter((t) => weights[t] > 0);
  const has = (t, name) => block.values[t]?.[name] !== undefined, corpusOf = (t) => columns[t + 1].group;
  const lines = new Map(rows.map((row) => [parts(row[0]).text, row])), weak = (t, name) => has(t, name) && parts(lines.get(name)[t + 1]).mark === "bad";
  // as tasks/statistics/decision.py (counted): a task enters a mean if an encoder that could be ranked is above chance there
  const least = Math.min(2, new Set(given.map(corpusOf)).size), reach = (name) => new Set(given.filter((t) => has(t, name)).map(corpusOf)).size;
  const counts = given.filter((t) => names.some((name) => has(t, name) && !weak(t, name) && reach(name) >= least)), used = counts.length ? counts : given;
  const total = used.reduce((sum, t) => sum + weights[t], 0), share = weights.map((weight, t) => (used.includes(t) ? weight / total : 0));
  const out = [], uncounted = given.filter((t) => !used.includes(t));
  const left = names.filter((name) => {
    const missing = used.find((t) => !has(t, name)), unseen = used.length && used.every((t) => weak(t, name));
    const broken = limits.find(({ cost, bound }) => bound !== null && !(cost.at_least ? cost.values[name] >= bound : cost.values[name] <= bound));
    const why = missing !== undefined ? `not evaluated on ${columns[missing + 1].group}, ${columns[missing + 1].heading}`
      : unseen ? "not shown above chance on any task with a weight" : broken && (broken.cost.values[name] === undefined ? `${broken.cost.name} not known` : `${broken.cost.name}: ${broken.cost.texts[name]}`);
    if (why) out.push(`${name}: ${why}`);
    return !why;
  });
  const mean = (name, by = share) => by.reduce((sum, weight, t) => sum + (weight ? weight * block.values[t][name] : 0), 0);
  const order = left.map((name) => [name, mean(name)]).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  if (!order.length) return { order: [], out, same: [], uncounted };
  const first = order[0][0];
  const found = order.map(([name, value]) => {
    if (name === first) return { name, value, state: "first" };
    const squares = [new Map(), new Map()];
    let difference = 0, tested = true;
    for (const t of used) {
      const pair = block.pairs[t]?.[name]?.[first];
      if (!pair) { tested = false; continue; }
      difference += share[t] * pair[2];
      [pair[2] - pair[3], pair[4] - pair[2]].forEach((half, side) => {
        const corpus = columns[t + 1].group;
        squares[side].set(corpus, (squares[side].get(corpus) ?? 0) + share[t] * half);
      });
    }
    if (!tested) return { name, value, state: "not tested" };
    const [below, above] = squares.map((of) => Math.hypot(...of.values()));
    const [low, high] = [difference - below, difference + above];
    return { name, value, difference, low, high, state: high < 0 ? "worse" : "open" };
  });
  const same = used.length < 2 ? [] : used.map((t) => {
    let [low, high] = [0, 1];
    const rest = share.map((weight, other) => (other === t ? 0 : weight / (1 - share[t])));
    for (const [name] of order.slice(1)) {
      const here = block.values[t][first] - block.values[t][name], there = mean(first, rest) - mean(name, rest);
      const turn = there / (there - here);
      if (here < 0 && there >= 0) high = Math.min(high, turn);
      if (there < 0 && here >= 0) low = Math.max(low, turn);
    }
    return [t, low, high];
  });
  return { order: found, out, same, uncounted };
};
const decision = (place, block, names) => {
  const { columns } = block.table, { chosen } = address(), tasks = block.values.map((_, t) => t).filter((t) => Object.keys(block.values[t]).length);
  const given = new Map((chosen.get("weights") ?? "").split(",").filter(Boolean).map((part) => part.split(":").map(Number)));
  const title = (t) => `${columns[t + 1].group}, ${columns[t + 1].heading}`;
  const weights = tasks.map((t) => make("input", { type: "number", min: 0, max: 100, step: 5, value: given.size ? given.get(t) ?? 0 : t === tasks[0] ? 100 : 0, name: `w${t}` }));
  const costs = block.costs ?? [], levels = costs.map((cost) => Object.keys(cost.levels));
  const bounds = costs.map((cost, i) => {
    const control = levels[i].length ? make("select", {}, option("", "no limit"), ...levels[i].map((level) => option(level, level.replace("-", " "))))
      : make("input", { type: "number", min: 0, step: "any", placeholder: "no limit" });
    return Object.assign(control, { name: cost.key, value: chosen.get(cost.key) ?? "" });
  });
  const result = make("div", { className: "chosen", ariaLive: "polite" });
  const signed = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + Math.abs(x).toFixed(1);
  const draw = () => {
    const wanted = block.values.map((_, t) => { const at = tasks.indexOf(t); return at < 0 ? 0 : Math.max(0, Number(weights[at].value) || 0); });
    const limits = costs.map((cost, i) => ({ cost, bound: bounds[i].value === "" ? null : cost.levels[bounds[i].value] ?? Number(bounds[i].value) }));
    const { order, out, same, uncounted } = ranking(block, names.filter((name) => !hidden.has(name)), wanted, limits);
    const open = order.filter(({ state }) => state === "open").map(({ name }) => name);
    const untested = order.filter(({ state }) => state === "not tested").map(({ name }) => name);
    const listed = (all) => all.join(", ").replace(/, ([^,]+)$/, " and $1");
    const said = !order.length ? "No encoder keeps these limits and can be ranked." : [`${order[0].name} is first`,
      open.length && `; no test separates it from ${listed(open)}`, untested.length && `; it was not tested against ${listed(untested)}`,
      order.length > 1 && !open.length && !untested.length && ", and better than every other one", "."].filter(Boolean).join("");
    const rows = order.map(({ name, value, difference, low, high, state }) => make("tr", { className: state },
      make("th", { scope: "row" }, name), make("td", { className: "num" }, value.toFixed(1)),
      make("td", { className: "num" }, difference === undefined ? "" : signed(difference)),
      make("td", { className: "num" }, low === undefined ? "" : `${signed(low)} to ${signed(high)}`),
      make("td", {}, state === "open" ? "not separated" : state)));
    const head = ["Encoder", "weighted mean", "minus the first", "interval", "against the first"].map((text, i) => make("th", { scope: "col", className: i && i < 4 ? "num" : "" }, text));
    const far = same.map(([t, low, high]) => `${title(t)} from ${Math.ceil(100 * low)} to ${Math.floor(100 * high)} %`);
    result.replaceChildren(make("p", { className: "count" }, said),
      !rows.length ? "" : make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Encoders by the weighted mean" },
        make("table", {}, make("caption", { className: "unseen" }, "Encoders by the weighted mean"), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))),
      out.length ? make("p", {}, `Not ranked: ${out.join("; ")}.`) : "",
      uncounted.length ? make("p", {}, `In no mean, because no encoder that could be ranked is shown above chance there: ${uncounted.map(title).join("; ")}.`) : "",
      far.length ? make("p", {}, `The first place stays the same with the weight of ${far.join("; of ")} (the others in proportion).`) : "",
      make("p", { className: "note" }, "Interval of the difference: from the intervals that hold for all pairs of a task; corpora count as independent, tasks of one corpus as wholly dependent, which makes it wider rather than narrower."));
  };
  const keep = () => {
    const of = tasks.map((t, i) => [t, weights[i].value]).filter(([, weight]) => Number(weight) > 0).map(([t, weight]) => `${t}:${weight}`);
    choose("choose", { weights: of.join(","), ...Object.fromEntries(costs.map((cost, i) => [cost.key, bounds[i].value])) });
    draw();
  };
  const form = make("form", { className: "filters", ariaLabel: "Weights and limits" },
    ...tasks.map((t, i) => make("label", {}, `${title(t)}, %`, weights[i])),
    ...bounds.map((bound, i) => make("label", {}, `${costs[i].name}, ${costs[i].at_least ? "at least" : "at most"}${costs[i].unit && ` (${costs[i].unit})`}`, bound)));
  form.addEventListener("input", keep);
  form.addEventListener("submit", (event) => event.preventDefault());
  const box = make("details", { id: "choose", className: "choose" }, make("summary", {}, "Decide: weights of the tasks, and limits"), form, result);
  box.open = address().id === "choose";
  box.addEventListener("toggle", () => { if (box.open) draw(); });
  place.append(box);
  redrawn.add(draw);
  draw();
  readers.push(({ id }) => { if (id === "choose") { box.open = true; box.scrollIntoView({ behavior: "instant" }); } });
};

// Failures: a wall of pictures by cause; one query with all answers in a window. A case stays when it has every chosen
// value and every word of the text.
const CASE_CHOICES = ["corpus", "direction", "missed", "found", "kind", "slice", "language", "ambiguous", "text", "case"];
let stored; // pictures
const source = (key) => (stored ??= JSON.parse(find("#pictures").textContent))[key] ?? key;
const picture = (key, label) => make("img", { className: "thumb", alt: label, loading: "lazy", decoding: "async", src: source(key) });
const hit = ({ thumbnail, label, rank, score, right }, about) => make("li", { className: right ? "right" : "wrong" },
  thumbnail ? picture(thumbnail, label) : make("span", { className: "words", dir: "auto" }, label),
  make("small", {}, about ?? [rank, score].filter(Boolean).join(" · "), right ? " " : "", right ? make("b", {}, "relevant") : ""));
const gallery = (place, block) => {
  const cases = block.cases ?? [], totals = block.totals ?? [];
  const texts = cases.map((one) => [one.query, ...(one.relevant ?? []), one.about].join(" ").toLowerCase());
  const text = make("input", { type: "search", name: "text", autocomplete: "off" });
  const form = make("form", { className: "filters", ariaLabel: `Filter: ${block.caption}` },
    ...(block.filters ?? []).map(({ name, label, options }) => make("label", {}, label, make("select", { name }, option("", "no filter"), ...options.map((each) => option(each))))),
    make("label", {}, "Text", text), make("button", { type: "reset" }, "Show all"));
  const shown = make("output", { className: "shown", ariaLive: "polite" });
  const wall = make("div", { className: "walls" }), viewer = make("dialog", { className: "viewer", tabIndex: -1, ariaLabel: "One query with all answers" });
  const chosen = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim()));
  const fits = (i, wanted) => Object.entries(wanted).every(([name, value]) => name === "text"
    ? value.toLowerCase().split(/\s+/).every((word) => texts[i].includes(word)) : (cases[i].tags[name] ?? []).includes(value));
  // of all stored queries, where the choice is one that their totals answer
  const ofAll = ({ corpus, direction, missed, found, ...others }) => {
    if (!(missed || found) || Object.keys(others).length) return "";
    const parts = totals.filter((t) => (!corpus || t.corpus === corpus) && (!direction || t.direction === direction));
    const of = (t) => (missed && found ? t.both?.[missed]?.[found] : missed ? t.missed?.[missed] : t.found?.[found]) ?? 0;
    const sum = (values) => count(values.reduce((a, b) => a + b, 0));
    const what = [missed && `missed by ${missed}`, found && `found by ${found}`].filter(Boolean).join(" and ");
    return ` Of all ${sum(parts.map((t) => t.queries))} stored queries, ${sum(parts.map(of))} are ${what}.`;
  };
  const tile = (one, wanted) => {
    const wrong = one.answers.find((answer) => answer.hits?.some((each) => !each.right) && (wanted.missed ? answer.encoder === wanted.missed : !answer.right));
    const made = make("a", { href: `#${place.id}?case=${one.id}` }, make("span", { className: "asked", dir: "auto" }, one.query));
    const pair = make("span", { className: "pair" });
    const face = ({ thumbnail, label }, kind, alt) => make("span", { className: thumbnail ? kind : `${kind} words`, dir: "auto" }, thumbnail ? picture(thumbnail, alt) : label);
    if (one.expected?.length) pair.append(face(one.expected[0], "right", one.expected[0].label));
    const first = wrong?.hits.find((each) => !each.right);
    if (first) pair.append(face(first, "wrong", `${wrong.encoder} puts first ${first.label}`));
    made.prepend(pair);
    const n = one.answers.length, missed = one.tags.missed?.length ?? 0;
    made.append(make("small", {}, `missed by ${missed === n ? "all" : missed} of ${n} · ${one.tags.corpus[0]}`));
    return make("li", {}, made);
  };
  const few = 4, many = 24;
  let most = many, kept = [];
  const draw = () => {
    const wanted = chosen(), groups = new Map();
    kept = cases.map((_, i) => i).filter((i) => fits(i, wanted));
    for (const i of kept) { const kind = cases[i].tags.kind[0]; groups.set(kind, [...(groups.get(kind) ?? []), cases[i]]); }
    const whole = Object.keys(wanted).length > 0;
    shown.textContent = `${count(kept.length)} of ${count(cases.length)} cases fit.${ofAll(wanted)}`;
    wall.replaceChildren(...[...groups].map(([kind, of]) => make("div", { className: "wall" }, make("h4", {}, kind),
      make("ul", {}, ...of.slice(0, whole ? most : few).map((one) => tile(one, wanted))),
      of.length > (whole ? most : few) ? button(`All ${count(of.length)}`, () => {
        if (whole) { most = Infinity; return draw(); }
        find("[name=kind]", form).value = kind;
        write();
      }, { className: "more", ariaLabel: `All ${count(of.length)}: ${kind}` }) : "")));
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
    if (one >= 0) show(one);
    else { if (viewer.open) viewer.close(); place.scrollIntoView({ behavior: "instant" }); }
  };
  form.addEventListener("input", write);
  form.addEventListener("reset", () => setTimeout(write));
  form.addEventListener("submit", (event) => event.preventDefault());
  readers.push(read);

  // One query: arrow keys go to the next, Escape goes back to the wall. What is also right becomes a line of judgements.
  const judged = new Map();
  const save = make("a", { className: "save", hidden: true, download: "judgements.csv" });
  const judge = (one, item, box) => {
    box.checked ? judged.set(`${one.id} ${item}`, [...one.asked, item]) : judged.delete(`${one.id} ${item}`);
    const lines = [["corpus", "direction", "query_id", "item_id"], ...judged.values()];
    save.href = `data:text/csv;charset=utf-8,${encodeURIComponent(lines.map(lineOf).join(""))}`;
    save.textContent = `Save judgements.csv (${count(judged.size)})`;
    save.hidden = !judged.size;
  };
  const answer = (one, { encoder, rank, right, hits = [], note, maps }) => make("div", { className: "answer" },
    make("h5", {}, `${encoder} `, make("small", { className: right ? "found" : "" }, rank)), note ? make("p", { className: "doubt" }, note) : "",
    make("ol", {}, ...hits.map((each) => {
      const made = hit(each);
      if (each.item && !each.right && one.asked) {
        const box = make("input", { type: "checkbox", checked: judged.has(`${one.id} ${each.item}`), ariaLabel: `${each.label} is also right` });
        box.addEventListener("change", () => judge(one, each.item, box));
        made.append(make("label", { className: "judge" }, box, "also right"));
      }
      return made;
    })), maps ? make("ul", { className: "maps" }, ...maps.map((each) => hit(each))) : "");
  let at = 0;
  const show = (i) => {
    at = i;
    const one = cases[i];
    const step = (by) => { const next = kept[(kept.indexOf(at) + by + kept.length) % kept.length] ?? at; choose(place.id, { case: cases[next].id }); show(next); };
    viewer.onkeydown = (event) => { const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]; if (by) step(by); };
    viewer.replaceChildren(make("p", { className: "steps" }, button("Previous", () => step(-1)), " ", button("Next", () => step(1)), " ", button("Close", () => viewer.close()), " ", save),
      make("header", {}, make("ul", {}, ...(one.expected ?? []).map((each) => hit(each, each.rank))), make("div", {}, make("h4", { dir: "auto" }, one.query),
        one.relevant ? make("ul", { className: "own" }, ...one.relevant.map((each) => make("li", { dir: "auto" }, each))) : "",
        make("p", {}, one.summary), make("p", { className: "about" }, one.about ?? ""),
        make("ul", { className: "tags" }, ...(one.labels ?? []).map((label) => make("li", {}, label))))),
      make("div", { className: "answers" }, ...one.answers.map((each) => answer(one, each))));
    if (!viewer.open) viewer.showModal();
    if (!viewer.contains(document.activeElement)) viewer.focus(); // the button that had it is gone: keys would go nowhere
    viewer.scrollTop = 0;
  };
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); });
  viewer.addEventListener("close", () => { if (address().chosen.has("case")) choose(place.id, { case: "" }); find(`[href$="case=${cases[at].id}"]`, wall)?.focus(); });

  place.append(make("h3", {}, block.caption), make("div", { className: "beside" }, form, make("div", {}, shown, wall)), make("p", { className: "note" }, block.note ?? ""), viewer);
  draw();
  read(address());
};

// Charts: a picture until a reader points at one, then the same specification interactive. Hidden encoders are left out
// of the data and of the scales, whose colours stay.
const without = (part) => {
  if (Array.isArray(part)) return part.filter((each) => !hidden.has(each?.encoder)).map(without);
  if (typeof part !== "object" || part === null) return part;
  const made = Object.fromEntries(Object.entries(part).map(([key, value]) => [key, without(value)]));
  if (part.domain?.length === part.range?.length && part.domain?.some((name) => hidden.has(name))) {
    for (const ends of ["domain", "range"]) made[ends] = part[ends].filter((_, i) => !hidden.has(part.domain[i]));
  }
  return made;
};
let library;
const loaded = () => (library ??= unpack(find("#library").textContent).then((text) => new Function(text)())); // eslint-disable-line no-new-func
const chart = (place, block) => {
  const canvas = make("div", { className: "canvas", role: "img", ariaLabel: block.alt });
  canvas.innerHTML = block.svg; // drawn by us; text in it is escaped
  const live = async () => {
    await loaded();
    const spec = without(JSON.parse(block.spec)), stage = make("div", { className: "stage" });
    if (spec.layer || spec.mark) Object.assign(spec, { width: "container", autosize: { type: "fit-x", contains: "padding" } });
    stage.style.width = `${canvas.clientWidth}px`;
    canvas.append(stage);
    const logLevel = hidden.size ? 1 : 2; // a layer of hidden encoders alone is empty, which is no fault
    await vegaEmbed(stage, spec, { actions: false, renderer: "svg", tooltip: { theme: "capim", sanitize: (value) => make("p", {}, String(value)).innerHTML }, logLevel });
    stage.style.width = "";
    canvas.replaceChildren(stage);
    canvas.dataset.live = "true";
  };
  let drawn;
  const start = () => { if (find("#library")) drawn ??= live().catch((fault) => console.error(`chart ${block.id}: ${fault.message}`)); };
  canvas.addEventListener("pointerenter", start);
  canvas.addEventListener("focusin", start);
  redrawn.add(() => { drawn = undefined; start(); });
  const data = make("details", {}, make("summary", {}, "Data of the chart"));
  data.addEventListener("toggle", () => { if (data.children.length === 1) open(data, block.data); });
  const svg = make("a", { className: "save", download: `${block.id}.svg`, href: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(block.svg.replaceAll("currentColor", "#1c211e"))}` }, "Save as SVG");
  place.append(make("figure", { className: "chart" }, make("figcaption", {}, block.title), canvas,
    block.note ? make("p", { className: "note" }, block.note) : "", svg, data));
};

const kinds = { table, board, chart, gallery };
const first = find(".later");
(async () => {
  if (first) await fill(first);
  await new Promise((done) => setTimeout(done, 30)); // the first screen is painted
  const asked = document.getElementById(address().id); // what the address names, and what is printed, is made at once
  for (const place of all(".later")) asked?.contains(place) || !place.closest(".details") ? await fill(place) : seen.observe(place);
  if (!scrollY || asked) asked?.scrollIntoView({ behavior: "instant" });
  root.dataset.made = "summary";
})();
addEventListener("popstate", () => { const place = document.getElementById(address().id); if (place?.classList.contains("later")) fill(place); });
