"use strict";
// One answer: hovering, clicking or moving by keyboard to a claim shows its passage, verdict and evidence together.
// Without this script the links do the same, one after the other.
(() => {
  const page = document.querySelector(".answer-page");
  const items = page ? [...page.querySelectorAll(".claim")] : []; // in the order of the answer
  items.sort((one, other) => one.dataset.claim - other.dataset.claim);
  if (!items.length) return;
  const pane = page.querySelector(".right");
  const card = pane.querySelector(".current");
  const wide = window.matchMedia("(min-width: 62rem)");
  const byNumber = new Map(items.map((item) => [item.dataset.claim, item]));
  let selected = null;
  let cameFrom = null;

  const numbersOf = (node) => (node.dataset.claims || node.dataset.claim || "").split(" ").filter(Boolean);
  const linked = (node) => node.closest("[data-claims], .claim");

  const show = (name, number) => {
    for (const node of page.querySelectorAll(`.${name}`)) node.classList.remove(name);
    if (number === null) return;
    for (const node of page.querySelectorAll("[data-claims], .claim")) {
      if (numbersOf(node).includes(number)) node.classList.add(name);
    }
  };

  const open = (node) => {
    for (let above = node; above; above = above.parentElement) {
      if (above.tagName === "DETAILS") above.open = true;
    }
  };

  const evidenceOf = (number) => {
    const id = byNumber.get(number)?.dataset.evidence;
    return id ? document.getElementById(id) : null;
  };

  // the anchor of a quote is an empty element before its mark
  const seen = (node) => (node.matches("span:empty") ? node.parentElement.querySelector(`#${node.id} ~ mark`) || node : node);

  const reveal = (number) => {
    const evidence = evidenceOf(number);
    if (!evidence || !wide.matches) return;
    open(evidence);
    seen(evidence).scrollIntoView({ block: "nearest" });
  };

  const tell = (number) => {
    const item = byNumber.get(number);
    card.replaceChildren();
    card.hidden = !item;
    if (!item) return;
    for (const part of item.querySelectorAll(".claim-head, .claim-text, .reason, .evidence")) card.append(part.cloneNode(true));
    for (const way of card.querySelectorAll("a.up")) way.remove();
  };

  const select = (number) => {
    selected = number;
    show("is-selected", number);
    tell(number);
    if (number !== null) reveal(number);
  };

  const passageOf = (number) => {
    const marks = [...page.querySelectorAll(".answer-text mark[data-claims]")];
    return marks.find((mark) => numbersOf(mark).includes(number))?.querySelector("a") || byNumber.get(number);
  };

  const go = (number) => {
    const node = passageOf(number);
    open(node);
    node.focus({ preventScroll: true });
    select(number);
    node.scrollIntoView({ block: "nearest" });
  };

  const move = (step, among) => {
    const numbers = among.map((item) => item.dataset.claim);
    if (!numbers.length) return;
    const here = items.findIndex((item) => item.dataset.claim === selected);
    const places = among.map((item) => items.indexOf(item));
    const next = step > 0 ? places.findIndex((place) => place > here) : places.findLastIndex((place) => place < here);
    const wrapped = step > 0 ? 0 : numbers.length - 1;
    go(numbers[here === -1 || next === -1 ? wrapped : next]);
  };

  const toEvidence = (number) => {
    const evidence = evidenceOf(number);
    if (!evidence) return false;
    cameFrom = document.activeElement;
    open(evidence);
    const place = evidence.closest(".chunk") || evidence;
    const focused = place.tagName === "DETAILS" ? place.querySelector("summary") : place;
    focused.focus({ preventScroll: true });
    seen(evidence).scrollIntoView({ block: "center" });
    return true;
  };

  const back = () => {
    if (cameFrom && cameFrom.isConnected && document.activeElement !== cameFrom) {
      cameFrom.focus();
      cameFrom = null;
    } else {
      select(null);
    }
  };

  page.addEventListener("pointerover", (event) => {
    const node = linked(event.target);
    show("is-hovered", node ? numbersOf(node)[0] : null);
  });
  page.addEventListener("pointerleave", () => show("is-hovered", null));
  page.addEventListener("focusin", (event) => {
    const node = event.target.closest(".passage") ? linked(event.target) : event.target.closest(".claim");
    if (node) select(numbersOf(node)[0]);
  });
  page.addEventListener("click", (event) => {
    const passage = event.target.closest("a.passage");
    const mark = linked(event.target);
    if (passage && wide.matches) {
      event.preventDefault();
      select(numbersOf(mark)[0]);
      passage.scrollIntoView({ block: "nearest" });
    } else if (mark && !event.target.closest("a, summary")) {
      select(numbersOf(mark)[0]);
    }
  });

  const steps = { n: [1, false], p: [-1, false], w: [1, true], W: [-1, true] };
  const arrows = { ArrowDown: [1, false], ArrowRight: [1, false], ArrowUp: [-1, false], ArrowLeft: [-1, false] };
  document.addEventListener("keydown", (event) => {
    const typed = event.target.closest("input, textarea, select, [contenteditable]");
    if (typed || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const onClaim = event.target.closest(".passage, .claim");
    const step = steps[event.key] || (onClaim && arrows[event.key]);
    if (step) {
      event.preventDefault();
      move(step[0], step[1] ? items.filter((item) => "wrong" in item.dataset) : items);
    } else if (event.key === "Enter" && selected !== null && onClaim && !event.target.matches(".claim a")) {
      if (toEvidence(selected)) event.preventDefault();
    } else if (event.key === "Escape") {
      back();
    }
  });

  const arrive = () => {
    const found = /^#(?:claim|mark|quote)-(\d+)$/.exec(location.hash);
    if (found && byNumber.has(found[1])) {
      const node = document.getElementById(location.hash.slice(1));
      if (node) open(node);
      select(found[1]);
    } else if (/^#chunk-\d+$/.test(location.hash)) {
      const node = document.getElementById(location.hash.slice(1));
      if (node) open(node);
    }
  };
  // Nothing is asked for: show the first wrong claim with its evidence, where the page is, without a step.
  const begin = () => {
    const worst = page.querySelector(".claim.contradicted[data-wrong]") || page.querySelector(".claim[data-wrong]");
    if (!worst) return;
    const number = worst.dataset.claim;
    show("is-selected", number);
    tell(number);
    const evidence = evidenceOf(number);
    if (!evidence || !wide.matches) return;
    open(evidence);
    const at = seen(evidence).getBoundingClientRect();
    const frame = pane.getBoundingClientRect();
    if (at.bottom > Math.min(frame.bottom, window.innerHeight)) pane.scrollTop += at.top - frame.top - card.offsetHeight - 24;
  };
  window.addEventListener("hashchange", arrive);
  if (location.hash) arrive();
  else begin();
  for (const keys of page.querySelectorAll(".shortcuts")) keys.hidden = false;
})();
