"use strict";

// Theme, light or dark: the first click leaves the setting of the system; the browser keeps the choice.
const whole = document.documentElement;
whole.dataset.theme = localStorage.getItem("capim-theme") ?? "";
const theme = document.querySelector("#theme");
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = whole.dataset.theme ? whole.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    whole.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("capim-theme", whole.dataset.theme);
  });
}

// Copy what an address answers: the rows of a view as CSV, or their SQL.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const done = button.parentElement.querySelector("output");
  try {
    const answer = await fetch(button.dataset.copy);
    if (!answer.ok) throw new Error(answer.statusText);
    await navigator.clipboard.writeText(await answer.text());
    done.textContent = "Copied";
  } catch {
    done.textContent = "Not copied";
  }
});

// A form sends only what was filled in, so that addresses stay short.
document.addEventListener("htmx:configRequest", (event) => {
  const sent = event.detail.formData;
  for (const [key, value] of [...sent.entries()]) if (value === "") sent.delete(key);
});

// Another corpus or task has other encoders, languages and slices: the rest of the form starts again, but for the fields
// that the attribute names.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-resets]")) return;
  const kept = [event.target.name, ...event.target.dataset.resets.split(" ")];
  for (const field of event.target.form.elements) {
    if (kept.includes(field.name)) continue;
    if (field.type === "checkbox") field.checked = false;
    else if (field.type !== "hidden") field.value = "";
  }
}, true);

// j and k: the next and the previous query, of a list by focus, of a page of one query by its links.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  const target = document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]");
  if (target) return target.click();
  const links = [...document.querySelectorAll(".queries tbody th a")];
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
});
