// Before anything is drawn, so that a dark page never flashes white.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function apply() {
    const chosen = localStorage.getItem("nexo-theme");
    const isChosen = chosen === "dark" || chosen === "light";
    document.documentElement.dataset.theme = isChosen ? chosen : dark.matches ? "dark" : "light";
  }
  apply();
  dark.addEventListener("change", () => {
    apply();
    dispatchEvent(new Event("nexo-theme"));
  });
})();
