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

  // One filter for all tables: typed, a name that was clicked, or #find=... of a link to this page.
  const box = document.getElementById("filter");
  const rows = [...document.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const exact = (row, word) => [...row.querySelectorAll(".find")].some((a) => a.textContent.toLowerCase() === word);
  const filter = (words, whole = false) => {
    const word = words.trim().toLowerCase();
    let count = 0;
    rows.forEach((row, at) => {
      const fits = !word || (whole ? exact(row, word) : texts[at].includes(word));
      row.hidden = !fits;
      count += fits;
    });
    document.body.classList.toggle("filtered", Boolean(word));
    for (const table of document.querySelectorAll("table")) {
      const none = ![...table.tBodies[0].rows].some((row) => !row.hidden);
      const region = table.closest(".scroll");
      const heading = document.getElementById(region.getAttribute("aria-labelledby"));
      for (const part of [region, heading, region.parentNode.querySelector(`[download="${heading.id}.csv"]`)]) {
        part.classList.toggle("away", none);
      }
    }
    for (const section of document.querySelectorAll("main > section:not(:first-child)")) {
      section.classList.toggle("away", !section.querySelector(".scroll:not(.away)"));
    }
    document.getElementById("found").textContent = word
      ? `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows` : "";
  };
  const follow = () => {
    const [, name] = /^#find=(.*)$/.exec(location.hash) || [];
    if (name === undefined) return;
    box.value = decodeURIComponent(name);
    filter(box.value, true);
    document.getElementById("search").scrollIntoView();
  };
  document.getElementById("search").hidden = !rows.length;
  box.addEventListener("input", () => filter(box.value));
  for (const link of document.querySelectorAll("a.find")) {
    link.href = `#find=${encodeURIComponent(link.textContent)}`;
  }
  addEventListener("hashchange", follow);
  follow();
})();
