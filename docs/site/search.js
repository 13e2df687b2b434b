/* A query begins with an option's name, such as --judgements: lunr would take its hyphens for "without". */
document.addEventListener(
  "input",
  ({ target }) => {
    if (target.matches("[data-md-component=search-query]")) target.value = target.value.replace(/(^|\s)-+(?=\w)/g, "$1");
  },
  true,
);
