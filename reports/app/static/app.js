"use strict";

// Light or dark: the first click leaves the setting of the system; the browser keeps the choice.
const root = document.documentElement;
root.dataset.theme = localStorage.getItem("capim-theme") ?? "";
const theme = document.querySelector("#theme");
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("capim-theme", root.dataset.theme);
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
