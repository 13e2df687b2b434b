"use strict";

// A form sends only what was filled in, so that addresses stay short.
addEventListener("htmx:configRequest", (event) => {
  const sent = event.detail.formData;
  for (const key of new Set(sent.keys())) {
    const values = sent.getAll(key).filter((value) => value !== "");
    sent.delete(key);
    for (const value of values) sent.append(key, value);
  }
});

// j and k: the next and the previous query, of a list by focus, of one query by its links.
addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
  const by = { j: 1, k: -1 }[key], typing = "input:not([type=checkbox]), select, textarea";
  if (!by || ctrlKey || metaKey || altKey || target.matches(typing)) return;
  const link = find(by > 0 ? "a[rel=next]" : "a[rel=prev]");
  if (link) return link.click();
  const links = all(".queries tbody th a"), at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
});
