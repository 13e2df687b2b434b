"use strict";

// Rank comparison on a canvas; a box drawn on it, or typed ranks, list the queries inside.
(() => {
  const MARGIN = { left: 52, right: 12, top: 12, bottom: 44 };

  async function scatter() {
    const canvas = document.querySelector("#scatter");
    if (!canvas || canvas.dataset.drawn) return;
    canvas.dataset.drawn = "yes";
    const points = await (await fetch(canvas.dataset.points)).json();
    const worst = points.reduce((most, [a, b]) => Math.max(most, a, b), 2), { width, height } = canvas;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const share = (rank) => (Math.log(rank) + 0.12) / (Math.log(worst) + 0.24);
    const place = (rank) => Math.round(Math.exp(rank * (Math.log(worst) + 0.24) - 0.12));
    const x = (rank) => MARGIN.left + share(rank) * inner.width, y = (rank) => height - MARGIN.bottom - share(rank) * inner.height;
    const most = Math.max(...points.map(([, , n]) => n), 1);
    const pen = canvas.getContext("2d");
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    pen.scale(scale, scale);
    let box = null;

    function draw() {
      const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name);
      const ink = getComputedStyle(canvas).color;
      pen.clearRect(0, 0, width, height);
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = ink;
      pen.strokeStyle = ink;
      pen.globalAlpha = 0.25;
      pen.beginPath();
      pen.moveTo(x(1), y(1));
      pen.lineTo(x(worst), y(worst));
      pen.stroke();
      pen.globalAlpha = 1;
      for (let tick = 1; tick <= worst; tick *= tick === 1 ? 10 : 10) {
        pen.textAlign = "center";
        pen.fillText(String(tick), x(tick), height - MARGIN.bottom + 18);
        pen.textAlign = "right";
        pen.fillText(String(tick), MARGIN.left - 8, y(tick) + 4);
      }
      pen.textAlign = "center";
      pen.fillText(`rank by ${canvas.dataset.a}`, MARGIN.left + inner.width / 2, height - 6);
      pen.save();
      pen.translate(14, MARGIN.top + inner.height / 2);
      pen.rotate(-Math.PI / 2);
      pen.fillText(`rank by ${canvas.dataset.b}`, 0, 0);
      pen.restore();
      pen.globalAlpha = 0.55;
      pen.fillStyle = getComputedStyle(document.querySelector("a")).color;
      for (const [a, b, n] of points) {
        pen.beginPath();
        pen.arc(x(a), y(b), 2 + 12 * Math.sqrt(n / most), 0, 2 * Math.PI);
        pen.fill();
      }
      pen.globalAlpha = 1;
      if (box) {
        pen.strokeStyle = ink;
        pen.setLineDash([4, 3]);
        pen.strokeRect(Math.min(box[0], box[2]), Math.min(box[1], box[3]), Math.abs(box[2] - box[0]), Math.abs(box[3] - box[1]));
        pen.setLineDash([]);
      }
    }
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    document.querySelector("#theme")?.addEventListener("click", () => setTimeout(draw));

    const at = (event) => {
      const frame = canvas.getBoundingClientRect();
      return [(event.clientX - frame.left) * (width / frame.width), (event.clientY - frame.top) * (height / frame.height)];
    };
    const rank = (part) => Math.min(worst, Math.max(1, place(part)));
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      box = [...at(event), ...at(event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!box || !event.buttons) return;
      box = [box[0], box[1], ...at(event)];
      draw();
    });
    canvas.addEventListener("pointerup", () => {
      const ends = (pixels, start, length, sign) => pixels.map((p) => rank((sign * (p - start)) / length)).sort((p, q) => p - q);
      const a = ends([box[0], box[2]], MARGIN.left, inner.width, 1), b = ends([box[1], box[3]], height - MARGIN.bottom, inner.height, -1);
      for (const [name, value] of [["a-low", a[0]], ["a-high", a[1]], ["b-low", b[0]], ["b-high", b[1]]]) document.getElementById(name).value = value;
      document.querySelector("#brush").requestSubmit();
    });

    document.querySelector("#brush").addEventListener("submit", (event) => {
      event.preventDefault();
      const [aLow, aHigh, bLow, bHigh] = ["a-low", "a-high", "b-low", "b-high"].map((id) => document.getElementById(id).value || (id.endsWith("low") ? 1 : worst));
      const { a, b } = canvas.dataset;
      const address = `${document.querySelector("#brush").dataset.queries}&ranks=${a}:${aLow}-${aHigh},${b}:${bLow}-${bHigh}`;
      htmx.ajax("GET", address, { target: "#brushed", select: "#view", swap: "innerHTML" });
    });
  }

  document.addEventListener("DOMContentLoaded", scatter);
  document.addEventListener("htmx:load", scatter);
})();
