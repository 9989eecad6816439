(() => {
  const table = document.getElementById("candidates");
  if (!table) return;
  const body = table.tBodies[0];
  const number = (text) => (text === "" ? Infinity : Number(text));
  const key = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
  for (const button of table.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      const numeric = head.classList.contains("n");
      rows.sort((a, b) => {
        const [x, y] = [key(a, head.cellIndex), key(b, head.cellIndex)];
        if (numeric && (x === "" || y === "")) return number(x) - number(y) || 0;
        const order = numeric ? Number(x) - Number(y) : x.localeCompare(y);
        return down ? -order : order;
      });
      body.append(...rows);
    });
  }
  const status = document.getElementById("status");
  const search = document.getElementById("search-text");
  const shown = document.getElementById("shown");
  const filter = () => {
    let count = 0;
    const wanted = search.value.trim().toLowerCase();
    for (const row of body.rows) {
      const fits = (!status.value || row.dataset.s === status.value) &&
        (!wanted || row.textContent.toLowerCase().includes(wanted));
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} of ${body.rows.length} shown`;
  };
  status.addEventListener("change", filter);
  search.addEventListener("input", filter);
  document.getElementById("filters").hidden = false;
  filter();
})();
