// Loaded before the page is drawn, so that a chosen theme is there from the first frame. `auto` follows the system.
(() => {
  const root = document.documentElement;
  let theme = "auto";
  try {
    theme = localStorage.getItem("millstream.theme") ?? "auto";
  } catch {
    // Storage may be off; the system's theme it is.
  }
  root.dataset.theme = ["light", "dark"].includes(theme) ? theme : "auto";
})();
