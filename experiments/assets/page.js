// Tables: a click, or Enter, on a head sorts by its column.
const valueOf = (cell) => (cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value));
const compare = (a, b) => {
  if (Number.isNaN(a)) return Number.isNaN(b) ? 0 : 1;
  if (Number.isNaN(b)) return -1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
};
const sortBy = (head) => {
  const table = head.closest("table");
  const column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => {
    const [x, y] = [valueOf(a.cells[column]), valueOf(b.cells[column])];
    return Number.isNaN(x) || Number.isNaN(y) ? compare(x, y) : (down ? -1 : 1) * compare(x, y);
  });
  table.tBodies[0].append(...rows);
};
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// What a link says of its row, under the pointer or the keyboard's focus.
const tip = document.getElementById("tip");
const show = (link) => {
  tip.textContent = link.dataset.tip;
  tip.hidden = false;
  const at = link.getBoundingClientRect();
  const left = Math.min(at.left, innerWidth - tip.offsetWidth - 8);
  const above = at.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above < 8 ? at.bottom + 6 : above}px`;
};
const find = (event) => event.target.closest?.("[data-tip]");
for (const name of ["pointerover", "focusin"]) {
  document.addEventListener(name, (event) => {
    const link = find(event);
    if (link) show(link);
    else tip.hidden = true;
  });
}
document.addEventListener("focusout", () => { tip.hidden = true; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

// A link to a row opens it.
const openRow = () => {
  document.querySelector("details.found")?.classList.remove("found");
  const row = location.hash.startsWith("#row-") && document.getElementById(location.hash.slice(1));
  if (!row) return;
  row.closest("section")?.removeAttribute("hidden");
  row.open = true;
  row.classList.add("found");
  row.querySelector("summary").focus({ preventScroll: true });
  row.scrollIntoView({ block: "start" });
};
addEventListener("hashchange", openRow);
openRow();
