// Keys and a progress bar. Every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const keys = [
    ["?", "this help"],
    ["/", "the search"],
    ["g o, g a, g s, g r", "overview, answers, sessions, review"],
  ];
  const keysOfRows = [
    ["j, k", "next and previous row"],
    ["Enter", "open the row"],
  ];

  const isTyping = (target) =>
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));

  const showHelp = () => {
    const dialog = document.createElement("dialog");
    const title = document.createElement("h2");
    title.textContent = "Keys";
    const list = document.createElement("dl");
    for (const [name, what] of [...keys, ...(rowLinks().length ? keysOfRows : []), ...pageKeys()]) {
      const term = document.createElement("dt");
      const key = document.createElement("kbd");
      key.textContent = name;
      term.append(key);
      const meaning = document.createElement("dd");
      meaning.textContent = what;
      list.append(term, meaning);
    }
    const close = document.createElement("button");
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.append(title, list, close);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };

  // A page says its own keys in a list: <ul hidden data-keys><li data-key="n">next claim</li></ul>
  const pageKeys = () =>
    [...document.querySelectorAll("[data-keys] [data-key]")].map((item) => [item.dataset.key, item.textContent]);

  const rowLinks = () => [...document.querySelectorAll("[data-rows] tbody th a")];

  const moveRow = (step) => {
    const links = rowLinks();
    if (!links.length) return false;
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + step))].focus();
    return true;
  };

  let waitsForPage = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (waitsForPage) {
      waitsForPage = false;
      const link = document.querySelector(`.bar nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
      return;
    }
    if (event.key === "?") showHelp();
    else if (event.key === "g") waitsForPage = true;
    else if (event.key === "/") {
      const search = document.querySelector("input[type=search]");
      if (!search) return;
      event.preventDefault();
      search.focus();
    } else if (event.key === "j") moveRow(1);
    else if (event.key === "k") moveRow(-1);
  });

  // Whatever takes more than a second shows that it is under way.
  let timer;
  const begin = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (document.querySelector(".busy")) return;
      const busy = document.createElement("div");
      busy.className = "busy";
      busy.setAttribute("role", "progressbar");
      busy.setAttribute("aria-label", "loading");
      document.body.append(busy);
    }, 700);
  };
  const end = () => {
    clearTimeout(timer);
    document.querySelector(".busy")?.remove();
  };
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a[href]");
    if (!link || link.target || link.hasAttribute("download") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (link.origin === location.origin && (link.pathname !== location.pathname || link.search !== location.search)) begin();
  });
  document.addEventListener("submit", begin);
  window.addEventListener("pageshow", end);
})();
