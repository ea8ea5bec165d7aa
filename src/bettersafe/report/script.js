// Search, sorting, selection and dark mode. All content is on the page without this script.
(() => {
  "use strict";
  const root = document.documentElement;
  const one = (id) => document.getElementById(id);
  root.classList.add("js");

  const theme = one("theme");
  const asked = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : asked.matches);
  const announce = () => theme.setAttribute("aria-pressed", String(dark()));
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    announce();
  });
  asked.addEventListener("change", announce);
  announce();
  one("print").addEventListener("click", () => window.print());

  // The trade-off: every pair is drawn, one is shown.
  const across = one("pick-x");
  const up = one("pick-y");
  if (across && up) {
    const pictures = [...document.querySelectorAll(".picture")];
    const show = (changed, other) => {
      if (across.value === up.value) {
        other.value = [...other.options].map((option) => option.value).find((value) => value !== changed.value);
      }
      const wanted = [across.value, up.value].sort((a, b) => a - b).join();
      for (const picture of pictures) picture.hidden = `${picture.dataset.x},${picture.dataset.y}` !== wanted;
    };
    across.addEventListener("change", () => show(across, up));
    up.addEventListener("change", () => show(up, across));
    show(across, up);
  }

  // Two choices at once: the tables for one state.
  const state = one("grid-state");
  if (state) {
    const rows = JSON.parse(one("grid-data").textContent);
    const cells = [...document.querySelectorAll(".heat td[data-action]")];
    const whole = cells.map((cell) => [cell.textContent, cell.className]);
    const about = one("grid-about");
    const aboutAll = about.textContent;
    const points = (share, digits) => {
      const text = (100 * Math.abs(share)).toFixed(digits);
      return /[1-9]/.test(text) ? (share < 0 ? "−" : "+") + text : text;
    };
    state.addEventListener("change", () => {
      if (state.value === "") {
        cells.forEach((cell, i) => ([cell.textContent, cell.className] = whole[i]));
        about.textContent = aboutAll;
        return;
      }
      const row = rows[Number(state.value)];
      const difference = row.p.map((share, a) => share - row.b[a]);
      const most = Math.max(...row.b, ...row.p) || 1;
      const widest = Math.max(...difference.map(Math.abs)) || 1;
      const values = { b: [row.b, most], p: [row.p, most], d: [difference, widest] };
      for (const cell of cells) {
        const key = cell.closest("table").dataset.key;
        const share = values[key][0][Number(cell.dataset.action)];
        const level = Math.round((20 * share) / values[key][1]);
        cell.textContent = key === "d" ? points(share, widest < 0.01 ? 2 : 1) : (100 * share).toFixed(1);
        cell.className = `num ${level < 0 ? "n" : "h"}${Math.abs(level)}`;
      }
      about.textContent = `In state ${row.state}, which the data visits ${row.visits.toLocaleString("en")} times.`;
    });
  }

  // States: search and sort.
  const table = one("changes");
  if (table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const search = one("search");
    const found = one("found");
    const labels = (row) => [...row.querySelectorAll("bdi")].map((label) => label.textContent.toLowerCase());
    const text = rows.map((row) => labels(row).join("\n"));
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, i) => {
        row.hidden = !words.every((word) => text[i].includes(word));
        if (!row.hidden) shown += 1;
      });
      found.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
    };
    search.addEventListener("input", filter);
    filter();

    const collator = new Intl.Collator("en", { numeric: true });
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const kind = head.dataset.sort;
      if (!kind) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const falling = kind === "number" ? head.ariaSort !== "descending" : head.ariaSort === "ascending";
        const sign = falling ? -1 : 1;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const key = (row) => (kind === "number" ? Number(row.cells[column].dataset.value) : row.cells[column].textContent);
        const compare = kind === "number" ? (a, b) => key(a) - key(b) : (a, b) => collator.compare(key(a), key(b));
        body.append(...[...rows].sort((a, b) => sign * compare(a, b)));
      });
    });
  }
})();
