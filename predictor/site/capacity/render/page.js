"use strict";
(() => {
  const FOLD = 12;
  const root = document.documentElement;
  const store = {
    get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("theme", value); } catch { /* a file may have none */ } },
  };

  const toggle = document.getElementById("theme");
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const show = (theme) => {
    if (theme) root.dataset.theme = theme;
    toggle.textContent = isDark() ? "Light" : "Dark";
  };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    store.set(theme);
    show(theme);
  });
  show(store.get());

  const compare = (numeric, sign) => (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (numeric ? a - b : a.localeCompare(b));
  };
  const sort = (table, header) => {
    const numeric = header.classList.contains("number");
    const before = header.getAttribute("aria-sort");
    const order = before ? (before === "ascending" ? "descending" : "ascending")
      : (numeric ? "descending" : "ascending");
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const by = compare(numeric, order === "ascending" ? 1 : -1);
    const key = (row) => row.cells[header.cellIndex].dataset.order;
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => by(key(a), key(b))));
  };

  for (const table of document.querySelectorAll("table")) {
    for (const header of table.querySelectorAll("thead th:not(.detail)")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, header));
      header.append(button);
    }
    const rows = table.tBodies[0].rows.length;
    if (rows <= FOLD) continue;
    const fold = document.createElement("button");
    fold.type = "button";
    fold.className = "fold";
    fold.dataset.print = `The first ${FOLD} of ${rows.toLocaleString("en")} rows.`;
    const folded = (yes) => {
      table.classList.toggle("folded", yes);
      fold.setAttribute("aria-expanded", String(!yes));
      fold.textContent = yes ? `Show all ${rows.toLocaleString("en")} rows` : `Show the first ${FOLD}`;
    };
    fold.addEventListener("click", () => folded(!table.classList.contains("folded")));
    folded(true);
    table.closest(".scroll").after(fold);
  }
})();
