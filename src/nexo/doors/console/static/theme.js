// Before anything is drawn, so that a dark page never flashes white.
"use strict";
(() => {
  const chosen = localStorage.getItem("nexo-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
