"use strict";

// Maps of the items of a corpus: every canvas has the same items, in corpus order, and all share one selection.
(() => {
  const NEAR = 20; // items that a key selects at once
  const LONGEST = 50_000; // characters of an address that the server still takes
  const planes = [];
  const selected = new Set();
  let current = -1; // the item under the pointer or the cursor
  let asked = 0;

  const numbers = (text, kind) => new kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

  function start(canvas) {
    const { x, y, codes } = canvas.dataset;
    const plane = { canvas, x: numbers(x, Uint16Array), y: numbers(y, Uint16Array), codes: numbers(codes, Uint8Array), lasso: null };
    for (const name of ["x", "y", "codes"]) delete canvas.dataset[name];
    planes.push(plane);
    new ResizeObserver(() => draw(plane)).observe(canvas);
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      plane.lasso = [at(plane, event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      const here = at(plane, event);
      if (plane.lasso) {
        plane.lasso.push(here);
        draw(plane);
      } else show(nearest(plane, here, 0.02));
    });
    canvas.addEventListener("pointerup", (event) => {
      const drawn = plane.lasso ?? [];
      plane.lasso = null;
      if (!event.shiftKey) selected.clear();
      if (extent(drawn) < 0.01) {
        const item = nearest(plane, at(plane, event), 0.03);
        if (item >= 0) selected.add(item);
        show(item);
      } else for (let i = 0; i < plane.x.length; i++) if (inside(drawn, plane.x[i] / 65535, plane.y[i] / 65535)) selected.add(i);
      changed();
    });
    canvas.addEventListener("pointercancel", () => { plane.lasso = null; draw(plane); });
    canvas.addEventListener("keydown", (event) => key(plane, event));
    draw(plane);
  }

  // The position of a pointer, 0 to 1 from left to right and from top to bottom.
  function at(plane, event) {
    const box = plane.canvas.getBoundingClientRect();
    const edge = margin(box.width);
    return [(event.clientX - box.left - edge) / (box.width - 2 * edge), (event.clientY - box.top - edge) / (box.height - 2 * edge)];
  }
  const margin = (width) => Math.min(8, width / 20);

  function draw(plane) {
    const { canvas, x, y, codes, lasso } = plane;
    const size = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!size) return;
    canvas.width = canvas.height = Math.round(size * ratio);
    const ink = getComputedStyle(canvas).color, paint = canvas.getContext("2d");
    paint.scale(ratio, ratio);
    const edge = margin(size), side = size - 2 * edge, dot = x.length > 20_000 ? 1.5 : x.length > 2000 ? 3 : 5;
    const colours = new Map();
    for (const swatch of canvas.parentElement.querySelectorAll(".swatch"))
      colours.set(Number(/\bc(\d)\b/.exec(swatch.className)[1]), getComputedStyle(swatch).backgroundColor);
    const put = (i, width) => paint.fillRect(edge + (x[i] / 65535) * side - width / 2, edge + (y[i] / 65535) * side - width / 2, width, width);
    paint.globalAlpha = selected.size ? 0.25 : 0.85;
    for (const [code, colour] of colours) {
      paint.fillStyle = colour;
      for (let i = 0; i < x.length; i++) if (codes[i] === code) put(i, dot);
    }
    paint.globalAlpha = 1;
    for (const i of selected) {
      paint.fillStyle = colours.get(codes[i]);
      put(i, dot + 1);
    }
    paint.strokeStyle = ink;
    paint.lineWidth = 1.5;
    if (current >= 0) {
      paint.beginPath();
      paint.arc(edge + (x[current] / 65535) * side, edge + (y[current] / 65535) * side, 7, 0, 7);
      paint.stroke();
    }
    if (lasso?.length > 1) {
      paint.beginPath();
      for (const [across, down] of lasso) paint.lineTo(edge + across * side, edge + down * side);
      paint.closePath();
      paint.stroke();
    }
  }

  const extent = (line) => line.length ? Math.max(...[0, 1].map((k) => Math.max(...line.map((p) => p[k])) - Math.min(...line.map((p) => p[k])))) : 0;

  function inside(line, x, y) {
    let odd = false;
    for (let i = 0, j = line.length - 1; i < line.length; j = i++) {
      const [xi, yi] = line[i], [xj, yj] = line[j];
      if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) odd = !odd;
    }
    return odd;
  }

  function nearest(plane, [x, y], most) {
    let best = -1, least = most * most;
    for (let i = 0; i < plane.x.length; i++) {
      const across = plane.x[i] / 65535 - x, down = plane.y[i] / 65535 - y, far = across * across + down * down;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  // The nearest item in the direction of an arrow: at most 45 degrees beside it.
  function towards(plane, dx, dy) {
    let best = -1, least = Infinity;
    for (let i = 0; i < plane.x.length; i++) {
      const across = plane.x[i] - plane.x[current], down = plane.y[i] - plane.y[current];
      const along = across * dx + down * dy, beside = Math.abs(across * dy) + Math.abs(down * dx);
      if (along > 0 && beside <= along && along + beside < least) [best, least] = [i, along + beside];
    }
    return best;
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function key(plane, event) {
    const queries = document.querySelector("#selected-queries");
    if (event.key in ARROWS) show(current < 0 ? nearest(plane, [0.5, 0.5], 2) : Math.max(towards(plane, ...ARROWS[event.key]), -1), true);
    else if (event.key === " " && current >= 0) {
      const far = (i) => (plane.x[i] - plane.x[current]) ** 2 + (plane.y[i] - plane.y[current]) ** 2;
      [...plane.x.keys()].sort((a, b) => far(a) - far(b)).slice(0, NEAR + 1).forEach((i) => selected.add(i));
      changed();
    } else if (event.key === "Escape") none();
    else if (event.key === "Enter" && !queries.hidden) queries.click();
    else return;
    event.preventDefault();
  }

  // Show an item in all maps, and what it is below them.
  function show(item, keep = false) {
    if (item === current || (item < 0 && keep)) return;
    current = item;
    planes.forEach(draw);
    clearTimeout(asked);
    if (item < 0) return;
    asked = setTimeout(async () => {
      const answer = await fetch(`${document.querySelector(".maps").dataset.item}&item=${item}`);
      if (answer.ok && item === current) document.querySelector("#item").innerHTML = await answer.text();
    }, 120);
  }

  // 3, 4, 5, 9 as 3-5.9
  function ranges(items) {
    const parts = [];
    for (let i = 0; i < items.length; i++) {
      const first = items[i];
      while (items[i + 1] === items[i] + 1) i++;
      parts.push(first === items[i] ? `${first}` : `${first}-${items[i]}`);
    }
    return parts.join(".");
  }

  function changed() {
    planes.forEach(draw);
    const items = [...selected].sort((a, b) => a - b), text = ranges(items);
    const { queries } = document.querySelector(".maps").dataset, link = document.querySelector("#selected-queries");
    const long = text.length > LONGEST;
    document.querySelector("#selected").textContent = !items.length ? "No item is selected."
      : `${items.length} ${items.length === 1 ? "item is" : "items are"} selected.${long ? " They are too many for a list; draw a smaller line." : ""}`;
    link.hidden = !items.length || long || !queries;
    link.href = queries + text;
    document.querySelector("#selected-none").hidden = !items.length;
  }

  function none() {
    selected.clear();
    changed();
  }

  const fresh = () => document.querySelectorAll("canvas.plane[data-x]").forEach(start);
  document.addEventListener("htmx:load", fresh);
  document.addEventListener("DOMContentLoaded", () => document.querySelector("#selected-none")?.addEventListener("click", none));
  new MutationObserver(() => planes.forEach(draw)).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => planes.forEach(draw));
})();
