// Keys of the review: j/k between claims, 1-4 label, n note, Enter saves. The form works without this file.
"use strict";
(() => {
  const claims = [...document.querySelectorAll("[data-review]")];
  if (!claims.length) return;
  const form = claims[0].closest("form");
  document.querySelector(".review-page .shortcuts")?.removeAttribute("hidden");
  let at = -1;

  const go = (index) => {
    at = Math.max(0, Math.min(claims.length - 1, index));
    for (const claim of claims) claim.classList.toggle("current", claim === claims[at]);
    claims[at].focus();
    claims[at].scrollIntoView({ block: "nearest" });
  };
  const isTyping = (target) => target instanceof HTMLInputElement && target.type === "text";

  document.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (isTyping(event.target)) {
        if (event.key === "Escape") claims[Math.max(at, 0)].focus();
        return; // Enter in a note submits the form, as the browser does it
      }
      const isControl = event.target instanceof Element && event.target.closest("a, button, summary");
      if (event.key === "j" || event.key === "k") go(at < 0 ? 0 : at + (event.key === "j" ? 1 : -1));
      else if (/^[1-4]$/.test(event.key)) {
        if (at < 0) go(0);
        const choices = claims[at].querySelectorAll("input[type=radio]");
        choices[Number(event.key) - 1].checked = true;
      } else if (event.key === "n") {
        if (at < 0) go(0);
        claims[at].querySelector(".note input").focus();
      } else if (event.key === "Enter" && !isControl) form.requestSubmit();
      else return;
      event.preventDefault();
      event.stopImmediatePropagation();
    },
    true,
  );
  for (const [index, claim] of claims.entries()) claim.addEventListener("focusin", () => { at = index; });
})();
